"""The environment block: the machine, system and build of the figures, and whether the machine was quiet.

The clock ratio is a dependent multiplication in time-stamp cycles, before and after, measured by bench/worker/gauge.c.
The gauge starts once and is asked again at the end, because at the end a start may fail."""
from __future__ import annotations

import os
import re
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from . import BenchError

GAUGE = "build/bench/gauge"
NOISY = 1.1             # bound for the quotient of the two clock ratios


def cpu_model() -> str:
    found = re.search(r"^model name\s*:\s*(.*)$", Path("/proc/cpuinfo").read_text(errors="replace"), re.MULTILINE)
    return found[1] if found else "unknown"


def commit_of(root: Path) -> str:
    try:
        said = subprocess.run(["git", "-C", str(root), "describe", "--always", "--dirty"], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True, check=False).stdout
    except OSError:
        said = ""
    return said.strip() or "unknown"


@dataclass(eq=False)
class Environment:
    rounds: int = 0
    date: str = ""
    cpu: str = ""
    cores: int = 0
    kernel: str = ""
    libc: str = ""
    compiler: str = ""
    flags: str = ""
    library_flags: str = ""
    commit: str = ""
    disciplines: list[str] = field(default_factory=list)    # of all our subjects, without repetition
    tsc_ghz: float = 0.0
    clock_before: float = 0.0
    clock_after: float = 0.0
    gauge: subprocess.Popen[str] | None = None

    @property
    def discipline(self) -> str:
        return ", ".join(self.disciplines) or "none"

    @property
    def noisy(self) -> bool:
        return max(self.clock_before, self.clock_after) > NOISY * min(self.clock_before, self.clock_after)

    def before(self, root: Path, stopped: bool) -> None:
        """Fills the block before the rounds. A run that was stopped before its start may lack the gauge."""
        system = os.uname()
        self.cpu, self.cores = cpu_model(), os.sysconf("SC_NPROCESSORS_ONLN")
        self.kernel = f"{system.sysname} {system.release} {system.machine}"
        self.libc = os.confstr("CS_GNU_LIBC_VERSION") or "unknown"
        self.date = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self.commit = commit_of(root)
        try:
            self.gauge = subprocess.Popen([str(root / GAUGE)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                          start_new_session=True)
        except OSError as error:
            if stopped:
                return
            raise BenchError(f"cannot start {GAUGE}: {error.strerror}") from error
        self.tsc_ghz, self.clock_before = self.ask()

    def after(self) -> None:
        if self.gauge:
            _, self.clock_after = self.ask()

    def ask(self) -> tuple[float, float]:
        """GHz of the time-stamp counter, and the clock ratio."""
        assert self.gauge and self.gauge.stdin and self.gauge.stdout
        try:
            self.gauge.stdin.write("\n")
            self.gauge.stdin.flush()
            ghz, ratio = self.gauge.stdout.readline().split()
            return float(ghz), float(ratio)
        except (OSError, ValueError) as error:
            raise BenchError(f"{GAUGE} does not report the rate of the clock") from error
