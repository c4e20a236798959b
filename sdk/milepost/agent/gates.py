"""Gates, as an agent's code meets them: it waits for a person, an event or a time, and no process is alive."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from milepost.agent.branch import Branch
from milepost.agent.journal import Journal
from milepost.checkpoint.records import StepPlace

__all__ = ["Decision", "approval", "approve_call", "event", "sleep"]

A = TypeVar("A")


@dataclass(frozen=True)
class Decision(Generic[A]):
    """What was decided at a gate: by whom, when, why, and the answer, of the type that was asked for."""

    by: str
    at: datetime
    reason: str
    answer: A


async def approval(
    journal: Journal,
    branch: Branch,
    place: StepPlace,
    *,
    request: Any,
    answer: Any,
    expires: float | timedelta | datetime | None,
) -> Decision[Any]:
    """Return who approved the request, once somebody has. Raises Denied, Expired."""
    raise NotImplementedError


async def approve_call(
    journal: Journal, branch: Branch, place: StepPlace, fn: Callable[..., Any], arguments: tuple[Any, ...]
) -> None:
    """Return once somebody has approved the call that a step is about to make. Raises Denied, Expired."""
    raise NotImplementedError


async def event(
    journal: Journal,
    branch: Branch,
    place: StepPlace,
    kind: Any,
    *,
    expires: float | timedelta | datetime | None,
) -> Any:
    """Return what came with the event that this gate waits for. Raises Expired."""
    raise NotImplementedError


async def sleep(
    journal: Journal,
    branch: Branch,
    place: StepPlace,
    *,
    delay: float | timedelta | None,
    until: datetime | None,
) -> None:
    """Return once the time has come."""
    raise NotImplementedError
