"""The verdict: for each work our figure, the best peer's figure of the same linkage, and the ratio. A work with several
sizes or batches is the geometric mean over the common cells; a subject without one of the cells is no peer. The
verdict has wins and losses."""
from __future__ import annotations

import statistics
from collections.abc import Hashable
from dataclasses import dataclass

from .grid import GridLine, grid, wrap
from .model import Kind, Row, Table
from .views import Rivals

LEAST_BYTES = 4096.0    # smaller memory counts as one page, because a ratio needs a divisor


@dataclass(frozen=True)
class Unit:
    unit: str
    measure: str | None
    at: str | None
    works: tuple[str, ...] | None       # None: all
    text: str
    scale: float = 1
    more: bool = False                  # is better
    time: str | None = None

    def has(self, row: Row) -> bool:
        return ((self.unit, self.measure, self.at, self.time) == (row.unit, row.measure, row.at, row.time) and
                (self.works is None or row.work in self.works))


UNITS = (
    Unit("cycles/object", None, None, None, "cycles"),
    Unit("ops/s", None, None, ("producer-consumer", "larson", "threads-4k", "adrift"), "M/s", 1e6, True),
    Unit("ns/object", None, None, ("live-set",), "ns"),
    Unit("bytes", "rss", "end", ("idle-threads", "live-set", "adrift", "larson"), "MiB", 1048576),
    Unit("s", None, None, ("programs",), "s", time="cpu"),
    Unit("bytes", "rss", "peak", ("programs",), "MiB", 1048576),
    Unit("rss/live", None, None, ("held",), "ratio"),
)
# In the order of use: the first variant of a run represents a work.
WAYS = (("malloc", "shared"), ("malloc", "static"), ("kmalloc", "shared"), ("kmalloc", "static"),
        ("kmem_cache", "shared"), ("kmem_cache", "static"), ("kmem_cache", "inline"),
        ("bulk", "shared"), ("bulk", "static"), ("kfree_bulk", "static"), ("kmalloc_bulk", "static"),
        ("program", "shared"))
# Works with a line for each of these interfaces.
SHOWN = {"pair": ("malloc", "kmem_cache"), "live-set-cycle": ("malloc", "kmalloc", "kmem_cache")}


def unit_of(row: Row) -> Unit | None:
    return next((unit for unit in UNITS if unit.has(row)), None)


def line_of(row: Row) -> Hashable:
    """Merges cells of one work that differ in size, batch and objects only; many threads are a separate line."""
    return (unit_of(row), row.work, row.touch, row.threads, row.match, row.size if row.work == "realloc" else None,
            row.sizes, row.order, row.program)


def mean(rows: list[Row]) -> float:
    return statistics.geometric_mean(max(row.median, LEAST_BYTES if row.unit == "bytes" else 1e-9) for row in rows)


def label_of(row: Row) -> str:
    size = f" {row.size}" if row.work == "realloc" else ""
    written = " written" if row.work == "blocks" and row.touch == "pages" else ""
    together = f" x{row.threads}" if row.threads > 1 else ""
    if row.program:
        return f"{row.program}, a whole program"
    which = "".join(f" {name}" for name in (row.sizes, row.order) if name)
    return f"{row.work}{size}{written}{which}{together}, {row.api} {row.linkage}"


def opening(table: Table, rows: list[Row]) -> list[Row]:
    """The first row of each variant that represents a line: all variants in a table of one work, else the first
    variant; for some works the variants of several interfaces."""
    ways = [way for way in WAYS if any((row.api, row.linkage) == way for row in rows)]
    if table.bench != "fastpath":
        shown = SHOWN.get(rows[0].work, ())
        ways = [way for way in ways if way[0] in shown] if shown else ways[:1]
    firsts: dict[Hashable, Row] = {}
    for row in rows:
        if (row.api, row.linkage) in ways:
            firsts.setdefault((row.api, row.linkage, row.variant), row)
    return list(firsts.values())


def figure(value: float) -> str:
    return f"{value:.{3 if value < 2 else 1 if value < 1000 else 0}f}"


def grid_line(first: Row, rows: list[Row], rivals: Rivals) -> GridLine | None:
    """None without a peer."""
    unit = unit_of(first)
    assert unit
    rows = [row for row in rows if (row.variant, row.api) == (first.variant, first.api)]
    means = {peer: mean([rivals.of(row)[peer] for row in rows]) for peer in rivals.of(first)
             if all(peer in rivals.of(row) for row in rows)}
    if not means:
        return None
    ours, best = mean(rows), (max if unit.more else min)(means, key=lambda peer: means[peer])
    figures = (figure(value / unit.scale) for value in (ours, means[best]))
    return GridLine((label_of(first),), (unit.text, *figures, best[:11], f"{ours / means[best]:.2f}",
                                         "*" if unit.more else None))


def verdict_text(table: Table, noisy: bool, width: int) -> str | None:
    """None without a peer to compare. The first engine represents ours; pairs come first."""
    engine = next((row.subject for row in table.rows if row.kind is Kind.OURS), None)
    lines: dict[Hashable, list[Row]] = {}
    for row in table.rows:
        if row.kind is Kind.OURS and row.subject == engine and not row.level and unit_of(row):
            lines.setdefault(line_of(row), []).append(row)
    firsts = sorted((row for rows in lines.values() for row in opening(table, rows)),
                    key=lambda row: (row.work != "pair", table.rows.index(row)))
    rivals = Rivals(table)
    found = [line for row in firsts if (line := grid_line(row, lines[line_of(row)], rivals))]
    if not found:
        return None
    title = wrap(f"{table.bench}: ours ({engine}), the best peer of the same linkage, and ours / best (less is better; "
                 "*: more is)" + ". THE MACHINE WAS NOISY: trust the order only" * noisy, width)
    return title + "\n" + grid(("", "ours", "best peer", "who", "ratio", ""), found, width)
