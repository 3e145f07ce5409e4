"""The figures of the kernel's authors, from bench/published/, as rows beside ours.

The figures are of other machines, for a comparison without ratios. The fast path and bulk were published with memory
cgroups compiled in, and on or off at run time: the field `memcg`."""
from __future__ import annotations

import csv
from collections.abc import Iterator

from .model import Bench, Row
from .plan import RUNS

SIZE = 256              # struct sk_buff at that time
UNITS = ("cycles/object", "ns/object")
Line = dict[str, str]


def fastpath(line: Line) -> Iterator[Row]:
    for unit, column in zip(UNITS, ("cycles", "ns")):
        yield Row(of=line["engine"], unit=unit, values=[float(line[column])], work="pair", api="kmem_cache",
                  memcg=line["memcg"], size=SIZE, batch=1, threads=1, touch="none")


def bulk(line: Line) -> Iterator[Row]:
    for work, api, column in (("loop", "kmem_cache", "fallback"), ("bulk", "bulk", "cache_bulk"),
                              ("bulk", "kfree_bulk", "kfree_bulk")):
        for unit in UNITS:
            value = float(line[f"{column}_{unit.removesuffix('/object')}"])
            yield Row(of=line["engine"], unit=unit, values=[value], work=work, api=api, memcg=line["memcg"], size=SIZE,
                      batch=int(line["batch"]), threads=1, touch="none")


def slab_fastpath(line: Line) -> Iterator[Row]:
    label = line["allocator"]
    yield Row(of="slab" if label.startswith("slab") else "slub", unit="ns/object", work="pair", api="kmem_cache",
              values=[float(line["alloc_free_ns"])], batch=1, threads=1, label=label)


def latency(line: Line) -> Iterator[Row]:
    """Median and mean; minimum and maximum were not published."""
    median = float(line["median_clocks"])
    yield Row(of="slub", unit="cycles", work="latency", api="bulk" if "bulk" in line["function"] else "kmem_cache",
              threads=1, settled=True, rounds=RUNS["bulk-latency"], median=median, min=median, max=median,
              avg=float(line["mean_clocks"]))


def min_partial(line: Line) -> Iterator[Row]:
    """The median was not published; the average takes its place."""
    of, dash, _ = line["allocator"].partition("-")
    least, most, avg, deviation = (float(line[f"{name}_s"]) for name in ("min", "max", "avg", "sd"))
    yield Row(of=of, unit="s", work="netio", api="kmalloc", time=line["time"], settled=True, rounds=RUNS["netio"],
              min_partial=("size" if dash else "static") if of == "slub" else None, median=avg, min=least, max=most,
              avg=avg, sd=deviation)


def memcg_4k(line: Line) -> Iterator[Row]:
    """Before or after the patch that keeps the stock, 96 threads."""
    rule = "drain" if line["refill_obj_stock"] == "before" else "keep"
    yield Row(of="slub", unit="ops/s", values=[float(line["kilo_ops_per_s"]) * 1e3], work="threads-4k", api="kmalloc",
              size=4096, threads=96, accounting=f"{line['hierarchy']}-{rule}")


def rows_for(bench: Bench, name: str) -> Iterator[Row]:
    """The published rows beside a table. Machine, size and count differ or are unknown, unless a row has the values."""
    options, memcg = bench.options, name == "memcg"
    of_size = not options.sizes or SIZE in options.sizes
    for rows_of, wanted in (
            (slab_fastpath, name == "slab-fastpath"),
            (latency, name == "bulk-latency"),
            (min_partial, name == "netio"),
            (memcg_4k, memcg and bench.wants("threads-4k", "simulation")),
            (fastpath, of_size and (name in ("fastpath", "bulk") or memcg and bench.wants("pair"))),
            (bulk, of_size and (name == "bulk" or memcg and bench.wants("bulk")))):
        if not wanted or (options.subjects and "published" not in options.subjects):
            continue
        path = f"bench/published/{'alloc_bulk_vs_loop' if rows_of is latency else rows_of.__name__}.csv"
        try:
            lines = (bench.root / path).read_text().splitlines()
        except OSError:
            bench.leave("published", f"cannot read {path}")
            continue
        for line in csv.DictReader(lines):
            for row in rows_of(line):
                if rows_of is not bulk or not options.batches or row.batch in options.batches:
                    row.bench, row.subject = name, "published"
                    yield row
