"""Bring one run to its end on this machine: what the operator does on a cluster, as a loop.

Begin the run or find it by its name, start an executor, look at the head once it has ended, decide, and
again. Whether the run succeeded is only ever read in its log. It refuses to work beside another runner of
this machine; runners elsewhere are kept apart by the store, as everywhere.
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
from milepost.checkpoint import values
from milepost.checkpoint.opening import open_store
from milepost.checkpoint.owner import claim_prefix
from milepost.checkpoint.records import PreviousEnd, Value
from milepost.checkpoint.runs import HeadSeen, Runs, Stale
from milepost.checkpoint.sending import Patience
from milepost.local.beginning import find_or_begin, head_of
from milepost.local.ending import OWN_CAUSES, Again, Attempt, GiveUp, Report, Stop, after_exit, phrase
from milepost.local.environment import Seat, environment_of, missing
from milepost.local.manifest import Manifest
from milepost.local.owner import only_one, owner_of, resource_uid
from milepost.local.process import Executor, Exited

__all__ = ["Here", "Outcome", "run_here"]


@dataclass(frozen=True)
class Here:
    """The machine, as far as a run depends on it.

    `store` is the store's URL, `folder` where the agent's package is, `data` Milepost's folder among the
    user's data. `say` takes a line for the user, `on_line` one of the executor's. `recover_from` are
    the owners whose store may be taken over.
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


@dataclass(frozen=True)
class Outcome:
    """How the run stands when nothing more is done here. `reason` is stable and CamelCase."""

    run_id: str
    phase: Phase
    reason: str
    message: str = ""
    result: Any = None
    steps: int = 0
    interrupted: bool = False


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
        previous = _left_behind(head)
        attempt = Attempt(
            head.summary.attempt,
            failures=sum(head.summary.ends.get(cause, 0) for cause in OWN_CAUSES),
            limit=spec.retry.executor_failures,
        )
        while True:
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
                case Stop(reason=reason, message=message):
                    return _standing(head, reason, message)
                case GiveUp(reason=reason, message=message):
                    return self._report(self._end(head, Phase.FAILED, reason, message))
                case Again() if interrupted:
                    return _standing(head, "Interrupted", interrupted=True)
                case Again(previous=previous, pause=pause):
                    self._wait(previous, pause)
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
        with Executor(environ, self.here.folder, self.here.on_line) as executor:
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

    def _end(self, head: HeadSeen, phase: Phase, reason: str, message: str) -> HeadSeen:
        """End the run from outside, unless it has ended by itself."""
        while not head.summary.phase.terminal:
            try:
                return self.runs.end(head, phase=phase, reason=reason, message=message)
            except Stale:
                head = head_of(self.runs, self.manifest.namespace, head.summary.run_id)
        return head

    def _report(self, head: HeadSeen) -> Outcome:
        said = head.summary.outcome
        if head.summary.phase.terminal:
            self._note(head.summary.phase)
        result = self._result(head)
        return _standing(head, said.reason if said else "", said.message if said else "", result=result)

    def _result(self, head: HeadSeen) -> Any:
        """Return the encoded result, from the head or, where it is large, from its blob."""
        said = head.summary.outcome
        if said is None or not said.result_ref:
            return said.result if said else None
        digest = said.result_ref.rpartition("/")[2]
        return values.read(self.store, self._keys(head), Value(blob=digest))

    def _note(self, phase: Phase) -> None:
        """Let the name say how its run ended; whoever changes the name meanwhile knows better."""
        namespace = self.manifest.namespace
        known = self.runs.look_up(namespace, self.manifest.name)
        if known is not None:
            with contextlib.suppress(Stale):
                self.runs.note_outcome(namespace, known, phase.value)

    def _keys(self, head: HeadSeen) -> StoreKeys:
        return StoreKeys(self.manifest.namespace, head.summary.run_id)


def _expired(record: NameRecord) -> Outcome:
    message = (
        f"it ended as {record.outcome}; its checkpoints were kept for as long as spec.retentionSeconds said, "
        "and its result is gone with them. To run it again, give it another spec.rerun"
    )
    return Outcome(record.run_id, Phase(record.outcome), "Expired", message)


def _standing(
    head: HeadSeen, reason: str, message: str = "", *, result: Any = None, interrupted: bool = False
) -> Outcome:
    said = head.summary
    return Outcome(said.run_id, said.phase, reason, message, result, said.steps_done, interrupted)


_TRIED: Final = frozenset({Phase.RUNNING, Phase.WAITING})


def _left_behind(head: HeadSeen) -> PreviousEnd | None:
    """Return the end of an attempt that an earlier call left behind: nobody knows more of it."""
    if head.summary.attempt == 0 or head.summary.phase not in _TRIED:
        return None
    return PreviousEnd(attempt=head.summary.attempt, cause="Interrupted", fault="disruption")


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
