"""Views: the rows of a table for readers, one line for each subject, interface and linkage, one column for each size,
batch or work. Text and page print the same views. Also the best peer of a row, always of the same linkage."""
from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field

from .model import Kind, Row, Table


def bytes_text(count: int) -> str:
    """ "4000 B", "40 KB" or "4 MB"."""
    if count < 10000 or count % 1000:
        return f"{count} B"
    return f"{count // 1000} KB" if count < 1000000 or count % 1000000 else f"{count // 1000000} MB"


def work_column(row: Row) -> str:
    """The work, with the distinguishing fields; x2: two threads at once."""
    work, together = row.true_work, f" x{row.threads}" if row.threads > 1 else ""
    of_size = f"{work} {row.size}" if row.size != 256 else work
    names = {
        "blocks": bytes_text(row.size) + together, "realloc": bytes_text(row.size) + together,
        "zero": of_size + together, "aligned": of_size + together, "held": work + together, "turn": f"turn {row.batch}",
        "pair": f"pair {row.size}", "loop": f"loop {row.batch}" if row.size == 256 else f"{row.size}B/{row.batch}",
        "producer-consumer": "prod-cons", "threads-4k": f"4k, {row.threads} thr", "larson": f"larson {row.threads}",
        "program": row.program or work, "programs": row.program or work,
        "idle-threads": "idle", "simulation": f"model {row.threads}", "live-set": f"live {row.at}" if row.at else work,
    }
    return names.get(work, work)


def who(row: Row) -> str:
    """The engine, and a discipline or rule other than the default."""
    if row.label:
        return f"{row.label}, published"
    if row.kind is Kind.PUBLISHED:
        return " ".join(filter(None, (row.of, row.min_partial))) + ", published" + ", memcg" * (row.memcg == "on")
    percpu = row.variant.percpu if row.variant else None
    return " ".join(filter(None, (row.subject, percpu, row.min_partial, row.level)))


def quantile(row: Row, part: float) -> float | None:
    return None if row.settled else sorted(row.values)[int(part * (len(row.values) - 1) + 0.5)]


Text = Callable[[Row], str]
# Titles of columns.
COLUMNS: dict[str, Text] = {
    "size": lambda row: str(row.size or "?"),
    "batch": lambda row: str(row.batch) if row.size in (0, 256) else f"{row.size}B/{row.batch}",
    "match": lambda row: f"N={row.match}",
    "groups": lambda row: f"{row.groups} group" + "s" * (row.groups != 1),
    "transfer": lambda row: f"{row.transfer_ns} ns" if row.transfer_ns else "published",
    "objects": lambda row: ((f"{row.size}B/" if row.size not in (0, 128) else "") + str(row.objects) +
                            (f" x{row.threads}" if row.threads > 1 else "")),
    "form": lambda row: row.at or "",
    "function": lambda row: (row.at or "").removeprefix("kmem_cache_"),     # too long for a column
    "work": work_column,
}
# Texts before the figures of a line.
LABELS: dict[str, Text] = {
    "who": who,
    "api": lambda row: "-" if row.kind is Kind.NOTHING else "" if row.label else row.api,
    "linkage": lambda row: "" if row.label or row.settled else row.linkage,
    "work": lambda row: row.true_work,
    "part": lambda row: "" if row.label else row.true_work + f" of {row.batch}" * (row.batch > 1),
    "state": lambda row: row.state or "",
    "batch": lambda row: str(row.batch or ""),
    "shape": lambda row: ("fio in the kernel" if row.kind is Kind.PUBLISHED else
                          "fio" if row.api == "malloc" else "workload"),
    "accounting": lambda row: row.accounting or ("" if row.kind is Kind.NOTHING or row.memcg else "off"),
    "payers": lambda row: "others" if row.payers == "several" else "",
    "cpus": lambda row: f"{row.threads} CPUs, {row.accounting}",    # published and simulated share a line
    "measure": lambda row: row.measure or "",
}
# Columns for the figures of one row. Published for latency: median and mean; for netio: all except the median.
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
    """The rows of a view, and the layout. None: all rows."""
    bench: str
    title: str
    unit: str
    unit_text: str
    columns: str = "size"
    decimals: int = 0
    scale: float = 1            # divisor of the figures
    plot: str | None = "bars"   # or "curves", "runs"
    higher_is_better: bool = False
    works: tuple[str, ...] = ()     # (): all
    measure: str | None = None
    time: str | None = None
    api: str | None = None
    touch: str | None = None
    sizes: str | None = None
    order: str | None = None
    figures: tuple[str, ...] = ()   # columns are figures of one row; (): medians
    label: str = "who api linkage"

    def has(self, row: Row) -> bool:
        if (row.bench, row.unit) != (self.bench, self.unit) or (self.columns != "form" and row.measure != self.measure):
            return False
        if self.columns == "transfer" and row.kind is Kind.PUBLISHED:   # published rows are beside the model
            return row.work == "threads-4k"
        api = "kmem_cache" if row.kind is Kind.NOTHING else row.api
        return ((not self.works or row.true_work in self.works) and self.touch in (None, row.touch) and
                self.time in (None, row.time) and self.api in (None, api) and
                self.sizes in (None, row.sizes) and self.order in (None, row.order))


