"""The tables: works, subjects, sizes, batches and thread counts. The numbers are here and on the command line; the code
under test does not know the numbers.

A table has phases, one after the other. In each phase every subject runs its processes, and a process runs a list of
works. A whole table of peers ends within ten minutes: other engines than the default run only if named, many threads
and works without a visible cost of calls run `shared`, and works that wait for seconds run in every third round. The
report lists the omissions; --work, --linkage and --rounds select everything."""
from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from .model import COST_MS, Bench, Cell, Job, Kind, Table, Variant

ROUNDS, QUICK_ROUNDS = 9, 3     # minimum of the contract; --quick: a third of the rounds and of the length
RUNS = {"netio": 50, "bulk-latency": 100}       # as published; --quick: a tenth
PEERS_SECONDS, PEERS_WORKER_SECONDS = 600, 120  # limits of a whole table of peers, and of a worker
START_MS = 25           # start of a process
RUN_MS, CROWD_MS, CROWD = 100, 250, 8   # throughput of peers; the second with more threads than CROWD
WAITS_EVERY = 3         # works that wait run in one of so many rounds

SIZES = (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
BULK_BATCHES = (1, 2, 3, 4, 8, 16, 30, 32, 34, 48, 64, 128, 158, 250)
MATCHES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 65)
# Windows of 16 use cached objects of every engine; windows of 10000 are the published size.
APART_BATCHES, APART_SIZES = (16, 10000), (8, 64, 256, 1024, 4096)
APART_BYTES = 4096 << 10        # maximum that an engine may keep
FIO_BLOCKS = 1 << 20            # blocks of 4 KiB; fio's 100 GiB would take a minute a run
NETIO_PACKETS = 200000          # of each sender: about a second
BLOCK_SIZES = (10000, 16000, 40000, 64000, 100000, 200000, 500000, 1000000)
TOGETHER = (1, 2)               # threads at once
IDLE = 1000                     # threads; --quick: a tenth
LOOP, OBJECTS = 4, 4            # published: 4 kmalloc, then 4 kfree; objects of a group in `churn`
CHARGING_THREADS, CPUS, TRANSFERS = (2, 96), (96,), (100,)      # the last two are simulated; ns
GROUPS = (1, 10, 100, 1000)

# Interfaces, as returned by interface_of; SINGLE: interfaces for single objects.
HEAP = "kmalloc malloc"
ALL_OURS = "cache cache-inline " + HEAP
SINGLE = "nothing nothing-inline " + ALL_OURS
PROGRAMS, PROGRAM_MS = ("redis", "sqlite3", "g++"), 1500
WATCHING = ("glibc", "mimalloc3", "mimalloc3_secure", "snmalloc", "snmalloc_checks", "scudo", "hardened_malloc",
            "hardened_malloc_light")            # peers with checks, beside hardening
CHARGED = ("off", "shelf", "stock")

Numbers = int | tuple[int, ...]     # an option may replace a tuple, not a single number


@dataclass(frozen=True)
class Work:
    """A work over some numbers, for the named interfaces."""
    verb: str                       # the worker's name of the work
    on: str
    name: str = ""                  # name in rows, if different
    api: str = ""                   # interface in rows, if different
    sizes: Numbers = (256,)
    batches: Numbers = 1
    threads: Numbers = 1
    transfers: Numbers = 0
    matches: tuple[int, ...] = (0,)
    groups: tuple[int, ...] = (0,)
    touch: str | None = "none"
    state: str | None = None
    payers: str | None = None
    objects: int = 0                # --quick: a tenth
    most: int = 0                   # maximum of bytes in a batch
    ms: int = COST_MS               # approximate time; 0: a throughput of peers
    linkages: str = "static"        # default linkages; "": all
    alone: bool = False             # one process for each cell, because memory of an earlier cell must not count
    once: bool = False              # in one round only
    waits: bool = False             # takes seconds of waiting
    default: bool = False           # only the default engine, unless engines are named
    named: bool = False             # only with --work


# A work of peers in a separate process, with written objects.
fresh = functools.partial(Work, batches=0, alone=True, touch="first", ms=0, linkages="")


