"""The rounds: every job of a table once in each round, in the same order (A B C A B C ...), each in a fresh process.

A failed subject is left out from then on, and named; its rows have the earlier rounds. Invariant: with any early end
the rows of a table have whole rounds only."""
from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from .model import KEY, Bench, Cell, Job, Kind, Row, Table, Variant
from .progress import Progress, is_due
from .subjects import LEVELS

CELL_US = 20000         # minimum of a cost cell's windows together
RUN_MS = 200            # a throughput cell ...
RUN_CROWD_MS = 400      # ... with many threads, because each thread needs several turns
FULL_OBJECTS = 10000000     # objects of a cell in the published tables


def accounting_options(accounting: str | None) -> str:
    """The rules for charges: "shelf", or hierarchy and refill rule of the stock, such as "v2-keep"."""
    if not accounting or accounting == "off":
        return ""
    hierarchy, dash, refill = accounting.partition("-")
    return f"memcg_hierarchy:{hierarchy},memcg_refill:{refill},memcg_shelf:0" if dash else \
        "memcg_hierarchy:v2,memcg_refill:keep,memcg_shelf:1"


def worker_environment(variant: Variant, root: Path) -> dict[str, str]:
    """Adds our options after the user's options, because the user's other options stay. A peer runs under the settings
    of its recipe."""
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    settings = root / "build/peers" / variant.subject / "env"
    if variant.kind is Kind.PEER and settings.exists():
        environment.update(setting.partition("=")[::2] for setting in settings.read_text().split())
    # The worker of programs runs without the preload.
    if variant.preload:
        environment["BENCH_PRELOAD" if variant.api == "program" else "LD_PRELOAD"] = str(root / variant.preload)
    level = LEVELS.get(variant.level or "", {})
    if variant.kind in (Kind.OURS, Kind.MODEL):
        options = (environment.get("KMEM_OPTIONS"),
                   f"engine:{'sheaf' if variant.kind is Kind.MODEL else variant.subject}",
                   variant.min_partial and f"min_partial:{variant.min_partial}", accounting_options(variant.accounting),
                   level.get("KMEM_OPTIONS"))
        environment |= level | {"KMEM_OPTIONS": ",".join(filter(None, options))}
    if variant.percpu:
        environment["KMEM_PERCPU"] = variant.percpu
    return environment


