"""The progress: an estimate from the plan for each job until the job has run, then the measured time.

On a terminal one line shows the progress while the rounds run. The line is never wider than the terminal, and is
removed before the tables."""
from __future__ import annotations

import math
import os
import sys
import time
from typing import TextIO

from .model import Job, Table

BAR = 10
PIPE_COLUMNS = 100      # the width without a terminal


def terminal_columns(stream: TextIO) -> int:
    """0: no terminal. A terminal without a known width has the usual width."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80 if stream.isatty() else 0
    except (OSError, ValueError):
        return 0


def is_due(job: Job, round_: int) -> bool:
    return not job.variant.broken and round_ % job.every == 0


class Progress:
    def __init__(self, tables: list[Table]) -> None:
        self.tables, self.began = tables, time.monotonic()
        self.expected = self.took = 0.0     # ms of the completed jobs: estimated, measured

    def jobs_ms(self, jobs: list[Job], round_: int) -> float:
        """Estimate for the due jobs, scaled by the quotient of measured and estimated time."""
        late = self.took / self.expected if self.expected > 0 else 1.0
        return sum(job.ms * (1.0 if job.rounds else late) for job in jobs if is_due(job, round_))

    def left_ms(self, table: Table, following: Job | None) -> float:
        """Estimate from this job of the round on, or from a table's first job; at most the table's limit."""
        ms = self.jobs_ms(table.jobs[table.jobs.index(following):] if following else [], table.complete)
        ms += sum(self.jobs_ms(table.jobs, round_) for round_ in range(table.complete + bool(following), table.rounds))
        if not table.limit_s:
            return ms
        passed = (time.monotonic() - table.began) * 1e3 if table.began is not None else 0.0
        return max(0.0, min(ms, table.limit_s * 1e3 - passed))

    def all_left_ms(self, table: Table, following: Job | None) -> float:
        later = self.tables[self.tables.index(table) + 1:]
        return self.left_ms(table, following) + sum(self.left_ms(other, None) for other in later)

    def begin(self) -> None:
        if terminal_columns(sys.stderr):
            seconds = self.all_left_ms(self.tables[0], None) / 1e3
            amount, unit = (seconds, "seconds") if seconds < 120 else (seconds / 60, "minutes")
            print(f"kmem bench: about {math.ceil(amount)} {unit}", file=sys.stderr)

    def show(self, table: Table, job: Job) -> None:
        width = terminal_columns(sys.stderr)
        if not width:
            return
        left = self.all_left_ms(table, job)
        every = left + (time.monotonic() - self.began) * 1e3
        bar = "#" * int(BAR * (1 - left / every)) if every > 0 else ""
        minutes, seconds = divmod(int(left / 1e3 + 0.5), 60)
        line = (f"{table.bench} {table.complete + 1}/{table.rounds} [{bar:{BAR}}] {minutes}:{seconds:02} left: "
                f"{job.cells[0].work} {job.variant.subject} {job.variant.api} {job.variant.linkage}")
        # A full line would move the cursor to the next line.
        print(f"\r\033[K{line[:width - 1]}", end="", file=sys.stderr, flush=True)

    def ran(self, job: Job, ms: float) -> None:
        if not job.rounds:
            self.expected += job.ms
            self.took += ms
        job.ms = ms if job.rounds < 2 else job.ms + (ms - job.ms) / job.rounds

    def clear(self) -> None:
        if terminal_columns(sys.stderr):
            print("\r\033[K", end="", file=sys.stderr, flush=True)
