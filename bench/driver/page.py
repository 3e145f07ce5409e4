"""The report as one self-contained HTML page: no scripts, nothing fetched from anywhere. Charts are inline SVG, and
files of their own beside the page: FILE-BENCH-N.svg.
"""
from __future__ import annotations

from html import escape
from pathlib import Path

from . import BenchError
from .charts import charts
from .model import Bench
from .text import ViewText, environment_lines, notes, verdicts
from .views import View, views

COLUMNS = 160
STYLE = "body{font:14px sans-serif;margin:2em;color:#222}svg{margin:1em 0;display:block;max-width:100%;height:auto}"


def pre(text: str) -> str:
    return f"<pre>{escape(text)}</pre>\n"


class Page:
    def __init__(self, bench: Bench, file: str) -> None:
        self.bench, self.file, self.stem, self.charts = bench, file, file.removesuffix(".html"), 0

    def view(self, view: View) -> str:
        drawn = list(charts(view))
        for text in drawn:
            self.charts += 1
            self.save(f"{self.stem}-{view.table.bench}-{self.charts}.svg", text)
        return f"<h2>{escape(view.title)}</h2>\n" + "".join(drawn) + pre(ViewText(view, COLUMNS, False).text())

    @staticmethod
    def save(file: str, text: str) -> None:
        try:
            Path(file).write_text(text, encoding="utf-8")
        except OSError as error:
            raise BenchError(f"{file}: {error.strerror}") from error

    def write(self) -> None:
        bench = self.bench
        parts = [pre(text) for text in verdicts(bench, COLUMNS)]
        parts.append(pre(f"{bench.environment.date}\n" + "\n".join(environment_lines(bench))))
        parts += [self.view(view) for table in bench.tables for view in views(table)]
        parts += [pre(text) for text in notes(bench, COLUMNS)]
        self.save(self.file, '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>kmem bench</title>'
                  f"<style>{STYLE}</style></head><body>\n<h1>kmem bench</h1>\n" + "".join(parts) + "</body></html>\n")
