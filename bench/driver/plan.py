"""The tables: which cells each has, and which subject runs which of them.

Sizes, batches and thread counts come from here and the command line; the code under test knows nothing of them.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from .model import START_MS, Bench, Cell, Job, Kind, Table, Variant

ROUNDS, QUICK_ROUNDS = 9, 3     # the contract's minimum; --quick: a third of the rounds, of a third of the length
RUNS = {"netio": 50, "bulk-latency": 100}       # as published; --quick: a tenth
SIZES = (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
BULK_BATCHES = (1, 2, 3, 4, 8, 16, 30, 32, 34, 48, 64, 128, 158, 250)
MATCHES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 65)
# Windows of 16 stay in every engine's ready objects; of 10000 is what the published module took.
APART_BATCHES = (16, 10000)
APART_SIZES = (8, 64, 256, 1024, 4096)
APART_BYTES = 4096 << 10        # what an engine may keep
LATENCIES = (("latency-bulk-fresh", "bulk", "fresh"), ("latency-loop-fresh", "kmem_cache", "fresh"),
             ("latency-bulk", "bulk", "warm"), ("latency-loop", "kmem_cache", "warm"))
NETIO_PACKETS = 200000          # of each sender: about a second
FIO_BLOCKS = 1 << 20            # of 4 KiB; the 100 GiB of fio's example would take a minute a run
CODE = "build/bench/code"
CODE_OF = (("kmem_cache_alloc_bulk", "bulk"), ("kmem_cache_free_bulk", "bulk"), ("kfree_bulk", "kfree_bulk"))
FORMS_MS = 200                  # eight forms of address


def rounds_of(name: str, bench: Bench) -> int:
    runs = RUNS.get(name)
    if not runs:
        return bench.environment.rounds
    return bench.options.runs or (runs // 10 if bench.options.quick else runs)


class Planner:
    """Fills one table. A job without cells is none."""

    def __init__(self, bench: Bench, name: str) -> None:
        self.bench, self.options = bench, bench.options
        self.table = Table(name, rounds_of(name, bench), "runs" if name in RUNS else "rounds", bench.options.seconds)

    def choose(self, option: str, own: Iterable[int]) -> list[int]:
        """An option's list, or the table's own."""
        return getattr(self.options, option) or list(own)

    def wants(self, work: str) -> bool:
        return not self.options.works or work in self.options.works

    def takes(self, variant: Variant, *linkages: str) -> bool:
        """Whether its linkage is one of the table's, or was asked for."""
        return bool(self.options.linkages) or variant.linkage in linkages

    def add(self, variant: Variant, cells: Iterable[Cell]) -> None:
        job = Job(variant, list(cells))
        if job.cells:
            self.table.jobs.append(job)

    def single(self, variant: Variant, work: str, **fields: Any) -> list[Job]:
        """One process for one cell: what a work leaves behind must not be the next one's. None, if it is not wanted."""
        if self.wants(work):
            self.table.jobs.append(Job(variant, [Cell(work, work, **fields)]))
            return self.table.jobs[-1:]
        return []

    def batches(self, work: str, row_work: str, row_api: str | None, batches: Iterable[int]) -> list[Cell]:
        """One work over all batches; the row's interface may differ from the worker's."""
        return [Cell(work, row_work, size, batch, 1, row_api=row_api)
                for size in self.choose("sizes", (256,)) for batch in batches if self.wants(row_work)]

    def expect(self) -> None:
        """Of --quick the windows are shorter; what a work waits for is not."""
        for job in self.table.jobs:
            ms = sum(cell.ms for cell in job.cells)
            job.ms = START_MS + (ms // 2 if self.options.quick else ms)

    # ---------------------------------------------------------------------------------------------------- the tables

    def fastpath(self, variant: Variant) -> None:
        if variant.api != "bulk" and self.wants("pair"):
            self.add(variant, [Cell("pair", "pair", size, 1, 1) for size in self.choose("sizes", SIZES)])

    def bulk(self, variant: Variant) -> None:
        """Static is what the published module had: a plain call. DPDK is inline as well."""
        if variant.worker == CODE:
            self.code(variant)
            return
        if not self.takes(variant, "static") and variant.subject != "dpdk":
            return
        nothing, inline = variant.kind is Kind.NOTHING, variant.linkage == "inline"
        cells = []
        if self.wants("pair") and (nothing or variant.api == "kmem_cache"):
            cells.append(Cell("pair", "pair", 256, 1, 1))
        if nothing and self.wants("for-loop"):
            cells.append(Cell("for-loop", "for-loop", 0, 1, 1))
        for work, row_work, api in self.bulk_works(variant, nothing, inline):
            cells += self.batches(work, row_work, api, self.choose("batches", BULK_BATCHES))
        self.add(variant, cells)

    @staticmethod
    def bulk_works(variant: Variant, nothing: bool, inline: bool) -> list[tuple[str, str, str | None]]:
        loop: tuple[str, str, str | None] = ("loop", "loop", None)
        if nothing:
            return [loop] + ([] if inline else [("bulk", "bulk", "bulk")])
        if variant.api == "kmem_cache":
            # A cache of slob has no header that kfree could go by: kmalloc's have.
            kfree = "kmalloc-kfree-bulk" if variant.subject == "slob" else "kfree-bulk"
            return [loop] + ([] if inline else [("bulk", "bulk", "bulk"), (kfree, "bulk", "kfree_bulk")])
        if variant.api == "kmalloc":
            return [loop, ("bulk", "bulk", "kmalloc_bulk")]
        if variant.api == "malloc":
            return [loop]
        return ([loop] if variant.subject == "dpdk" else []) + [("bulk", "bulk", None)]

    def code(self, variant: Variant) -> None:
        """Once: it is the same in each round, and under every discipline."""
        self.add(variant, [Cell(function, "bulk", row_api=api, touch=None) for function, api in CODE_OF])
        self.table.jobs[-1].every = self.table.rounds

    def worst(self, variant: Variant) -> None:
        if not self.takes(variant, "static") or variant.api in ("kmalloc", "bulk") or variant.linkage == "inline":
            return
        nothing = variant.kind is Kind.NOTHING
        works = ([] if nothing else [("worst-loop", "loop", None)]) + (
            [("worst-bulk", "bulk", "bulk")] if nothing or variant.api != "malloc" else [])
        self.add(variant, [Cell(work, row_work, 256, 64, 1, match, row_api=api, touch="first")
                           for work, row_work, api in works if self.wants(row_work) for match in MATCHES])

    def slab_fastpath(self, variant: Variant) -> None:
        """alloc and free apart; 10000 objects only where they stay within what an engine may keep."""
        if (not variant.only and variant.kind is not Kind.NOTHING) or not self.takes(variant, "static") or \
           variant.linkage == "inline":
            return
        sizes = self.choose("sizes", APART_SIZES)
        cells = [Cell("pair", "pair", size, 1, 1) for size in sizes if self.wants("pair")]
        cells += [Cell(work, work, size, batch, 1) for work in ("alloc", "free") if self.wants(work)
                  for batch in self.choose("batches", APART_BATCHES) for size in sizes if batch * size <= APART_BYTES]
        self.add(variant, cells)

    def bulk_latency(self, variant: Variant) -> None:
        """One call in a process of its own: one figure for each run."""
        if variant.kind is not Kind.OURS or variant.api != "kmem_cache" or not self.wants("latency") or \
           not self.takes(variant, "static") or variant.linkage == "inline":
            return
        for size in self.choose("sizes", (256,)):
            for batch in self.choose("batches", (16, 32, 64)):
                for work, api, state in LATENCIES:
                    self.add(variant, [Cell(work, "latency", size, batch, 1, row_api=api, state=state)])

    def netio(self, variant: Variant) -> None:
        less = 10 if self.options.quick else 1
        if not variant.only:
            return
        if variant.api == "malloc":
            self.single(variant, "netio", touch="whole", size=4096, threads=2, objects=FIO_BLOCKS // less)
        if variant.api == "kmem_cache":
            for threads in self.choose("threads", (8,)):
                self.single(variant, "netio", touch="whole", threads=threads, objects=NETIO_PACKETS // less)

    def forwarding(self, variant: Variant) -> None:
        """No allocator, the processor alone: what a store costs that the next load reads, by the form of the address.
        The worker names each figure's form."""
        if variant.kind is Kind.PROCESSOR:
            self.single(variant, "forwarding", touch=None, ms=FORMS_MS)


def plan(bench: Bench, name: str) -> Table:
    from .plan_memcg import Memcg
    from .plan_peers import Peers
    if name == "peers":
        peers = Peers(bench, name)
        peers.fill()
        peers.expect()
        return peers.table
    planner = Memcg(bench, name) if name == "memcg" else Planner(bench, name)
    fill: Callable[[Variant], None] = getattr(planner, name.replace("-", "_"))
    for variant in bench.variants:
        if variant.only in (None, name):
            fill(variant)
    planner.expect()
    return planner.table
