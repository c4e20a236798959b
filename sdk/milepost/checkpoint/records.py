"""Records: what a commit adds to a run's history, and their form in bytes.

A record is one line of JSON: its number, who wrote it in which epoch, the digest of the record before it,
and its events. The digests chain the history, so that a lost, changed or swapped record is found wherever
it is stored. Values of the author's are already encoded by `milepost.checkpoint.codec` when they come here;
this module never looks inside them. Nothing here does I/O. It is long because every event has its one place
here: whoever wants to know what a log can say reads them side by side.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import Field, TypeAdapter, ValidationError

from milepost.api.resource import Phase
from milepost.checkpoint.data import Data, ErrorData, Input, Message, StepPlace, Text, Usage, Value
from milepost.checkpoint.formats import NEWEST, Kind, read_json, upgrade, write_json
from milepost.checkpoint.gates import Decided, Gate, GateOpened, Waiting
from milepost.errors import Corrupt

__all__ = [
    "FIRST_DIGEST",
    "OPERATOR",
    "Claimed",
    "Degraded",
    "ErrorData",
    "Event",
    "Finished",
    "GroupClosed",
    "Halted",
    "Input",
    "Intended",
    "Noted",
    "Planned",
    "PreviousEnd",
    "Record",
    "Remembered",
    "Repaired",
    "Resumed",
    "Started",
    "StepCompleted",
    "StepFailure",
    "StepPlace",
    "StepSkipped",
    "ToolCalled",
    "Usage",
    "Value",
    "Withdrawn",
    "blob_of",
    "digest_of",
    "dump_event",
    "line_of",
    "parse_event",
    "parse_line",
]

FIRST_DIGEST: Final = "0" * 64
"""Stands where the digest of a predecessor would, in record 1."""

OPERATOR: Final = "operator"
"""The writer of a claim made from outside, which starts nothing: the run's phase stays as it is."""


class PreviousEnd(Data):
    """How the pod of the attempt before ended, as the operator classified it.

    `proved` says that nothing of it can be at work any more: its container was seen to have ended, which a
    node that has gone silent does not show.
    """

    attempt: int
    cause: str
    fault: Literal["disruption", "agent", "memory", "start"]
    exit_code: int | None = None
    message: Message = ""
    proved: bool = False


class Started(Data):
    """The run as it was asked for. Record 1, written by whoever creates the head.

    `configuration` is the rest of the spec, as its manifest gave it.
    """

    kind: Literal["started"] = "started"
    namespace: str
    name: str
    resource_uid: str
    cluster: str
    key_root: str
    spec_digest: str
    entrypoint: str
    agent_version: str = ""
    goal: str = ""
    inputs: Any
    step_attempts: int = 3
    every_steps: int = 1
    granularity: str = "step"
    configuration: Mapping[str, Any] = Field(default_factory=dict)


class Repaired(Data):
    """The records after this event were saved from a damaged run. It stands beside `started`, in record 1.

    `run_id` is the damaged run. `lost_records` are spans of its records, first and last, that could not be
    read; `repeats` the completed steps that are lost with records or blobs, and so run again, and `unnamed`
    how many more there were of which not even the name is known.
    """

    kind: Literal["repaired"] = "repaired"
    run_id: str
    lost_records: tuple[tuple[int, int], ...] = ()
    repeats: tuple[str, ...] = ()
    unnamed: int = 0


class Claimed(Data):
    """A writer took the run over. From here on every earlier epoch is refused.

    `environment` is what the agent's author declares to matter, the model for instance, and `policy` the
    administrator's rules of that day.
    """

    kind: Literal["claimed"] = "claimed"
    attempt: int
    writer: str
    pod: str = ""
    node: str = ""
    image: str = ""
    code_digest: str = ""
    agent_version: str = ""
    milepost_version: str = ""
    tools: Mapping[str, str] = Field(default_factory=dict)
    environment: Mapping[str, Text] = Field(default_factory=dict)
    policy: Mapping[str, Any] = Field(default_factory=dict)
    previous_end: PreviousEnd | None = None


