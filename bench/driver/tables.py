"""The works of each table: subjects, sizes, batches and thread counts. The numbers are here and on the command line;
the code under test does not know the numbers.

A table has phases, one after the other. In each phase every subject runs its processes, and a process runs a list of
works."""
from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from .model import COST_MS

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
CYCLES = (60, 250, 1000, 10000, 100000, 1000000)    # objects of a cycle
ORDERS = {"forward": "", "reverse": "-reverse", "random": "-random"}    # of the frees, and how the verb ends
CHURNS = (100, 1000, 10000, 100000, 1000000)        # objects in a steady state
CHURN_SIZES = ("16-128", "16-1024", "1024-8192")

# Interfaces, as returned by interface_of; SINGLE: interfaces for single objects.
HEAP = "kmalloc malloc"
ALL_OURS = "cache cache-inline " + HEAP
SINGLE = "nothing nothing-inline " + ALL_OURS
PROGRAMS, PROGRAM_MS = ("redis", "sqlite3", "g++"), 1500
# The programs of `programs`: for each the commands and the Debian packages.
PACKAGES = {"lua": ("lua5.4", "lua5.4"), "perl": ("perl", "perl"), "ruby": ("ruby", "ruby"),
            "node": ("node", "nodejs"), "sqlite3": ("sqlite3", "sqlite3"), "g++": ("g++", "g++"),
            "python": ("python3", "python3"), "gawk": ("gawk", "gawk"),
            "redis": ("redis-server redis-cli redis-benchmark", "redis-server redis-tools")}
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
    objects: Numbers = 0            # --quick: a tenth; of several numbers the small ones
    mix: str | None = None          # least and largest size
    order: str | None = None        # of the frees
    most: int = 0                   # maximum of bytes in a batch
    ms: int = COST_MS               # approximate time; 0: a throughput of peers
    linkages: str = "static"        # default linkages; "": all
    alone: bool = False             # one process for each cell, because memory of an earlier cell must not count
    once: bool = False              # in one round only
    waits: bool = False             # takes seconds of waiting
    default: bool = False           # only the default engine, unless engines are named
    named: str = ""                 # reason to run only with --work


# A work of peers in a separate process, with written objects.
fresh = functools.partial(Work, batches=0, alone=True, touch="first", ms=0, linkages="")


def latencies() -> Iterator[Work]:
    for state, verb in (("fresh", "-fresh"), ("warm", "")):
        for way, api in (("bulk", "bulk"), ("loop", "kmem_cache")):
            yield Work(f"latency-{way}{verb}", "cache", "latency", api, batches=(16, 32, 64), state=state, alone=True)


def by_name(work: str) -> list[list[list[Work]]]:
    """The phases of a work that takes minutes of each round. In a phase the subjects take turns at each cell."""
    once = functools.partial(fresh, name=work, named="minutes of each round")
    if work == "live-set-cycle":
        return [[[once(work + verb, on, sizes=(128,), objects=CYCLES, order=order, ms=100, linkages=linkages)
                  for on, linkages in (("nothing " + HEAP, "shared static"), ("cache", "static"))]]
                for order, verb in ORDERS.items()]
    if work == "churn":
        return [[[once(work, "nothing " + HEAP, sizes=0, mix=mix, objects=CHURNS, threads=TOGETHER, ms=300,
                       linkages="shared")]] for mix in CHURN_SIZES]
    return [[[once(program, "program", sizes=0, touch=None, ms=PROGRAM_MS)]] for program in PACKAGES]


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
                      linkages="shared", named="half a minute of each subject and round")]],
              [[fresh("held", HEAP, sizes=0, threads=threads, touch="whole", ms=200, linkages="shared", waits=True)
                for threads in (1, 2)]],
              *by_name("live-set-cycle"), *by_name("churn"), *by_name("programs")],
    # The cost of debugging: a hit at each level, and whole programs, beside peers with checks.
    "debug": [[[Work("pair", "nothing cache " + HEAP, sizes=(8, 256, 4096), linkages=""),
                Work("loop", "nothing cache " + HEAP, sizes=256, batches=(16, 64, 250), linkages="")]],
              [[Work(program, "program", "program", sizes=0, batches=0, touch=None, alone=True, ms=PROGRAM_MS,
                     linkages="") for program in PROGRAMS]]],
    # No allocator, only the processor: the cost of a store that the next load reads, by the form of the address.
    "forwarding": [[[Work("forwarding", "processor", "", "", 0, 0, 0, touch=None, ms=200, linkages="")]]],
}
