"""Text that fits: sentences are wrapped, and a grid of labels and cells that is too wide is printed in parts, each with
the labels and as many columns as there is room for. Invariant: no line is wider than asked, unless one word is.

rich lays the parts out; what is here is which columns a part has.
"""
from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO

from .views import Label


@dataclass(frozen=True)
class GridLine:
    label: Label
    cells: Sequence[str | None]     # by column; None: nothing
    dim: bool = False


@dataclass(frozen=True)
class Grid:
    columns: Sequence[str]
    lines: Sequence[GridLine]
    width: int
    styled: bool = False

    def widths(self) -> list[int]:
        """Of the columns, with the blank before each."""
        return [1 + max([len(name)] + [len(line.cells[c] or "") for line in self.lines])
                for c, name in enumerate(self.columns)]

    def parts(self, room: int) -> list[range]:
        """Runs of columns that fit beside labels of that room."""
        widths, parts, first = self.widths(), [], 0
        for c in range(1, len(widths) + 1):
            if c == len(widths) or room + sum(widths[first:c + 1]) > self.width:
                parts.append(range(first, c))
                first = c
        return parts

    def labels(self) -> tuple[list[Label], int, bool]:
        """The labels, in columns without those that are blank in all lines, their room, and whether they are too wide:
        then each is one text, which takes the lines that it needs."""
        count = max(len(line.label) for line in self.lines)
        padded = [line.label + ("",) * (count - len(line.label)) for line in self.lines]
        used = [c for c in range(count) if any(label[c] for label in padded)]
        labels = [tuple(label[c] for c in used) for label in padded]
        room = sum(1 + max(len(label[c]) for label in labels) for c in range(len(used))) - 1
        left = self.width - sum(self.widths())
        if room <= max(left, self.width // 2):
            return labels, room, False
        return [(" ".join(filter(None, label)),) for label in labels], max(left, self.width // 3), True

    def text(self) -> str:
        from rich.console import Console
        labels, room, wrapped = self.labels()
        texts = []
        for part in self.parts(room):
            console = Console(file=StringIO(), width=self.width, force_terminal=self.styled, markup=False, emoji=False,
                              highlight=False, color_system="standard" if self.styled else None)
            with console.capture() as captured:
                console.print(self.table(part, labels, room if wrapped else None))
            texts.append("\n".join(line.rstrip() for line in captured.get().splitlines()))
        return "\n\n".join(texts)

    def table(self, part: range, labels: list[Label], room: int | None):    # type: ignore[no-untyped-def]
        """A part for rich. A line that has nothing in it is none."""
        from rich.table import Table
        names = [self.columns[c] for c in part]
        table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), show_header=any(names), header_style="none")
        for _ in labels[0]:
            table.add_column("", no_wrap=room is None, width=room)
        for name in names:
            table.add_column(name, justify="right", no_wrap=True)
        for label, line in zip(labels, self.lines):
            cells = [line.cells[c] for c in part]
            if any(cell is not None for cell in cells):
                table.add_row(*label, *(cell or "" for cell in cells), style="dim" if line.dim else None)
        return table


def wrap(text: str, width: int) -> str:
    return textwrap.fill(text, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
