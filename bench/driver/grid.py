"""Text within the width: sentences are wrapped, and a grid wider than the terminal is printed in parts, each part with
the labels and as many columns as fit. Invariant: no line is wider than the limit, except by a single word.

rich lays out the parts; this module selects the columns of a part."""
from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO


@dataclass(frozen=True)
class GridLine:
    label: tuple[str, ...]
    cells: Sequence[str | None]     # by column; None: empty
    dim: bool = False


def wrap(text: str, width: int) -> str:
    return textwrap.fill(text, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def labels_of(lines: Sequence[GridLine], left: int, width: int) -> tuple[list[tuple[str, ...]], int | None]:
    """The labels, without columns that are blank in all lines; or, without room, each label as one text, wrapped to the
    width."""
    count = max(len(line.label) for line in lines)
    padded = [line.label + ("",) * (count - len(line.label)) for line in lines]
    labels = list(zip(*(column for column in zip(*padded) if any(column))))
    if sum(1 + max(map(len, column)) for column in zip(*labels)) - 1 <= max(left, width // 2):
        return labels, None
    return [(" ".join(filter(None, label)),) for label in labels], max(left, width // 3)


def grid(columns: Sequence[str], lines: Sequence[GridLine], width: int, styled: bool = False) -> str:
    """Returns the grid in parts of the width. A part leaves out the lines without a cell in the part."""
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
