"""Processes of executors: forked by the fork server, or started as fresh interpreters.

Both give a process id to kill, stop and continue, and how it ended. Threads may wait for different ones at
once. It refuses to guess: whoever waits says how long, and an executor that takes longer is an error.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

__all__ = ["Forked", "Process", "Spawned", "Starter", "TookTooLong"]

ROOT = Path(__file__).resolve().parents[2]
AGENTS = Path(__file__).parent / "agents"
PYTHONPATH = os.pathsep.join(map(str, (ROOT / "sdk", AGENTS)))


class TookTooLong(Exception):
    """A process did not end in the time that it was given."""


@dataclass
class Process:
    """A started executor. `code` is its exit code, negative for a signal, once it has `ended`."""

    pid: int
    log: Path
    ended: threading.Event = field(default_factory=threading.Event)
    code: int = 0

    def wait(self, seconds: float) -> int:
        """Return its exit code. Raises TookTooLong."""
        if not self.ended.wait(seconds):
            raise TookTooLong(f"process {self.pid} still runs after {seconds} s; its log is {self.log}")
        return self.code

    def kill(self) -> bool:
        """Send SIGKILL and wait until it is gone; tell whether that is what it ended of."""
        self.send(signal.SIGKILL)
        return self.wait(30) == -signal.SIGKILL

    def send(self, number: signal.Signals) -> None:
        """Send a signal, unless it has ended."""
        if not self.ended.is_set():
            # It may have ended, and whoever starts processes may not have said so yet.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


class Starter(Protocol):
    """Starts executors."""

    def start(self, environment: Mapping[str, str], folder: Path, log: Path) -> Process:
        """Start an executor with this environment in this folder; what it says goes to the log."""
        ...


class Forked:
    """A context manager: starts executors through a fork server. Safe to use from several threads."""

    def __enter__(self) -> Self:
        self._server = subprocess.Popen(
            [sys.executable, str(Path(__file__).parent / "fork_server.py")],
            env={**os.environ, "PYTHONPATH": PYTHONPATH},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._running: dict[int, Process] = {}
        self._log = Path(os.devnull)
        self._started: Process | None = None
        self._answered = threading.Condition()
        self._order = threading.Lock()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.close()
        self._server.wait()
        self._listener.join()
        self._server.stdout.close()

    def start(self, environment: Mapping[str, str], folder: Path, log: Path) -> Process:
        order = {"environment": dict(environment), "folder": str(folder), "log": str(log)}
        assert self._server.stdin is not None
        with self._order, self._answered:
            self._started, self._log = None, log
            self._server.stdin.write(json.dumps(order).encode() + b"\n")
            self._server.stdin.flush()
            if not self._answered.wait_for(lambda: self._started is not None, timeout=30):
                raise TookTooLong("the fork server does not answer")
            assert self._started is not None
            return self._started

    def _listen(self) -> None:
        assert self._server.stdout is not None
        for line in self._server.stdout:
            said: dict[str, Any] = json.loads(line)
            with self._answered:
                if "started" in said:
                    self._started = Process(said["started"], self._log)
                    self._running[said["started"]] = self._started
                    self._answered.notify_all()
                else:
                    process = self._running.pop(said["ended"])
                    process.code = said["code"]
                    process.ended.set()


class Spawned:
    """Starts each executor as `python -m milepost.executor`, as a pod does: half a second more."""

    def start(self, environment: Mapping[str, str], folder: Path, log: Path) -> Process:
        with log.open("ab") as out:
            child = subprocess.Popen(
                [sys.executable, "-m", "milepost.executor"],
                env={**environment, "PYTHONPATH": PYTHONPATH},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=folder,
            )
        process = Process(child.pid, log)
        threading.Thread(target=_wait_for, args=(child, process), daemon=True).start()
        return process


def _wait_for(child: subprocess.Popen[bytes], process: Process) -> None:
    process.code = child.wait()
    process.ended.set()