class Runner:
    def __init__(self, bench: Bench) -> None:
        self.bench, self.children, self.options = bench, bench.children, bench.options
        self.progress = Progress(bench.tables)
        self.rows: dict[tuple[Cell, str, str | None, str | None], Row] = {}

    # ------------------------------------------------------------------------------------------------- one worker

    def arguments(self, job: Job) -> list[str]:
        """The command line of a worker. A single thread runs on the last available CPU, because most systems take
        interrupts on the first."""
        first, less = job.cells[0], 3 if self.options.quick else 1
        run_ms = first.run_ms or (RUN_CROWD_MS if first.threads > 2 else RUN_MS)
        return [str(self.bench.root / job.variant.worker), f"--cpu={max(os.sched_getaffinity(0))}",
                f"--cell-us={CELL_US // less}", f"--run-ms={run_ms // less}",
                *[f"--objects={FULL_OBJECTS}"] * self.options.full,
                *[f"--live={first.objects}"] * bool(first.objects),
                *[f"--idle={first.threads}"] * (first.threads > 2),
                *["--account"] * (job.variant.accounting not in (None, "off")),
                *["--several"] * (first.payers == "several"),
                *(",".join(map(str, (c.verb, c.most, c.batch, c.threads, c.match, c.groups, c.transfer_ns, c.least)))
                  for c in job.cells)]

    def take_info(self, variant: Variant, key: str, value: str) -> bool:
        """Reads a line about the subject. Returns False if another malloc, engine or discipline is in force."""
        environment = self.bench.environment
        if key == "malloc" and variant.owner:
            return value == os.path.realpath(self.bench.root / variant.owner)
        if key in ("accounting", "engine"):
            return value == (variant.accounting if key == "accounting" else variant.subject)
        if key == "discipline" and variant.kind is Kind.OURS:
            variant.refused = variant.percpu not in (None, value)
            if variant.subject != "slob" and not variant.refused:
                variant.discipline = value
                environment.disciplines = list(dict.fromkeys([*environment.disciplines, value]))
            return not variant.refused
        if key == "version":
            variant.version = variant.version or value
        elif key in ("compiler", "flags", "library-flags"):
            setattr(environment, key.replace("-", "_"), value)
        return True

    def row_of(self, table: Table, job: Job, cell: Cell, unit: str, measure: str | None, at: str | None) -> Row:
        """The row of a cell and unit; for seconds the worker's `measure` names the kind of time."""
        if (cell, unit, measure, at) not in self.rows:
            variant = job.variant
            named = {name: getattr(variant, name, None) or getattr(cell, name) for name in KEY}
            named |= {"bench": table.bench, "api": cell.api or variant.api, "unit": unit, "at": at,
                      "time" if unit == "s" else "measure": measure}
            if variant.kind is Kind.NOTHING:
                named |= {"work": "nothing", "of": cell.work}
            row = Row(**named, kind=variant.kind, variant=variant, job=job)
            self.rows[cell, unit, measure, at] = row
            table.rows.append(row)
        return self.rows[cell, unit, measure, at]

    def take_figure(self, table: Table, job: Job, words: list[str]) -> bool:
        """Reads CELL UNIT MEASURE AT FIGURE. Returns False for another line."""
        try:
            index, unit, measure, at, figure = words
            cell, value = job.cells[int(index)], float(figure)
        except (ValueError, IndexError):
            return False
        names = [None if name == "-" else name for name in (measure, at)]
        self.row_of(table, job, cell, unit, *names).values.append(value)
        if unit == "cycles/object":
            self.row_of(table, job, cell, "ns/object", *names).values.append(value / self.bench.environment.tsc_ghz)
        return True

    def read(self, table: Table, job: Job, said: bytes) -> bool:
        """Reads the output of a worker. Returns False for a wrong output."""
        good, figures = True, 0
        for line in said.decode(errors="replace").splitlines():
            words = line.split(maxsplit=2)
            if words[:1] == ["info"] and len(words) > 1:
                job.variant.impostor |= not self.take_info(job.variant, words[1], "".join(words[2:]))
            elif self.take_figure(table, job, line.split()):
                figures += 1
            else:
                good = False
        return good and figures >= len(job.cells)

    # ---------------------------------------------------------------------------------------------- failed subjects

    @staticmethod
    def fault_of(table: Table, job: Job, status: int, good: bool) -> str | None:
        """The reason against a worker's figures; None: the figures count."""
        work = job.cells[0].verb
        if status == -signal.SIGALRM:
            return f"its worker took more than {table.worker_s} seconds ({work})"
        if status:
            return f"its worker {f'died of signal {-status}' if status < 0 else 'failed'} ({work})"
        if job.variant.refused:
            return "this machine does not have that discipline"
        if job.variant.impostor:
            return "another malloc or engine was in force"
        return None if good else "its worker's output is wrong"

    @staticmethod
    def complete_rounds(table: Table, variant: Variant) -> int:
        """The rounds of a subject that can be printed: the rounds that all of its jobs have completed. A job with fewer
        rounds counts until its next round."""
        return min([job.rounds * job.every for job in table.jobs if job.variant is variant] + [table.rounds])

    def leave_out(self, table: Table, variant: Variant, why: str) -> None:
        rounds = 0 if variant.impostor else self.complete_rounds(table, variant)
        name = variant.name + (f" after {rounds} of {table.rounds} {table.rounds_name}" if rounds else "")
        self.progress.clear()
        print(f"kmem bench: going on without {name}: {why}", file=sys.stderr)
        self.bench.leave(name, why)
        variant.broken = True
        self.bench.ours_failed |= variant.kind.is_ours and not variant.refused

    def job(self, table: Table, job: Job) -> bool:
        """Runs a job. Returns False at the end of the run."""
        began = time.monotonic()
        try:
            child = self.children.start(self.arguments(job), worker_environment(job.variant, self.bench.root),
                                        seconds=table.worker_s)
        except (FileNotFoundError, PermissionError):
            self.leave_out(table, job.variant, f"its worker failed ({job.cells[0].verb})")
            return True
        except OSError as error:
            self.children.reason = f"cannot start a worker: {error.strerror}"
            self.bench.ours_failed = True
            return False
        good = self.read(table, job, self.children.output(child))
        fault = self.fault_of(table, job, self.children.wait(child), good)
        if not fault:
            self.progress.ran(job, (time.monotonic() - began) * 1e3)
            job.rounds += 1
            return True
        for row in table.rows:      # figures of a round that the job did not complete
            if row.job is job:
                del row.values[job.rounds:]
        if self.children.stopped:
            return False
        self.leave_out(table, job.variant, fault)
        return True

    # ------------------------------------------------------------------------------------------------- the rounds

    def round(self, table: Table) -> bool:
        """Runs a round. Returns False if the run ends within the round."""
        for job in table.jobs:
            if is_due(job, table.complete):
                if self.children.stopped:
                    return False
                self.progress.show(table, job)
                if not self.job(table, job):
                    return False
        return True

    def has_time(self, table: Table) -> bool:
        """True if the next round ends within the table's limit."""
        assert table.began is not None
        end = (time.monotonic() - table.began) * 1e3 + self.progress.jobs_ms(table.jobs, table.complete)
        if not table.limit_s or not table.complete or end < table.limit_s * 1e3:
            return True
        table.cut_by = f"the next would end later than the {table.limit_s} seconds that it has (--seconds)"
        return False

    def keep_complete(self, table: Table) -> None:
        """Cuts the rows to the last round that all subjects have completed, because rows must be comparable; rows of a
        failed subject end earlier. Removes rows without a figure in every round, and rows of an impostor."""
        rows, table.rows = table.rows, []
        for row in rows:
            assert row.variant and row.job
            rounds = min(self.complete_rounds(table, row.variant), table.complete)
            if rounds and len(row.values) == row.job.rounds and not row.variant.impostor:
                wanted = row.job.runs_within(table.rounds)
                del row.values[row.job.runs_within(rounds):]
                row.planned = wanted if len(row.values) < wanted else 0
                table.rows.append(row)

    def run(self) -> None:
        self.progress.begin()
        for table in self.bench.tables:
            table.began = time.monotonic()
            while table.complete < table.rounds and self.has_time(table) and self.round(table):
                table.complete += 1
            self.progress.clear()
            if table.incomplete and not table.cut_by:
                table.cut_by = self.children.stopped
            self.keep_complete(table)
