"""What watching costs, as ratios within the run, under the tables of `kmem bench debug`: of a hit the geometric mean
over works and sizes; of a program its processor time, and its memory."""
from __future__ import annotations

import statistics

from .grid import GridLine, grid
from .model import Row, Table
from .plan import PROGRAMS
from .subjects import LEVELS, OURS

HARDENED = ("hardened_malloc_light", "snmalloc_checks", "mimalloc3_secure", "scudo")


def mean(rows: list[Row], subject: str, level: str | None) -> float:
    found = [row.median for row in rows if (row.subject, row.level) == (subject, level)]
    return statistics.geometric_mean(found) if found else 0.0


def measured(rows: list[Row]) -> dict[str, list[Row]]:
    """By what is measured. A peer has malloc alone, which stands beside each interface of its linkage."""
    hits = {f"a hit, {api} {linkage}": [row for row in rows if row.unit == "cycles/object" and
                                        row.linkage == linkage and row.api == (api if row.kind.is_ours else "malloc")]
            for api, linkage, *_ in OURS if linkage != "inline"}
    return hits | {f"{program}, {what}": [row for row in rows if row.program == program and
                                          what in (row.time, row.measure)]
                   for program in PROGRAMS for what in ("cpu", "rss")}


def debug_text(table: Table, width: int) -> str:
    lines, columns = [], (*LEVELS, *("/ " + peer for peer in HARDENED))
    for engine in dict.fromkeys(row.subject for row in table.rows if row.kind.is_ours):
        for what, rows in measured(table.rows).items():
            default, hardened = mean(rows, engine, None), mean(rows, engine, "hardened")
            pairs = [(mean(rows, engine, level), default) for level in LEVELS]
            pairs += [(hardened, mean(rows, peer, None)) for peer in HARDENED]
            lines.append(GridLine((engine, what), [f"{a / b:.2f}" if a and b else None for a, b in pairs]))
    return "debug: each level / default, and hardened / peer, within this run\n" + grid(columns, lines, width) + "\n"