PAIR = "time-stamp cycles per alloc+free"
EACH = "time-stamp cycles per object, alloc+free"
CYCLES, NS, OPS = "cycles/object", "ns/object", "ops/s"
NETIO, MEMCG, WORK = "who api shape", "who accounting api linkage payers", "who api linkage work"
KINDS = (
    ViewKind("fastpath", "One object allocated and freed, not touched, by bytes", CYCLES, PAIR, decimals=1,
             plot="curves"),
    ViewKind("bulk", "Batches of objects of 256 bytes, not touched, by batch", CYCLES, EACH, "batch", 1, plot="curves",
             label=WORK),
    ViewKind("bulk", "Machine code: the function, and what only bulk functions call", "bytes", "bytes in libkmem.so",
             "function", plot=None, measure="code", label="who"),
    ViewKind("worst", "Mixed arrays: batches of 64 of 4096 objects of 256 bytes, every Nth of the first's slab", CYCLES,
             "time-stamp cycles per object, free+alloc, with the filing (row nothing)", "match", 1, plot="curves",
             label=WORK),
    ViewKind("slab-fastpath", "One object by discipline, not touched, by bytes; alloc and free apart in windows of 16 "
             "and of 10000", CYCLES, "time-stamp cycles", decimals=1, plot="curves", label="who api linkage part"),
    ViewKind("slab-fastpath", "The same beside what was published (size not stated)", NS, "ns", decimals=1, plot=None,
             label="who api linkage part"),
    ViewKind("bulk-latency", "One bulk allocation against a loop, each in a fresh process; published: size and count "
             "are not known", "cycles", "clocks for all objects together", plot="runs", figures=DISTRIBUTION,
             label="who api linkage state batch"),
    *(ViewKind("netio", f"{title} time", "s", "s", decimals=3, time=time, figures=SPREAD, label=NETIO)
      for title, time in (("Real", "real"), ("System", "sys"), ("User", "user"))),
    ViewKind("netio", "Slabs to and from the page allocator", "slabs", "slabs", figures=SPREAD, label=NETIO),
    ViewKind("memcg", "One object of 256 bytes allocated and freed in a group's name, not touched", CYCLES, PAIR,
             decimals=1, works=("pair",), label=MEMCG),
    ViewKind("memcg", "The same in batches, by batch", CYCLES, EACH, "batch", 1, plot="curves", works=("loop",),
             api="kmem_cache", label=MEMCG),
    ViewKind("memcg", "Bulk calls, by batch", CYCLES, EACH, "batch", 1, plot="curves", works=("bulk",), label=MEMCG),
    ViewKind("memcg", "kmalloc, then kfree, one thread, not touched, by bytes/batch", NS, "ns per alloc+free", "batch",
             1, works=("loop",), api="kmalloc", label=MEMCG),
    ViewKind("memcg", "4 KiB kmalloc+kfree by threads in one group, first word written", OPS,
             "kilo-ops a second, all threads", "work", 0, 1e3, higher_is_better=True, works=("threads-4k",),
             label=MEMCG),
    ViewKind("memcg", "The published threads simulated: the library's charging code on CPUs that are not there; by "
             "what it takes to get a line from another", OPS, "kilo-ops a second", "transfer", 0, 1e3, None, True,
             ("simulation",), label="cpus"),
    ViewKind("memcg", "Lines that another CPU had, simulated", "transfers/op", "per alloc+free", "transfer", 4,
             plot=None, works=("simulation",), label="cpus"),
    ViewKind("memcg", "Atomic operations on lines that CPUs share", "atomics/op", "per alloc+free", "work", 4,
             plot=None, api="kmalloc", label=MEMCG),
    ViewKind("memcg", "Groups used in turn on one CPU, an object of 256 bytes each time", CYCLES,
             "time-stamp cycles per change of group, alloc and free", "groups", 1, plot=None, works=("groups",),
             label=MEMCG),
    ViewKind("memcg", "A group is made, allocates and frees 4 objects, and goes", "cycles",
             "time-stamp cycles for all of it", "work", plot=None, works=("churn",), label=MEMCG),
    ViewKind("peers", "Cost of one object: pair by bytes, loop by batch (256 bytes), not touched", CYCLES, PAIR,
             "work", 1, works=("pair", "loop")),
    ViewKind("peers", "Objects that are zero, or aligned to 64 bytes (x2: two threads at once); of many kinds in turn",
             CYCLES, PAIR, "work", 1, works=("zero", "aligned", "turn")),
    ViewKind("peers", "Blocks, not touched; x2: two threads", CYCLES, PAIR, "work", works=("blocks",), touch="none"),
    ViewKind("peers", "Blocks, the first word of each page written", CYCLES, PAIR, "work", works=("blocks",),
             touch="pages"),
    ViewKind("peers", "realloc from 24 bytes in steps of a half, a word written in each page", CYCLES,
             "thousand time-stamp cycles for the whole chain and its free", "work", 2, 1e3, works=("realloc",)),
    ViewKind("peers", "120 MB of blocks held, 10 KB to 1 MB, written whole: resident over live", "rss/live", "ratio",
             "work", 3, works=("held",)),
    *(ViewKind("peers", f"Live set of N objects of one size, freed {said}: {title}, by N", CYCLES, "time-stamp cycles",
               "objects", 1, plot="curves", works=("live-set-cycle",), measure=measure, order=order)
      for order, said in (("forward", "in order"), ("reverse", "in reverse"), ("random", "at random"))
      for measure, title in (("alloc", "an allocation, first word written"), ("free", "a free"))),
    *(ViewKind("peers", f"N live objects of {sizes} bytes, one replaced, first word written, by N; x2: two threads",
               CYCLES, "time-stamp cycles per free+alloc", "objects", 1, plot="curves", works=("churn",), sizes=sizes)
      for sizes in ("16-128", "16-1024", "1024-8192")),
    ViewKind("peers", "Whole programs: processor time", "s", "s, user and system", "work", 3, works=("programs",),
             time="cpu", label="who"),
    ViewKind("peers", "Throughput", OPS, "million operations a second", "work", 2, 1e6, higher_is_better=True),
    ViewKind("peers", "Live set: one replacement", NS, "ns per replacement", "work", 1, works=("live-set",)),
    ViewKind("peers", "Resident memory (Rss)", "bytes", "MiB", "work", 1, 1048576, measure="rss"),
    ViewKind("peers", "Proportional memory (Pss)", "bytes", "MiB", "work", 1, 1048576, measure="pss"),
    ViewKind("debug", "Cost of one object by what is watched: pair by bytes, loop by batch (256 bytes), not touched",
             CYCLES, PAIR, "work", 1, works=("pair", "loop")),
    ViewKind("debug", "Whole programs: processor time", "s", "s, user and system", "work", 3, works=("program",),
             time="cpu", label="who"),
    ViewKind("debug", "Whole programs: resident memory at its peak", "bytes", "MiB", "work", 1, 1048576,
             works=("program",), measure="rss", label="who"),
    ViewKind("forwarding", "A word that is loaded, added to and stored again and again, as hits do, by its address: by "
             "one register, (r), one that is computed anew each time, by two, (r,i), or load and store each by its own",
             "cycles/step", "time-stamp cycles", "form", 2, plot=None, label="measure"),
)


