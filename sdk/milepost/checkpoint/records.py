"""Records: what a commit adds to a run's history, and their form in bytes.

A record is one line of JSON: its number, who wrote it in which epoch, the digest of the record before it,
and its events. The digests chain the history, so that a lost, changed or swapped record is found wherever
it is stored. Values of the author's are already encoded by `milepost.checkpoint.codec` when they come here;
this module never looks inside them. Nothing here does I/O.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError

from milepost.api.resource import Phase
from milepost.checkpoint.formats import NEWEST, Kind, read_json, upgrade
from milepost.errors import Corrupt

__all__ = [
    "FIRST_DIGEST",
    "OPERATOR",
    "Claimed",
    "ErrorData",
    "Event",
    "Finished",
    "Halted",
    "Input",
    "Planned",
    "PreviousEnd",
    "Record",
    "Repaired",
    "Started",
    "StepCompleted",
    "StepFailure",
    "StepPlace",
    "ToolCalled",
    "Value",
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


MAX_MESSAGE: Final = 2000
"""Characters of a message about a whole run. With a result inline it still fits a head."""


def _printable(text: Any) -> Any:
    # A file name that is no UTF-8 comes as lone surrogates, which no JSON document can carry.
    return text.encode("utf-8", "backslashreplace").decode() if isinstance(text, str) else text


def _cut(text: Any) -> Any:
    return text if not isinstance(text, str) or len(text) <= MAX_MESSAGE else text[: MAX_MESSAGE - 1] + "…"


Text: TypeAlias = Annotated[str, BeforeValidator(_printable)]
Message: TypeAlias = Annotated[str, BeforeValidator(_cut), BeforeValidator(_printable)]


class _Data(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Value(_Data):
    """An encoded value: inline, or the digest and size in bytes of the blob that holds it."""

    inline: Any = None
    blob: str = ""
    size: int = 0


class Input(_Data):
    """One positional argument of a step.

    The digest is always there. The value is inline up to 2 KiB; a larger one that is itself a recorded
    result is named by the step that made it, and any other is not kept.
    """

    digest: str
    inline: Value | None = None
    result_of: str = ""


class ErrorData(_Data):
    """An error as data: qualified type, message and the chain of causes, each cut to a readable length."""

    kind: Text
    message: Text
    chain: tuple[Text, ...] = ()


class StepPlace(_Data):
    """Which step: its id and what the id is made of, with its ordinal among all steps of its branch."""

    id: str
    branch: str = ""
    name: str
    key: str | None = None
    number: int = 1
    ordinal: int


class PreviousEnd(_Data):
    """How the pod of the attempt before ended, as the operator classified it."""

    attempt: int
    cause: str
    fault: Literal["disruption", "agent", "memory", "start"]
    exit_code: int | None = None
    message: Message = ""


class Started(_Data):
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
    configuration: Mapping[str, Any] = Field(default_factory=dict)


class Repaired(_Data):
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


class Claimed(_Data):
    """A writer took the run over. From here on every earlier epoch is refused."""

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
    previous_end: PreviousEnd | None = None


class Planned(_Data):
    """How many steps the author expects in all; what progress is measured against."""

    kind: Literal["planned"] = "planned"
    total: int


class ToolCalled(_Data):
    """A tool was called and answered, or raised.

    `arguments` is the digest of all arguments, checked against the key's; `inputs` and `named` hold each
    of them as a step's record holds its own.
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


class StepCompleted(_Data):
    """A step's function returned, and its result is durable with this record.

    `description` and `summary` are the author's words for people, of the step and of its result; `meta` is
    free. A summary is also what is left to tell of a result whose bytes are lost.
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


class StepFailure(_Data):
    """One try of a step failed. `final`: no further try will be made."""

    kind: Literal["step_failed"] = "step_failed"
    step: StepPlace
    attempt: int
    final: bool
    inputs: tuple[Input, ...] = ()
    error: ErrorData
    started_at: str
    ended_at: str


class Halted(_Data):
    """The run stopped in a state that a person, or a change of the image, has to resolve."""

    kind: Literal["halted"] = "halted"
    reason: str
    message: Message


class Finished(_Data):
    """The run ended. Nothing follows this event."""

    kind: Literal["finished"] = "finished"
    phase: Phase
    reason: str
    message: Message = ""
    result: Value | None = None


Event: TypeAlias = Annotated[
    Started | Repaired | Claimed | Planned | ToolCalled | StepCompleted | StepFailure | Halted | Finished,
    Field(discriminator="kind"),
]


class Record(_Data):
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
    """Return the digest of the blob that holds the event's result; empty where none does."""
    value = event.result if isinstance(event, StepCompleted | ToolCalled | Finished) else None
    return value.blob if value is not None else ""


def line_of(record: Record) -> bytes:
    """Return the record as one line of JSON, newline included.

    Text is UTF-8, not escapes: a value that counts as small when it is measured is small in its record too.
    """
    data = {
        "format": NEWEST[Kind.RECORD],
        **record.model_dump(exclude={"events"}),
        "events": [dump_event(event) for event in record.events],
    }
    text = json.dumps(data, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    return text.encode("utf-8", "backslashreplace") + b"\n"


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
