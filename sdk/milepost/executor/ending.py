"""How the process ends: one reserved code for each thing that can be said of the run's record.

The process ends here and now, by `os._exit`. Threads of the author's may still be at work, and the author's
code may catch everything; neither may keep a process alive that has lost, or has finished, its run.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import structlog

from milepost.api.exits import Exit
from milepost.errors import (
    CannotStart,
    Damaged,
    Fenced,
    FormatTooNew,
    RunDeleted,
    StoreRefused,
    StoreUnavailable,
)

__all__ = ["MAX_TERMINATION_MESSAGE", "Ending", "ending_of"]

MAX_TERMINATION_MESSAGE = 4096
"""Bytes that the kubelet keeps of a termination message."""

SOFTWARE_ERROR = 70
"""What is left: a defect of Milepost's own, which counts as the agent's failure and is tried again."""


@dataclass(frozen=True)
class Ending:
    """Why the process ends. `reason` is stable and CamelCase."""

    code: int
    reason: str
    message: str = ""
    step: str = ""

    def leave(self, log: structlog.stdlib.BoundLogger, termination_log: Path | None) -> NoReturn:
        """Say why, for people and for the operator, and end the process."""
        log.info("end", code=int(self.code), reason=self.reason, message=self.message, step=self.step)
        if termination_log is not None:
            said = {"reason": self.reason, "message": self.message[:2000], "step": self.step}
            try:
                termination_log.write_text(json.dumps(said)[:MAX_TERMINATION_MESSAGE])
            except OSError as error:
                log.warning("termination-message-lost", error=str(error))
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(self.code)


def ending_of(error: Exception) -> Ending:
    """Return how a process ends on an error that is not the author's."""
    match error:
        case Fenced() | RunDeleted():
            return Ending(Exit.FENCED, type(error).__name__, str(error))
        case StoreUnavailable():
            return Ending(Exit.STORE_UNKNOWN, "StoreUnavailable", str(error))
        case StoreRefused(reason=reason) | CannotStart(reason=reason):
            return Ending(Exit.START_ERROR, reason, str(error))
        case Damaged() | FormatTooNew():
            return Ending(Exit.HALTED, type(error).__name__, str(error))
        case _:
            return Ending(SOFTWARE_ERROR, "SoftwareError", f"{type(error).__name__}: {error}")
