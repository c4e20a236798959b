"""A run's log as rows: one for each step and each gate, in the order in which they were last recorded.

A call is a row of its own only while nobody knows what became of it; every other one belongs to its step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from milepost.api.names import StoreKeys
from milepost.checkpoint.archive import Archive
from milepost.checkpoint.gates import Decided, Gate, GateOpened, GateType
from milepost.checkpoint.head import Head
from milepost.checkpoint.history import HeadAt, consistently, load, read_records
from milepost.checkpoint.records import (
    Claimed,
    Event,
    Halted,
    Intended,
    Record,
    Resumed,
    StepCompleted,
    StepFailure,
    StepSkipped,
    ToolCalled,
    Usage,
    Withdrawn,
    dump_event,
)
from milepost.checkpoint.store import Store
from milepost.errors import Missing
from milepost.local.questions import ANSWERED, label_of

__all__ = ["Row", "read_rows", "rows_of"]


@dataclass(frozen=True)
class Row:
    """A step or a gate. `attempts` counts a step's tries, `pod` is the run's attempt that recorded it.

    `status` of a step is recorded, adopted (from an earlier execution of the run), fact (of that execution,
    and not adopted so far), tried, failed, skipped, withdrawn, or unconfirmed where a call was begun and
    nobody knows what became of it. That of a gate is waiting, halted, or how it was answered.

    Sizes are bytes. `duration_s` and `started` are those of the last try, or how long a gate was open;
    `calls` are the tool calls of all tries, as they are recorded, and tokens and cost what all of them used.
    `error` is why a step failed, was skipped or was withdrawn; `by`, `at` and `reason` say who decided.
    """

    seq: int
    step: str
    status: str
    attempts: int
    started: str
    duration_s: float
    size: int | None
    epoch: int
    pod: int
    error: str = ""
    description: str = ""
    summary: str = ""
    meta: Mapping[str, Any] = field(default_factory=dict)
    calls: tuple[Mapping[str, Any], ...] = ()
    tokens: int = 0
    cost_usd: float = 0.0
    by: str = ""
    at: str = ""
    reason: str = ""


def read_rows(store: Store, keys: StoreKeys) -> tuple[Head, list[Row]]:
    """Return the run's head and the rows of its log, verified. Raises Missing, Corrupt, naming the object."""

    def read(at: HeadAt) -> tuple[Head, list[Row]]:
        archive = Archive(store, keys)
        load(store, at.head, archive)
        records = (record for _, lines in read_records(store, at.head, archive) for record, _ in lines)
        return at.head, rows_of(records)

    found = consistently(store, keys, read)
    if found is None:
        raise Missing(keys.head, "a name leads to it, and it is gone")
    return found


def rows_of(records: Iterable[Record]) -> list[Row]:
    """Return the rows of these records."""
    log = _Log()
    for record in records:
        for event in record.events:
            log.take(record, event)
    return [*log.rows.values(), *log.open_calls()]


@dataclass
class _Log:
    """The rows so far, by step or by the gate's place, and what is needed to make the next."""

    rows: dict[str, Row] = field(default_factory=dict)
    calls: dict[str, list[Mapping[str, Any]]] = field(default_factory=dict)
    intents: dict[tuple[str, int], Row] = field(default_factory=dict)
    gates: dict[str, Gate] = field(default_factory=dict)
    used: dict[str, Usage] = field(default_factory=dict)
    pod: int = 0

    def take(self, record: Record, event: Event) -> None:  # noqa: C901  (an arm a kind of event)
        """Add what an event says."""
        match event:
            case Claimed(attempt=attempt):
                self.pod = attempt
            case Intended():
                self.intents[event.step, event.call] = self._intent(record, event)
            case ToolCalled(step=step, call=call):
                self.calls.setdefault(step, []).append(dump_event(event))
                if not event.unconfirmed:
                    self.intents.pop((step, call), None)
            case StepCompleted() | StepFailure():
                self._put(self._step(record, event))
            case StepSkipped(step=place, reason=reason):
                self._put(self._dull(record, place.id, "skipped", record.at, error=reason))
            case Withdrawn(step=step, reason=reason) if step in self.rows:
                self._put(replace(self.rows[step], seq=record.seq, status="withdrawn", error=reason))
            case GateOpened(gate=gate) | Halted(gate=Gate() as gate):
                self.gates[gate.id] = gate
                status = "waiting" if isinstance(event, GateOpened) else "halted"
                kind = "" if gate.type is GateType.SLEEP else f"{gate.type.value.lower()} "
                told = f"{kind}{label_of(gate.name, gate.key)}"
                self._put(self._dull(record, gate.place, status, gate.since, description=told))
            case Decided():
                self._decide(record, event)
            case Resumed(strategy="RestartWithContext"):
                self._begin_anew()
            case _:
                pass

    def open_calls(self) -> list[Row]:
        """Return the calls of which nobody knows what became of them."""
        return list(self.intents.values())

    def _put(self, row: Row) -> None:
        """Let the row be the last, as it is what was recorded last."""
        self.rows.pop(row.step, None)
        self.rows[row.step] = row

    def _dull(self, record: Record, step: str, status: str, started: str, **words: Any) -> Row:
        return Row(record.seq, step, status, 0, started, 0.0, None, record.epoch, self.pod, **words)

    def _intent(self, record: Record, event: Intended) -> Row:
        told = f"call {event.call} of {event.tool} was begun; what became of it is not recorded"
        return self._dull(record, event.step, "unconfirmed", event.started_at, error=told)

    def _step(self, record: Record, event: StepCompleted | StepFailure) -> Row:
        step = event.step.id
        usage = self.used[step] = self.used.get(step, Usage()) + event.usage
        row = replace(
            self._dull(record, step, "recorded", event.started_at),
            attempts=event.attempt,
            duration_s=_seconds(event.started_at, event.ended_at),
            calls=tuple(self.calls.get(step, [])),
            tokens=usage.input_tokens + usage.output_tokens,
            cost_usd=usage.cost_nano_usd / 1e9,
        )
        if isinstance(event, StepFailure):
            error = f"{event.error.kind}: {event.error.message}"
            return replace(row, status="failed" if event.final else "tried", error=error)
        for call in [each for each in self.intents if each[0] == step]:
            del self.intents[call]
        return replace(
            row,
            status="adopted" if event.adopted else "recorded",
            size=event.result.size,
            description=event.description,
            summary=event.summary,
            meta=event.meta,
        )

    def _decide(self, record: Record, event: Decided) -> None:
        gate = self.gates.get(event.gate)
        since = gate.since if gate else event.at
        told = self.rows[event.place].description if event.place in self.rows else ""
        row = self._dull(record, event.place, ANSWERED[event.type], since, description=told)
        took = _seconds(since, event.at) if event.at else 0.0
        # A clock of one machine gave the one time, that of another the other.
        self._put(replace(row, duration_s=max(took, 0.0), by=event.by, at=event.at, reason=event.reason))

    def _begin_anew(self) -> None:
        self.intents.clear()
        for name, row in list(self.rows.items()):
            if row.status in ("recorded", "adopted"):
                self.rows[name] = replace(row, status="fact")
            elif row.status in ("waiting", "tried", "failed", "skipped"):
                del self.rows[name]


def _seconds(start: str, end: str) -> float:
    took = datetime.fromisoformat(end) - datetime.fromisoformat(start)
    return round(took.total_seconds(), 3)
