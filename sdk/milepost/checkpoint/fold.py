"""The state of a run as a pure fold over its records.

`Totals` is the part of it that the head repeats, so that a reader of the head alone knows how far the run
is; `State` is what a resume needs: which steps are done, with what results, and how often others failed.
Folding the same records always gives the same state, whoever does it and wherever the fold was cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from milepost.api.resource import Phase
from milepost.checkpoint.formats import checked
from milepost.checkpoint.records import (
    FIRST_DIGEST,
    OPERATOR,
    Claimed,
    Event,
    Finished,
    Halted,
    Planned,
    Record,
    Repaired,
    Started,
    StepCompleted,
    StepFailure,
    ToolCalled,
)
from milepost.errors import Corrupt

__all__ = ["Place", "State", "Totals", "advance", "parse_totals"]


@dataclass(frozen=True)
class Totals:
    """Counts over the whole history.

    `lost_tries` are pods lost by the agent's own fault, and `oom_at_step` pods that ran out of memory,
    since a step was last recorded: they count as tries of the step at which they were lost.
    """

    steps_done: int = 0
    steps_total: int | None = None
    ends: Mapping[str, int] = field(default_factory=dict)
    lost_tries: int = 0
    oom_at_step: int = 0


def advance(totals: Totals, phase: Phase, event: Event) -> tuple[Totals, Phase]:
    """Return the totals and the phase after one more event."""
    match event:
        case Started():
            return totals, Phase.PENDING
        case Claimed(previous_end=end, writer=writer):
            running = phase if writer == OPERATOR else Phase.RUNNING
            if end is None:
                return totals, running
            ends = {**totals.ends, end.cause: totals.ends.get(end.cause, 0) + 1}
            own_fault = end.fault in ("agent", "memory")
            return replace(
                totals,
                ends=ends,
                lost_tries=totals.lost_tries + own_fault,
                oom_at_step=totals.oom_at_step + (end.fault == "memory"),
            ), running
        case Planned(total=total):
            return replace(totals, steps_total=total), phase
        case StepCompleted():
            return replace(totals, steps_done=totals.steps_done + 1, lost_tries=0, oom_at_step=0), phase
        case StepFailure():
            return replace(totals, lost_tries=0, oom_at_step=0), phase
        case ToolCalled() | Repaired():
            return totals, phase
        case Halted():
            return totals, Phase.HALTED
        case Finished(phase=end_phase):
            return totals, end_phase


def parse_totals(data: Any) -> Totals:
    """Return the totals in JSON data. Raises TypeError, ValueError."""
    totals = checked(Totals, data)
    if not isinstance(totals.steps_total, int | None):
        raise TypeError("steps_total is no number")
    if not all(isinstance(count, int) for count in dict(totals.ends).values()):
        raise TypeError("ends does not hold numbers")
    return totals


class Place(NamedTuple):
    """Where a completed step is recorded, and the digest of its result."""

    seq: int
    result_digest: str


@dataclass
class State:
    """What the records say, up to `seq`. `digest` is that of the last record's line.

    Of completed steps only the places are kept: their results stay in the records, so that a state does not
    grow with what a run has carried forward. Failures and tool calls are those of steps still open.
    """

    seq: int = 0
    epoch: int = 0
    digest: str = FIRST_DIGEST
    phase: Phase = Phase.PENDING
    totals: Totals = field(default_factory=Totals)
    started: Started | None = None
    completed: dict[str, Place] = field(default_factory=dict)
    failed: dict[str, list[StepFailure]] = field(default_factory=dict)
    calls: dict[str, dict[int, ToolCalled]] = field(default_factory=dict)
    steps_by_result: dict[str, str] = field(default_factory=dict)
    outcome: Finished | Halted | None = None

    def apply(self, record: Record, line_digest: str, key: str) -> None:
        """Fold in the next record, read from the object `key`.

        Raises Corrupt where it does not continue the history: a gap, a broken chain, an epoch that falls, an
        event after the end or before the beginning.
        """
        if record.seq != self.seq + 1:
            raise Corrupt(key, f"record {record.seq} follows record {self.seq}")
        if record.prev != self.digest:
            raise Corrupt(key, f"record {record.seq} does not continue record {self.seq}: digests differ")
        if record.epoch < self.epoch:
            raise Corrupt(key, f"record {record.seq} has epoch {record.epoch} after epoch {self.epoch}")
        for event in record.events:
            if self.phase.terminal:
                raise Corrupt(key, f"record {record.seq} follows the end of the run")
            if isinstance(event, Started) is not (self.started is None):
                raise Corrupt(key, f"record {record.seq}: `started` is missing, or is not the first event")
            self.totals, self.phase = advance(self.totals, self.phase, event)
            self._note(event, record.seq, key)
        self.seq, self.epoch, self.digest = record.seq, record.epoch, line_digest

    def apply_all(self, lines: Iterable[tuple[Record, str]], key: str) -> None:
        """Fold in records with the digests of their lines, in order."""
        for record, digest in lines:
            self.apply(record, digest, key)

    def complete(self, step: str, place: Place) -> None:
        """Note where a completed step is recorded. Its failures and calls are of no further use."""
        self.completed[step] = place
        self.steps_by_result.setdefault(place.result_digest, step)
        self.failed.pop(step, None)
        self.calls.pop(step, None)

    def leave_open(self, event: Event) -> None:
        """Note a failed try or a tool call of a step that is not completed yet. Raises ValueError."""
        match event:
            case StepFailure(step=step):
                self.failed.setdefault(step.id, []).append(event)
            case ToolCalled(step=step_id, call=call):
                self.calls.setdefault(step_id, {})[call] = event
            case _:
                raise ValueError(f"{event.kind} leaves no step open")

    def _note(self, event: Event, seq: int, key: str) -> None:
        match event:
            case Started():
                self.started = event
            case StepCompleted(step=step):
                if step.id in self.completed:
                    raise Corrupt(key, f"step {step.id} is recorded as completed twice")
                self.complete(step.id, Place(seq, event.result_digest))
            case StepFailure() | ToolCalled():
                self.leave_open(event)
            case Claimed(writer=writer):
                self.outcome = self.outcome if writer == OPERATOR else None
            case Finished() | Halted():
                self.outcome = event
            case Planned() | Repaired():
                pass

    def inputs(self) -> dict[str, Any]:
        """Return the run's inputs as the manifest gave them."""
        assert self.started is not None, "record 1 is `started`"
        return dict(self.started.inputs)
