"""The figures that the kernel's authors published, from bench/published/, as rows beside ours.

They belong to other machines: to be set beside, never divided by. The fast path and bulk were published with memory
cgroups compiled in and switched on or off at run time: the field `memcg`.
"""
from __future__ import annotations

import csv
from collections.abc import Iterator
from typing import Any

from .model import Bench, Row, Table
from .plan import RUNS

SIZE = 256              # struct sk_buff, as it was then
UNITS = ("cycles/object", "ns/object")
Line = dict[str, str]


def row(table: Table, of: str, unit: str, value: float, **fields: Any) -> Row:
    """Of a machine, size and count that are other ones, or are not known, unless `fields` has them."""
    return Row(table.bench, subject="published", of=of, unit=unit, values=[value], **fields)


def fastpath(table: Table, line: Line) -> Iterator[Row]:
    for unit, column in zip(UNITS, ("cycles", "ns")):
        yield row(table, line["engine"], unit, float(line[column]), work="pair", api="kmem_cache", memcg=line["memcg"],
                  size=SIZE, batch=1, threads=1, touch="none")


def bulk(table: Table, line: Line) -> Iterator[Row]:
    for work, api, column in (("loop", "kmem_cache", "fallback"), ("bulk", "bulk", "cache_bulk"),
                              ("bulk", "kfree_bulk", "kfree_bulk")):
        for unit in UNITS:
            value = float(line[f"{column}_{unit.removesuffix('/object')}"])
            yield row(table, line["engine"], unit, value, work=work, api=api, memcg=line["memcg"], size=SIZE,
                      batch=int(line["batch"]), threads=1, touch="none")


def slab_fastpath(table: Table, line: Line) -> Iterator[Row]:
    label = line["allocator"]
    yield row(table, "slab" if label.startswith("slab") else "slub", "ns/object", float(line["alloc_free_ns"]),
              work="pair", api="kmem_cache", batch=1, threads=1, label=label)


def latency(table: Table, line: Line) -> Iterator[Row]:
    """Median and mean; minimum and maximum were not published."""
    median = float(line["median_clocks"])
    api = "bulk" if "bulk" in line["function"] else "kmem_cache"
    yield row(table, "slub", "cycles", median, work="latency", api=api, threads=1, settled=True,
              rounds=RUNS["bulk-latency"], median=median, min=median, max=median,
              avg=float(line["mean_clocks"]))


def min_partial(table: Table, line: Line) -> Iterator[Row]:
    """The median was not published: the average stands for it."""
    of, dash, _ = line["allocator"].partition("-")
    least, most, avg, deviation = (float(line[f"{name}_s"]) for name in ("min", "max", "avg", "sd"))
    yield row(table, of, "s", avg, work="netio", api="kmalloc", time=line["time"], settled=True, rounds=RUNS["netio"],
              min_partial=("size" if dash else "static") if of == "slub" else None,
              median=avg, min=least, max=most, avg=avg, sd=deviation)


def memcg_4k(table: Table, line: Line) -> Iterator[Row]:
    """Before or after the patch that keeps the stock, 96 threads."""
    rule = "drain" if line["refill_obj_stock"] == "before" else "keep"
    yield row(table, "slub", "ops/s", float(line["kilo_ops_per_s"]) * 1e3, work="threads-4k", api="kmalloc", size=4096,
              threads=96, accounting=f"{line['hierarchy']}-{rule}")


def add_published(bench: Bench, table: Table) -> None:
    options, name = bench.options, table.bench

    def wants(*works: str) -> bool:
        return not options.works or any(work in options.works for work in works)

    of_size = not options.sizes or SIZE in options.sizes
    memcg = name == "memcg"
    files = (
        ("slab_fastpath", slab_fastpath, name == "slab-fastpath"),
        ("alloc_bulk_vs_loop", latency, name == "bulk-latency"),
        ("min_partial", min_partial, name == "netio"),
        ("memcg_4k", memcg_4k, memcg and wants("threads-4k", "simulation")),
        ("fastpath", fastpath, of_size and (name in ("fastpath", "bulk") or memcg and wants("pair"))),
        ("bulk", bulk, of_size and (name == "bulk" or memcg and wants("bulk"))),
    )
    if options.subjects and "published" not in options.subjects:
        return
    for file, rows_of, wanted in files:
        path = f"bench/published/{file}.csv"
        try:
            text = (bench.root / path).read_text() if wanted else ""
        except OSError:
            bench.leave("published", f"cannot read {path}")
            continue
        for line in csv.DictReader(text.splitlines()):
            if file != "bulk" or not options.batches or int(line["batch"]) in options.batches:
                table.rows.extend(rows_of(table, line))