@dataclass(eq=False)
class Line:
    label: tuple[str, ...]
    any: Row                    # one of the rows, for common fields
    cells: dict[str, Row] = field(default_factory=dict)     # by column; a missing cell was not measured


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
        """The text of a cell; None: not published."""
        value = FIGURES[column if self.kind.figures else "median"](row)
        return None if value is None else value / self.kind.scale

    def text(self, value: float | None) -> str:
        return "-" if value is None else f"{value:.{self.kind.decimals}f}"


def views(table: Table) -> Iterator[View]:
    """Yields the filled views of a table, one after the other."""
    for kind in KINDS:
        rows, column = list(filter(kind.has, table.rows)), COLUMNS[kind.columns]
        lines: dict[tuple[str, ...], Line] = {}
        for row in rows:
            label = tuple(LABELS[part](row) for part in kind.label.split())
            # The title has the values that all rows share.
            if row.planned and row.rounds < table.complete:
                label = label[:-1] + (f"{label[-1]} ({row.rounds} of {row.planned})".lstrip(),)
            line = lines.setdefault(label, Line(label, row))
            line.cells.update(dict.fromkeys(kind.figures or [column(row)], row))
        if lines:
            yield View(table, kind, list(dict.fromkeys(kind.figures or map(column, rows))), list(lines.values()))


class Rivals:
    """For each row the peers' rows with the same measurement, linkage and kind of interface. A batch interface is
    compared with batch interfaces; a fast path in a header, without peers of its kind, with linked peers."""

    def __init__(self, table: Table) -> None:
        self.rows: dict[Hashable, dict[str, Row]] = {}
        for row in table.rows:
            if row.kind is Kind.PEER and (row.api == "bulk") == (row.work == "bulk"):
                self.rows.setdefault(self.key(row, row.work), {}).setdefault(row.subject, row)

    @staticmethod
    def key(row: Row, work: str) -> Hashable:
        return (row.unit, row.measure, row.at, work, row.touch, row.threads, row.match, row.size, row.batch,
                row.objects, row.sizes, row.order, row.program, row.time, row.linkage.replace("inline", "static"))

    def of(self, row: Row, single: bool = False) -> dict[str, Row]:
        """Peers with batches, or, for `single`, peers with single calls of the same work."""
        return self.rows.get(self.key(row, "loop" if single and row.work == "bulk" else row.work), {})

    def best(self, row: Row, more: bool, single: bool) -> Row | None:
        peers = sorted(self.of(row, single).values(), key=lambda peer: peer.median, reverse=more)
        return peers[0] if peers else None
