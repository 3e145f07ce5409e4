"""The child processes of the driver, one at a time (workers, make, scripts/peers), and the signals that stop the run.

Each child leads a process group, so a signal from the terminal reaches only the driver. The driver ends the child's
group and prints the complete rounds. Invariant: no child lives longer than the driver. (Ctrl-Z stops only the driver: a
stopped worker would look like a slow worker.)"""
from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import time
from pathlib import Path
from types import FrameType
from typing import IO

# timeout(1) sends its signal twice, as do a closed terminal and its shell: signals of one moment count as one.
SAME_MOMENT = 1.0
STOP_SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None)


class Children:
    def __init__(self) -> None:
        self.running: int | None = None     # process group of the running child
        self.signal = 0                     # first signal to stop
        self.first = 0.0                    # time of this signal
        self.reason: str | None = None      # the driver's own reason to stop
        self.woken, self.wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def catch_stop(self) -> None:
        """Makes signals stop the run from now on. Signals ignored by the caller (nohup, a background job) stay
        ignored."""
        signal.set_wakeup_fd(self.wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in STOP_SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self.on_stop)

    def on_stop(self, number: int, _frame: FrameType | None) -> None:
        """The first signal lets the child clean up; a second signal kills the child."""
        if not self.signal:
            self.signal, self.first = number, time.monotonic()
            self.kill(signal.SIGTERM)
        elif time.monotonic() - self.first > SAME_MOMENT:
            self.kill(signal.SIGKILL)
            os._exit(self.status)

    def kill(self, number: int) -> None:
        if self.running:
            os.killpg(self.running, number)

    @property
    def stopped(self) -> str | None:
        """Reason for the end of the run; None: continue."""
        return "interrupted" if self.signal else self.reason

    @property
    def status(self) -> int:
        """128 and the signal's number; 0: no signal."""
        return 128 + self.signal if self.signal else 0

    def start(self, arguments: list[str], environment: dict[str, str] | None = None, cwd: Path | None = None,
              stdout: int | IO[bytes] = subprocess.PIPE, seconds: int = 0) -> subprocess.Popen[bytes]:
        """Starts the only child; SIGALRM ends the child after `seconds`. Raises OSError if the child cannot be started.

        Signals are blocked meanwhile, because the handler must know the child."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)

        def in_child() -> None:
            LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
            signal.alarm(seconds)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

        try:
            child = subprocess.Popen(arguments, env=environment, cwd=cwd, stdout=stdout, process_group=0,
                                     preexec_fn=in_child)
            self.running = child.pid
            if self.signal:
                self.kill(signal.SIGTERM)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return child

    def sleep(self, *files: int) -> bool:
        """Waits until a file is readable (returns True), or until a signal, also SIGCHLD, arrives (returns False).

        Python runs a handler between two of its own steps: a signal just before a blocking call would be handled after
        this call. So only this function blocks, and a signal wakes the function."""
        ready = select.select([self.woken, *files], [], [])[0]
        if self.woken in ready:
            os.read(self.woken, 4096)
        return len(ready) > (self.woken in ready)

    def output(self, child: subprocess.Popen[bytes]) -> bytes:
        """Reads the child's output to the end."""
        assert child.stdout
        said = b""
        with child.stdout as pipe:
            while True:
                if self.sleep(pipe.fileno()):
                    part = os.read(pipe.fileno(), 1 << 16)
                    if not part:
                        return said
                    said += part

    def wait(self, child: subprocess.Popen[bytes]) -> int:
        """Waits for the child. Returns the status, or less than 0: minus the signal that ended the child. The child is
        reaped last, because the handler may send to its number until then."""
        while not os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG):
            self.sleep()
        self.running = None
        return child.wait()

    def run(self, arguments: list[str], root: Path) -> int:
        """Runs a command in the root with its output on stderr. Returns the status."""
        environment = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
        try:
            with open(2, "wb", closefd=False) as errors:
                return self.wait(self.start(arguments, environment, root, stdout=errors))
        except OSError:
            return 127
