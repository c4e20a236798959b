"""One place where runs are disturbed: a store, a receiver, proxies in front of both, and executors.

The harness plays the operator: it begins a run, starts attempt after attempt, each as another pod, and
looks at the head to know whether the run has ended. Where the run waits it answers what is asked, as two
people, another system and a clock do. Attempts use doors in turn, so that the journal tells an executor from
its successor, and one that is paused keeps its own. It checks nothing; `tests.faults.checks` does.

The surprise: a process is killed while the proxy holds its request. So the boundary is exact, and nothing in
the product knows of it.
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from milepost.api.names import StoreKeys
from milepost.api.resource import Phase, RunSpec
from milepost.checkpoint import inbox
from milepost.checkpoint.archive import Archive
from milepost.checkpoint.fold import State
from milepost.checkpoint.gates import AnswerType, GateAt, GateType, due, event_gate_id
from milepost.checkpoint.history import HeadAt, load, read_head
from milepost.checkpoint.records import Halted, PreviousEnd
from milepost.checkpoint.runs import NewRun, Runs
from milepost.checkpoint.s3 import S3Config, S3Store
from milepost.checkpoint.sending import Patience
from milepost.testing.faults import Fault, Hold
from tests.faults.points import Blow, How, Line, When
from tests.faults.processes import ROOT, Process, Starter
from tests.support.fault_proxy import FaultProxy, Journal, Passed
from tools.cluster.interface import Identity, S3Server

__all__ = ["Attempt", "Disturbed", "Scene"]

NAMESPACE: Final = "team-a"
PREFIX: Final = "milepost"
MOST_ATTEMPTS: Final = 60
INPUTS: Final[Mapping[str, Mapping[str, Any]]] = {"heavy": {"paper": "p" * 40_000}}
# Another manifest for an agent that there is under its own name as well.
ENTRYPOINTS: Final = {"deferred": "small"}
EVERY_STEPS: Final = {"deferred": 3}

# Its executors prove at each start that a sibling's prefix is closed to them.
# An event that is sent before its run waits for it: its name, its key and what comes with it.
EARLY: Final = {"waiting": ("delivery", "early", 41)}
ANSWERS: Final[Mapping[str, Any]] = {"release": 7, "delivery": 42}
"""What is answered at the gates of agents, by their names; at all others nothing comes with the answer."""

ISOLATED: Final = frozenset({"heavy"})

_RECEIVER: Final = ROOT / "examples" / "01-documents" / "receiver.py"
_ATTEMPT_WITHIN_S: Final = 120.0


@dataclass(frozen=True)
class Door:
    """A way to the store and a way to the receiver, both through proxies."""

    store: FaultProxy
    receiver: FaultProxy

    def line(self, line: Line) -> FaultProxy:
        """Return the proxy of a line."""
        return self.store if line is Line.STORE else self.receiver

    def heal(self) -> None:
        """Take back all faults."""
        self.store.heal()
        self.receiver.heal()


@dataclass
class Attempt:
    """One executor: how it ended, and whether the blow that was meant for it hit."""

    number: int
    process: Process
    blow: Blow | None = None
    hit: bool = False
    code: int = 0


@dataclass
class Disturbed:
    """A run as it was seen from outside. `begun` is its first head, `final` its last.

    `loaded` are the states that were loaded from the store between its attempts, by their last record.
    `decided` is how often a person had to say what became of a call. `answers` are those that stand, by gate.
    """

    agent: str
    keys: StoreKeys
    world: Path
    begun: HeadAt
    final: HeadAt
    loaded: dict[int, State] = field(default_factory=dict)
    attempts: list[Attempt] = field(default_factory=list)
    decided: int = 0
    answers: dict[str, inbox.Answer] = field(default_factory=dict)
    requests: list[Passed] = field(default_factory=list)
    calls: list[Passed] = field(default_factory=list)
    seconds: float = 0.0


class Scene:
    """Runs one after another, on one store. Make it with `Scene.at`."""

    def __init__(
        self, server: S3Server, folder: Path, starter: Starter, doors: list[Door], journals: list[Journal]
    ) -> None:
        self._server = server
        self._folder = folder
        self._starter = starter
        self._doors = doors
        self._requests, self._calls = journals
        self._numbers = itertools.count(1)
        # Of whose end the next attempt is to learn, where that is not the one before it.
        self._woken: Attempt | None = None
        self.store = S3Store(self._config("", server.admin))
        self._runs = Runs(self.store, _now, os.urandom)

    @classmethod
    @contextmanager
    def at(cls, server: S3Server, folder: Path, starter: Starter) -> Iterator[Scene]:
        """Yield a scene on a store's server, with a receiver of its own; it keeps its files in the folder."""
        with ExitStack() as stack:
            receiver = stack.enter_context(_receiving(folder / "ledger.sqlite"))
            journals = [Journal(), Journal()]
            doors = []
            for name in ("first", "second", "third"):
                proxies = [
                    stack.enter_context(FaultProxy(upstream, journal, door=name))
                    for upstream, journal in zip((server.endpoint, receiver), journals, strict=True)
                ]
                doors.append(Door(*proxies))
            yield cls(server, folder, starter, doors, journals)

    @property
    def ledger(self) -> Path:
        """The receiver's database."""
        return self._folder / "ledger.sqlite"

    def run(self, agent: str, *blows: Blow) -> Disturbed:
        """Run an agent to its end, with these blows to its attempts in their order."""
        left = list(blows)

        def later(blow: Blow, made: int) -> None:
            left.insert(0, replace(blow, index=blow.index - made))

        return self.run_among_faults(
            agent, lambda _: left.pop(0) if left else None, deadline=60.0, later=later
        )

    def run_among_faults(
        self,
        agent: str,
        arm: Callable[[Door], Blow | None],
        *,
        deadline: float,
        later: Callable[[Blow, int], None] = lambda _blow, _made: None,
    ) -> Disturbed:
        """Run an agent to its end.

        `arm` may add faults to the door of each next attempt, and returns the blow to it, if it gets one.
        `deadline` is how long an executor waits for its store, in seconds. `later` is told of a blow that did
        not come to hit, since the run waits after so many requests on its line.
        """
        began = time.monotonic()
        # Of the run before: requests of processes that were killed may be answered late.
        for journal in (self._requests, self._calls):
            journal.take()
        keys, world = self._begin(agent)
        begun = self._head(keys)
        run = Disturbed(agent, keys, world, begun, begun)
        try:
            self._go_on(run, arm, deadline, later)
        finally:
            for attempt in run.attempts:
                attempt.process.send(signal.SIGKILL)
            for door in self._doors:
                door.heal()
        run.final = self._head(keys)
        run.requests, run.calls = self._requests.take(), self._calls.take()
        run.seconds = time.monotonic() - began
        return run

    def _go_on(
        self,
        run: Disturbed,
        arm: Callable[[Door], Blow | None],
        deadline: float,
        later: Callable[[Blow, int], None],
    ) -> None:
        """Start attempts until the run has ended, and then let those go on that were paused."""
        if run.agent in EARLY:
            name, key, content = EARLY[run.agent]
            self._send(run, name, key, content)
        paused: list[tuple[Attempt, Hold, Door]] = []
        for number in range(1, MOST_ATTEMPTS + 1):
            # To heal a door is to let go of what is held at it.
            free = [door for door in self._doors if all(door is not held for *_, held in paused)]
            door = free[number % len(free)]
            blow, before = arm(door), self._made()
            hold = self._attempt(run, number, door, blow, deadline)
            if hold is not None:
                paused.append((run.attempts[-1], hold, door))
            run.final = self._head(run.keys)
            run.loaded[run.final.head.seq] = load(self.store, run.final.head)
            # Whoever is paused has somebody after it, even where it has finished the run.
            if run.final.head.phase.terminal and hold is None:
                break
            if run.final.head.phase is Phase.WAITING:
                self._answer(run)
                if blow is not None and not run.attempts[-1].hit:
                    later(blow, self._made()[blow.line] - before[blow.line])
            if run.final.head.phase is Phase.HALTED and run.final.head.gates:
                # Nobody says what became of a call as long as the process that made it may be alive.
                if paused:
                    self._woken = paused[0][0]
                    self._wake(paused)
                else:
                    self._decide(run)
        self._wake(paused)

    def _wake(self, paused: list[tuple[Attempt, Hold, Door]]) -> None:
        """Let those go on that were paused, and wait for their end."""
        for attempt, hold, door in paused:
            attempt.process.send(signal.SIGCONT)
            hold.release.set()
            attempt.code = attempt.process.wait(_ATTEMPT_WITHIN_S)
            door.heal()
        paused.clear()

    def _made(self) -> dict[Line, int]:
        return {Line.STORE: len(self._requests.passed), Line.RECEIVER: len(self._calls.passed)}

    def _answer(self, run: Disturbed) -> None:
        """Answer all that the run waits for, as two people who disagree, another system and a clock do."""
        for gate in run.final.head.gates:
            match gate.type:
                case GateType.APPROVAL:
                    self._give(run, gate, AnswerType.APPROVE, "ann", ANSWERS.get(gate.name))
                    self._give(run, gate, AnswerType.DENY, "bob")
                case GateType.SLEEP:
                    self._give(run, gate, _once_due(gate), "operator")
                case GateType.EVENT if gate.id not in run.answers:
                    self._send(run, gate.name, gate.key, ANSWERS[gate.name])
                case _:
                    pass

    def _give(self, run: Disturbed, gate: GateAt, says: AnswerType, by: str, content: Any = None) -> None:
        answer = inbox.Answer(gate.id, says, by, _now().isoformat(), answer=content)
        run.answers[gate.id] = inbox.give(self.store, run.keys, answer, Patience(os.urandom))

    def _send(self, run: Disturbed, name: str, key: str | None, content: Any) -> None:
        event = inbox.Answer("", AnswerType.EVENT, "eve", _now().isoformat(), answer=content)
        number = inbox.send_event(self.store, run.keys, name, key, event, Patience(os.urandom))
        gate = event_gate_id(name, key, number)
        run.answers[gate] = replace(event, gate=gate)

    def _decide(self, run: Disturbed) -> None:
        """Say what became of the call for which the run has halted, as a person does who looks it up."""
        (gate,) = (each for each in run.final.head.gates if each.type is GateType.HALT)
        archive = Archive(self.store, run.keys)
        halted = archive.event(run.final.head, gate.seq, Halted, lambda _: True)
        assert halted.gate is not None, "the head names it"
        assert halted.gate.request is not None, "it shows the call"
        applied = self._applied(halted.gate.request.inline["key"])
        type_ = AnswerType.DONE if applied else AnswerType.NOT_DONE
        self._give(run, gate, type_, "kim", applied)
        run.decided += 1

    def _applied(self, key: str) -> str | None:
        """Return what the receiver calls the effect of a key; None if there is none."""
        with sqlite3.connect(f"file:{self.ledger}?mode=ro", uri=True) as db:
            found = db.execute("SELECT id FROM applied WHERE key = ?", (key,)).fetchone()
        db.close()
        return f"effect-{found[0]}" if found else None

    def _attempt(
        self, run: Disturbed, number: int, door: Door, blow: Blow | None, deadline: float
    ) -> Hold | None:
        """Go through one attempt; where it is paused, return what holds its request."""
        hold: Hold | None = None
        if blow is not None:
            hold = Hold(after=blow.when is When.AFTER, lost=blow.how is How.KILL)
            door.line(blow.line).fail(Fault(hold, nth=blow.index))
        attempt = Attempt(number, self._start(run, number, door, deadline), blow)
        run.attempts.append(attempt)
        if hold is not None and blow is not None and _reached(hold, attempt.process):
            if blow.how is How.PAUSE:
                attempt.process.send(signal.SIGSTOP)
                attempt.hit = True
                return hold
            attempt.hit = attempt.process.kill()
        attempt.code = attempt.process.wait(_ATTEMPT_WITHIN_S)
        door.heal()
        return None

    def _begin(self, agent: str) -> tuple[StoreKeys, Path]:
        # Other processes use the same store, and a name stands for one run.
        name = f"{agent}-{os.getpid()}-{next(self._numbers)}"
        world = self._folder / name
        world.mkdir()
        spec = RunSpec.model_validate(
            {
                "agent": {"image": "agent:1", "entrypoint": f"working:{ENTRYPOINTS.get(agent, agent)}"},
                "checkpoint": {"everySteps": EVERY_STEPS.get(agent, 1)},
                "inputs": {"world": str(world), **INPUTS.get(agent, {})},
            }
        )
        run_id = self._runs.start(NewRun(NAMESPACE, name, f"uid-{name}", "cluster-1", spec, f"spec-{name}"))
        return StoreKeys(NAMESPACE, run_id), world

    def _start(self, run: Disturbed, number: int, door: Door, deadline: float) -> Process:
        identity = self._server.scoped.get(NAMESPACE, self._server.admin)
        isolated = run.agent in ISOLATED and identity is not self._server.admin
        config = self._config(door.store.endpoint, identity)
        environment = {
            "PATH": os.environ["PATH"],
            "MILEPOST_STORE": config.url,
            "MILEPOST_CREDENTIALS": str(config.credentials),
            "MILEPOST_NAMESPACE": run.keys.namespace,
            "MILEPOST_RUN_ID": run.keys.run_id,
            "MILEPOST_ATTEMPT": str(number),
            "MILEPOST_POD_UID": f"pod-{number}",
            "MILEPOST_GRACE_SECONDS": "30",
            "MILEPOST_LINGER_SECONDS": "0.1",
            "MILEPOST_STORE_DEADLINE_SECONDS": str(deadline),
            "MILEPOST_TERMINATION_LOG": str(run.world / f"last-words-{number}"),
            "MILEPOST_ISOLATION": "required" if isolated else "none",
            "FAULTS_RECEIVER": door.receiver.endpoint,
        }
        if number > 1:
            environment["MILEPOST_PREVIOUS_END"] = self._previous_end(run).model_dump_json()
        return self._starter.start(environment, run.world, run.world / f"log-{number}")

    def _previous_end(self, run: Disturbed) -> PreviousEnd:
        """Return what the operator knows: of a pod that is paused, not that it has ended."""
        before, self._woken = self._woken or run.attempts[-1], None
        return PreviousEnd(
            attempt=before.number, cause="Evicted", fault="disruption", proved=before.process.ended.is_set()
        )

    def _config(self, endpoint: str, identity: Identity) -> S3Config:
        folder = self._folder / "keys" / identity.name
        if not folder.exists():
            folder.mkdir(parents=True)
            (folder / "access-key-id").write_text(identity.access_key)
            (folder / "secret-access-key").write_text(identity.secret_key)
        server = self._server
        return S3Config(endpoint or server.endpoint, server.bucket, PREFIX, server.region, folder)

    def _head(self, keys: StoreKeys) -> HeadAt:
        at = read_head(self.store, keys)
        assert isinstance(at, HeadAt), "a run that was begun has a head"
        return at


def _once_due(gate: GateAt) -> AnswerType:
    """Return what the clock says to a sleep, once it is over."""
    deadline = time.monotonic() + _ATTEMPT_WITHIN_S
    while (said := due(gate, _now())) is None:
        assert time.monotonic() < deadline, f"gate {gate.place} is not due before {gate.until}"
        threading.Event().wait(0.01)
    return said


def _reached(hold: Hold, process: Process) -> bool:
    """Wait until a process is at its request, and tell whether it came to that before it ended."""
    deadline = time.monotonic() + _ATTEMPT_WITHIN_S
    while not hold.reached.wait(0.01):
        if process.ended.is_set() or time.monotonic() > deadline:
            return False
    return True


@contextmanager
def _receiving(database: Path) -> Iterator[str]:
    """Yield the address of a receiver that keeps its ledger in this file. It dies with this process."""
    argv = [sys.executable, str(_RECEIVER), "--port", "0", "--database", str(database)]
    if setpriv := shutil.which("setpriv"):
        argv = [setpriv, "--pdeathsig", "KILL", *argv]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            port = process.stdout.readline().strip()
            assert port, "the receiver ended at once"
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def _now() -> datetime:
    return datetime.now(UTC)
