"""What a pass decided: the phase to show, what to do, what to tell the user, when to look again.

A plan is carried out by the shell in the order of its actions. It says nothing about how.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, Literal, TypeAlias

from milepost.api.resource import DeletionPolicy, Phase
from milepost_operator.core.observation import End

__all__ = [
    "AT_ONCE",
    "Action",
    "Adopt",
    "CreatePod",
    "DeletePod",
    "EndRun",
    "NoteOutcome",
    "NoteRetention",
    "Plan",
    "StartRun",
    "Supersede",
    "Telling",
]

AT_ONCE: Final = timedelta(0)


@dataclass(frozen=True)
class StartRun:
    """Begin a run in the store under the resource's name."""


@dataclass(frozen=True)
class Adopt:
    """Go on with the run that the name stands for, although another resource began it."""


@dataclass(frozen=True)
class Supersede:
    """End the run that the name stands for, and begin another one under it."""


@dataclass(frozen=True)
class EndRun:
    """Record the end of the run in its log."""

    phase: Phase
    reason: str
    message: str


@dataclass(frozen=True)
class NoteOutcome:
    """Let the name's record say how its run ended."""

    outcome: str


@dataclass(frozen=True)
class NoteRetention:
    """Let the name's record say what becomes of its run. Seconds count from the run's end."""

    deletion_policy: DeletionPolicy
    retention_s: int


@dataclass(frozen=True)
class CreatePod:
    """Start one. `in_a_row` counts its predecessors, back from the last, that recorded no step."""

    attempt: int
    previous_end: End | None = None
    avoid: frozenset[str] = field(default_factory=frozenset)
    in_a_row: int = 0
    resumes_after: str = ""


@dataclass(frozen=True)
class DeletePod:
    """Delete one pod, with the grace period of its own spec."""

    name: str
    uid: str
    why: str


Action: TypeAlias = (
    StartRun | Adopt | Supersede | EndRun | NoteOutcome | NoteRetention | CreatePod | DeletePod
)


@dataclass(frozen=True)
class Telling:
    """A Kubernetes Event for the user. The same `key` of one resource is told once."""

    key: str
    reason: str
    message: str
    type: Literal["Normal", "Warning"] = "Normal"


@dataclass(frozen=True)
class Plan:
    """One pass's decision.

    `retry` asks for another pass with a growing delay, because what stands in the way is outside.
    `untouched` leaves the status as it is. `doubted`: it holds only if the sources say the same, since what
    was cached may be older than it looks.
    """

    phase: Phase
    reason: str
    message: str = ""
    actions: tuple[Action, ...] = ()
    tell: tuple[Telling, ...] = ()
    look_again_in: timedelta | None = None
    retry: bool = False
    untouched: bool = False
    doubted: bool = False
