"""Views: a table's rows as people read them, one line for each subject, interface and linkage, one column for each
size, batch or work. Text and page print the same views. Also the comparison with the best peer, which is always of the
same linkage.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from .model import Kind, Row, Table

Label = tuple[str, ...]


def bytes_text(count: int) -> str:
    """ "4000 B", "40 KB" or "4 MB"."""
    if count < 10000 or count % 1000:
        return f"{count} B"
    return f"{count // 1000} KB" if count < 1000000 or count % 1000000 else f"{count // 1000000} MB"


# ------------------------------------------------------------------------------------------------------- the columns

def by_size(row: Row) -> str:
    return str(row.size or "?")


def by_batch(row: Row) -> str:
    return str(row.batch) if row.size in (0, 256) else f"{row.size}B/{row.batch}"


def by_match(row: Row) -> str:
    return f"N={row.match}"


def by_groups(row: Row) -> str:
    return f"{row.groups} group" + "s" * (row.groups != 1)


def by_transfer(row: Row) -> str:
    return f"{row.transfer_ns} ns" if row.transfer_ns else "published"


def by_form(row: Row) -> str:
    return row.at or ""


def by_function(row: Row) -> str:
    """kmem_cache_alloc_bulk is too long for a column."""
    return (row.at or "").removeprefix("kmem_cache_")


def by_work(row: Row) -> str:
    work, together = row.true_work, f" x{row.threads}" if row.threads > 1 else ""
    names = {
        "blocks": bytes_text(row.size) + together,
        "realloc": bytes_text(row.size) + together,
        "zero": work + (f" {row.size}" if row.size != 256 else "") + together,
        "aligned": work + (f" {row.size}" if row.size != 256 else "") + together,
        "held": work + together,
        "pair": f"pair {row.size}",
        "loop": f"loop {row.batch}" if row.size == 256 else f"{row.size}B/{row.batch}",
        "producer-consumer": "prod-cons",
        "threads-4k": f"4k, {row.threads} thr",
        "larson": f"larson {row.threads}",
        "idle-threads": "idle",
        "simulation": f"model {row.threads}",
        "adrift": work,
        "churn": work,
    }
    return names.get(work) or (f"live {row.at}" if row.at else "live-set")


# --------------------------------------------------------------------------------------------------------- the lines

def who(row: Row) -> str:
    """The engine, and the discipline or rule where it is not the one by default."""
    if row.label:
        return f"{row.label}, published"
    if row.kind is Kind.PUBLISHED:
        return " ".join(filter(None, (row.of, row.min_partial))) + ", published" + ", memcg" * (row.memcg == "on")
    percpu = row.variant.percpu if row.variant else None
    return " ".join(filter(None, (row.subject, percpu, row.min_partial)))


def label_of(kind: ViewKind, row: Row) -> Label:
    """The texts that stand before a line's figures."""
    work, api, name = row.true_work, "-" if row.kind is Kind.NOTHING else row.api, who(row)
    if kind.bench == "bulk-latency":
        return (name, api) + ((row.linkage, row.state, str(row.batch)) if row.state else ())
    if kind.bench == "memcg":
        accounting = row.accounting or ("" if row.kind is Kind.NOTHING or row.memcg else "off")
        if kind.columns is by_transfer:     # published and simulated share a line
            return (f"{row.threads} CPUs, {accounting}",)
        return (name, accounting, api, row.linkage, "others" if row.payers == "several" else "")
    if kind.bench == "netio":
        shape = "fio in the kernel" if row.kind is Kind.PUBLISHED else "fio" if api == "malloc" else "workload"
        return (name, api, shape)
    if row.label or kind.columns is by_function:
        return (name,)
    if kind.columns is by_form:
        return (row.measure or "",)
    if kind.bench == "slab-fastpath":
        return (name, api, row.linkage, work if row.batch < 2 else f"{work} of {row.batch}")
    return (name, api, row.linkage, work if kind.bench in ("bulk", "worst") else "")


# --------------------------------------------------------------------------------------------------------- the views

def quantile(row: Row, part: float) -> float | None:
    return None if row.settled else sorted(row.values)[int(part * (len(row.values) - 1) + 0.5)]


# Published for latency: median and mean. For netio: all but the median.
FIGURES: dict[str, Callable[[Row], float | None]] = {
    "min": lambda row: None if row.settled and row.work == "latency" else row.min,
    "10 %": lambda row: quantile(row, 0.10),
    "25 %": lambda row: quantile(row, 0.25),
    "median": lambda row: None if row.settled and row.work != "latency" else row.median,
    "mean": lambda row: row.avg,
    "75 %": lambda row: quantile(row, 0.75),
    "90 %": lambda row: quantile(row, 0.90),
    "max": lambda row: None if row.settled and row.work == "latency" else row.max,
    "sd": lambda row: row.sd,
}
SPREAD = ("min", "max", "mean", "sd", "median")
DISTRIBUTION = ("min", "10 %", "25 %", "median", "mean", "75 %", "90 %", "max")


