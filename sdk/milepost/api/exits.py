"""The executor's exit codes. Reserved ones say what became of the record; all others are the agent's."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["Exit"]


class Exit(IntEnum):
    """Exit code 0 alone proves nothing: only the head says that a run has ended."""

    COMMITTED = 0
    RELEASED = 80
    FENCED = 81
    STORE_UNKNOWN = 82
    HALTED = 83
    START_ERROR = 84
