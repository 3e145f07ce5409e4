"""The table of peers: which works it has, who runs them, and what they take.

A whole run ends within ten minutes: the engines that are not the default stand beside it only where they are named, a
crowd of threads and works whose cost no call's linkage shows run `shared`, and works that wait for seconds run in every
third round. What is left out is said; who names works, linkages or rounds gets them all.
"""
from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass

from .model import Bench, Cell, Kind, Variant
from .plan import Planner

SECONDS = 600           # a whole table
WORKER_SECONDS = 120    # a worker that takes longer hangs
RUN_MS = 100            # a cell of throughput ...
CROWD_MS = 250          # ... with more than CROWD threads, so that each runs several times
CROWD = 8
WAITS_EVERY = 3         # rounds, of works that wait
PAIR_SIZES = (8, 256, 4096)
LOOP_BATCHES = (16, 64, 250)
BLOCK_SIZES = (10000, 16000, 40000, 64000, 100000, 200000, 500000, 1000000)
REALLOC_SIZES = (4000, 4000000)
REALLOC_MS = 60
TOGETHER = (1, 2)       # threads at once
HEAP = ("kmalloc", "malloc")
ALL_OURS = ("kmem_cache", "inline") + HEAP


@dataclass(frozen=True)
class Alone:
    """A work that has a process of its own, and a job for each number of threads."""
    work: str
    touch: str
    interfaces: tuple[str, ...]
    threads: tuple[int, ...]
    size: int = 0
    objects: int = 0        # --quick: a tenth
    ms: int = 0             # that it takes, about; 0: of throughput, as long as is said
    shared: bool = False    # what the linkage costs does not show
    waits: bool = False     # for seconds: it runs in every third round
    named: bool = False     # only where --work names it


ALONE = (
    Alone("producer-consumer", "first", ALL_OURS, (2,), size=256),
    Alone("larson", "first", HEAP, (2, 64)),
    Alone("threads-4k", "first", ALL_OURS, (2, 96), size=4096),
    Alone("idle-threads", "first", HEAP, (1000,), ms=2000, shared=True, waits=True),
    Alone("live-set", "whole", ("kmem_cache", "malloc"), (1,), 128, 1000000, ms=2000, shared=True, waits=True),
    Alone("adrift", "whole", ("kmem_cache", "malloc"), (16,), 592, 655360, ms=33000, shared=True, named=True),
    Alone("held", "whole", HEAP, (1, 2), ms=200, shared=True, waits=True),
)


def interface_of(variant: Variant) -> str | None:
    """None: it is not one of this table's."""
    if variant.kind is Kind.NOTHING:
        return "nothing"
    if variant.api == "kmem_cache" and variant.linkage == "inline":
        return "inline"
    return variant.api if variant.api in ALL_OURS else None


class Peers(Planner):
    def __init__(self, bench: Bench, name: str) -> None:
        super().__init__(bench, name)
        self.table.worker_s = WORKER_SECONDS
        # Whether anybody's wish says how much is done: then nothing is spared.
        self.chosen = bool(self.options.rounds or self.options.works)
        if not self.chosen and not self.table.limit_s:
            self.table.limit_s = SECONDS

    def fill(self) -> None:
        for plan in (self.costs, self.blocks, self.reallocs):
            self.each(plan)
        for work in ALONE:
            self.each(functools.partial(self.alone, work))

    def each(self, plan: Callable[[Variant], None]) -> None:
        for variant in self.bench.variants:
            if self.takes_part(variant) and interface_of(variant):
                plan(variant)

    def takes_part(self, variant: Variant) -> bool:
        """Ours as users get it, unless somebody names more: the other tables compare the engines."""
        if variant.only:
            return False
        if variant.kind is not Kind.OURS or self.options.engines or self.options.subjects or variant.subject == "sheaf":
            return True
        self.bench.leave(variant.subject, "peers has the default engine; --engine adds others")
        return False

    def together(self) -> list[int]:
        """Threads at once. Single ones come first: some allocators go slower from the first thread on."""
        wanted = self.choose("threads", TOGETHER)
        fit = [threads for threads in wanted if threads <= os.sysconf("SC_NPROCESSORS_ONLN")]
        if len(fit) < len(wanted):
            self.bench.leave("costs of threads at once", "there are fewer CPUs than threads")
        return fit

    def costs(self, variant: Variant) -> None:
        works = {"malloc": ("zero", "aligned"), "kmalloc": ("zero",), "kmem_cache": ("zero",)}
        cells = [Cell("pair", "pair", size, 1, 1) for size in self.choose("sizes", PAIR_SIZES) if self.wants("pair")]
        cells += [Cell("loop", "loop", 256, batch, 1) for batch in self.choose("batches", LOOP_BATCHES)
                  if self.wants("loop")]
        cells += [Cell(work, work, 256, 1, threads) for threads in self.together()
                  for work in works.get(interface_of(variant) or "", ()) if self.wants(work)]
        self.add(variant, cells)

    def blocks(self, variant: Variant) -> None:
        """Blocks of pages, and what grows to be one: a process for each, single threads first."""
        if self.takes(variant, "shared") and interface_of(variant) in HEAP and self.wants("blocks"):
            self.add(variant, [Cell(work, "blocks", size, 1, threads, touch=touch) for threads in self.together()
                               for size in self.choose("sizes", BLOCK_SIZES)
                               for work, touch in (("blocks", "none"), ("blocks-written", "pages"))])

    def reallocs(self, variant: Variant) -> None:
        if self.takes(variant, "shared") and interface_of(variant) in HEAP and self.wants("realloc"):
            self.add(variant, [Cell("realloc", "realloc", size, 1, threads, touch="pages", ms=REALLOC_MS)
                               for threads in self.together() for size in self.choose("sizes", REALLOC_SIZES)])

    def is_senseless(self, variant: Variant, work: str) -> bool:
        if (variant.subject, work) != ("slob", "idle-threads"):
            return False
        self.bench.leave("slob idle-threads", "first fit through what 1000 threads hold takes longer than all the rest")
        return True

    def alone(self, work: Alone, variant: Variant) -> None:
        if work.named and not self.options.works:
            self.bench.leave(work.work, f"half a minute of each subject and round: --work {work.work}")
            return
        if interface_of(variant) not in work.interfaces or (work.shared and not self.takes(variant, "shared")) or \
           not self.wants(work.work) or self.is_senseless(variant, work.work):
            return
        counted = work.work in ("larson", "threads-4k")
        for threads in self.choose("threads", work.threads) if counted else work.threads:
            # Who waits for a CPU most of the time does not see how a call is made.
            if counted and threads > CROWD and not self.takes(variant, "shared") and not self.chosen:
                continue
            self.one(variant, work, threads // 10 if work.work == "idle-threads" and self.options.quick else threads)

    def one(self, variant: Variant, work: Alone, threads: int) -> None:
        run_ms = 0 if work.ms else CROWD_MS if threads > CROWD else RUN_MS
        objects = work.objects // 10 if self.options.quick else work.objects
        for job in self.single(variant, work.work, touch=work.touch, size=work.size, threads=threads, objects=objects,
                               run_ms=run_ms, ms=work.ms or run_ms):
            job.every = WAITS_EVERY if work.waits and not self.chosen else 1
