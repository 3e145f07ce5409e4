"""The plan of each table: the jobs of every subject, from the works in tables.py and the command line.

A whole table of peers ends within ten minutes: other engines than the default run only if named, many threads and works
without a visible cost of calls run `shared`, and works that wait for seconds run in every third round. The report lists
the omissions; --work, --linkage and --rounds select everything. Works that take minutes of each round run only by
--work."""
from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterator

from .model import Bench, Cell, Job, Kind, Table, Variant
from .tables import IDLE, PACKAGES, TABLES, WATCHING, Numbers, Work

ROUNDS, QUICK_ROUNDS = 9, 3     # minimum of the contract; --quick: a third of the rounds and of the length
RUNS = {"netio": 50, "bulk-latency": 100}       # as published; --quick: a tenth
PEERS_SECONDS, PEERS_WORKER_SECONDS = 600, 120  # limits of a whole table of peers, and of a worker
START_MS = 25           # start of a process
RUN_MS, CROWD_MS, CROWD = 100, 250, 8   # throughput of peers; the second with more threads than CROWD
WAITS_EVERY = 3         # works that wait run in one of so many rounds
WORD = 8                # bytes
QUICK_OBJECTS = 100000          # --quick: maximum of the two
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
            name = work.name or work.verb
            self.bench.leave(name, f"{work.named}: --work {name}")
            return False
        if variant.api == "program" and not self.is_installed(work.verb):
            return False
        if (variant.subject, work.verb) == ("slob", "idle-threads"):
            self.bench.leave("slob idle-threads",
                             "first fit through what 1000 threads hold takes longer than all the rest")
            return False
        return True

    def is_installed(self, program: str) -> bool:
        commands, packages = PACKAGES[program]
        if all(map(shutil.which, commands.split())):
            return True
        self.bench.leave(program, f"not here; 'scripts/need {packages}' installs it")
        return False

    def numbers(self, option: str, own: Numbers) -> list[int]:
        return [own] if isinstance(own, int) else getattr(self.options, option) or list(own)

    def threads(self, work: Work) -> list[int]:
        """Costs beside other threads need a CPU for each thread."""
        wanted = self.numbers("threads", work.threads)
        if work.alone and not work.mix:
            return [IDLE // 10 if work.threads == IDLE and self.options.quick else threads for threads in wanted]
        fit = [threads for threads in wanted if threads <= os.sysconf("SC_NPROCESSORS_ONLN")]
        if len(fit) < len(wanted):
            self.bench.leave("costs of threads at once", "there are fewer CPUs than threads")
        return fit

    def objects(self, work: Work) -> list[int]:
        if isinstance(work.objects, int):
            return [work.objects // 10 if self.options.quick else work.objects]
        found = self.numbers("objects", work.objects)
        return [count for count in found if not self.options.quick or self.options.objects or count <= QUICK_OBJECTS]

    def fits(self, cell: Cell) -> bool:
        """True if the objects of a live set take at most half of the machine's memory, and have the written word."""
        if not cell.order and not cell.sizes:
            return True
        mean, memory = (cell.least + cell.most) // 2, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        if cell.order and cell.size < WORD:
            self.bench.leave(f"{cell.work} of {cell.size} bytes", f"the written word has {WORD}")
        elif cell.objects * cell.threads * mean > memory // 2:
            self.bench.leave(f"{cell.work} of {cell.objects} objects", "more than half of the memory")
        else:
            return True
        return False

    def cells(self, work: Work, variant: Variant) -> Iterator[Cell]:
        # A cache of slob has no header for kfree; blocks of kmalloc have a header.
        verb = "kmalloc-kfree-bulk" if (variant.subject, work.verb) == ("slob", "kfree-bulk") else work.verb
        for threads, size, batch, match, groups, transfer, objects in itertools.product(
                self.threads(work), self.numbers("sizes", work.sizes), self.numbers("batches", work.batches),
                work.matches, work.groups, self.numbers("transfers", work.transfers), self.objects(work)):
            # With more threads than CPUs the linkage has no visible effect.
            unseen = not work.ms and threads > CROWD and not self.chosen and not self.has_linkage(variant, "shared")
            if unseen or (work.most and batch * size > work.most):
                continue
            run_ms = 0 if work.ms else CROWD_MS if threads > CROWD else RUN_MS
            payers = None if variant.accounting == "off" else "several" if groups > 1 else work.payers
            cell = Cell(verb=verb, work=work.name or work.verb, api=work.api, size=size, batch=batch, threads=threads,
                       match=match, groups=groups, transfer_ns=transfer, touch=work.touch, state=work.state,
                       payers=payers, program=work.verb if variant.api == "program" else None,
                       objects=objects, sizes=work.mix, order=work.order, ms=work.ms or run_ms, run_ms=run_ms)
            if self.fits(cell):
                yield cell

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
        jobs = [list(planner.jobs(process, variant)) for variant in variants for process in phase]
        if phase[0][0].named:   # the subjects take turns at each cell
            jobs = [[job for job in turn if job] for turn in itertools.zip_longest(*jobs)]
        planner.table.jobs.extend(itertools.chain(*jobs))
    return planner.table
