"""Charts of a view, by matplotlib, as SVG: curves where the columns are a scale (sizes, batches), one figure a linkage;
bars where they are different works; of a distribution its runs. The cost axis of curves is logarithmic, because the
subjects differ by more than tenfold.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from io import StringIO

import matplotlib
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .model import LINKAGES, Kind, Row
from .views import View, who

CUT = 5000              # clocks, at which the published distribution was cut
WIDTH, HEIGHT, BAR, PANEL = 9.0, 4.6, 0.18, 1.6     # inches
matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "kmem", "font.size": 8, "axes.spines.top": False,
                            "axes.spines.right": False, "axes.grid": True, "grid.color": "#dddddd",
                            "axes.axisbelow": True})


def svg(figure: Figure, title: str) -> str:
    out = StringIO()
    figure.savefig(out, format="svg", bbox_inches="tight", metadata={"Title": title, "Date": None, "Creator": None})
    text = out.getvalue()
    return text[text.index("<svg"):]


def colour(kind: Kind, index: int) -> object:
    """Ours in greens and blues, peers in warm colours, others grey."""
    if kind not in (Kind.OURS, Kind.PEER):
        return "#999999"
    return colormaps["winter" if kind is Kind.OURS else "autumn"](index * 0.37 % 1)


def short_label(row: Row) -> str:
    work = row.true_work
    if row.batch > 1 and work in ("alloc", "free"):
        work = f"{work} of {row.batch}"
    api = "" if row.kind is Kind.NOTHING else row.api
    return " ".join(filter(None, (who(row), api, "" if work == "pair" else work)))


def curves(view: View, linkage: str) -> Figure | None:
    lines = [line for line in view.lines if line.any.linkage == linkage]
    if not lines:
        return None
    figure = Figure(figsize=(WIDTH, HEIGHT))
    axes: Axes = figure.subplots()
    for index, line in enumerate(lines):
        points = [(x, row.median / view.kind.scale) for x, column in enumerate(view.columns)
                  if (row := line.cells.get(column))]
        axes.plot(*zip(*points), color=colour(line.any.kind, index), label=short_label(line.any),
                  linewidth=2.5 if line.any.kind is Kind.OURS else 1.2, marker="o" if len(points) == 1 else None)
    axes.set(yscale="log", title=linkage, ylabel=view.kind.unit_text, xticks=range(len(view.columns)),
             xticklabels=view.columns)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize="x-small", frameon=False)
    return figure


def bars(view: View, column: str) -> Figure | None:
    found = [(value, line) for line in view.lines if line.cells.get(column) and
             (value := view.figure(line.cells[column], column)) is not None]
    if not found or max(value for value, _ in found) <= 0:
        return None
    found.sort(key=lambda pair: pair[0], reverse=True)      # the lowest one stands on top
    figure = Figure(figsize=(WIDTH, BAR * len(found) + 0.6))
    axes: Axes = figure.subplots()
    drawn = axes.barh(range(len(found)), [value for value, _ in found],
                      color=[colour(line.any.kind, view.lines.index(line)) for _, line in found])
    axes.bar_label(drawn, fmt=f"%.{view.kind.decimals}f", padding=3)
    axes.set(title=column, xlabel=view.kind.unit_text, yticks=range(len(found)), ylim=(-0.6, len(found) - 0.4),
             yticklabels=[f"{short_label(line.any)} {line.any.linkage}" for _, line in found])
    return figure


# ---------------------------------------------------------------------------------------------------- distributions

def pairs(view: View) -> dict[tuple[int, int, str], list[tuple[Row, Row]]]:
    """By batch, size and state: each bulk row with the loop that it is compared with."""
    found: dict[tuple[int, int, str], list[tuple[Row, Row]]] = {}
    rows = [line.any for line in view.lines if line.any.kind is Kind.OURS]
    for bulk in (row for row in rows if row.api == "bulk"):
        for loop in rows:
            same = all(getattr(loop, name) == getattr(bulk, name) for name in ("variant", "batch", "size", "state"))
            if same and loop is not bulk:
                found.setdefault((bulk.batch, bulk.size, bulk.state or ""), []).append((bulk, loop))
    return found


def panel(axes: Axes, bulk: Row, loop: Row) -> None:
    """The runs from left to right, the bulk allocation as bars, the loop as a line, cut as it was published."""
    above = sum(value > CUT for value in bulk.values + loop.values)
    for run, bar in enumerate(axes.bar(range(bulk.rounds), bulk.values, color="tab:blue")):
        bar.set_gid(f"bulk-{run}")
    axes.plot(range(loop.rounds), loop.values, color="tab:orange", gid="loop")
    axes.set(ylim=(0, CUT))
    axes.set_title(f"{who(bulk)}, {bulk.linkage}: bulk median {bulk.median:.0f}, mean {bulk.avg:.0f}; loop median "
                   f"{loop.median:.0f}, mean {loop.avg:.0f}; {above} above the cut", loc="left", fontsize=8)


def runs(view: View) -> Iterator[Figure]:
    """A figure for each batch and state, with a panel for each engine."""
    for (batch, size, state), rows in pairs(view).items():
        figure = Figure(figsize=(WIDTH, PANEL * len(rows) + 0.5), layout="constrained")
        figure.suptitle(f"Clocks to allocate {batch} objects of {size} bytes once, cache {state}: bulk as bars, loop "
                        "as line, by run")
        for axes, (bulk, loop) in zip(figure.subplots(len(rows), squeeze=False)[:, 0], rows):
            panel(axes, bulk, loop)
        yield figure


def charts(view: View) -> Iterator[str]:
    figures: Sequence[Figure | None] = ()
    if view.kind.plot == "curves":
        figures = [curves(view, linkage) for linkage in LINKAGES]
    elif view.kind.plot == "runs":
        figures = list(runs(view))
    elif view.kind.plot == "bars":
        figures = [bars(view, column) for column in view.columns if not view.kind.figures or column == "mean"]
    yield from (svg(figure, view.title) for figure in figures if figure)
