"""What must hold of a run that was disturbed, seen from outside: journal, store, ledger, agent's notes.

The journal of the proxies says which writes were applied; those of the head have to form one chain, each
replacing the version before it, from the first head to the one that stands. Folded, it has to give the state
that is loaded from the store. Each check returns sentences; none at all means that it holds.

It does not trust the product to tell of itself: a step's starts come from a file that the agent writes, and
effects from the receiver's database.
"""

from __future__ import annotations

import base64
import hashlib
import json
import signal
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final, TypeVar

from milepost.api.exits import Exit
from milepost.api.resource import Phase
from milepost.checkpoint import inbox, values
from milepost.checkpoint.fold import State
from milepost.checkpoint.gates import AnswerType, Decided, GateOpened, Waiting
from milepost.checkpoint.head import Head, parse_head
from milepost.checkpoint.history import load, read_records
from milepost.checkpoint.records import (
    Claimed,
    Event,
    Finished,
    Intended,
    Record,
    StepCompleted,
    StepFailure,
    ToolCalled,
    Value,
    digest_of,
    parse_line,
)
from milepost.checkpoint.store import Found, Store
from milepost.errors import Damaged
from tests.faults.points import How
from tests.faults.scene import PREFIX, Disturbed
from tests.support.fault_proxy import Passed

__all__ = ["Effects", "Expected", "Seen", "Verdict", "expected_of", "judge"]

E = TypeVar("E", bound=Event)

_ENDS: Final = frozenset({*map(int, Exit), -signal.SIGKILL})


@dataclass(frozen=True)
class Effects:
    """What the receiver's ledger says of one run: calls and applications, by what follows the run's id."""

    calls: Counter[str]
    applied: dict[str, tuple[str, str]]
    refused: int

    @classmethod
    def read(cls, ledger: Path, run_id: str) -> Effects:
        """Read the ledger: of each applied key the body, and what the receiver calls it."""
        with sqlite3.connect(f"file:{ledger}?mode=ro", uri=True) as db:
            like = (f"{run_id}/%",)
            calls = db.execute("SELECT key, status FROM calls WHERE key LIKE ?", like).fetchall()
            applied = db.execute("SELECT key, body, id FROM applied WHERE key LIKE ?", like).fetchall()
        db.close()
        short = len(run_id)
        return cls(
            Counter(key[short:] for key, _ in calls),
            {key[short:]: (body, f"effect-{number}") for key, body, number in applied},
            sum(status != 200 for _, status in calls),
        )


@dataclass(frozen=True)
class Expected:
    """What a clean run of the agent gave: result, steps, calls, effects with their bodies, and decisions.

    Of those it has the gates with what was answered, without those about calls whose end nobody has seen.
    """

    result: Any
    steps: frozenset[str]
    calls: frozenset[tuple[str, int]]
    effects: frozenset[tuple[str, str]]
    decisions: frozenset[tuple[str, str]] = frozenset()


@dataclass
class Verdict:
    """What was found wrong, in sentences, and what was counted."""

    violations: list[str] = field(default_factory=list)
    effects_duplicated: int = 0
    recorded_steps_repeated: int = 0
    calls_repeated: int = 0


@dataclass
class Seen:
    """A run that has ended, with what is read of it. Raises Damaged where its history does not verify."""

    run: Disturbed
    store: Store
    effects: Effects

    @cached_property
    def state(self) -> State:
        """The state loaded from the store."""
        return load(self.store, self.run.final.head)

    @cached_property
    def records(self) -> list[Record]:
        """All records, oldest first."""
        found = read_records(self.store, self.run.final.head)
        return [record for _, records in found for record, _ in records]

    def events(self, kind: type[E]) -> Iterator[E]:
        """Yield the events of one kind, in order."""
        return (event for record in self.records for event in record.events if isinstance(event, kind))

    @cached_property
    def result(self) -> Any:
        """The run's result; None where it has none."""
        last = next(iter(self.events(Finished)), None)
        return values.read(self.store, self.run.keys, last.result) if last and last.result else None

    @cached_property
    def started(self) -> list[tuple[str, str]]:
        """The step and the pod of each start that the agent noted."""
        file = self.run.world / "started"
        lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        return [(line["step"], line["pod"]) for line in lines]


