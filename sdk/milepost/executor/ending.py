"""How the process ends: one reserved code for each thing that can be said of the run's record.

The process ends here and now, by `os._exit`. Threads of the author's may still be at work, and the author's
code may catch everything; neither may keep a process alive that has lost, or has finished, its run. Nor may
an output that nobody reads: saying why is tried, ending is not.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

import structlog

from milepost.agent.failures import message_of
from milepost.api.exits import Exit
from milepost.errors import (
    AgentStuck,
    CannotStart,
    Damaged,
    Fenced,
    FormatTooNew,
    RunDeleted,
    RunHalted,
    RunRestarts,
    StoreRefused,
    StoreUnavailable,
)

__all__ = ["MAX_TERMINATION_MESSAGE", "Ending", "ending_of", "ending_of_exit"]

MAX_TERMINATION_MESSAGE: Final = 4096
"""Bytes that the kubelet keeps of a termination message."""

SOFTWARE_ERROR: Final = 70
"""What is left: a defect of Milepost's own, which counts as the agent's failure and is tried again."""

AGENTS_OWN: Final = 1
"""Stands for a reserved code that the author's code ended the process with: it would say what is not so."""

LAST_WORDS: Final = 5.0
"""Seconds that saying why may take."""


@dataclass(frozen=True)
class Ending:
    """Why the process ends. `reason` is stable and CamelCase."""

    code: int
    reason: str
    message: str = ""
    step: str = ""

    def leave(self, log: structlog.stdlib.BoundLogger, termination_log: Path | None) -> NoReturn:
        """Say why, for people and for the operator, and end the process."""
        last = threading.Timer(LAST_WORDS, os._exit, (self.code,))
        last.daemon = True
        try:
            last.start()
            if termination_log is not None:
                self._write(termination_log, log)
            log.info("end", code=int(self.code), reason=self.reason, message=self.message, step=self.step)
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(self.code)

    def termination_message(self) -> bytes:
        """Return what the kubelet keeps: JSON, with the message cut so that it fits."""
        message = self.message
        while True:
            said = {"reason": self.reason, "message": message, "step": self.step}
            raw = json.dumps(said, ensure_ascii=False).encode("utf-8", "backslashreplace")
            if len(raw) <= MAX_TERMINATION_MESSAGE or not message:
                return raw
            message = message[: len(message) * 3 // 4]

    def _write(self, termination_log: Path, log: structlog.stdlib.BoundLogger) -> None:
        try:
            termination_log.write_bytes(self.termination_message())
        except OSError as error:
            log.warning("termination-message-lost", error=str(error))


def ending_of(error: Exception) -> Ending:
    """Return how a process ends on an error that is not the author's."""
    match error:
        case Fenced() | RunDeleted():
            return Ending(Exit.FENCED, type(error).__name__, str(error))
        case StoreUnavailable():
            return Ending(Exit.STORE_UNKNOWN, "StoreUnavailable", str(error))
        case StoreRefused(reason=reason) | CannotStart(reason=reason):
            return Ending(Exit.START_ERROR, reason, str(error))
        case RunRestarts():
            return Ending(Exit.RELEASED, "Restarting", str(error))
        case AgentStuck():
            return Ending(AGENTS_OWN, "AgentStuck", str(error))
        case RunHalted(reason=reason):
            return Ending(Exit.HALTED, reason, str(error))
        case Damaged() | FormatTooNew():
            return Ending(Exit.HALTED, type(error).__name__, str(error))
        case _:
            return Ending(SOFTWARE_ERROR, "SoftwareError", f"{type(error).__name__}: {message_of(error)}")


def ending_of_exit(error: BaseException) -> Ending:
    """Return how a process ends that the author's code wanted to end, by `sys.exit` or in another such way.

    The code is the author's, unless it is one that only the executor may say.
    """
    code = getattr(error, "code", AGENTS_OWN)
    number = 0 if code is None else code & 0xFF if isinstance(code, int) else AGENTS_OWN
    if number != 0 and number in set(Exit):
        number = AGENTS_OWN
    what = f"{type(error).__name__}({code!r})" if isinstance(error, SystemExit) else type(error).__name__
    return Ending(number, "AgentExited", f"the agent's code ended the process: {what}")
