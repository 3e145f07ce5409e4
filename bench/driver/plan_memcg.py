"""The table of accounting. Every engine but slob runs accounted and not; what is about the charging alone (threads, the
published loop of 4, groups) runs on the default engine, unless engines are named.
"""
from __future__ import annotations

from .model import Cell, Job, Kind, Variant
from .plan import BULK_BATCHES, Planner

LOOP = 4                # as published: 4 kmalloc, then 4 kfree
OBJECTS = 4             # of a group that comes and goes
THREADS = (2, 96)
CPUS = (96,)            # simulated
TRANSFERS = (100,)      # ns
GROUPS = (1, 10, 100, 1000)


class Memcg(Planner):
    def memcg(self, variant: Variant) -> None:
        if not self.takes(variant, "static"):
            return
        if variant.kind is Kind.NOTHING and variant.linkage != "inline":
            self.nothing(variant)
        elif variant.kind is Kind.MODEL:
            self.model(variant)
        elif variant.kind is Kind.OURS and variant.accounting:
            self.ours(variant)

    def ours(self, variant: Variant) -> None:
        self.costs(variant, "one")
        if variant.accounting == "shelf":
            self.costs(variant, "several")
        if variant.subject != "sheaf" and not self.options.engines and not self.options.subjects:
            return
        if variant.api == "kmalloc":
            self.pages(variant)
            return
        self.groups(variant, "one")
        if variant.accounting != "off":
            self.groups(variant, "several")
        self.add(variant, [Cell("churn", "churn", size, OBJECTS, 1) for size in self.sizes() if self.wants("churn")])

    def sizes(self) -> list[int]:
        return self.choose("sizes", (256,))

    def paid(self, variant: Variant, cells: list[Cell], payers: str) -> list[Cell]:
        """Who pays for the objects of a cell's cache; "several": another group has one of them."""
        for cell in cells:
            cell.payers = None if variant.accounting == "off" else payers
        return cells

    def costs(self, variant: Variant, payers: str) -> None:
        """bulk.csv and fastpath.csv with somebody who pays, and with nobody; by the stock alone only the batch of
        64."""
        batches = self.choose("batches", BULK_BATCHES if variant.accounting in ("off", "shelf") else (64,))
        cells = [Cell("pair", "pair", size, 1, 1) for size in self.sizes() if self.wants("pair")]
        if variant.api == "kmem_cache":
            for work, row_work, api in (("loop", "loop", None), ("bulk", "bulk", "bulk"),
                                        ("kfree-bulk", "bulk", "kfree_bulk")):
                cells += self.batches(work, row_work, api, batches)
        self.add(variant, self.paid(variant, cells, payers))

    def groups(self, variant: Variant, payers: str) -> None:
        """An object in each group's name in turn. One group alone: also where it is not the cache's only payer."""
        cells = [Cell("groups", "groups", size, 1, 1, groups=count) for size in self.sizes() if self.wants("groups")
                 for count in (GROUPS[:1] if payers == "several" else GROUPS)]
        for cell in self.paid(variant, cells, payers):
            if cell.payers and cell.groups > 1:
                cell.payers = "several"
        self.add(variant, cells)

    def pages(self, variant: Variant) -> None:
        """The published loop of one thread, and each number of threads in a process of its own."""
        self.add(variant, self.paid(variant, [
            Cell("loop", "loop", size, batch, 1) for size in self.choose("sizes", (32, 4096)) if self.wants("loop")
            for batch in self.choose("batches", (LOOP,))], "one"))
        for threads in self.choose("threads", THREADS):
            if self.wants("threads-4k"):
                cell = Cell("threads-4k", "threads-4k", 4096, 1, threads, touch="first")
                self.add(variant, self.paid(variant, [cell], "one"))

    def model(self, variant: Variant) -> None:
        for cpus in self.choose("threads", CPUS):
            for transfer in self.choose("transfers", TRANSFERS):
                if self.wants("simulation"):
                    self.table.jobs.append(Job(variant, [Cell("simulation", "simulation", 4096, 1, cpus,
                                                              transfer_ns=transfer)]))

    def nothing(self, variant: Variant) -> None:
        """The same calls to empty functions."""
        batches = self.choose("batches", (64,))
        self.add(variant, ([Cell("pair", "pair", 256, 1, 1)] if self.wants("pair") else []) +
                 self.batches("loop", "loop", None, batches) + self.batches("bulk", "bulk", "bulk", batches))
