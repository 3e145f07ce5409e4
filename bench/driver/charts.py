"""Charts of a view, by matplotlib, as SVG: curves for columns on a scale (sizes, batches), one figure for each linkage;
bars for columns of different works; runs for a distribution. The cost axis of curves is logarithmic, because the
subjects differ by more than tenfold."""
from __future__ import annotations

from collections.abc import Iterator
from io import StringIO

import matplotlib
from matplotlib import colormaps
from matplotlib.figure import Figure

from .model import LINKAGES, Kind, Row
from .views import Line, View, who

CUT = 5000              # clocks; the published distribution ends here
WIDTH, HEIGHT, BAR, PANEL = 9.0, 4.6, 0.18, 1.6     # inches
matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "kmem", "font.size": 8, "axes.spines.top": False,
                            "axes.spines.right": False, "axes.grid": True, "grid.color": "#dddddd",
                            "axes.axisbelow": True})


def colour(view: View, line: Line) -> object:
    """Colours: ours in greens and blues, peers in warm colours, others grey."""
    maps = {Kind.OURS: "winter", Kind.PEER: "autumn"}
    part = view.lines.index(line) * 0.37 % 1 if line.any.kind in maps else 0.6
    return colormaps[maps.get(line.any.kind, "gray")](part)


def name(line: Line) -> str:
    return " ".join(filter(None, line.label))


def curves(view: View) -> Iterator[Figure]:
    for linkage in LINKAGES:
        lines = [line for line in view.lines if line.any.linkage == linkage]
        if not lines:
            continue
        figure = Figure(figsize=(WIDTH, HEIGHT))
        axes = figure.subplots()
        for line in lines:
            points = [(x, row.median / view.kind.scale) for x, column in enumerate(view.columns)
                      if (row := line.cells.get(column))]
            axes.plot(*zip(*points), color=colour(view, line), label=name(line),
                      linewidth=2.5 if line.any.kind is Kind.OURS else 1.2, marker="o" if len(points) == 1 else None)
        axes.set(yscale="log", title=linkage, ylabel=view.kind.unit_text, xticks=range(len(view.columns)),
                 xticklabels=view.columns)
        axes.yaxis.set_major_formatter("{x:g}")
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize="x-small", frameon=False)
        yield figure


def bars(view: View) -> Iterator[Figure]:
    """Draws a figure for each column, with the lowest bar on top."""
    for column in ("mean",) if view.kind.figures else view.columns:
        found = [(value, line) for line in view.lines if column in line.cells and
                 (value := view.figure(line.cells[column], column)) is not None]
        found.sort(key=lambda pair: pair[0], reverse=True)
        if not found or found[0][0] <= 0:
            continue
        figure = Figure(figsize=(WIDTH, BAR * len(found) + 0.6))
        axes = figure.subplots()
        drawn = axes.barh(range(len(found)), [value for value, _ in found],
                          color=[colour(view, line) for _, line in found])
        axes.bar_label(drawn, fmt=f"%.{view.kind.decimals}f", padding=3)
        axes.set(title=column, xlabel=view.kind.unit_text, yticks=range(len(found)), ylim=(-0.6, len(found) - 0.4),
                 yticklabels=[name(line) for _, line in found])
        yield figure


def runs(view: View) -> Iterator[Figure]:
    """Draws a figure for each batch and state, with a panel for each engine: runs from left to right, the bulk
    allocation as bars, the compared loop as a line, cut at the published limit."""
    def same(row: Row) -> tuple[object, ...]:
        return row.variant, row.batch, row.size, row.state

    rows = [line.any for line in view.lines if line.any.kind is Kind.OURS]
    pairs = [(bulk, loop) for bulk in rows for loop in rows if (bulk.api, loop.api) == ("bulk", "kmem_cache") and
             same(bulk) == same(loop)]
    for batch, size, state in dict.fromkeys((bulk.batch, bulk.size, bulk.state) for bulk, _ in pairs):
        panels = [pair for pair in pairs if (pair[0].batch, pair[0].size, pair[0].state) == (batch, size, state)]
        figure = Figure(figsize=(WIDTH, PANEL * len(panels) + 0.5), layout="constrained")
        figure.suptitle(f"Clocks to allocate {batch} objects of {size} bytes once, cache {state}: bulk as bars, loop "
                        "as line, by run")
        for axes, (bulk, loop) in zip(figure.subplots(len(panels), squeeze=False)[:, 0], panels):
            for run, bar in enumerate(axes.bar(range(bulk.rounds), bulk.values, color="tab:blue")):
                bar.set_gid(f"bulk-{run}")
            axes.plot(range(loop.rounds), loop.values, color="tab:orange", gid="loop")
            axes.set(ylim=(0, CUT))
            axes.set_title(f"{who(bulk)}, {bulk.linkage}: bulk median {bulk.median:.0f}, mean {bulk.avg:.0f}; loop "
                           f"median {loop.median:.0f}, mean {loop.avg:.0f}; "
                           f"{sum(value > CUT for value in bulk.values + loop.values)} above the cut",
                           loc="left", fontsize=8)
        yield figure


def charts(view: View) -> Iterator[str]:
    for figure in {"curves": curves, "bars": bars, "runs": runs}[view.kind.plot](view) if view.kind.plot else ():
        out = StringIO()
        figure.savefig(out, format="svg", bbox_inches="tight", metadata={"Title": view.title, "Date": None,
                                                                          "Creator": None})
        text = out.getvalue()
        yield text[text.index("<svg"):]