@dataclass(frozen=True)
class ViewKind:
    """Which rows of a bench a view has, and how they are laid out. None: all."""
    bench: str
    title: str
    unit: str
    unit_text: str
    columns: Callable[[Row], str] = by_size
    decimals: int = 0
    scale: float = 1            # figures are divided by it
    plot: str | None = "bars"   # or "curves", "runs"
    higher_is_better: bool = False
    works: tuple[str, ...] | None = None
    measure: str | None = None
    time: str | None = None
    api: str | None = None
    touch: str | None = None
    figures: tuple[str, ...] = ()   # columns are figures of one row; (): medians

    def has(self, row: Row) -> bool:
        if row.unit != self.unit or (self.columns is not by_form and row.measure != self.measure):
            return False
        if self.columns is by_transfer and row.kind is Kind.PUBLISHED:  # what was published stands beside its model
            return row.work == "threads-4k"
        return ((self.works is None or row.true_work in self.works) and self.touch in (None, row.touch) and
                self.time in (None, row.time) and
                (self.api in (None, row.api) or row.kind is Kind.NOTHING and self.api == "kmem_cache"))


PAIR = "time-stamp cycles per alloc+free"
EACH = "time-stamp cycles per object, alloc+free"
CYCLES, NS, OPS = "cycles/object", "ns/object", "ops/s"
KINDS = (
    ViewKind("fastpath", "One object allocated and freed, not touched, by bytes", CYCLES, PAIR, decimals=1,
             plot="curves"),
    ViewKind("bulk", "Batches of objects of 256 bytes, not touched, by batch", CYCLES, EACH, by_batch, 1,
             plot="curves"),
    ViewKind("bulk", "Machine code: the function, and what only bulk functions call", "bytes", "bytes in libkmem.so",
             by_function, plot=None, measure="code"),
    ViewKind("worst", "Mixed arrays: batches of 64 of 4096 objects of 256 bytes, every Nth of the first's slab", CYCLES,
             "time-stamp cycles per object, free+alloc, with the filing (row nothing)", by_match, 1, plot="curves"),
    ViewKind("slab-fastpath", "One object by discipline, not touched, by bytes; alloc and free apart in windows of 16 "
             "and of 10000", CYCLES, "time-stamp cycles", decimals=1, plot="curves"),
    ViewKind("slab-fastpath", "The same beside what was published (size not stated)", NS, "ns", decimals=1, plot=None),
    ViewKind("bulk-latency", "One bulk allocation against a loop, each in a fresh process; published: size and count "
             "are not known", "cycles", "clocks for all objects together", plot="runs", figures=DISTRIBUTION),
    *(ViewKind("netio", f"{title} time", "s", "s", decimals=3, time=time, figures=SPREAD)
      for title, time in (("Real", "real"), ("System", "sys"), ("User", "user"))),
    ViewKind("netio", "Slabs to and from the page allocator", "slabs", "slabs", figures=SPREAD),
    ViewKind("memcg", "One object of 256 bytes allocated and freed in a group's name, not touched", CYCLES, PAIR,
             decimals=1, works=("pair",)),
    ViewKind("memcg", "The same in batches, by batch", CYCLES, EACH, by_batch, 1, plot="curves", works=("loop",),
             api="kmem_cache"),
    ViewKind("memcg", "Bulk calls, by batch", CYCLES, EACH, by_batch, 1, plot="curves", works=("bulk",)),
    ViewKind("memcg", "kmalloc, then kfree, one thread, not touched, by bytes/batch", NS, "ns per alloc+free", by_batch,
             1, works=("loop",), api="kmalloc"),
    ViewKind("memcg", "4 KiB kmalloc+kfree by threads in one group, first word written", OPS,
             "kilo-ops a second, all threads", by_work, 0, 1e3, higher_is_better=True, works=("threads-4k",)),
    ViewKind("memcg", "The published threads simulated: the library's charging code on CPUs that are not there; by "
             "what it takes to get a line from another", OPS, "kilo-ops a second", by_transfer, 0, 1e3, None, True,
             ("simulation",)),
    ViewKind("memcg", "Lines that another CPU had, simulated", "transfers/op", "per alloc+free", by_transfer, 4,
             plot=None, works=("simulation",)),
    ViewKind("memcg", "Atomic operations on lines that CPUs share", "atomics/op", "per alloc+free", by_work, 4,
             plot=None, api="kmalloc"),
    ViewKind("memcg", "Groups used in turn on one CPU, an object of 256 bytes each time", CYCLES,
             "time-stamp cycles per change of group, alloc and free", by_groups, 1, plot=None, works=("groups",)),
    ViewKind("memcg", "A group is made, allocates and frees 4 objects, and goes", "cycles",
             "time-stamp cycles for all of it", by_work, plot=None, works=("churn",)),
    ViewKind("peers", "Cost of one object: pair by bytes, loop by batch (256 bytes), not touched", CYCLES, PAIR,
             by_work, 1, works=("pair", "loop")),
    ViewKind("peers", "Objects of 256 bytes that are zero, or aligned to 64 bytes; x2: two threads at once", CYCLES,
             PAIR, by_work, 1, works=("zero", "aligned")),
    ViewKind("peers", "Blocks, not touched; x2: two threads at once", CYCLES, PAIR, by_work, works=("blocks",),
             touch="none"),
    ViewKind("peers", "Blocks, the first word of each page written", CYCLES, PAIR, by_work, works=("blocks",),
             touch="pages"),
    ViewKind("peers", "realloc from 24 bytes in steps of a half, a word written in each page", CYCLES,
             "thousand time-stamp cycles for the whole chain and its free", by_work, 2, 1e3, works=("realloc",)),
    ViewKind("peers", "120 MB of blocks held, 10 KB to 1 MB, written whole: resident over live", "rss/live", "ratio",
             by_work, 3, works=("held",)),
    ViewKind("peers", "Throughput", OPS, "million operations a second", by_work, 2, 1e6, higher_is_better=True),
    ViewKind("peers", "Live set: one replacement", NS, "ns per replacement", by_work, 1, works=("live-set",)),
    ViewKind("peers", "Resident memory (Rss)", "bytes", "MiB", by_work, 1, 1048576, measure="rss"),
    ViewKind("peers", "Proportional memory (Pss)", "bytes", "MiB", by_work, 1, 1048576, measure="pss"),
    ViewKind("forwarding", "A word that is loaded, added to and stored again and again, as hits do, by its address: by "
             "one register, (r), one that is computed anew each time, by two, (r,i), or load and store each by its own",
             "cycles/step", "time-stamp cycles", by_form, 2, plot=None),
)