class Planned(Data):
    """What the author expects to come.

    `total` is the number of steps that progress is measured against; None: as it was said before. `tasks`
    names what each task depends on. `replanned` marks a plan that took the place of another.
    """

    kind: Literal["planned"] = "planned"
    total: int | None = None
    tasks: Mapping[str, tuple[str, ...]] = Field(default_factory=dict)
    replanned: bool = False


class Intended(Data):
    """A call with an effect that must not be repeated blindly is about to be made.

    What became of it is said by a `ToolCalled` of the same step and call; while there is none, nobody knows.
    `attempt` is the one that was to make it, of the run's and not of the step's. `settles_within_s` are the
    seconds after its end within which the effect shows, if it happened.
    """

    kind: Literal["intent"] = "intent"
    step: str
    call: int
    tool: str
    version: str = ""
    effect: str
    key: str
    arguments: str
    inputs: tuple[Input, ...] = ()
    named: Mapping[str, Input] = Field(default_factory=dict)
    attempt: int
    started_at: str
    settles_within_s: float = 0.0


class ToolCalled(Data):
    """A tool was called and answered, or raised.

    `arguments` is the digest of all arguments, checked against the key's; `inputs` and `named` hold each
    of them as a step's record holds its own. Calls with an effect have numbers from 1 in their step; calls
    without one have number 0, or, where each is recorded, from -1 down. `outcome` is how it is known:
    from the call itself, from the tool's `verify`, or from a person. An `unconfirmed` error leaves open
    whether the effect happened.
    """

    kind: Literal["tool_called"] = "tool_called"
    step: str
    call: int
    tool: str
    version: str = ""
    effect: str
    key: str = ""
    arguments: str
    inputs: tuple[Input, ...] = ()
    named: Mapping[str, Input] = Field(default_factory=dict)
    attempt: int
    result: Value | None = None
    error: ErrorData | None = None
    external_id: str | None = None
    evidence: Mapping[str, Any] = Field(default_factory=dict)
    started_at: str
    duration_s: float
    outcome: Literal["answered", "verified", "decided"] = "answered"
    unconfirmed: bool = False


class StepCompleted(Data):
    """A step's function returned, and its result is durable with this record.

    `description` and `summary` are the author's words for people, of the step and of its result; `meta` is
    free. A summary is also what is left to tell of a result whose bytes are lost. `adopted` is the step of
    an earlier execution whose result it is: then nothing was executed.
    """

    kind: Literal["step_completed"] = "step_completed"
    step: StepPlace
    description: Text = ""
    summary: Message = ""
    attempt: int
    inputs: tuple[Input, ...] = ()
    declared: str = ""
    result: Value
    result_digest: str
    started_at: str
    ended_at: str
    meta: Mapping[str, Any] = Field(default_factory=dict)
    usage: Usage = Usage()
    adopted: str = ""


class StepFailure(Data):
    """One try of a step failed. `final`: no further try will be made.

    `cancelled`: the agent's own code stopped it, and will do so again. It is completed all the same where it
    was stopped while that was being recorded.
    """

    kind: Literal["step_failed"] = "step_failed"
    step: StepPlace
    attempt: int
    final: bool
    inputs: tuple[Input, ...] = ()
    error: ErrorData
    started_at: str
    ended_at: str
    usage: Usage = Usage()
    cancelled: bool = False


class StepSkipped(Data):
    """A step will not be executed, since what it depends on is not there."""

    kind: Literal["step_skipped"] = "step_skipped"
    step: StepPlace
    reason: Message


class GroupClosed(Data):
    """A phase, a named group of steps, is over; `steps` of them were completed in it."""

    kind: Literal["phase_closed"] = "phase_closed"
    group: str
    steps: int


class Degraded(Data):
    """A phase began with fewer inputs than it was meant to have; `missing` names those that are not there."""

    kind: Literal["degraded"] = "degraded"
    group: str
    missing: tuple[Text, ...]
    have: int
    need: int


class Withdrawn(Data):
    """A recorded step is executed again. Recorded steps that the agent's code reaches after it, too.

    `anew`: what it did before does not stand, so that its calls have other keys this time.
    """

    kind: Literal["withdrawn"] = "withdrawn"
    step: str
    reason: Message
    anew: bool = False