def label_of(event: StepCompleted | StepFailure) -> str:
    """Return the name under which the agent notes a step: its second argument."""
    value = event.inputs[1].inline
    return str(value.inline) if value else ""


def expected_of(seen: Seen) -> Expected:
    """Return what every disturbed run of this agent has to come to."""
    return Expected(
        seen.result,
        frozenset(map(label_of, seen.events(StepCompleted))),
        frozenset((call.step, call.call) for call in seen.events(ToolCalled) if call.result),
        frozenset((key, body) for key, (body, _) in seen.effects.applied.items()),
        frozenset(_decisions(seen)),
    )


def judge(seen: Seen, expected: Expected) -> Verdict:
    """Return what is wrong with a run, and counts."""
    verdict = Verdict()
    try:
        for check in (_ends, _chain, _objects, _outcome, _steps, _gates):
            verdict.violations += check(seen, expected)
        repeated = _starts(seen)
        duplicated, wrong = _ledger(seen, expected)
    except Damaged as error:
        verdict.violations.append(f"what was stored does not verify: {error}")
        return verdict
    verdict.recorded_steps_repeated, verdict.effects_duplicated = len(repeated), len(duplicated)
    verdict.violations += [*repeated, *duplicated, *wrong]
    verdict.calls_repeated = sum(count - 1 for count in seen.effects.calls.values())
    return verdict


def _ends(seen: Seen, _: Expected) -> Iterator[str]:
    """Each process ends with a code that is true, and one that slept through another's claim is refused."""
    own = defaultdict(list)
    for claim in seen.events(Claimed):
        own[claim.writer].append(claim)
    ended_by = seen.records[-1].worker
    # Whose last record says that the run waits had nothing left to do.
    last = {record.worker: record for record in seen.records}
    waited = {pod for pod, record in last.items() if any(isinstance(each, Waiting) for each in record.events)}
    for attempt in seen.run.attempts:
        if attempt.code not in _ENDS:
            yield f"attempt {attempt.number} ended with {attempt.code}; its log is {attempt.process.log}"
        if attempt.hit and attempt.blow and attempt.blow.how is How.PAUSE:
            pod = f"pod-{attempt.number}"
            left = ended_by == pod or pod in waited
            wanted = Exit.FENCED if own[pod] and not left else Exit.COMMITTED
            if attempt.code != wanted:
                yield f"attempt {attempt.number} woke and ended with {attempt.code}, not {int(wanted)}"


def _chain(seen: Seen, _: Expected) -> Iterator[str]:
    """Applied writes of the head form one chain; epochs and numbers only grow (I1, I4, I5, I6, I12)."""
    run, keys = seen.run, seen.run.keys
    replacing: dict[str, list[Passed]] = defaultdict(list)
    created = {passed.key: passed.body for passed in _puts(run)}
    for passed in _puts(run):
        if passed.key == f"{PREFIX}/{keys.head}":
            replacing[passed.condition.get("if-match", "")].append(passed)
    state = State()
    for line in run.begun.head.tail or _sealed_lines(run.begun.head, seen.store):
        state.apply(parse_line(line, keys.head), digest_of(line), keys.head)
    head, etag = run.begun.head, run.begun.etag
    while etag in replacing:
        passed, *others = replacing.pop(etag)
        if others:
            yield f"{len(others) + 1} writes replaced one version of the head, that of record {head.seq}"
        before, head, etag = head, parse_head(passed.body, keys), passed.etag
        line = head.tail[-1] if head.tail else created[_segment_key(head)].splitlines(keepends=True)[-1]
        record = parse_line(line, keys.head)
        state.apply(record, digest_of(line), keys.head)
        yield from _continues(before, head, record)
        if head.seq in run.loaded and run.loaded[head.seq] != state:
            yield f"the state loaded at record {head.seq} is not the one folded from the applied writes"
    if stray := [parse_head(each.body, keys).seq for rest in replacing.values() for each in rest]:
        yield f"writes of records {sorted(stray)} were applied to no version of the chain"
    if head.body() != run.final.head.body():
        yield f"the head that stands, {run.final.head.seq}, is not the last of the chain, {head.seq}"
    if state != seen.state:
        yield "the state loaded in the end is not the one folded from the applied writes"


