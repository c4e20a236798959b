"""The state of a run as a pure fold over its records.

`Totals` is the part of it that the head repeats, so that a reader of the head alone knows how far the run
is; `State` is what a resume needs: which steps are done, with what results, and how often others failed.
Folding the same records always gives the same state, whoever does it and wherever the fold was cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from milepost.api.resource import Phase
from milepost.checkpoint.data import changed
from milepost.checkpoint.formats import checked
from milepost.checkpoint.gates import Decided, Gate, GateAt, GateOpened, GateType, Waiting
from milepost.checkpoint.records import (
    FIRST_DIGEST,
    OPERATOR,
    Claimed,
    Degraded,
    Event,
    Finished,
    GroupClosed,
    Halted,
    Intended,
    Noted,
    Planned,
    Record,
    Remembered,
    Repaired,
    Resumed,
    Started,
    StepCompleted,
    StepFailure,
    StepSkipped,
    ToolCalled,
    Withdrawn,
)
from milepost.errors import Corrupt

__all__ = ["Place", "State", "Totals", "advance", "environment_of", "gates_after", "parse_totals"]


@dataclass(frozen=True)
class Totals:
    """Counts over the whole history.

    `lost_tries` are pods lost by the agent's own fault, and `oom_at_step` pods that ran out of memory,
    since a step was last recorded: they count as tries of the step at which they were lost. `tokens` and
    `cost_nano_usd` (billionths of a US dollar) are what models used, in tries that failed too. `group` is the
    phase that the run has reached, and `group_done` how many steps are completed in it. `gaps` counts phases
    that began with fewer inputs than they were meant to have.
    """

    steps_done: int = 0
    steps_total: int | None = None
    ends: Mapping[str, int] = field(default_factory=dict)
    lost_tries: int = 0
    oom_at_step: int = 0
    steps_failed: int = 0
    steps_skipped: int = 0
    tokens: int = 0
    cost_nano_usd: int = 0
    replans: int = 0
    group: str = ""
    group_done: int = 0
    gaps: int = 0


def advance(  # noqa: C901, PLR0911, PLR0912  (an arm a kind of event)
    totals: Totals, phase: Phase, event: Event
) -> tuple[Totals, Phase]:
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
            return changed(
                totals,
                ends=ends,
                lost_tries=totals.lost_tries + own_fault,
                oom_at_step=totals.oom_at_step + (end.fault == "memory"),
            ), running
        case Planned(total=total, replanned=replanned):
            known = totals.steps_total if total is None else total
            return changed(totals, steps_total=known, replans=totals.replans + replanned), phase
        case StepCompleted() | StepFailure():
            return _after_try(totals, event), phase
        case StepSkipped():
            return changed(totals, steps_skipped=totals.steps_skipped + 1), phase
        case GroupClosed():
            return changed(totals, group="", group_done=0), phase
        case Degraded():
            return changed(totals, gaps=totals.gaps + 1), phase
        case Withdrawn():
            return changed(totals, steps_done=totals.steps_done - 1), phase
        case Resumed(strategy="RestartWithContext"):
            return changed(totals, steps_done=0, steps_failed=0, steps_skipped=0, gaps=0, group=""), phase
        case Waiting():
            return totals, Phase.WAITING
        case Halted():
            return totals, Phase.HALTED
        case Finished(phase=end_phase):
            return totals, end_phase
        case (
            Repaired()
            | Intended()
            | ToolCalled()
            | GateOpened()
            | Decided()
            | Resumed()
            | Remembered()
            | Noted()
        ):
            return totals, phase


def gates_after(gates: Mapping[str, GateAt], event: Event, seq: int) -> Mapping[str, GateAt]:
    """Return the gates that are open after an event of record `seq`.

    A gate closes one that is open at the same place, when it is opened and when it is passed: the code asks
    something else there now. A run that waits has only those open at which it does: an answer at another one
    would let it go on again and again, and come no further.
    """
    match event:
        case GateOpened(gate=gate) | Halted(gate=Gate() as gate):
            others = {name: each for name, each in gates.items() if each.place != gate.place}
            return {**others, gate.id: _gate_at(gate, seq)}
        case Decided(gate=passed, place=place) if gates:
            return {name: each for name, each in gates.items() if passed != name and place != each.place}
        case Claimed(writer=writer) if gates and writer != OPERATOR:
            # Whether what it halted for still holds is for the new writer to find out.
            return {name: each for name, each in gates.items() if each.type != GateType.HALT}
        case Waiting(gates=waited_at) if waited_at:
            return {name: each for name, each in gates.items() if name in waited_at}
        case Resumed(strategy="RestartWithContext") | Finished():
            return {}
        case _:
            return gates


def _gate_at(gate: Gate, seq: int) -> GateAt:
    return GateAt(
        gate.id, gate.type, gate.place, gate.name, gate.key, gate.request_digest, gate.since, gate.until, seq
    )


def _after_try(totals: Totals, event: StepCompleted | StepFailure) -> Totals:
    used, group, group_done = event.usage, totals.group, totals.group_done
    completed = isinstance(event, StepCompleted)
    failed = isinstance(event, StepFailure) and event.final and not event.cancelled
    if completed:
        group = event.step.group
        group_done = 0 if not group else group_done + 1 if group == totals.group else 1
    return changed(
        totals,
        lost_tries=0,
        oom_at_step=0,
        tokens=totals.tokens + used.input_tokens + used.output_tokens,
        cost_nano_usd=totals.cost_nano_usd + used.cost_nano_usd,
        steps_done=totals.steps_done + completed,
        steps_failed=totals.steps_failed + failed,
        group=group,
        group_done=group_done,
    )


def parse_totals(data: Any) -> Totals:
    """Return the totals in JSON data. Raises TypeError, ValueError."""
    totals = checked(Totals, data)
    if not isinstance(totals.steps_total, int | None):
        raise TypeError("steps_total is no number")
    if not all(isinstance(count, int) for count in dict(totals.ends).values()):
        raise TypeError("ends does not hold numbers")
    return totals


class Place(NamedTuple):
    """Where a completed step is recorded, the digest of its result, and the step that it came after."""

    seq: int
    result_digest: str
    after: str | None = None


@dataclass
class State:
    """What the records say, up to `seq`. `digest` is that of the last record's line.

    Of completed steps only the places are kept: their results stay in the records, so that a state does not
    grow with what a run has carried forward. Failures, calls and intents are those of steps still open, and
    `failed_at` are the records of failures that were final;
    `once` are the irreversible calls, by their key, which stand whatever becomes of their step.

    `gates` are open, by id; `decisions` are the records of those that were passed. `facts` are the completed
    steps of the executions before a restart, of which there were `executions`. `generations` counts how often
    what a step did was declared to stand no more; `withdrawn` says in which record a step was withdrawn the
    last time. `revalidate` is the record since which recorded results are to be checked again, in branches
    but those in `revalidated`. `halted_at` is the gate of the last halt that people can
    decide, `plans` counts the graphs of tasks that were recorded. `environment` is what
    resumes are compared with, `proved_ends` are the attempts of which nothing is at work any more. `memory`
    is the record that has the agent's memory, `memory_at_restart` the one that had it when the execution
    began anew. `closed_groups` are the phases that are over, `degraded` names what was missing for those that
    had less. `adopted` are the facts that are steps of this execution again, `began_with` is the agent's
    version that began it, `code` is the digest of the code that works on it, `codes` are those that have.
    `found` is the phase in which the newest executor found the run.
    """

    seq: int = 0
    epoch: int = 0
    digest: str = FIRST_DIGEST
    phase: Phase = Phase.PENDING
    totals: Totals = field(default_factory=Totals)
    started: Started | None = None
    completed: dict[str, Place] = field(default_factory=dict)
    failed: dict[str, list[StepFailure]] = field(default_factory=dict)
    failed_at: dict[str, int] = field(default_factory=dict)
    calls: dict[str, dict[int, ToolCalled]] = field(default_factory=dict)
    intents: dict[str, dict[int, Intended]] = field(default_factory=dict)
    once: dict[str, int] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    gates: Mapping[str, GateAt] = field(default_factory=dict)
    decisions: dict[str, int] = field(default_factory=dict)
    facts: dict[str, Place] = field(default_factory=dict)
    generations: dict[str, int] = field(default_factory=dict)
    withdrawn: dict[str, int] = field(default_factory=dict)
    executions: int = 0
    halted_at: str = ""
    plans: int = 0
    revalidate: int = 0
    revalidated: set[str] = field(default_factory=set)
    environment: dict[str, str] | None = None
    proved_ends: set[int] = field(default_factory=set)
    memory: int = 0
    memory_at_restart: int = 0
    closed_groups: set[str] = field(default_factory=set)
    adopted: set[str] = field(default_factory=set)
    began_with: str = ""
    code: str = ""
    codes: set[str] = field(default_factory=set)
    degraded: dict[str, list[str]] = field(default_factory=dict)
    steps_by_result: dict[str, str] = field(default_factory=dict)
    outcome: Finished | Halted | None = None
    # No base needs it: the claim of whoever asks comes after all of them.
    found: Phase = field(default=Phase.PENDING, compare=False)

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
            if isinstance(event, Claimed) and event.writer != OPERATOR:
                self.found = self.phase
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
        self.failed_at.pop(step, None)
        self.calls.pop(step, None)
        self.intents.pop(step, None)

    def leave_open(self, event: Event) -> None:
        """Note what was recorded of a step that is not completed yet: a try, a call, an intent.

        Raises ValueError for any other event.
        """
        match event:
            case StepFailure(step=step):
                self.failed.setdefault(step.id, []).append(event)
            case Intended(step=step_id, call=call):
                self.intents.setdefault(step_id, {})[call] = event
            case ToolCalled(step=step_id, call=call):
                self.calls.setdefault(step_id, {})[call] = event
                if not event.unconfirmed and step_id in self.intents:
                    self.intents[step_id].pop(call, None)
                    if not self.intents[step_id]:
                        del self.intents[step_id]
            case _:
                raise ValueError(f"{event.kind} leaves no step open")

    def _note(self, event: Event, seq: int, key: str) -> None:  # noqa: C901, PLR0912, PLR0915  (an arm a kind of event)
        self.gates = gates_after(self.gates, event, seq)
        match event:
            case Started():
                self.started = event
            case StepCompleted(step=step):
                if step.id in self.completed:
                    raise Corrupt(key, f"step {step.id} is recorded as completed twice")
                self.complete(step.id, Place(seq, event.result_digest, step.after))
                if event.adopted:
                    self.adopted.add(event.adopted)
                self._check_off(step.branch)
            case ToolCalled(effect="irreversible", error=None):
                self.once[event.key] = seq
                self.leave_open(event)
            case StepFailure():
                self._fail(event, seq)
            case ToolCalled() | Intended():
                self.leave_open(event)
            case StepSkipped(step=step, reason=reason):
                self.skipped[step.id] = reason
            case GroupClosed(group=group):
                self.closed_groups.add(group)
            case Decided(gate=passed):
                self.decisions[passed] = seq
            case Withdrawn():
                self._withdraw(event, seq, key)
            case Resumed():
                self._resume(event, seq)
            case Remembered():
                self.memory = seq
            case Claimed():
                self._claim(event)
            case Finished():
                self.outcome = event
            case Halted(gate=asked):
                self.outcome = event
                self.halted_at = asked.id if asked is not None else ""
            case Degraded(group=group, missing=missing):
                self.degraded[group] = list(missing)
            case Planned(tasks=tasks):
                self.plans += bool(tasks)
            case Repaired() | GateOpened() | Waiting() | Noted():
                pass

    def _fail(self, event: StepFailure, seq: int) -> None:
        self.leave_open(event)
        if event.final:
            self.failed_at[event.step.id] = seq

    def _claim(self, event: Claimed) -> None:
        if event.previous_end is not None and event.previous_end.proved:
            self.proved_ends.add(event.previous_end.attempt)
        if event.writer == OPERATOR:
            return
        self.outcome = None
        if not event.agent_version:
            # It has not found the agent, and so says nothing of it.
            return
        self.code = event.code_digest
        self.codes.add(self.code)
        if self.environment is None:
            self.environment = environment_of(event)
            self.began_with = event.agent_version

    def _withdraw(self, event: Withdrawn, seq: int, key: str) -> None:
        place = self.completed.pop(event.step, None)
        if place is None:
            raise Corrupt(key, f"step {event.step} is withdrawn and was not recorded as completed")
        self.withdrawn[event.step] = seq
        digest = place.result_digest
        if self.steps_by_result[digest] == event.step:
            del self.steps_by_result[digest]
            others = (step for step, other in self.completed.items() if other.result_digest == digest)
            if (other := next(others, None)) is not None:
                self.steps_by_result[digest] = other
        if event.anew:
            self.generations[event.step] = self.generations.get(event.step, 0) + 1

    def _resume(self, event: Resumed, seq: int) -> None:
        if event.environment:
            self.environment = dict(event.environment)
        if event.strategy == "Revalidate":
            self.revalidate, self.revalidated = seq, set()
        if event.strategy == "RestartWithContext":
            for step in self.completed:
                self.generations[step] = self.generations.get(step, 0) + 1
            self.executions += 1
            self.plans = 0
            self.facts |= self.completed
            self.memory_at_restart = self.memory
            self.began_with = event.environment.get("agent version", self.began_with)
            for of_execution in (self.completed, self.failed, self.failed_at, self.skipped, self.decisions):
                of_execution.clear()
            self.steps_by_result.clear()
            self.withdrawn.clear()
            self.closed_groups.clear()
            self.adopted.clear()
            self.codes = {self.code}
            self.degraded.clear()

    def _check_off(self, branch: str) -> None:
        """Note that a branch has gone on since results were to be checked again: it and those around it."""
        while self.revalidate and branch not in self.revalidated:
            self.revalidated.add(branch)
            branch = branch.rpartition("/")[0]

    def inputs(self) -> dict[str, Any]:
        """Return the run's inputs as the manifest gave them."""
        assert self.started is not None, "record 1 is `started`"
        return dict(self.started.inputs)


def environment_of(claimed: Claimed) -> dict[str, str]:
    """Return what a claim says of the environment, as names and values that can be compared."""
    return {
        "agent version": claimed.agent_version,
        "image": claimed.image,
        "milepost": claimed.milepost_version,
        "code": claimed.code_digest,
        **{f"tool {name}": version for name, version in claimed.tools.items()},
        **{f"environment {name}": value for name, value in claimed.environment.items()},
        **{f"policy {name}": str(value) for name, value in claimed.policy.items()},
    }
