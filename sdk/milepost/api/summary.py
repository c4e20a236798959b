"""What a run's head says of it, as plain data: all that the operator needs to decide.

It holds no value of the run but the final result, and that only where it is small.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from milepost.api.resource import RETENTION_S, DeletionPolicy, Phase

__all__ = ["GateSummary", "HeadSummary", "NameRecord", "NameState", "Outcome"]


@dataclass(frozen=True)
class Outcome:
    """How a run ended or why it halted. `result` is plain JSON, or None where `result_ref` names its blob."""

    reason: str
    message: str = ""
    result: Any = None
    result_ref: str = ""


@dataclass(frozen=True)
class GateSummary:
    """An open gate. `type` is one of Approval, Event, Sleep and Halt; `since` and `until` are ISO 8601.

    `until` is when it expires, or is passed by itself; empty: never.
    """

    id: str
    type: str
    name: str
    key: str | None
    request_digest: str
    since: str
    until: str


@dataclass(frozen=True)
class HeadSummary:
    """One version of a head. `digest` is the chain's digest; `steps_done` counts recorded completions.

    `gates` are open. `tokens` and `cost_nano_usd` (billionths of a US dollar) are what models used so far.
    """

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
    gates: tuple[GateSummary, ...] = ()
    tokens: int = 0
    cost_nano_usd: int = 0


class NameState(StrEnum):
    """What a name still stands for.

    Kept: its run, whose head is there. Expired: a run that ended, whose outcome is all that is left of it, or
    will be in a moment. Free: nothing; the next resource of the name begins a run.
    """

    KEPT = "Kept"
    EXPIRED = "Expired"
    FREE = "Free"


@dataclass(frozen=True)
class NameRecord:
    """Which run a name stands for, how it ended if it has, and how long it is to be kept.

    `deletion_policy` and `retention_s` (seconds after the end) are what the resource says now; a head says
    what it said when the run began. `cluster` is the one whose resource has the uid.
    """

    name: str
    run_id: str
    resource_uid: str
    spec_digest: str
    outcome: str = ""
    cluster: str = ""
    deletion_policy: DeletionPolicy = DeletionPolicy.RETAIN
    retention_s: int = RETENTION_S
    state: NameState = NameState.KEPT