def _continues(before: Head, head: Head, record: Record) -> Iterator[str]:
    claims = sum(isinstance(event, Claimed) for event in record.events)
    if head.seq != before.seq + 1:
        yield f"record {head.seq} follows record {before.seq}"
    if head.epoch != before.epoch + claims:
        yield f"record {head.seq} with {claims} claims has epoch {head.epoch} after epoch {before.epoch}"
    if not claims and (head.writer, record.worker) != (before.writer, before.writer):
        yield f"record {head.seq} of {head.writer} was written in the epoch of {before.writer}"
    if head.attempt < before.attempt:
        yield f"record {head.seq} is of attempt {head.attempt} after attempt {before.attempt}"
    if before.phase.terminal:
        yield f"record {head.seq} follows the end of the run"


def _sealed_lines(head: Head, store: Store) -> Iterator[bytes]:
    for named in head.segments:
        found = store.get(head.keys.segment(named.epoch, named.first, named.last, named.nonce))
        assert isinstance(found, Found)
        yield from found.body.splitlines(keepends=True)[1:]


def _segment_key(head: Head) -> str:
    newest = head.segments[-1]
    return f"{PREFIX}/{head.keys.segment(newest.epoch, newest.first, newest.last, newest.nonce)}"


def _puts(run: Disturbed) -> Sequence[Passed]:
    return [passed for passed in run.requests if passed.method == "PUT" and passed.applied]


def _objects(seen: Seen, _: Expected) -> Iterator[str]:
    """Each write is conditional and carries its digest; what is written once is applied once (C1, C2)."""
    written: Counter[str] = Counter()
    for passed in seen.run.requests:
        if passed.method != "PUT" or "uploadId=" in passed.path:
            continue
        if not passed.condition:
            yield f"an unconditional write of {passed.key}"
        digest = base64.b64encode(hashlib.sha256(passed.body).digest()).decode()
        if digest != passed.checksum and len(passed.body) == passed.announced:
            yield f"a write of {passed.key} without its digest"
        if passed.applied and "if-none-match" in passed.condition:
            written[passed.key] += 1
    for key, times in written.items():
        if times > 1:
            yield f"{key} was created {times} times"
    for value in _values(seen):
        # Verifies the digest, and raises what `judge` reports.
        values.read(seen.store, seen.run.keys, value)


def _values(seen: Seen) -> Iterator[Value]:
    for event in (event for record in seen.records for event in record.events):
        match event:
            case StepCompleted(result=value):
                yield value
            case ToolCalled(result=Value() as value) | Finished(result=Value() as value):
                yield value
            case _:
                pass


def _outcome(seen: Seen, expected: Expected) -> Iterator[str]:
    """The run has succeeded, once, with the result of a clean run."""
    phase, ends = seen.run.final.head.phase, list(seen.events(Finished))
    if phase is not Phase.SUCCEEDED:
        head, last = seen.run.final.head, seen.run.attempts[-1]
        words = seen.run.world / f"last-words-{last.number}"
        said = words.read_text() if words.exists() else f"exit code {last.code}"
        yield (
            f"after {last.number} attempts the run is {phase} ({head.reason} {head.message}); "
            f"the last process said {said}"
        )
    elif len(ends) != 1:
        yield f"the run has ended {len(ends)} times"
    elif seen.result != expected.result:
        yield f"the result is {seen.result}, and that of a clean run {expected.result}"


def _steps(seen: Seen, expected: Expected) -> Iterator[str]:
    """Each step of a clean run is recorded, exactly once, and so is each call with a record of its own."""
    steps = Counter(map(label_of, seen.events(StepCompleted)))
    calls = Counter((call.step, call.call) for call in seen.events(ToolCalled) if call.result)
    for what, found, wanted in (("steps", steps, expected.steps), ("calls", calls, expected.calls)):
        if twice := [name for name, times in found.items() if times > 1]:
            yield f"{what} recorded more than once: {twice}"
        if set(found) != set(wanted):
            yield f"other {what} are recorded than in a clean run: {set(found) ^ set(wanted)}"