class Resumed(Data):
    """How the run goes on, where that is not simply at its first open step.

    Exact: as it is, with today's environment. Revalidate: recorded results are checked once more.
    RestartWithContext: the agent begins anew, with everything recorded so far as given facts. `environment`
    is what later resumes are compared with from now on; `gate` the halt that was decided so, if it was one.
    """

    kind: Literal["resumed"] = "resumed"
    strategy: Literal["Exact", "Revalidate", "RestartWithContext"]
    environment: Mapping[str, Text] = Field(default_factory=dict)
    gate: str = ""


class Remembered(Data):
    """The agent's memory as it is now, in an object of its own."""

    kind: Literal["remembered"] = "remembered"
    memory: Value


class Noted(Data):
    """Something that people should know of the run, and that nothing follows from."""

    kind: Literal["noted"] = "noted"
    reason: str
    message: Message


class Halted(Data):
    """The run stopped in a state that a person, or a change of the image, has to resolve.

    Where a decision can resolve it there is a gate that takes it.
    """

    kind: Literal["halted"] = "halted"
    reason: str
    message: Message
    gate: Gate | None = None


class Finished(Data):
    """The run ended. Nothing follows this event."""

    kind: Literal["finished"] = "finished"
    phase: Phase
    reason: str
    message: Message = ""
    result: Value | None = None


Event: TypeAlias = Annotated[
    Started
    | Repaired
    | Claimed
    | Planned
    | Intended
    | ToolCalled
    | StepCompleted
    | StepFailure
    | StepSkipped
    | GroupClosed
    | Degraded
    | GateOpened
    | Waiting
    | Decided
    | Withdrawn
    | Resumed
    | Remembered
    | Noted
    | Halted
    | Finished,
    Field(discriminator="kind"),
]


class Record(Data):
    """One commit's worth of events. `at` is the writer's clock, for people: nothing is decided by it."""

    seq: int
    epoch: int
    worker: str
    prev: str
    at: str
    events: tuple[Event, ...]


_RECORD: Final = TypeAdapter(Record)
_EVENT: Final[TypeAdapter[Event]] = TypeAdapter(Event)


def dump_event(event: Event) -> dict[str, Any]:
    """Return the event as JSON data. What is at its default is left out: it reads back the same."""
    return {"kind": event.kind, **event.model_dump(exclude_defaults=True)}


def parse_event(data: Any) -> Event:
    """Return the event in JSON data of today's format. Raises pydantic's ValidationError, a ValueError."""
    return _EVENT.validate_python(data)


def blob_of(event: Event) -> str:
    """Return the digest of the blob that holds the event's own value; empty where none does."""
    match event:
        case StepCompleted(result=value) | ToolCalled(result=value) | Finished(result=value):
            pass
        case Remembered(memory=value) | Decided(answer=value):
            pass
        case GateOpened(gate=gate) | Halted(gate=Gate() as gate):
            value = gate.request
        case _:
            value = None
    return value.blob if value is not None else ""


def line_of(record: Record) -> bytes:
    """Return the record as one line of JSON, newline included."""
    events = [dump_event(event) for event in record.events]
    return write_json({"format": NEWEST[Kind.RECORD], **vars(record), "events": events}) + b"\n"


def digest_of(line: bytes) -> str:
    """Return the digest that the next record carries as `prev`: SHA-256 of the stored line, in hex."""
    return hashlib.sha256(line).hexdigest()


def parse_line(line: bytes, key: str) -> Record:
    """Return the record in one line of the object `key`.

    Raises Corrupt if it is none, FormatTooNew if a newer Milepost wrote it.
    """
    try:
        data = read_json(line)
    except ValueError as error:
        raise Corrupt(key, f"a record is not JSON: {error}") from error
    fields = upgrade(Kind.RECORD, data, key)
    try:
        return _RECORD.validate_python(fields)
    except ValidationError as error:
        raise Corrupt(key, f"a record has a wrong shape: {error.errors()[0]['msg']}") from error