def latencies() -> Iterator[Work]:
    for state, verb in (("fresh", "-fresh"), ("warm", "")):
        for way, api in (("bulk", "bulk"), ("loop", "kmem_cache")):
            yield Work(f"latency-{way}{verb}", "cache", "latency", api, batches=(16, 32, 64), state=state, alone=True)


def charged(api: str, ways: Iterable[str] = CHARGED) -> str:
    return " ".join(f"{way}-{api}" for way in ways)


def costs(payers: str, *ways: str) -> list[Work]:
    """bulk.csv and fastpath.csv, charged and uncharged; by the stock alone only the batch of 64."""
    works = [Work("pair", charged("cache", ways) + " " + charged("kmalloc", ways), payers=payers)]
    for way in ways:
        for verb, name, api in (("loop", "loop", ""), ("bulk", "bulk", "bulk"), ("kfree-bulk", "bulk", "kfree_bulk")):
            works.append(Work(verb, f"{way}-cache", name, api, payers=payers,
                              batches=(64,) if way == "stock" else BULK_BATCHES))
    return works


TABLES: dict[str, list[list[list[Work]]]] = {
    "fastpath": [[[Work("pair", SINGLE, sizes=SIZES, linkages="")]]],
    # Static is the published linkage: a plain call. DPDK also has inline.
    "bulk": [[[Work("pair", "nothing nothing-inline cache cache-inline", sizes=256),
               Work("for-loop", "nothing", sizes=0),
               Work("loop", SINGLE + " dpdk", batches=BULK_BATCHES),
               Work("bulk", "nothing cache", api="bulk", batches=BULK_BATCHES),
               Work("bulk", "kmalloc", api="kmalloc_bulk", batches=BULK_BATCHES),
               Work("kfree-bulk", "cache", "bulk", "kfree_bulk", batches=BULK_BATCHES),
               Work("bulk", "dpdk batch", batches=BULK_BATCHES)],
              [Work(function, "code", "bulk", api, 0, 0, 0, touch=None, linkages="shared", once=True)
               for function, api in (("kmem_cache_alloc_bulk", "bulk"), ("kmem_cache_free_bulk", "bulk"),
                                     ("kfree_bulk", "kfree_bulk"))]]],
    "worst": [[[Work("worst-loop", "cache malloc", "loop", "", 256, 64, matches=MATCHES, touch="first"),
                Work("worst-bulk", "nothing cache", "bulk", "bulk", 256, 64, matches=MATCHES, touch="first")]]],
    # alloc and free apart; 10000 objects only within the cached objects of an engine.
    "slab-fastpath": [[[Work("pair", "nothing cache", sizes=APART_SIZES),
                        *(Work(verb, "nothing cache", sizes=APART_SIZES, batches=APART_BATCHES, most=APART_BYTES)
                          for verb in ("alloc", "free"))]]],
    "bulk-latency": [[list(latencies())]],      # one figure for each run
    "netio": [[[fresh("netio", "malloc", sizes=4096, threads=2, touch="whole", objects=FIO_BLOCKS, ms=COST_MS)],
               [fresh("netio", "cache", sizes=0, threads=(8,), touch="whole", objects=NETIO_PACKETS, ms=COST_MS)]]],
    # Every engine except slob runs charged and uncharged; works about charging alone run on the default engine.
    "memcg": [[costs("one", *CHARGED), costs("several", "shelf"),
               [Work("loop", charged("kmalloc"), sizes=(32, 4096), batches=(LOOP,), payers="one", default=True)],
               [Work("threads-4k", charged("kmalloc"), sizes=4096, threads=CHARGING_THREADS, touch="first",
                     payers="one", alone=True, default=True)],
               # An object in each group in turn. One group alone runs also with another group in the cache.
               [Work("groups", charged("cache"), groups=GROUPS, payers="one", default=True)],
               [Work("groups", charged("cache", CHARGED[1:]), groups=GROUPS[:1], payers="several", default=True)],
               [Work("churn", charged("cache"), batches=OBJECTS, default=True)],
               [Work("simulation", "model", sizes=4096, threads=CPUS, transfers=TRANSFERS, alone=True)],
               [Work("pair", "nothing", sizes=256), Work("loop", "nothing", batches=(64,)),
                Work("bulk", "nothing", api="bulk", batches=(64,))]]],
    "peers": [[[Work("pair", SINGLE, sizes=(8, 256, 4096), linkages=""),
                Work("loop", SINGLE, sizes=256, batches=(16, 64, 250), linkages=""),
                Work("zero", "cache " + HEAP, sizes=256, threads=TOGETHER, linkages=""),
                Work("aligned", "malloc", sizes=256, threads=TOGETHER, linkages=""),
                Work("turn", "cache " + HEAP, sizes=0, batches=(16, 48, 200), touch="first")]],
              [[Work("blocks", HEAP, sizes=BLOCK_SIZES, threads=TOGETHER, linkages="shared"),
                Work("blocks-written", HEAP, "blocks", sizes=BLOCK_SIZES, threads=TOGETHER, touch="pages",
                     linkages="shared")]],
              [[Work("realloc", HEAP, sizes=(4000, 4000000), threads=TOGETHER, touch="pages", ms=60,
                     linkages="shared")]],
              [[fresh("producer-consumer", ALL_OURS, sizes=256, threads=2)]],
              [[fresh("larson", HEAP, sizes=0, threads=(2, 64))]],
              [[fresh("threads-4k", ALL_OURS, sizes=4096, threads=(2, 96))]],
              [[fresh("idle-threads", HEAP, sizes=0, threads=IDLE, ms=2000, linkages="shared", waits=True)]],
              [[fresh("live-set", "cache malloc", sizes=128, objects=1000000, touch="whole", ms=2000, linkages="shared",
                      waits=True)]],
              [[fresh("adrift", "cache malloc", sizes=592, threads=16, objects=655360, touch="whole", ms=33000,
                      linkages="shared", named=True)]],
              [[fresh("held", HEAP, sizes=0, threads=threads, touch="whole", ms=200, linkages="shared", waits=True)
                for threads in (1, 2)]]],
    # The cost of debugging: a hit at each level, and whole programs, beside peers with checks.
    "debug": [[[Work("pair", "nothing cache " + HEAP, sizes=(8, 256, 4096), linkages=""),
                Work("loop", "nothing cache " + HEAP, sizes=256, batches=(16, 64, 250), linkages="")]],
              [[Work(program, "program", "program", sizes=0, batches=0, touch=None, alone=True, ms=PROGRAM_MS,
                     linkages="") for program in PROGRAMS]]],
    # No allocator, only the processor: the cost of a store that the next load reads, by the form of the address.
    "forwarding": [[[Work("forwarding", "processor", "", "", 0, 0, 0, touch=None, ms=200, linkages="")]]],
}
OWN = ("slab-fastpath", "netio", "memcg", "forwarding")     # tables with their own variants


