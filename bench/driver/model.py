"""The parts of a run: variants (a subject with its interface and linkage), tables of jobs (processes) of cells
(measurements), and rows (results).

Invariant: a row's values are in the order of the rounds, one for each completed round of the row's job.
"""
from __future__ import annotations

import argparse
import enum
import statistics
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from .children import Children
from .environment import Environment

LINKAGES = ("shared", "static", "inline")
COST_MS = 25            # approximate ms of a cell of cost per object


class Kind(enum.Enum):
    """Origin of a figure."""
    OURS = enum.auto()
    PEER = enum.auto()
    NOTHING = enum.auto()
    PUBLISHED = enum.auto()
    MODEL = enum.auto()
    PROCESSOR = enum.auto()

    @property
    def is_ours(self) -> bool:
        """The project's own code: a failed measurement is a failure of the run."""
        return self in (Kind.OURS, Kind.MODEL, Kind.PROCESSOR)


@dataclass(eq=False)
class Variant:
    """One way to measure one subject: a worker program and its environment. Paths are relative to the root."""
    kind: Kind
    subject: str
    api: str
    linkage: str
    worker: str
    preload: str | None = None
    owner: str | None = None        # file that must contain malloc; None: any
    version: str | None = None
    discipline: str = "none"        # reported by the worker
    only: str | None = None         # the only bench with this variant; None: all
    percpu: str | None = None       # forced discipline; None: the library's choice
    min_partial: str | None = None  # forced rule
    accounting: str | None = None   # rules for charges; None: a worker without accounting
    level: str | None = None        # level of debugging; None: the default
    broken: bool = False            # failed once: left out from then on
    refused: bool = False           # the machine lacks the discipline: no failure
    impostor: bool = False          # another malloc or engine was in force: no row counts

    @property
    def name(self) -> str:
        return " ".join(filter(None, (self.subject, self.api, self.linkage, self.percpu)))


@dataclass(eq=False)
class Named:
    """The names of a row: the fields of the contract, in the order of the output. Empty fields have no meaning for the
    row."""
    bench: str = ""
    work: str = ""
    subject: str = ""
    of: str | None = None
    version: str | None = None
    api: str = ""
    linkage: str = "static"
    discipline: str = "none"
    accounting: str | None = None
    memcg: str | None = None
    size: int = 0
    batch: int = 0
    threads: int = 0
    match: int = 0
    objects: int = 0
    sizes: str | None = None        # least and largest size of a mix, "16-128"
    order: str | None = None        # of the frees
    groups: int = 0
    payers: str | None = None
    transfer_ns: int = 0
    touch: str | None = None
    state: str | None = None
    min_partial: str | None = None
    level: str | None = None
    program: str | None = None
    time: str | None = None
    label: str | None = None
    unit: str = ""
    measure: str | None = None
    at: str | None = None


KEY = tuple(f.name for f in fields(Named))


@dataclass(eq=False)
class Cell(Named):
    """One measurement of a worker. The cell's fields take precedence over the variant's fields."""
    verb: str = ""                  # the worker's name of the work
    ms: int = COST_MS               # approximate time of the cell
    run_ms: int = 0                 # time of a throughput cell; 0: the default

    @property
    def least(self) -> int:
        """The least size of a mix, or the only size."""
        return int(self.sizes.partition("-")[0]) if self.sizes else self.size

    @property
    def most(self) -> int:
        return int(self.sizes.partition("-")[2]) if self.sizes else self.size


@dataclass(eq=False)
class Job:
    """One process in a round: a variant and the cells of the process."""
    variant: Variant
    cells: list[Cell]
    every: int = 1                  # runs in the first of so many rounds
    ms: float = 0.0                 # time of a run: at first an estimate
    rounds: int = 0                 # completed rounds

    def runs_within(self, rounds: int) -> int:
        return -(-rounds // self.every)


@dataclass(eq=False)
class Row(Named):
    """A figure over the rounds."""
    kind: Kind = Kind.PUBLISHED
    values: list[float] = field(default_factory=list)
    rounds: int = 0                 # rounds of the figures
    planned: int = 0                # planned rounds; 0: complete
    settled: bool = False           # published: the figures are set, without values
    median: float = 0.0
    min: float = 0.0
    max: float = 0.0
    avg: float = 0.0
    sd: float = 0.0
    variant: Variant | None = None
    job: Job | None = None

    @property
    def true_work(self) -> str:
        """The work; for empty functions the represented work."""
        return self.of or "" if self.kind is Kind.NOTHING else self.work

    def key(self) -> tuple[Any, ...]:
        """All fields except the figures."""
        return tuple(getattr(self, name) for name in KEY)

    def settle(self) -> None:
        """Computes median, extremes, mean and standard deviation of the values."""
        if not self.settled:
            self.rounds = len(self.values)
            self.median, self.min, self.max = statistics.median(self.values), min(self.values), max(self.values)
            self.avg = statistics.fmean(self.values)
            self.sd = statistics.stdev(self.values) if self.rounds > 1 else 0.0


@dataclass(eq=False)
class Table:
    """One bench of the run: jobs in the order of a round, and rows."""
    bench: str
    rounds: int
    rounds_name: str = "rounds"     # or "runs"
    limit_s: int = 0                # no round may end later, except the first; 0: no limit
    worker_s: int = 600             # a worker that takes longer is killed
    complete: int = 0               # rounds completed by all remaining subjects
    began: float | None = None      # seconds of the monotonic clock
    cut_by: str | None = None       # reason for fewer rounds
    jobs: list[Job] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)

    @property
    def incomplete(self) -> bool:
        return self.complete < self.rounds

    @property
    def extent(self) -> str:
        """ "50 runs", or "38 of 50 runs: interrupted"."""
        if not self.incomplete:
            return f"{self.rounds} {self.rounds_name}"
        return f"{self.complete} of {self.rounds} {self.rounds_name}: {self.cut_by}"


@dataclass(eq=False)
class Bench:
    """The state of a run, filled in order: options, root, variants, tables, environment."""
    options: argparse.Namespace
    root: Path
    children: Children = field(default_factory=Children)
    environment: Environment = field(default_factory=Environment)
    variants: list[Variant] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    without: list[str] = field(default_factory=list)    # "NAME: why"
    ours_failed: bool = False
    must_missing: bool = False

    def leave(self, name: str, why: str) -> None:
        """Records a subject or a work that is left out, once."""
        if f"{name}: {why}" not in self.without:
            self.without.append(f"{name}: {why}")

    def wants(self, *works: str) -> bool:
        """True if --work selects one of these works, or is absent."""
        return not self.options.works or any(work in self.options.works for work in works)

    def peers(self) -> dict[str, str]:
        """Name and version of the present peers."""
        return {v.subject: v.version for v in self.variants if v.kind is Kind.PEER and v.version}
