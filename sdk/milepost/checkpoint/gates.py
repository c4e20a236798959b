"""Gates: where a run waits for a person, an event or a time; and the events that open and pass them.

A gate's id says which question was asked: its place in the agent's code and the digest of exactly what was
shown. What answers it lies in the run's inbox under that id, written once by whoever may; so an answer to
another question cannot be taken for an answer to this one. An event's gate is named by the event's name,
key and number alone, since whoever sends it may do so before the run waits. Nothing here does I/O.
"""

from __future__ import annotations

import base64
import hashlib
import json
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Literal, NamedTuple

from milepost.checkpoint.data import Data, Message, Text, Value

__all__ = [
    "AnswerType",
    "Decided",
    "Gate",
    "GateAt",
    "GateOpened",
    "GateType",
    "Waiting",
    "due",
    "event_gate_id",
    "gate_id",
    "parse_gate",
]

_ID_LENGTH: Final = 20


class GateType(StrEnum):
    """What a gate waits for. A halt is a gate too where a decision of a person can end it."""

    APPROVAL = "Approval"
    EVENT = "Event"
    SLEEP = "Sleep"
    HALT = "Halt"


class AnswerType(StrEnum):
    """What an answer says.

    Due and Expired are told by the clock of whoever looks after the run, all else by people or systems.
    """

    APPROVE = "Approve"
    DENY = "Deny"
    EVENT = "Event"
    DUE = "Due"
    EXPIRED = "Expired"
    ACCEPT = "Accept"
    REVALIDATE = "Revalidate"
    RESTART_WITH_CONTEXT = "RestartWithContext"
    DONE = "Done"
    NOT_DONE = "NotDone"


class Gate(Data):
    """A gate as it was opened.

    `place` says where in the agent's code. `request` is what people are shown, `request_digest` its digest,
    `answer_schema` the JSON Schema that the answer has to fit (None: it has none). `until` is when it
    expires, or when it is passed by itself, absolute and in ISO 8601; empty: never. `options` are the answers
    that it takes, where these are not those of its type.
    """

    id: str
    type: GateType
    place: str
    name: Text
    key: str | None = None
    request: Value | None = None
    request_digest: str = ""
    answer_schema: Any = None
    since: str
    until: str = ""
    options: tuple[AnswerType, ...] = ()


class GateAt(NamedTuple):
    """An open gate as the head names it: what a reader needs to find, list and answer it.

    Record `seq` holds the gate itself.
    """

    id: str
    type: GateType
    place: str
    name: str
    key: str | None
    request_digest: str
    since: str
    until: str
    seq: int


class GateOpened(Data):
    """The run has come to a gate and waits there. One that was open at the same place is closed by it."""

    kind: Literal["gate_opened"] = "gate_opened"
    gate: Gate


class Waiting(Data):
    """Nothing of the run is under way any more but what waits at gates, so its process ends.

    `gates` are the ids of those. Others that are open are closed by it: the code waits there no more.
    """

    kind: Literal["waiting"] = "waiting"
    gates: tuple[str, ...] = ()


class Decided(Data):
    """A gate was passed. `answer` is encoded; `at` is the time of the decision, as its giver had it."""

    kind: Literal["decided"] = "decided"
    gate: str
    place: str
    type: AnswerType
    by: Text = ""
    at: str
    reason: Message = ""
    answer: Value | None = None


def parse_gate(data: Any) -> GateAt:
    """Return the open gate in JSON data. Raises TypeError, ValueError."""
    gate = GateAt(**data)
    texts = (gate.id, gate.place, gate.name, gate.request_digest, gate.since, gate.until)
    if not (all(isinstance(text, str) for text in texts) and isinstance(gate.key, str | None)):
        raise TypeError("a gate is not named by texts")
    if type(gate.seq) is not int:
        raise TypeError("a gate does not say its record")
    return gate._replace(type=GateType(gate.type))


def due(gate: Gate | GateAt, now: datetime) -> AnswerType | None:
    """Return what the clock has to say to a gate: that its time has come, or is over; None: nothing yet."""
    if not gate.until or gate.type is GateType.HALT or now < datetime.fromisoformat(gate.until):
        return None
    return AnswerType.DUE if gate.type is GateType.SLEEP else AnswerType.EXPIRED


def gate_id(type_: GateType, place: str, request_digest: str = "", execution: int = 0) -> str:
    """Return the id of a gate at a place of the agent's code that asks for this.

    `execution` is how often the run had begun anew: what was decided before that is no answer.
    """
    return _id(type_, place, request_digest, *([execution] if execution else []))


def event_gate_id(name: str, key: str | None, number: int) -> str:
    """Return the id of the `number`-th gate (from 1) that waits for an event of this name and key."""
    return _id(GateType.EVENT, name, key, number)


def _id(*parts: str | int | None) -> str:
    digest = hashlib.sha256(json.dumps(parts).encode()).digest()
    return base64.b32encode(digest).decode().lower()[:_ID_LENGTH]
