"""What was measured as text: first the verdict in a few lines, then the environment, each view, and our ratios to the
best peer beneath it.
"""
from __future__ import annotations

from collections.abc import Iterator

from .grid import Grid, GridLine, wrap
from .memcg_ratios import memcg_text
from .model import LINKAGES, Bench, Kind, Row
from .verdict import verdict_text
from .views import Line, View, views

RANGES_WIDTH = 60       # narrower ones have no room for minimum and maximum
ANOTHER = "A published row is another machine's: beside ours, not against."


def environment_lines(bench: Bench) -> Iterator[str]:
    e = bench.environment
    yield f"{e.cpu}, {e.cores} cores; {e.kernel}; {e.libc}"
    yield f"commit {e.commit}; {e.compiler} {e.flags}; library {e.library_flags}"
    yield (f"discipline {e.discipline}; time-stamp counter {e.tsc_ghz:.3f} GHz; a dependent multiplication takes "
           f"{e.clock_before:.3f} of its cycles before, {e.clock_after:.3f} after" +
           ": THE MACHINE WAS NOISY, trust the order only" * e.noisy)
    yield (f"medians over {e.rounds} interleaved rounds, each subject in a fresh process" +
           "; QUICK: a tenth of the work" * bench.options.quick)
    yield from (f"{table.bench}: {table.extent}" for table in bench.tables if table.incomplete)
    yield from (f"without {left}" for left in bench.without)
    if bench.peers():
        yield "peers: " + "; ".join(f"{name} {version}" for name, version in bench.peers().items())


class ViewText:
    """A view, as wide as asked."""

    def __init__(self, view: View, width: int, styled: bool) -> None:
        self.view, self.width, self.styled = view, width, styled

    def grid(self, lines: list[GridLine]) -> str:
        return Grid(self.view.columns, lines, self.width, self.styled).text()

    def range(self, row: Row | None) -> str | None:
        if not row:
            return None
        low, high = (self.view.text(value / self.view.kind.scale) for value in (row.min, row.max))
        return f"{low}-{high}"

    def figures(self) -> Iterator[GridLine]:
        """Medians on one line; minimum and maximum beneath, dimmed where that can be seen."""
        view = self.view
        for line in view.lines:
            cells = [line.cells.get(column) for column in view.columns]
            yield GridLine(line.label, [view.text(view.figure(row, column)) if row else None
                                        for row, column in zip(cells, view.columns)])
            if self.width >= RANGES_WIDTH and line.any.kind is not Kind.PUBLISHED and line.any.rounds > 1 and \
               not view.kind.figures:
                yield GridLine(("",), [self.range(row) for row in cells], dim=True)

    def ratios(self) -> Iterator[GridLine]:
        """Under each linkage who its best peer is, column by column, and each of our lines over that."""
        for batch in (False, True):
            for linkage in LINKAGES:
                ours = [line for line in self.view.lines if line.any.kind is Kind.OURS and line.any.linkage == linkage]
                yield from self.best(ours, linkage, batch)
                for line in ours:
                    if not batch or line.any.work == "bulk":
                        yield from self.ratio(line, batch)

    def best(self, ours: list[Line], linkage: str, batch: bool) -> Iterator[GridLine]:
        for line in ours:
            best = [self.view.best_peer(line, column, batch) for column in self.view.columns]
            if any(best):
                yield GridLine((f"best peer for {linkage}" + ", batches" * batch,),
                               [row.subject[:11] if row else None for row in best])
                return

    def ratio(self, line: Line, batch: bool) -> Iterator[GridLine]:
        cells: list[str | None] = []
        for column in self.view.columns:
            row = line.cells.get(column)
            best = self.view.best_peer(line, column, batch) if row else None
            cells.append(f"{row.median / best.median:.2f}" if row and best and best.median else None)
        if any(cells):
            yield GridLine(line.label, cells)

    def text(self) -> str:
        view = self.view
        text = wrap(f"{view.title} ({view.kind.unit_text})", self.width) + "\n" + self.grid(list(self.figures()))
        ratios = [] if view.kind.figures else list(self.ratios())
        if ratios:
            better = "more" if view.kind.higher_is_better else "less"
            text += f"\n\nours / best peer: {better} is better\n" + self.grid(ratios)
        return text


def verdicts(bench: Bench, width: int) -> list[str]:
    noisy = bench.environment.noisy
    return [text for table in bench.tables if (text := verdict_text(table, noisy, width))]


def notes(bench: Bench, width: int) -> list[str]:
    """What stands under the tables."""
    said = [memcg_text(bench, table, width) for table in bench.tables if table.bench == "memcg"]
    if any(row.kind is Kind.PUBLISHED for table in bench.tables for row in table.rows):
        said.append(wrap(ANOTHER, width))
    return said


def report(bench: Bench, width: int, styled: bool) -> str:
    parts = verdicts(bench, width)
    parts.append("\n".join(wrap(line, width) for line in environment_lines(bench)))
    parts += [ViewText(view, width, styled).text() for table in bench.tables for view in views(table)]
    return "\n\n".join(parts + notes(bench, width)) + "\n"
