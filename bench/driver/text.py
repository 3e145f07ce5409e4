"""The results as text: a verdict in a few lines, the environment, each view, and below each view our ratios to the best
peer."""
from __future__ import annotations

from collections.abc import Iterator

from .grid import GridLine, grid, wrap
from .debug_ratios import debug_text
from .memcg_ratios import memcg_text
from .model import LINKAGES, Bench, Kind, Row
from .verdict import verdict_text
from .views import Rivals, View, views

RANGES_WIDTH = 60       # narrower terminals have no room for minimum and maximum
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


def figures(view: View, width: int) -> Iterator[GridLine]:
    """Medians on one line; minimum and maximum below, dimmed on a terminal."""
    def extremes(row: Row | None) -> str | None:
        return "-".join(view.text(value / view.kind.scale) for value in (row.min, row.max)) if row else None

    for line in view.lines:
        cells = [line.cells.get(column) for column in view.columns]
        yield GridLine(line.label, [view.text(view.figure(row, column)) if row else None
                                    for row, column in zip(cells, view.columns)])
        if width >= RANGES_WIDTH and line.any.kind is not Kind.PUBLISHED and line.any.rounds > 1 and \
           not view.kind.figures:
            yield GridLine(("",), list(map(extremes, cells)), dim=True)


def ratios(view: View) -> Iterator[GridLine]:
    """For each linkage the best peer, column by column, and the ratio of each of our lines. A batch is compared first
    with single calls, then with other batches."""
    rivals, more = Rivals(view.table), view.kind.higher_is_better
    for single, linkage in ((single, linkage) for single in (True, False) for linkage in LINKAGES):
        lines, names = [], dict.fromkeys(view.columns, "")
        for line in view.lines:
            if line.any.kind is Kind.OURS and line.any.linkage == linkage and (single or line.any.work == "bulk"):
                best = {column: peer for column, row in line.cells.items() if (peer := rivals.best(row, more, single))}
                names |= {column: names[column] or peer.subject[:11] for column, peer in best.items()}
                if best:
                    lines.append(GridLine(line.label, [
                        f"{line.cells[column].median / best[column].median:.2f}"
                        if column in best and best[column].median else None for column in view.columns]))
        if lines:
            yield GridLine((f"best peer for {linkage}" + ", batches" * (not single),),
                           [name or None for name in names.values()])
            yield from lines


def view_text(view: View, width: int, styled: bool) -> str:
    lines = list(figures(view, width))
    text = wrap(f"{view.title} ({view.kind.unit_text})", width) + "\n" + grid(view.columns, lines, width, styled)
    beside = [] if view.kind.figures else list(ratios(view))
    if beside:
        better = "more" if view.kind.higher_is_better else "less"
        text += f"\n\nours / best peer: {better} is better\n" + grid(view.columns, beside, width, styled)
    return text


def report(bench: Bench, width: int, styled: bool) -> str:
    tables = bench.tables
    parts = [text for table in tables if (text := verdict_text(table, bench.environment.noisy, width))]
    parts.append("\n".join(wrap(line, width) for line in environment_lines(bench)))
    parts += [view_text(view, width, styled) for table in tables for view in views(table)]
    parts += [memcg_text(bench, table, width) for table in tables if table.bench == "memcg"]
    parts += [debug_text(table, width) for table in tables if table.bench == "debug"]
    if any(row.kind is Kind.PUBLISHED for table in tables for row in table.rows):
        parts.append(wrap(ANOTHER, width))
    return "\n\n".join(parts) + "\n"
