"""The processes that the driver starts, one at a time (workers, make, scripts/peers), and who asks it to stop.

Each child leads a process group of its own: a signal from the terminal comes to us alone, we end the child with all
that it started, and what was complete by then is printed. Invariant: no child outlives us. (Ctrl-Z stops us alone: a
worker that stood still would be one that took long.)
"""
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

# timeout(1) sends its signal twice, a terminal that goes and its shell do too: that is one wish, not two.
SAME_MOMENT = 1.0
STOP_SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None)


class Children:
    def __init__(self) -> None:
        self.running: int | None = None     # leads the group of the child
        self.signal = 0                     # the first one that asked us to stop
        self.first = 0.0                    # when that was
        self.reason: str | None = None      # of our own, to stop
        self.woken, self.wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def catch_stop(self) -> None:
        """From now on a signal stops the run. What our caller ignores (nohup, a background job) stays ignored."""
        signal.set_wakeup_fd(self.wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in STOP_SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self.on_stop)

    def on_stop(self, number: int, _frame: FrameType | None) -> None:
        """The first one lets the child clean up behind itself; who asks again does not want to wait for that."""
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
        """Why the run ends; None: go on."""
        return "interrupted" if self.signal else self.reason

    @property
    def status(self) -> int:
        """128 and the signal's number; 0: it was no signal."""
        return 128 + self.signal if self.signal else 0

    def start(self, arguments: list[str], environment: dict[str, str] | None = None, cwd: Path | None = None,
              stdout: int | IO[bytes] = subprocess.PIPE, seconds: int = 0) -> subprocess.Popen[bytes]:
        """The only child, which SIGALRM ends after so many seconds. OSError: it can't be started.

        Signals wait meanwhile: the handler knows the child, or the child was never started in vain.
        """
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
        """Until one of the files can be read, or a signal came, that of a child which ended among them; False then.

        Python runs a handler between two steps of its own: of a signal that comes just before a call that blocks it
        would hear when that call returns. So nothing blocks but this, which a signal wakes.
        """
        ready = select.select([self.woken, *files], [], [])[0]
        if self.woken in ready:
            os.read(self.woken, 4096)
        return len(ready) > (self.woken in ready)

    def output(self, child: subprocess.Popen[bytes]) -> bytes:
        """All that it says."""
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
        """Its status; less than 0: the signal that ended it. Until it is reaped its number is nobody else's, so that
        the handler may send to it."""
        while not os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG):
            self.sleep()
        self.running = None
        return child.wait()

    def run(self, arguments: list[str], root: Path) -> int:
        """A command in the root, its output on our stderr; its status."""
        environment = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
        try:
            with open(2, "wb", closefd=False) as errors:
                return self.wait(self.start(arguments, environment, root, stdout=errors))
        except OSError:
            return 127
