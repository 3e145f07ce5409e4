"""What accounting costs, as ratios within the run, under the tables of `kmem bench memcg`."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .grid import Grid, GridLine, wrap
from .model import Bench, Table, Variant
from .plan_memcg import CPUS, THREADS, TRANSFERS

PUBLISHED = ("Published rows with memcg on measured the per-group copies of each cache of their day, in which an "
             "object's cache says who pays; the stock of bytes and the 4 KiB rows came later (Linux 5.9, 5.14).")
Ratio = tuple[str, float | None, float | None]


class Ratios:
    """Of one engine under one linkage and discipline."""

    def __init__(self, bench: Bench, table: Table, variant: Variant) -> None:
        self.options = bench.options
        self.rows = [row for row in table.rows if row.variant and way_of(row.variant) == way_of(variant)]

    def median(self, **fields: Any) -> float | None:
        """Of the first row with these fields."""
        for row in self.rows:
            if all(getattr(row, name) == value for name, value in fields.items()):
                return row.median
        return None

    def costs(self) -> Iterator[Ratio]:
        for what, fields in (
                ("a pair of 256 bytes", {"work": "pair", "api": "kmem_cache", "size": 256}),
                ("a pair of 256 bytes, kmalloc", {"work": "pair", "api": "kmalloc", "size": 256}),
                ("bulk of 64 of 256 bytes", {"work": "bulk", "api": "bulk", "size": 256, "batch": 64})):
            off = self.median(unit="cycles/object", accounting="off", **fields)
            for payers, said in (("one", "one payer"), ("several", "several payers")):
                yield (f"{what}, accounted / not, {said}",
                       self.median(unit="cycles/object", accounting="shelf", payers=payers, **fields), off)

    def rates(self, who: str, **fields: Any) -> Iterator[Ratio]:
        for version, published in (("v1", "1.1"), ("v2", "49.3")):
            keep, drain = (self.median(unit="ops/s", accounting=f"{version}-{rule}", **fields)
                           for rule in ("keep", "drain"))
            yield f"4 KiB, {who}, ops/s keep / drain, {version} (published: {published})", keep, drain

    def threads(self) -> Iterator[Ratio]:
        for count in self.options.threads or THREADS:
            off, shelf = (self.median(unit="ops/s", work="threads-4k", threads=count, accounting=accounting)
                          for accounting in ("off", "shelf"))
            yield f"4 KiB, {count} threads, time accounted (shelf) / not", off, shelf
            yield from self.rates(f"{count} threads", work="threads-4k", threads=count)

    def model(self) -> Iterator[Ratio]:
        for cpus in self.options.threads or CPUS:
            for transfer in self.options.transfers or TRANSFERS:
                yield from self.rates(f"{cpus} CPUs simulated, {transfer} ns", work="simulation", threads=cpus,
                                      transfer_ns=transfer)

    def groups(self) -> Iterator[Ratio]:
        fields = {"work": "groups", "accounting": "shelf", "unit": "cycles/object"}
        for payers, which in (("one", "all"), ("several", "one")):
            yield (f"1000 groups in turn / 1, which is {which} of the cache's payers",
                   self.median(groups=1000, **fields), self.median(groups=1, payers=payers, **fields))

    def all(self) -> Iterator[Ratio]:
        for part in (self.costs, self.threads, self.model, self.groups):
            yield from part()


def way_of(variant: Variant) -> tuple[str, str, str]:
    return variant.subject, variant.percpu or "", variant.linkage


def memcg_text(bench: Bench, table: Table, width: int) -> str:
    ways = {way_of(variant): variant for variant in bench.variants if variant.only == "memcg"}
    lines = [GridLine(("", *way, what), (f"{over / under:.2f}",)) for way, variant in ways.items()
             for what, over, under in Ratios(bench, table, variant).all() if over and under]
    ratios = "memcg: ratios within this run\n" + Grid(("",), lines, width).text() + "\n" if lines else ""
    return ratios + wrap(PUBLISHED, width)