@dataclass(eq=False)
class Line:
    label: Label
    any: Row                    # one of its rows, for what all have in common
    cells: dict[str, Row] = field(default_factory=dict)     # by column; a missing one was not measured


@dataclass(eq=False)
class View:
    table: Table
    kind: ViewKind
    columns: list[str]
    lines: list[Line]

    @property
    def title(self) -> str:
        said = f" ({self.table.extent})" if self.kind.figures or self.table.incomplete else ""
        return f"{self.table.bench}: {self.kind.title}{said}"

    def figure(self, row: Row, column: str) -> float | None:
        """What stands in a cell; None: a published row does not say."""
        value = FIGURES[column if self.kind.figures else "median"](row)
        return None if value is None else value / self.kind.scale

    def text(self, value: float | None) -> str:
        return "-" if value is None else f"{value:.{self.kind.decimals}f}"

    def best_peer(self, line: Line, column: str, batch: bool) -> Row | None:
        """Of this line's kind; batch: among batch interfaces. A fast path in a header has no peer of its own kind: the
        best linked-in one stands in."""
        linkage = line.any.linkage.replace("inline", "static")
        peers = [row for other in self.lines if (row := other.cells.get(column)) and row.kind is Kind.PEER and
                 row.linkage == linkage and batch == (row.api == "bulk") and (not batch or row.work == "bulk")]
        best = max if self.kind.higher_is_better else min
        return best(peers, key=lambda row: row.median) if peers else None


def views(table: Table) -> Iterator[View]:
    """A table's views that have something in them, one after the other."""
    for kind in KINDS:
        rows = [row for row in table.rows if kind.bench == table.bench and kind.has(row)]
        lines: dict[Label, Line] = {}
        columns = dict.fromkeys(kind.figures or map(kind.columns, rows))
        for row in rows:
            label = label_of(kind, row)
            # What is true of all rows the title says.
            if row.planned and row.rounds < table.complete:
                label = label[:-1] + (f"{label[-1]} ({row.rounds} of {row.planned})".lstrip(),)
            line = lines.setdefault(label, Line(label, row))
            line.cells.update(dict.fromkeys(kind.figures or [kind.columns(row)], row))
        if lines:
            yield View(table, kind, list(columns), list(lines.values()))