def _decisions(seen: Seen) -> Iterator[tuple[str, str]]:
    """Yield each gate of the agent's that was passed, by its place, and how."""
    for decided in seen.events(Decided):
        if decided.type not in (AnswerType.DONE, AnswerType.NOT_DONE):
            yield decided.place, f"{decided.type} by {decided.by}"


def _gates(seen: Seen, expected: Expected) -> Iterator[str]:
    """Each gate of a clean run is decided once, as the inbox has it, and is opened once at most (I9)."""
    found = set(_decisions(seen))
    if found != expected.decisions:
        yield f"other decisions are recorded than in a clean run: {sorted(found ^ expected.decisions)}"
    gates = Counter(decided.gate for decided in seen.events(Decided))
    shown = Counter(opened.gate.id for opened in seen.events(GateOpened))
    for what, times in (("decided", gates), ("opened", shown)):
        if twice := [gate for gate, count in times.items() if count > 1]:
            yield f"gates {what} more than once: {twice}"
    for decided in seen.events(Decided):
        given = inbox.read(seen.store, seen.run.keys, decided.gate)
        content = None if decided.answer is None else values.read(seen.store, seen.run.keys, decided.answer)
        said = (decided.type, decided.by, content)
        if given is None or said != (given.type, given.by, given.answer):
            yield f"gate {decided.place} is decided as {said}, and the inbox has {given}"
        if given != seen.run.answers.get(decided.gate):
            yield f"gate {decided.place} was answered with {seen.run.answers.get(decided.gate)}"


def _starts(seen: Seen) -> list[str]:
    """Return which starts came after their step was recorded in what their pod had loaded (I2)."""
    done: set[str] = set()
    known: dict[str, frozenset[str]] = {}
    by: dict[str, str] = {}
    tries: Counter[tuple[str, str]] = Counter()
    for record in seen.records:
        for event in record.events:
            match event:
                case Claimed(writer=writer):
                    known[writer] = frozenset(done)
                case StepCompleted():
                    done.add(label_of(event))
                    by[label_of(event)] = record.worker
                    tries[label_of(event), record.worker] += 1
                case StepFailure():
                    tries[label_of(event), record.worker] += 1
                case _:
                    pass
    wrong = [
        f"{pod} started the step {step}, which it had loaded as recorded"
        for step, pod in seen.started
        if step in known.get(pod, ())
    ]
    strangers = {pod for _, pod in seen.started} - set(known)
    wrong += [f"{pod} started steps and had not claimed" for pod in strangers]
    for (step, pod), times in Counter(seen.started).items():
        # Whoever did not record its result may have been cut off in one try more than was recorded.
        if times > tries[step, pod] + (by.get(step) != pod):
            wrong.append(f"{pod} started the step {step} {times} times and recorded {tries[step, pod]}")
    return wrong


def _ledger(seen: Seen, expected: Expected) -> tuple[list[str], list[str]]:
    """Return the effects beyond those of a clean run, and what else is wrong with effects (I3, I3b)."""
    found = {(key, body) for key, (body, _) in seen.effects.applied.items()}
    beyond = [f"the effect {key} {body} is not one of a clean run" for key, body in found - expected.effects]
    wrong = [f"the effect {key} {body} did not happen" for key, body in expected.effects - found]
    if seen.effects.refused:
        wrong.append(f"{seen.effects.refused} calls were refused: a key with another body")
    recorded = {call.key: call.external_id for call in seen.events(ToolCalled) if call.external_id}
    for key, effect in {(call.key, call.effect) for call in seen.events(Intended)}:
        if (times := seen.effects.calls[key[len(seen.run.keys.run_id) :]]) > 1:
            wrong.append(f"the {effect} call {key} was made {times} times")
    for key, external_id in recorded.items():
        applied = seen.effects.applied.get(key[len(seen.run.keys.run_id) :], ("", ""))[1]
        if external_id != applied:
            wrong.append(f"the record of {key} says {external_id}, the receiver {applied}")
    return beyond, wrong
