"""Text that fits: sentences are wrapped, and a grid of labels and cells that is too wide is printed in parts, each with
the labels and as many columns as there is room for. Invariant: no line is wider than asked, unless one word is.

rich lays the parts out; what is here is which columns a part has.
"""
from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO


@dataclass(frozen=True)
class GridLine:
    label: tuple[str, ...]
    cells: Sequence[str | None]     # by column; None: nothing
    dim: bool = False


def wrap(text: str, width: int) -> str:
    return textwrap.fill(text, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def labels_of(lines: Sequence[GridLine], left: int, width: int) -> tuple[list[tuple[str, ...]], int | None]:
    """The labels, without columns that are blank in all lines; or, where they leave no room, each as one text that
    takes the lines that it needs in so many columns."""
    count = max(len(line.label) for line in lines)
    padded = [line.label + ("",) * (count - len(line.label)) for line in lines]
    labels = list(zip(*(column for column in zip(*padded) if any(column))))
    if sum(1 + max(map(len, column)) for column in zip(*labels)) - 1 <= max(left, width // 2):
        return labels, None
    return [(" ".join(filter(None, label)),) for label in labels], max(left, width // 3)


def grid(columns: Sequence[str], lines: Sequence[GridLine], width: int, styled: bool = False) -> str:
    """A line that has nothing in a part is none there."""
    from rich.console import Console
    from rich.table import Table
    widths = [1 + max([len(name)] + [len(line.cells[c] or "") for line in lines]) for c, name in enumerate(columns)]
    labels, wrapped = labels_of(lines, width - sum(widths), width)
    room = wrapped or sum(1 + max(map(len, column)) for column in zip(*labels)) - 1
    texts, first = [], 0
    for end in range(1, len(widths) + 1):
        if end < len(widths) and room + sum(widths[first:end + 1]) <= width:
            continue
        names = columns[first:end]
        table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), show_header=any(names), header_style="none")
        for _ in labels[0]:
            table.add_column("", no_wrap=not wrapped, width=wrapped)
        for name in names:
            table.add_column(name, justify="right", no_wrap=True)
        for label, line in zip(labels, lines):
            cells = line.cells[first:end]
            if any(cell is not None for cell in cells):
                table.add_row(*label, *(cell or "" for cell in cells), style="dim" if line.dim else None)
        console = Console(file=StringIO(), width=width, force_terminal=styled, markup=False, emoji=False,
                          highlight=False, color_system="standard" if styled else None)
        with console.capture() as captured:
            console.print(table)
        texts.append("\n".join(line.rstrip() for line in captured.get().splitlines()))
        first = end
    return "\n\n".join(texts)
