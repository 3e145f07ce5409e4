"""The tables of ratios below `kmem bench debug`: for a hit the geometric mean over works and sizes; for a program its
processor time and its memory. And the price of a profile's sample: the difference of a pair of 256 bytes with one
sample in ten and with one in two thousand, divided by the difference of these shares, from the fastest round of
each."""
from __future__ import annotations

import math
import statistics

from .grid import GridLine, grid
from .model import Row, Table
from .tables import PROGRAMS
from .subjects import LEVELS, OURS

RATIOS = tuple(level for level in LEVELS if level != "sampled")
SAMPLED_BYTES = 256
BETWEEN = {"profiled": 512 * 1024, "sampled": 2560}      # mean bytes between two samples
HARDENED = ("hardened_malloc_light", "snmalloc_checks", "mimalloc3_secure", "scudo")


def mean(rows: list[Row], subject: str, level: str | None) -> float:
    found = [row.median for row in rows if (row.subject, row.level) == (subject, level)]
    return statistics.geometric_mean(found) if found else 0.0


def measured(rows: list[Row]) -> dict[str, list[Row]]:
    """Groups rows by measurement. A peer has only malloc, which is compared with each interface of the same linkage."""
    hits = {f"a hit, {api} {linkage}": [row for row in rows if row.unit == "cycles/object" and
                                        row.linkage == linkage and row.api == (api if row.kind.is_ours else "malloc")]
            for api, linkage, *_ in OURS if linkage != "inline"}
    return hits | {f"{program}, {what}": [row for row in rows if row.program == program and
                                          what in (row.time, row.measure)]
                   for program in PROGRAMS for what in ("cpu", "rss")}


def sample_price(rows: list[Row], unit: str) -> str | None:
    """The price of a sample. The share of sampled objects is 1 - exp(-bytes / mean), as of a Poisson process."""
    cost = {level: [row.min for row in rows if row.level == level and row.unit == unit] for level in BETWEEN}
    if not all(cost.values()):
        return None
    share = {level: 1 - math.exp(-SAMPLED_BYTES / mean) for level, mean in BETWEEN.items()}
    more = min(cost["sampled"]) - min(cost["profiled"])
    return f"{more / (share['sampled'] - share['profiled']):.0f}"


def sample_lines(rows: list[Row]) -> list[GridLine]:
    lines = []
    for engine in dict.fromkeys(row.subject for row in rows if row.kind.is_ours):
        for api, linkage, *_ in OURS:
            of = [row for row in rows if (row.subject, row.api, row.linkage, row.work, row.size) ==
                  (engine, api, linkage, "pair", SAMPLED_BYTES)]
            cells = [sample_price(of, unit) for unit in ("cycles/object", "ns/object")]
            if any(cells):
                lines.append(GridLine((engine, f"{api} {linkage}"), cells))
    return lines


def debug_text(table: Table, width: int) -> str:
    lines, columns = [], (*RATIOS, *("/ " + peer for peer in HARDENED))
    for engine in dict.fromkeys(row.subject for row in table.rows if row.kind.is_ours):
        for what, rows in measured(table.rows).items():
            default, hardened = mean(rows, engine, None), mean(rows, engine, "hardened")
            pairs = [(mean(rows, engine, level), default) for level in RATIOS]
            pairs += [(hardened, mean(rows, peer, None)) for peer in HARDENED]
            lines.append(GridLine((engine, what), [f"{a / b:.2f}" if a and b else None for a, b in pairs]))
    text = "debug: each level / default, and hardened / peer, within this run\n" + grid(columns, lines, width) + "\n"
    samples = sample_lines(table.rows)
    if samples:
        text += ("\ndebug: a sample of a profile, its free included (256 bytes; one in ten is sampled)\n" +
                 grid(("cycles/sample", "ns/sample"), samples, width) + "\n")
    return text
