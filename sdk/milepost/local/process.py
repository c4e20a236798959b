"""One executor as a process of this machine, and what is known of it once it has ended.

It runs in a process group of its own, so that Ctrl-C reaches the runner alone, which then asks the executor
to stop in good order; what it started itself is in that group too, and ends with it, as it would in a pod.
Its standard output is read line by line; its standard error is the terminal's, unless the runner wants it as
lines, too. It ends with the runner, however that ends: it watches a pipe that only the runner holds open.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self

__all__ = ["COMMAND", "Executor", "Exited"]

COMMAND: Final = (sys.executable, "-m", "milepost.executor")

# What an executor has, after its grace period, for the last commit; then it is killed.
_MARGIN: Final = 5.0
# A grandchild that keeps the pipe open must not hold up the run.
_LAST_LINES: Final = 2.0


@dataclass(frozen=True)
class Exited:
    """How an executor ended: its exit code, negative for a signal, and what it said of it."""

    code: int
    reason: str = ""
    message: str = ""


class Executor:
    """A running executor. Leaving the context ends it, whatever happened; `on_line` is called in a thread."""

    def __init__(
        self,
        environ: Mapping[str, str],
        folder: Path,
        on_line: Callable[[str], None],
        command: Sequence[str] = COMMAND,
        *,
        errors_as_lines: bool = False,
    ) -> None:
        self._last_words = tempfile.NamedTemporaryFile(prefix="milepost-")  # noqa: SIM115 (closed by __exit__)
        watched, self._lifeline = os.pipe()
        self._process = subprocess.Popen(  # noqa: S603 (our own executor, by this interpreter)
            command,
            cwd=folder,
            env={
                **environ,
                "MILEPOST_TERMINATION_LOG": self._last_words.name,
                "MILEPOST_LIFELINE": str(watched),
            },
            pass_fds=(watched,),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if errors_as_lines else None,
            process_group=0,
            text=True,
            encoding="utf-8",
            errors="replace",
        )
        os.close(watched)
        assert self._process.stdout is not None, "asked for above"
        self._reader = threading.Thread(target=_read, args=(self._process.stdout, on_line), daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def wait(self) -> Exited:
        """Wait for the end, and return how it ended."""
        self._await_end()
        code = self._process.wait()
        self._reader.join(_LAST_LINES)
        reason, message = _said(Path(self._last_words.name))
        return Exited(code, reason, message)

    def release(self, grace: float) -> Exited:
        """Ask it to stop, and return how it ended. After `grace` seconds and a margin it is killed."""
        self._signal(signal.SIGTERM)
        last = threading.Timer(grace + _MARGIN, self._signal, (signal.SIGKILL,))
        last.daemon = True
        last.start()
        try:
            return self.wait()
        finally:
            last.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._signal(signal.SIGKILL)
        self._await_end()
        self._process.wait()
        os.close(self._lifeline)
        self._last_words.close()

    def _signal(self, number: signal.Signals) -> None:
        # Popen's own way looks first whether it has ended, and then its number is free before its group is.
        if self._process.returncode is None:
            os.kill(self._process.pid, number)

    def _await_end(self) -> None:
        """Wait until the process has ended, and end what is left of its group."""
        if self._process.returncode is not None:
            return
        if hasattr(os, "waitid"):
            # While nobody has taken its exit code, its number is nobody else's.
            os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
            with contextlib.suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)


def _read(stream: IO[str], on_line: Callable[[str], None]) -> None:
    with stream:
        for line in stream:
            on_line(line.rstrip("\n"))


def _said(file: Path) -> tuple[str, str]:
    """Return reason and message of a termination log: the executor's JSON, or anything else as a message."""
    text = file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""
    try:
        said = json.loads(text)
        return str(said.get("reason", "")), str(said.get("message", ""))
    except (ValueError, AttributeError):
        return "", text.strip()