def interface_of(variant: Variant) -> str:
    """The operations of a variant's worker."""
    if variant.kind in (Kind.NOTHING, Kind.MODEL, Kind.PROCESSOR):
        name = variant.kind.name.lower()
    elif variant.api == "bulk":
        return "dpdk" if variant.subject == "dpdk" else "code" if variant.worker.endswith("/code") else "batch"
    else:
        name = variant.api.removeprefix("kmem_")
        if variant.accounting:
            return f"{'stock' if '-' in variant.accounting else variant.accounting}-{name}"
    return name + "-inline" * (variant.linkage == "inline")


class Planner:
    """Fills one table."""

    def __init__(self, bench: Bench, name: str) -> None:
        self.bench, self.options, self.name = bench, bench.options, name
        # With --rounds or --work the table is complete, with any length.
        self.chosen = bool(self.options.rounds or self.options.works)
        peers, quick = name == "peers", self.options.quick
        runs = RUNS.get(name, 0)
        rounds = self.options.runs or (runs // 10 if quick else runs) if runs else bench.environment.rounds
        self.table = Table(name, rounds, "runs" if runs else "rounds", self.options.seconds)
        if peers:
            self.table.worker_s = PEERS_WORKER_SECONDS
            self.table.limit_s = self.table.limit_s or (0 if self.chosen else PEERS_SECONDS)

    def is_spared(self, variant: Variant) -> bool:
        """True for an engine that runs only by name."""
        return (variant.kind is Kind.OURS and variant.subject != "sheaf" and not self.options.engines and
                not self.options.subjects)

    def takes_part(self, variant: Variant) -> bool:
        if variant.only != self.name and (variant.only or (self.name in OWN and variant.kind is not Kind.NOTHING)):
            return False
        if self.name in ("peers", "debug") and self.is_spared(variant):
            self.bench.leave(variant.subject, f"{self.name} has the default engine; --engine adds others")
            return False
        if self.name == "debug" and variant.kind is Kind.PEER and variant.subject not in WATCHING:
            return False
        return True

    def has_linkage(self, variant: Variant, linkages: str) -> bool:
        """True if the variant has one of these linkages, or if --linkage was given."""
        return bool(not linkages or self.options.linkages or variant.linkage in linkages or variant.subject == "dpdk")

    def takes(self, work: Work, variant: Variant) -> bool:
        if interface_of(variant) not in work.on.split() or not self.bench.wants(work.name or work.verb) or \
           not self.has_linkage(variant, work.linkages) or (work.default and self.is_spared(variant)):
            return False
        if work.named and not self.options.works:
            self.bench.leave(work.verb, f"half a minute of each subject and round: --work {work.verb}")
            return False
        if (variant.subject, work.verb) == ("slob", "idle-threads"):
            self.bench.leave("slob idle-threads",
                             "first fit through what 1000 threads hold takes longer than all the rest")
            return False
        return True

    def numbers(self, option: str, own: Numbers) -> list[int]:
        return [own] if isinstance(own, int) else getattr(self.options, option) or list(own)

    def threads(self, work: Work) -> list[int]:
        """Costs beside other threads need a CPU for each thread."""
        wanted = self.numbers("threads", work.threads)
        if work.alone:
            return [IDLE // 10 if work.threads == IDLE and self.options.quick else threads for threads in wanted]
        fit = [threads for threads in wanted if threads <= os.sysconf("SC_NPROCESSORS_ONLN")]
        if len(fit) < len(wanted):
            self.bench.leave("costs of threads at once", "there are fewer CPUs than threads")
        return fit

    def cells(self, work: Work, variant: Variant) -> Iterator[Cell]:
        # A cache of slob has no header for kfree; blocks of kmalloc have a header.
        verb = "kmalloc-kfree-bulk" if (variant.subject, work.verb) == ("slob", "kfree-bulk") else work.verb
        for threads, size, batch, match, groups, transfer in itertools.product(
                self.threads(work), self.numbers("sizes", work.sizes), self.numbers("batches", work.batches),
                work.matches, work.groups, self.numbers("transfers", work.transfers)):
            # With more threads than CPUs the linkage has no visible effect.
            unseen = not work.ms and threads > CROWD and not self.chosen and not self.has_linkage(variant, "shared")
            if unseen or (work.most and batch * size > work.most):
                continue
            run_ms = 0 if work.ms else CROWD_MS if threads > CROWD else RUN_MS
            payers = None if variant.accounting == "off" else "several" if groups > 1 else work.payers
            yield Cell(verb=verb, work=work.name or work.verb, api=work.api, size=size, batch=batch, threads=threads,
                       match=match, groups=groups, transfer_ns=transfer, touch=work.touch, state=work.state,
                       payers=payers, program=work.verb if work.name == "program" else None,
                       objects=work.objects // 10 if self.options.quick else work.objects,
                       ms=work.ms or run_ms, run_ms=run_ms)

    def jobs(self, process: list[Work], variant: Variant) -> Iterator[Job]:
        """Single threads come first, because some allocators are slower after the first thread."""
        cells = [cell for work in process if self.takes(work, variant) for cell in self.cells(work, variant)]
        cells.sort(key=lambda cell: cell.threads)
        one = process[0]
        every = self.table.rounds if one.once else WAITS_EVERY if one.waits and not self.chosen else 1
        if one.alone:
            cells.sort(key=lambda cell: (cell.size, cell.batch))
        for each in [[cell] for cell in cells] if one.alone else [cells] * bool(cells):
            ms = sum(cell.ms for cell in each)      # with --quick the windows are shorter
            yield Job(variant, each, every, START_MS + (ms // 2 if self.options.quick else ms))


def plan(bench: Bench, name: str) -> Table:
    planner = Planner(bench, name)
    variants = [variant for variant in bench.variants if planner.takes_part(variant)]
    for phase in TABLES[name]:
        for variant in variants:
            for process in phase:
                planner.table.jobs.extend(planner.jobs(process, variant))
    return planner.table
