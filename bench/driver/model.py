"""What a run is made of: variants (who is measured, and how it is reached), tables of jobs (processes) of cells
(measurements), and the rows that come out of them.

Invariant: a row's values are in the order of the rounds, one for each round that its job has completed.
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
COST_MS = 25            # a cell of cost per object, about


class Kind(enum.Enum):
    """Whose figures they are."""
    OURS = enum.auto()
    PEER = enum.auto()
    NOTHING = enum.auto()
    PUBLISHED = enum.auto()
    MODEL = enum.auto()
    PROCESSOR = enum.auto()

    @property
    def is_ours(self) -> bool:
        """The project's own code: that it can't be measured is a failure."""
        return self in (Kind.OURS, Kind.MODEL, Kind.PROCESSOR)


@dataclass(eq=False)
class Variant:
    """One way to reach one subject: a worker program and the environment that it needs. Paths are under the root."""
    kind: Kind
    subject: str
    api: str
    linkage: str
    worker: str
    preload: str | None = None
    owner: str | None = None        # the file that must hold malloc; None: whichever does
    version: str | None = None
    discipline: str = "none"        # said by the worker
    only: str | None = None         # the bench that it is for; None: each that takes it
    percpu: str | None = None       # the discipline to force; None: what the library chooses
    min_partial: str | None = None  # the rule to force
    accounting: str | None = None   # who pays and how; None: the worker knows of no accounting
    level: str | None = None        # how much is watched; None: what users get
    broken: bool = False            # failed once: left out from then on
    refused: bool = False           # the machine lacks the discipline: nobody's failure
    impostor: bool = False          # not what its rows would say: none of them counts

    @property
    def name(self) -> str:
        return " ".join(filter(None, (self.subject, self.api, self.linkage, self.percpu)))


@dataclass(eq=False)
class Named:
    """What a row is called: the contract's fields, in the order in which they are printed. Empty ones mean nothing."""
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
    """One measurement to ask of a worker. What it says of a row goes before what the variant says."""
    verb: str = ""                  # the worker's name for the work
    ms: int = COST_MS               # what it takes, about
    run_ms: int = 0                 # what a cell of throughput takes; 0: as ever


@dataclass(eq=False)
class Job:
    """One process in a round: a variant and the cells that it runs."""
    variant: Variant
    cells: list[Cell]
    every: int = 1                  # it runs in the first of so many rounds
    ms: float = 0.0                 # a run of it: at first what the plan expects
    rounds: int = 0                 # completed

    def runs_within(self, rounds: int) -> int:
        return -(-rounds // self.every)


@dataclass(eq=False)
class Row(Named):
    """A figure over the rounds."""
    kind: Kind = Kind.PUBLISHED
    values: list[float] = field(default_factory=list)
    rounds: int = 0                 # that the figures are of
    planned: int = 0                # rounds that were wanted; 0: it has them all
    settled: bool = False           # published: the figures are set, and there are no values
    median: float = 0.0
    min: float = 0.0
    max: float = 0.0
    avg: float = 0.0
    sd: float = 0.0
    variant: Variant | None = None
    job: Job | None = None

    @property
    def true_work(self) -> str:
        """The work; of empty functions the one that they stand for."""
        return self.of or "" if self.kind is Kind.NOTHING else self.work

    def key(self) -> tuple[Any, ...]:
        """All fields but the figures."""
        return tuple(getattr(self, name) for name in KEY)

    def settle(self) -> None:
        """Median, extremes, mean and standard deviation of the values."""
        if not self.settled:
            self.rounds = len(self.values)
            self.median, self.min, self.max = statistics.median(self.values), min(self.values), max(self.values)
            self.avg = statistics.fmean(self.values)
            self.sd = statistics.stdev(self.values) if self.rounds > 1 else 0.0


@dataclass(eq=False)
class Table:
    """One bench of the run: its jobs in the order of a round, and its rows."""
    bench: str
    rounds: int
    rounds_name: str = "rounds"     # or "runs"
    limit_s: int = 0                # no round begins that would end later, but the first; 0: no limit
    worker_s: int = 600             # a worker that takes longer hangs
    complete: int = 0               # rounds done by every subject that did not fall out
    began: float | None = None      # seconds of the monotonic clock
    cut_by: str | None = None       # why it has fewer rounds than wanted
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
    """Everything about one run; filled in order: options, root, variants, tables, environment."""
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
        """Somebody or something is left out: that is said, once."""
        if f"{name}: {why}" not in self.without:
            self.without.append(f"{name}: {why}")

    def wants(self, *works: str) -> bool:
        """Whether the table has one of these, which --work may choose from."""
        return not self.options.works or any(work in self.options.works for work in works)

    def peers(self) -> dict[str, str]:
        """Name and version of the peers that are here."""
        return {v.subject: v.version for v in self.variants if v.kind is Kind.PEER and v.version}
