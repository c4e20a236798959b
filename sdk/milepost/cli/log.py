"""A run's log as rows: one for each step that was tried, in the order in which they were last recorded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from milepost.api.names import StoreKeys
from milepost.checkpoint.archive import Archive
from milepost.checkpoint.head import Head
from milepost.checkpoint.history import HeadAt, consistently, load, read_records
from milepost.checkpoint.records import Claimed, Record, StepCompleted, StepFailure, ToolCalled, dump_event
from milepost.checkpoint.store import Store
from milepost.errors import Missing

__all__ = ["Row", "read_rows", "rows_of"]


@dataclass(frozen=True)
class Row:
    """One step. `attempts` counts its tries, `pod` the run's attempt that recorded it; sizes are bytes.

    `duration_s` and `started` are those of the last try; `calls` are the tool calls of all tries, as they
    are recorded.
    """

    seq: int
    step: str
    status: Literal["recorded", "tried", "failed"]
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
    rows: dict[str, Row] = {}
    calls: dict[str, list[Mapping[str, Any]]] = {}
    pod = 0
    for record in records:
        for event in record.events:
            match event:
                case Claimed(attempt=attempt):
                    pod = attempt
                case ToolCalled(step=step):
                    calls.setdefault(step, []).append(dump_event(event))
                case StepCompleted() | StepFailure():
                    rows.pop(event.step.id, None)
                    rows[event.step.id] = _row(record, event, pod, calls.get(event.step.id, []))
                case _:
                    pass
    return list(rows.values())


def _row(
    record: Record, event: StepCompleted | StepFailure, pod: int, calls: Iterable[Mapping[str, Any]]
) -> Row:
    took = datetime.fromisoformat(event.ended_at) - datetime.fromisoformat(event.started_at)
    status: Literal["recorded", "tried", "failed"] = "recorded"
    error, size = "", None
    words: dict[str, Any] = {}
    match event:
        case StepCompleted(result=result):
            size = result.size
            words = {"description": event.description, "summary": event.summary, "meta": event.meta}
        case StepFailure(final=final, error=data):
            status = "failed" if final else "tried"
            error = f"{data.kind}: {data.message}"
    return Row(
        seq=record.seq,
        step=event.step.id,
        status=status,
        attempts=event.attempt,
        started=event.started_at,
        duration_s=round(took.total_seconds(), 3),
        size=size,
        epoch=record.epoch,
        pod=pod,
        error=error,
        calls=tuple(calls),
        **words,
    )
