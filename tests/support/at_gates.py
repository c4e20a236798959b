"""Runs in memory that come to gates: until they wait, and what people and the time say to them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, TypeVar

from milepost.agent.journal import Rules
from milepost.agent.run import Run
from milepost.checkpoint import inbox
from milepost.checkpoint.gates import AnswerType, GateAt
from milepost.checkpoint.history import HeadAt, read_head
from milepost.checkpoint.inbox import Answer
from milepost.checkpoint.sending import Patience
from tests.support.histories import NOON
from tests.support.sessions import RunInMemory, RunOnDisk

__all__ = [
    "ANSWERED",
    "Arrived",
    "answer",
    "arrives",
    "ends",
    "gate_of",
    "gates_of",
    "run_that_waits",
    "waits",
]

T = TypeVar("T")

ANSWERED = NOON + timedelta(hours=1)
"""When everybody answers."""

_PATIENCE = 60.0

# What waits for ever must not be collected, which would unwind it in the middle of another test.
_frozen: list[asyncio.Task[Any]] = []


def run_that_waits(**more: Any) -> RunInMemory:
    """Return a run that waits for gates without lingering for long."""
    return RunInMemory(rules=Rules(linger=0.04), **more)


@dataclass(frozen=True)
class Arrived(Generic[T]):
    """How far a process came: to these gates, or, where there are none, to this result."""

    gates: tuple[GateAt, ...] = ()
    result: T | None = None


async def waits(run: RunInMemory, code: Callable[[Run], Awaitable[Any]]) -> tuple[GateAt, ...]:
    """Go on with the run until nothing goes on but what waits; return its open gates."""
    arrived = await arrives(run, code)
    assert arrived.gates, f"the run has ended with {arrived.result!r} and does not wait"
    return arrived.gates


async def arrives(run: RunInMemory, code: Callable[[Run], Awaitable[T]]) -> Arrived[T]:
    """Go on with the run until it ends, or nothing goes on but what waits, as a process does."""
    before = len(run.journals)
    work = asyncio.ensure_future(run.go_on(code))
    _frozen.append(work)
    while len(run.journals) == before and not work.done():  # noqa: ASYNC110  (until it has claimed)
        await asyncio.sleep(0)
    if work.done():
        return Arrived(result=work.result())
    journal = run.journals[-1]
    either: list[asyncio.Future[Any]] = [work, journal.waits]
    await asyncio.wait(either, timeout=_PATIENCE, return_when=asyncio.FIRST_COMPLETED)
    if work.done():
        return Arrived(result=work.result())
    assert journal.waits.done(), "the run neither ends nor waits"
    await journal.record_waiting()
    return Arrived(gates_of(run))


async def ends(run: RunInMemory, code: Callable[[Run], Awaitable[T]]) -> T:
    """Go on with the run to its end."""
    async with asyncio.timeout(_PATIENCE):
        return await run.go_on(code)


def gates_of(run: RunInMemory | RunOnDisk) -> tuple[GateAt, ...]:
    """Return the open gates that the head names."""
    at = read_head(run.store, run.keys)
    assert isinstance(at, HeadAt)
    return at.head.gates


def gate_of(run: RunInMemory | RunOnDisk, name: str = "") -> GateAt:
    """Return the only open gate, or the only one of a name."""
    (found,) = [gate for gate in gates_of(run) if name in ("", gate.name)]
    return found


def answer(
    run: RunInMemory | RunOnDisk,
    type_: AnswerType = AnswerType.APPROVE,
    data: Any = None,
    *,
    gate: str = "",
    **more: Any,
) -> Answer:
    """Answer the only open gate, or one of this id. Return the answer that stands."""
    given = Answer(
        gate or gate_of(run).id,
        type_,
        **{"by": "ann", "at": ANSWERED.isoformat(), "answer": data, **more},
    )
    return inbox.give(run.store, run.keys, given, Patience(os.urandom, deadline=60.0))


def send(run: RunInMemory | RunOnDisk, data: Any, name: str = "paid", key: str | None = None) -> int:
    """Send an event; return its number."""
    event = Answer("", AnswerType.EVENT, "shop", ANSWERED.isoformat(), answer=data)
    return inbox.send_event(run.store, run.keys, name, key, event, Patience(os.urandom, deadline=60.0))
