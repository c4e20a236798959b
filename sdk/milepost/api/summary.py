"""What a run's head says of it, as plain data: all that the operator needs to decide.

It holds no value of the run but the final result, and that only where it is small.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from milepost.api.resource import Phase

__all__ = ["HeadSummary", "NameRecord", "Outcome"]


@dataclass(frozen=True)
class Outcome:
    """How a run ended or why it halted. `result` is plain JSON, or None where `result_ref` names its blob."""

    reason: str
    message: str = ""
    result: Any = None
    result_ref: str = ""


@dataclass(frozen=True)
class HeadSummary:
    """One version of a head. `digest` is the chain's digest; `steps_done` counts recorded completions."""

    run_id: str
    resource_uid: str
    spec_digest: str
    phase: Phase
    epoch: int
    attempt: int
    seq: int
    writer: str
    digest: str
    image: str = ""
    steps_done: int = 0
    steps_total: int | None = None
    oom_at_step: int = 0
    ends: Mapping[str, int] = field(default_factory=dict)
    outcome: Outcome | None = None


@dataclass(frozen=True)
class NameRecord:
    """Which run a name stands for, and how it ended if it has."""

    name: str
    run_id: str
    resource_uid: str
    spec_digest: str
    outcome: str = ""
