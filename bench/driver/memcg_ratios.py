"""The tables of ratios below `kmem bench memcg`: the cost of accounting."""
from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

from .grid import GridLine, grid, wrap
from .model import Bench, Row, Table, Variant
from .tables import CHARGING_THREADS, CPUS, TRANSFERS

PUBLISHED = ("Published rows with memcg on measured the per-group copies of each cache of their day, in which an "
             "object's cache says who pays; the stock of bytes and the 4 KiB rows came later (Linux 5.9, 5.14).")
Ratio = tuple[str, float | None, float | None]
Median = Callable[..., float | None]


def way_of(variant: Variant) -> tuple[str, str, str]:
    """Engine, discipline and linkage of a variant."""
    return variant.subject, variant.percpu or "", variant.linkage


def median_of(rows: list[Row], **fields: object) -> float | None:
    """The median of the first row with these fields."""
    return next((row.median for row in rows
                 if all(getattr(row, name) == value for name, value in fields.items())), None)


def costs(median: Median) -> Iterator[Ratio]:
    for what, work, api, batch in (
            ("a pair of 256 bytes", "pair", "kmem_cache", 1),
            ("a pair of 256 bytes, kmalloc", "pair", "kmalloc", 1),
            ("bulk of 64 of 256 bytes", "bulk", "bulk", 64)):
        cost = functools.partial(median, unit="cycles/object", size=256, work=work, api=api, batch=batch)
        for payers, said in (("one", "one group"), ("several", "several groups")):
            yield (f"{what}, accounted / not, {said}", cost(accounting="shelf", payers=payers), cost(accounting="off"))


def rates(who: str, rate: Median) -> Iterator[Ratio]:
    for version, published in (("v1", "1.1"), ("v2", "49.3")):
        yield (f"4 KiB, {who}, ops/s keep / drain, {version} (published: {published})",
               rate(accounting=f"{version}-keep"), rate(accounting=f"{version}-drain"))


def ratios(bench: Bench, median: Median) -> Iterator[Ratio]:
    yield from costs(median)
    options, rate = bench.options, functools.partial(median, unit="ops/s")
    for count in options.threads or CHARGING_THREADS:
        crowd = functools.partial(rate, work="threads-4k", threads=count)
        yield (f"4 KiB, {count} threads, time accounted (shelf) / not", crowd(accounting="off"),
               crowd(accounting="shelf"))
        yield from rates(f"{count} threads", crowd)
    for cpus in options.threads or CPUS:
        for ns in options.transfers or TRANSFERS:
            yield from rates(f"{cpus} CPUs simulated, {ns} ns",
                             functools.partial(rate, work="simulation", threads=cpus, transfer_ns=ns))
    groups = functools.partial(median, work="groups", accounting="shelf", unit="cycles/object")
    for payers, which in (("one", "all"), ("several", "one")):
        yield (f"1000 groups in turn / 1, which is {which} of the groups charged for the cache", groups(groups=1000),
               groups(groups=1, payers=payers))


def memcg_text(bench: Bench, table: Table, width: int) -> str:
    lines = []
    for way in dict.fromkeys(way_of(variant) for variant in bench.variants if variant.only == "memcg"):
        rows = [row for row in table.rows if row.variant and way_of(row.variant) == way]
        lines += [GridLine(("", *way, what), (f"{over / under:.2f}",))
                  for what, over, under in ratios(bench, functools.partial(median_of, rows)) if over and under]
    said = "memcg: ratios within this run\n" + grid(("",), lines, width) + "\n" if lines else ""
    return said + wrap(PUBLISHED, width)
