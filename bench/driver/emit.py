"""Rows for programs: one JSON object, or CSV with a header line. Field names are a contract."""
from __future__ import annotations

import csv
import json
from io import StringIO
from typing import Any

from .model import KEY, Bench, Kind, Row

FIELDS = KEY[:KEY.index("unit")] + ("quick",) + KEY[KEY.index("unit"):]
FIGURES = ("median", "min", "max", "avg", "sd", "rounds", "planned")


def fields_of(bench: Bench, row: Row) -> dict[str, Any]:
    """None for a field without meaning in the row."""
    fields = {name: getattr(row, name, None) or None for name in FIELDS}
    quick = bench.options.quick and row.kind is not Kind.PUBLISHED
    return fields | {"accounting": row.accounting or "off", "quick": quick or None}


def json_row(bench: Bench, row: Row) -> dict[str, Any]:
    """For latency also the figure of each run, in order."""
    figures: dict[str, Any] = {name: round(getattr(row, name), 4) for name in FIGURES[:5]}
    figures |= {"avg": figures["avg"] if row.rounds > 1 else None, "sd": figures["sd"] or None,
                "planned": row.planned or None, "rounds": row.rounds}
    if row.work == "latency" and not row.settled:
        figures["values"] = [round(value) for value in row.values]
    return {name: value for name, value in (fields_of(bench, row) | figures).items() if value is not None}


def environment(bench: Bench) -> dict[str, Any]:
    e = bench.environment
    said = {name: getattr(e, name) for name in ("date", "cpu", "cores", "noisy", "kernel", "libc", "compiler", "flags",
                                                "library_flags", "commit", "discipline", "rounds")}
    return said | {
        "tsc_ghz": round(e.tsc_ghz, 4), "clock_ratio_before": round(e.clock_before, 4),
        "clock_ratio_after": round(e.clock_after, 4), "quick": bench.options.quick, "peers": bench.peers(),
        "without": bench.without,
        "incomplete": [{"bench": table.bench, "why": table.cut_by, "rounds": table.complete, "planned": table.rounds}
                       for table in bench.tables if table.incomplete],
    }


def as_json(bench: Bench) -> str:
    """Prints a line for each row."""
    rows = ",\n  ".join(json.dumps(json_row(bench, row)) for table in bench.tables for row in table.rows)
    return f'{{"environment": {json.dumps(environment(bench))},\n "rows": [\n  {rows}\n]}}\n'


def as_csv(bench: Bench) -> str:
    out = StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(FIELDS + FIGURES)
    for row in (row for table in bench.tables for row in table.rows):
        fields = ["true" if value is True else value for value in fields_of(bench, row).values()]
        figures = [f"{getattr(row, name):.4f}" for name in FIGURES[:5]]
        writer.writerow([*fields, *figures, row.rounds, row.planned or None])
    return out.getvalue()
