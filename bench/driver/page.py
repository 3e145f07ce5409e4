"""The report as one self-contained HTML page, without scripts or external files. Charts are inline SVG, and also
separate files beside the page: FILE-BENCH-N.svg."""
from __future__ import annotations

from html import escape
from pathlib import Path

from . import BenchError
from .charts import charts
from .model import Bench
from .text import report
from .views import views

COLUMNS = 160
STYLE = "body{font:14px sans-serif;margin:2em;color:#222}svg{margin:1em 0;display:block;max-width:100%;height:auto}"


def write_page(bench: Bench, file: str) -> None:
    """Returns the whole report, then the charts of each view."""
    body, count = [f"<pre>{bench.environment.date}\n\n{escape(report(bench, COLUMNS, False))}</pre>\n"], 0
    path = Path(file)
    try:
        for view in (view for table in bench.tables for view in views(table)):
            body.append(f"<h2>{escape(view.title)}</h2>\n")
            for svg in charts(view):
                count += 1
                path = Path(f"{file.removesuffix('.html')}-{view.table.bench}-{count}.svg")
                path.write_text(svg, encoding="utf-8")
                body.append(svg)
        path = Path(file)
        path.write_text('<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>kmem bench</title>'
                        f"<style>{STYLE}</style></head><body>\n<h1>kmem bench</h1>\n" + "".join(body) +
                        "</body></html>\n", encoding="utf-8")
    except OSError as error:
        raise BenchError(f"{path}: {error.strerror}") from error
