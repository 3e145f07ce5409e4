"""What came out, in a few lines: for each work our figure, the best peer's, and the ratio of the two, always of the
same linkage. A work with several sizes or batches is the geometric mean over those that both have; who lacks one of
them is no peer there. Wins and losses stand in it alike.
"""
from __future__ import annotations

import statistics
from collections.abc import Hashable
from dataclasses import dataclass

from .grid import Grid, GridLine, wrap
from .model import Kind, Row, Table

LEAST_BYTES = 4096.0    # memory below a page, or none, is a page: a ratio needs something


@dataclass(frozen=True)
class Unit:
    unit: str
    measure: str | None
    at: str | None
    works: tuple[str, ...] | None       # None: all
    text: str
    scale: float = 1
    more: bool = False                  # is better


UNITS = (
    Unit("cycles/object", None, None, None, "cycles"),
    Unit("ops/s", None, None, ("producer-consumer", "larson", "threads-4k", "adrift"), "M/s", 1e6, True),
    Unit("ns/object", None, None, ("live-set",), "ns"),
    Unit("bytes", "rss", "end", ("idle-threads", "live-set", "adrift", "larson"), "MiB", 1048576),
    Unit("rss/live", None, None, ("held",), "ratio"),
)
# As users meet them: the first one that a run has speaks for a work.
WAYS = (("malloc", "shared"), ("malloc", "static"), ("kmalloc", "shared"), ("kmalloc", "static"),
        ("kmem_cache", "shared"), ("kmem_cache", "static"), ("kmem_cache", "inline"),
        ("bulk", "shared"), ("bulk", "static"), ("kfree_bulk", "static"), ("kmalloc_bulk", "static"))


def unit_of(row: Row) -> Unit | None:
    for unit in UNITS:
        if (unit.unit, unit.measure, unit.at) == (row.unit, row.measure, row.at) and \
           (unit.works is None or row.work in unit.works):
            return unit
    return None


def line_of(row: Row) -> Hashable:
    """Cells of one work that are one line differ in size and batch at most; crowds are lines of their own."""
    return (unit_of(row), row.work, row.touch, row.threads, row.match, row.size if row.work == "realloc" else None)


def cell_of(row: Row) -> Hashable:
    return line_of(row), row.size, row.batch, row.objects


def figure_of(row: Row) -> float:
    return max(row.median, LEAST_BYTES if row.unit == "bytes" else 1e-9)


def label_of(row: Row) -> str:
    size = f" {row.size}" if row.work == "realloc" else ""
    written = " written" if row.work == "blocks" and row.touch == "pages" else ""
    together = f" x{row.threads}" if row.threads > 1 else ""
    return f"{row.work}{size}{written}{together}, {row.api} {row.linkage}"


def figure(value: float, unit: Unit) -> str:
    value /= unit.scale
    return f"{value:.{3 if value < 2 else 1 if value < 1000 else 0}f}"


class Verdict:
    def __init__(self, table: Table) -> None:
        self.table = table
        # The engine that speaks for ours: the first one.
        self.engine = next((row.subject for row in table.rows if row.kind is Kind.OURS), None)
        self.ours: dict[Hashable, list[Row]] = {}
        self.theirs: dict[Hashable, dict[str, Row]] = {}
        for row in table.rows:
            if row.kind is Kind.OURS and row.subject == self.engine and unit_of(row):
                self.ours.setdefault(line_of(row), []).append(row)
            elif row.kind is Kind.PEER:
                self.theirs.setdefault((cell_of(row), row.linkage, row.api), {}).setdefault(row.subject, row)

    def rivals(self, row: Row) -> dict[str, Row]:
        """The peers' rows of this cell. A header's fast path has no peer of its own kind: the best linked-in one stands
        in."""
        api = "bulk" if row.work == "bulk" else "malloc"
        return self.theirs.get((cell_of(row), row.linkage.replace("inline", "static"), api), {})

    def opening(self) -> list[Row]:
        """The first row of each line that the verdict has: all ways in a table of one work, else each work's first way;
        of pairs all but kmalloc's. Pairs come first."""
        found: list[Row] = []
        for rows in self.ours.values():
            ways = {(row.api, row.linkage) for row in rows}.intersection(WAYS)
            if self.table.bench != "fastpath":
                first = min(ways, key=WAYS.index, default=None)
                ways = {way for way in ways if (way[0] != "kmalloc" if rows[0].work == "pair" else way == first)}
            firsts: dict[Hashable, Row] = {}
            for row in rows:
                if (row.api, row.linkage) in ways:
                    firsts.setdefault((row.api, row.linkage, row.variant), row)
            found += firsts.values()
        order = {id(row): index for index, row in enumerate(self.table.rows)}
        return sorted(found, key=lambda row: (row.work != "pair", order[id(row)]))

    def line(self, first: Row) -> GridLine | None:
        """None: it has no peer."""
        unit = unit_of(first)
        assert unit
        rows = [row for row in self.ours[line_of(first)] if (row.variant, row.api) == (first.variant, first.api)]
        means = {peer: statistics.geometric_mean(figure_of(self.rivals(row)[peer]) for row in rows)
                 for peer in self.rivals(first) if all(peer in self.rivals(row) for row in rows)}
        if not means:
            return None
        ours = statistics.geometric_mean(map(figure_of, rows))
        best = (max if unit.more else min)(means, key=lambda peer: means[peer])
        return GridLine((label_of(first),), (unit.text, figure(ours, unit), figure(means[best], unit), best[:11],
                                             f"{ours / means[best]:.2f}", "*" if unit.more else None))


def verdict_text(table: Table, noisy: bool, width: int) -> str | None:
    """None: there is nobody to compare with."""
    verdict = Verdict(table)
    lines = [line for line in map(verdict.line, verdict.opening()) if line]
    if not lines:
        return None
    title = wrap(f"{table.bench}: ours ({verdict.engine}), the best peer of the same linkage, and ours / best (less is "
                 "better; *: more is)" + ". THE MACHINE WAS NOISY: trust the order only" * noisy, width)
    return title + "\n" + Grid(("", "ours", "best peer", "who", "ratio", ""), lines, width).text()
