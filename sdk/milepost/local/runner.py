"""Bring one run to its end on this machine: what the operator does on a cluster, as a loop.

Begin the run or find it by its name, start an executor, look at the head once it has ended, decide, and
again. Whether the run succeeded is only ever read in its log, and so is whether it waits: then nothing runs
until what it waits for has come. It refuses to work beside another runner of this machine; runners elsewhere
are kept apart by the store, as everywhere.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NoReturn

from milepost.api.names import Entropy, StoreKeys
from milepost.api.resource import Phase
from milepost.api.summary import NameRecord
from milepost.checkpoint import codec, values
from milepost.checkpoint.fold import Totals
from milepost.checkpoint.gates import GateType
from milepost.checkpoint.opening import open_store
from milepost.checkpoint.owner import claim_prefix
from milepost.checkpoint.records import PreviousEnd, Value
from milepost.checkpoint.runs import HeadSeen, Runs
from milepost.checkpoint.sending import Patience
from milepost.local.beginning import find_or_begin
from milepost.local.closing import end_run, note_outcome
from milepost.local.ending import (
    OWN_CAUSES,
    Again,
    Attempt,
    GiveUp,
    Report,
    Stop,
    Wait,
    after_exit,
    phrase,
    worth_telling,
)
from milepost.local.environment import Seat, environment_of, missing
from milepost.local.manifest import Manifest
from milepost.local.owner import only_one, owner_of, resource_uid
from milepost.local.process import Executor, Exited
from milepost.local.proof import forget, note, proved_gone, trace_of
from milepost.local.questions import read_questions
from milepost.local.waiting import Ask, Waiting
from milepost.local.ways import Commands, summary_of, ways_on

__all__ = ["Here", "Outcome", "Standing", "run_here"]


@dataclass(frozen=True)
class Here:
    """The machine, as far as a run depends on it.

    `store` is the store's URL, and `options` what a command needs to find it again; `folder` is where the
    agent's package is, `data` Milepost's folder among the user's data. `say` takes a line for the user,
    `on_line` one of the executor's, its errors among them with `errors_as_lines`; `on_standing` hears how far
    the run is. `ask` asks the person here, called `user`. `recover_from` are the owners whose store may be
    taken over.
    """

    store: str
    folder: Path
    data: Path
    environ: Mapping[str, str]
    clock: Callable[[], datetime]
    entropy: Entropy
    pause: Callable[[float], None]
    say: Callable[[str], None]
    on_line: Callable[[str], None]
    node: str = ""
    recover_from: tuple[str, ...] = ()
    options: str = ""
    user: str = ""
    ask: Ask | None = None
    on_standing: Callable[[Standing], None] = lambda _: None
    errors_as_lines: bool = False


@dataclass(frozen=True)
class Outcome:
    """How the run stands when nothing more is done here. `reason` is stable and CamelCase.

    `ways` say how it goes on, a line each, where that is not by starting it again alone.
    """

    run_id: str
    phase: Phase
    reason: str
    message: str = ""
    result: Any = None
    steps: int = 0
    interrupted: bool = False
    ways: tuple[str, ...] = ()


@dataclass(frozen=True)
class Standing:
    """How far the run is: the number of its newest attempt, its counts, and what it waits for."""

    attempt: int
    totals: Totals
    waits_for: tuple[str, ...] = ()


def run_here(manifest: Manifest, here: Here) -> Outcome:
    """Bring the run to its end, or as far as it goes, and say how it stands.

    Raises Busy, Unusable, InvalidRun, StoreUnavailable, StoreRefused, Damaged, FormatTooNew.
    """
    what = f"{manifest.namespace}/{manifest.name} in {here.store}"
    owner = owner_of(here.data, here.entropy)
    with only_one(here.data, what), _signals():
        return _Run(manifest, here, owner).to_its_end()


@contextlib.contextmanager
def _signals() -> Iterator[None]:
    """Take SIGTERM, and the end of the terminal, for what Ctrl-C is: an interruption."""

    def interrupt(number: int, _: object) -> NoReturn:
        raise KeyboardInterrupt(signal.Signals(number).name)

    # What is ignored stays ignored: `nohup` asks for that.
    taken = [each for each in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(each) != signal.SIG_IGN]
    before = {number: signal.signal(number, interrupt) for number in taken}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Run:
    """One run under its name."""

    def __init__(self, manifest: Manifest, here: Here, owner: str) -> None:
        self.manifest = manifest
        self.here = here
        self.owner = owner
        self.store = open_store(here.store)
        self.runs = Runs(self.store, here.clock, here.entropy)

    def to_its_end(self) -> Outcome:
        patience = Patience(self.here.entropy, deadline=self.runs.deadline)
        claim_prefix(self.store, self.owner, recover_from=self.here.recover_from, patience=patience)
        head = find_or_begin(self.runs, self.manifest, self.owner, self.here.say)
        if isinstance(head, NameRecord):
            return _expired(head)
        spec = self.manifest.spec
        if head.summary.phase.terminal:
            self.here.say(f"run {head.summary.run_id} has ended already; nothing is run")
            return self._report(head)
        if spec.cancel:
            return self._report(self._end(head, Phase.CANCELLED, "Cancelled", "spec.cancel is true"))
        if spec.suspend:
            return _standing(head, "Suspended", "spec.suspend is true; set it to false to go on")
        return self._work(head)

    def _work(self, head: HeadSeen) -> Outcome:
        spec = self.manifest.spec
        if unset := missing(self.manifest, self.here.environ):
            self.here.say(f"a cluster would set {', '.join(unset)}; export what the agent needs of it")
        previous = self._left_behind(head)
        attempt = Attempt(
            head.summary.attempt,
            failures=sum(head.summary.ends.get(cause, 0) for cause in OWN_CAUSES),
            limit=spec.retry.executor_failures,
        )
        while True:
            ready = self._wait_at_gates(head)
            if isinstance(ready, Outcome):
                return ready
            head = ready
            number = max(attempt.number, head.summary.attempt) + 1
            attempt = replace(attempt, number=number, steps_before=head.summary.steps_done)
            exited, interrupted = self._attempt(head, number, previous)
            seen = self.runs.observe(self._keys(head))
            found = seen if isinstance(seen, HeadSeen) else None
            verdict = after_exit(exited, found.summary if found else None, attempt)
            head = found or head
            match verdict:
                case Report():
                    return self._report(head)
                case Again() | Wait() if interrupted:
                    return self._interrupted(head)
                case Wait(previous=previous):
                    attempt = replace(attempt, fruitless=0)
                case Stop(reason=reason, message=message):
                    return _standing(head, reason, message)
                case GiveUp(reason=reason, message=message):
                    return self._report(self._end(head, Phase.FAILED, reason, message))
                case Again(previous=end, pause=pause):
                    self._wait(end, pause)
                    previous = worth_telling(previous, end, head.summary)
                    attempt = replace(attempt, failures=verdict.failures, fruitless=verdict.fruitless)

    def _attempt(self, head: HeadSeen, number: int, previous: PreviousEnd | None) -> tuple[Exited, bool]:
        """Run one executor; return how it ended, and whether that was because the user interrupted."""
        grace = self.manifest.spec.pod.grace_period_seconds
        seat = Seat(
            store=self.here.store,
            run_id=head.summary.run_id,
            resource_uid=resource_uid(self.owner, self.manifest.namespace, self.manifest.name),
            attempt=number,
            writer=f"local-{self.here.entropy(10).hex()}",
            node=self.here.node,
            previous=previous,
        )
        environ = environment_of(seat, self.manifest, self.here.environ, self.here.folder)
        lines = self.here.errors_as_lines
        with Executor(environ, self.here.folder, self.here.on_line, errors_as_lines=lines) as executor:
            note(self.here.data, seat.run_id, number, seat.writer, trace_of(executor.pid))
            self.here.on_standing(Standing(number, head.at.head.totals))
            self.here.say(_opening(head, number, previous))
            self.here.say(f"executor pid {executor.pid}; kill it to see it resume")
            try:
                return executor.wait(), False
            except KeyboardInterrupt:
                self.here.say(
                    f"stopping; what is in flight has {grace} s to end, interrupt again to cut it off"
                )
                return executor.release(grace), True

    def _wait(self, previous: PreviousEnd, pause: float) -> None:
        if pause:
            said = f"attempt {previous.attempt} {phrase(previous)}"
            self.here.say(f"{said}; the next one starts in {pause:.0f} s")
            self.here.pause(pause)

    def _wait_at_gates(self, head: HeadSeen) -> HeadSeen | Outcome:
        """Return the head once an executor has something to do, or how the run stands if there is nothing."""
        here = self.here
        commands = Commands(self.manifest.name, here.options)
        while head.summary.phase is Phase.WAITING:
            gates = head.at.head.gates
            here.on_standing(Standing(head.summary.attempt, head.at.head.totals, summary_of(gates)))
            waiting = Waiting(self.runs, head, commands, here.user, here.say, here.pause, here.ask)
            try:
                seen = waiting.until_answered()
            except KeyboardInterrupt:
                return self._interrupted(head)
            if seen is head:
                break
            if seen is None:
                return _standing(head, "RunDeleted", "the run was deleted from the store while it waited")
            if seen.summary.attempt > head.summary.attempt:
                there = f"attempt {seen.summary.attempt} of the run was started elsewhere, and goes on there"
                return _standing(seen, "Fenced", there)
            if seen.summary.phase is not Phase.WAITING:
                return self._report(seen)
            head = seen
        return head

    def _interrupted(self, head: HeadSeen) -> Outcome:
        return _standing(head, "Interrupted", interrupted=True, ways=self._ways(head))

    def _ways(self, head: HeadSeen) -> tuple[str, ...]:
        """Return how a run goes on that waits, or that has halted where somebody can decide."""
        if not head.at.head.gates:
            return ()
        commands = Commands(self.manifest.name, self.here.options)
        _, questions = read_questions(self.store, head.at.head)
        halted = head.summary.phase is Phase.HALTED
        asked = [each for each in questions if not halted or each.gate.type is GateType.HALT]
        return tuple(line for each in asked for line in ways_on(each, commands))

    def _end(self, head: HeadSeen, phase: Phase, reason: str, message: str) -> HeadSeen:
        return end_run(self.runs, head, phase=phase, reason=reason, message=message)

    def _report(self, head: HeadSeen) -> Outcome:
        said = head.summary.outcome
        if head.summary.phase.terminal:
            note_outcome(self.runs, head)
            forget(self.here.data, head.summary.run_id)
        reason, message = (said.reason, said.message) if said else ("", "")
        return _standing(head, reason, message, result=self._result(head), ways=self._ways(head))

    def _result(self, head: HeadSeen) -> Any:
        """Return the result for people, from the head or, where it is large, from its blob."""
        said = head.summary.outcome
        if said is None or not said.result_ref:
            return said.result if said else None
        digest = said.result_ref.rpartition("/")[2]
        return codec.plain(values.read(self.store, self._keys(head), Value(blob=digest)))

    def _left_behind(self, head: HeadSeen) -> PreviousEnd | None:
        """Return the end of an attempt of an earlier call, which nobody waited for."""
        cause = _CAUSES.get(head.summary.phase)
        attempt = head.summary.attempt
        if attempt == 0 or cause is None:
            return None
        proved = proved_gone(self.here.data, head.summary.run_id, attempt, head.summary.writer)
        return PreviousEnd(attempt=attempt, cause=cause, fault="disruption", proved=proved)

    def _keys(self, head: HeadSeen) -> StoreKeys:
        return StoreKeys(self.manifest.namespace, head.summary.run_id)


def _expired(record: NameRecord) -> Outcome:
    message = (
        f"it ended as {record.outcome}; its checkpoints were kept for as long as spec.retentionSeconds said, "
        "and its result is gone with them. To run it again, give it another spec.rerun"
    )
    return Outcome(record.run_id, Phase(record.outcome), "Expired", message)


def _standing(
    head: HeadSeen,
    reason: str,
    message: str = "",
    *,
    result: Any = None,
    interrupted: bool = False,
    ways: tuple[str, ...] = (),
) -> Outcome:
    said = head.summary
    return Outcome(said.run_id, said.phase, reason, message, result, said.steps_done, interrupted, ways)


_CAUSES: Final = {Phase.RUNNING: "Interrupted", Phase.WAITING: "Waiting", Phase.HALTED: "Halted"}
"""How an attempt ended that is known by the run's phase alone."""


def _opening(head: HeadSeen, number: int, previous: PreviousEnd | None) -> str:
    done = head.summary.steps_done
    steps = "1 recorded step" if done == 1 else f"{done} recorded steps"
    if head.summary.phase is Phase.HALTED and head.summary.outcome:
        return (
            f"attempt {number} goes on after {steps}; before, the run halted as {head.summary.outcome.reason}"
        )
    if previous is not None:
        return f"attempt {number} goes on after {steps}; attempt {previous.attempt} {phrase(previous)}"
    return f"attempt {number} starts"
