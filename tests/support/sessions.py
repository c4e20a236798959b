"""Runs with agents in this process on a store in memory, and runs with real executors on a store in a folder.

`Run in memory`: each `go_on` is what one pod does, without the process: claim, load, run the agent's code.
`Run on disk`: each executor is a child process with an environment as the operator makes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from milepost.agent.branch import Branch, current_branch
from milepost.agent.journal import Journal, Rules
from milepost.agent.run import Run
from milepost.api.names import StoreKeys
from milepost.api.resource import RunSpec
from milepost.checkpoint import inbox
from milepost.checkpoint.claim import claim
from milepost.checkpoint.committer import Committer
from milepost.checkpoint.file import FileStore
from milepost.checkpoint.fold import State
from milepost.checkpoint.gates import AnswerType, Gate
from milepost.checkpoint.head import first_head
from milepost.checkpoint.history import HeadAt, load, read_head, read_records
from milepost.checkpoint.inbox import Answer
from milepost.checkpoint.records import Event, Halted, PreviousEnd, Record, StepCompleted
from milepost.checkpoint.runs import NewRun, Runs
from milepost.checkpoint.s3 import S3Store
from milepost.checkpoint.sending import Patience
from milepost.checkpoint.store import Store, Stored
from milepost.testing.fake_s3 import FakeS3
from tests.support.histories import KEYS, NOON, a_claim, a_start
from tests.support.store_doubles import FaultyStore

__all__ = ["AGENTS", "Ended", "RunInMemory", "RunOnDisk", "wait_until"]

T = TypeVar("T")
E = TypeVar("E", bound=Event)

AGENTS = Path(__file__).parent / "agents"
PATIENCE = 90.0
"""Seconds that a process of a busy machine may take for whatever it does: no test is about that."""


def wait_until(what: Callable[[], T], patience: float = PATIENCE) -> T:
    """Return the first true answer. Fails after `patience` seconds."""
    deadline = time.monotonic() + patience
    while not (answer := what()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)
    return answer


def now() -> datetime:
    return datetime.now(UTC)


def records_of(store: Store, keys: StoreKeys) -> list[Record]:
    """Return the run's history, verified."""
    at = read_head(store, keys)
    assert isinstance(at, HeadAt)
    load(store, at.head)
    return [record for _, lines in read_records(store, at.head) for record, _ in lines]


@dataclass
class RunInMemory:
    """One run. `journals` are those of its processes so far, the last one being the newest."""

    store: FaultyStore = field(default_factory=FaultyStore)
    step_attempts: int = 3
    every_steps: int = 1
    granularity: str = "step"
    deadline: float = 5.0
    rules: Rules = field(default_factory=Rules)
    keys: StoreKeys = KEYS
    attempt: int = 0
    journals: list[Journal] = field(default_factory=list)
    lost: list[Exception] = field(default_factory=list)
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep

    def __post_init__(self) -> None:
        started = a_start(step_attempts=self.step_attempts, granularity=self.granularity)
        head = first_head(
            self.keys,
            name=started.name,
            resource_uid=started.resource_uid,
            cluster=started.cluster,
            spec_digest=started.spec_digest,
            key_root=started.key_root,
            events=(started,),
            at=NOON,
            entropy=os.urandom,
        ).head
        assert isinstance(self.store.put_new(self.keys.head, head.body(), head.metadata()), Stored)

    async def go_on(self, code: Callable[[Run], Awaitable[T]], *, end: PreviousEnd | None = None) -> T:
        """Claim the run for the next attempt and run the agent's code, as a new process would."""
        self.attempt += 1
        patience = Patience(os.urandom, deadline=self.deadline)
        claimed = a_claim(self.attempt, previous_end=end)
        taken = claim(self.store, self.keys, claimed, at=now(), entropy=os.urandom, patience=patience)
        assert isinstance(taken, HeadAt)
        committer = Committer(
            self.store,
            taken,
            load(self.store, taken.head),
            clock=now,
            entropy=os.urandom,
            patience=patience,
            on_lost=self._lost,
            every_steps=self.every_steps,
        )
        journal = Journal(
            self.store,
            committer,
            clock=now,
            entropy=os.urandom,
            patience=patience,
            rules=self.rules,
            pause=self.pause,
        )
        await journal.begin()
        self.journals.append(journal)
        current_branch.set(Branch(now=NOON, main=asyncio.current_task()))
        return await code(Run(journal))

    def _lost(self, error: Exception) -> NoReturn:
        self.lost.append(error)
        raise error

    def decide(self, type_: AnswerType, answer: Any = None) -> Gate:
        """Answer the gate that the run has halted at, as a person does, and return it."""
        (halt,) = self.events(Halted)[-1:]
        assert halt.gate is not None
        given = Answer(halt.gate.id, type_, "kim", now().isoformat(), "looked it up", answer)
        inbox.give(self.store, self.keys, given, Patience(os.urandom))
        return halt.gate

    @property
    def state(self) -> State:
        """What is recorded, read from the store."""
        at = read_head(self.store, self.keys)
        assert isinstance(at, HeadAt)
        return load(self.store, at.head)

    def step(self, step: str) -> StepCompleted:
        """Return the record of a completed step."""
        return next(event for event in self.events(StepCompleted) if event.step.id == step)

    def events(self, kind: type[E]) -> list[E]:
        """Return the recorded events of one kind, in order."""
        found = (event for record in records_of(self.store, self.keys) for event in record.events)
        return [event for event in found if isinstance(event, kind)]


@dataclass(frozen=True)
class Ended:
    """An executor that has ended: its code, what it left in the termination log, and its log."""

    code: int
    said: dict[str, Any]
    lines: list[dict[str, Any]]
    text: str

    def logged(self, event: str) -> list[dict[str, Any]]:
        """Return the lines of the log about one event."""
        return [line for line in self.lines if line.get("event") == event]


@dataclass
class RunOnDisk:
    """One run in a folder that holds its store and, in `world`, what its agent leaves outside."""

    root: Path
    keys: StoreKeys = field(init=False)
    attempt: int = 0

    def __post_init__(self) -> None:
        self.world = self.root / "world"
        self.world.mkdir()
        self.store: Store = FileStore(self.root / "store")
        self._where = {"MILEPOST_STORE": f"file:{self.root / 'store'}"}

    def in_s3(self, s3: FakeS3) -> RunOnDisk:
        """Let the run's store be a bucket."""
        self.store = S3Store(s3.config("some/prefix"))
        self._where = {
            "MILEPOST_STORE": f"s3://{s3.bucket}/some/prefix?endpoint={s3.endpoint}",
            "MILEPOST_CREDENTIALS": str(s3.credentials),
        }
        return self

    def begin(
        self,
        entrypoint: str,
        *,
        version: str = "",
        every_steps: int = 1,
        spec: Mapping[str, Any] | None = None,
        **inputs: Any,
    ) -> RunOnDisk:
        """Write record 1, as the operator does. `spec` is more of the manifest."""
        self._where["MILEPOST_AGENT_VERSION"] = version
        whole = RunSpec.model_validate(
            {
                "agent": {"image": "agent:1", "entrypoint": entrypoint, "version": version},
                "inputs": inputs,
                "checkpoint": {"everySteps": every_steps},
                **(spec or {}),
            }
        )
        run_id = Runs(self.store, now, os.urandom).start(
            NewRun("team", "triage", "uid-1", "cluster-1", whole, "spec-1")
        )
        self.keys = StoreKeys("team", run_id)
        return self

    def environment(self, **changes: str) -> dict[str, str]:
        """Return the environment of the newest attempt's executor."""
        return {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": f"{AGENTS}:{Path(__file__).parents[2] / 'sdk'}",
            **self._where,
            "MILEPOST_NAMESPACE": self.keys.namespace,
            "MILEPOST_RUN_ID": self.keys.run_id,
            "MILEPOST_ATTEMPT": str(self.attempt),
            "MILEPOST_POD_UID": f"pod-{self.attempt}",
            "MILEPOST_GRACE_SECONDS": "30",
            "MILEPOST_STORE_DEADLINE_SECONDS": "5",
            "MILEPOST_TERMINATION_LOG": str(self.root / f"last-words-{self.attempt}"),
            **changes,
        }

    @contextlib.contextmanager
    def executor(self, **changes: str) -> Iterator[Executor]:
        """Start the next attempt's executor; it is killed if it is still there in the end."""
        self.attempt += 1
        out = self.root / f"log-{self.attempt}"
        with out.open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "milepost.executor"],
                env=self.environment(**changes),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.root,
            )
        try:
            yield Executor(process, out, self.root / f"last-words-{self.attempt}")
        finally:
            process.kill()
            process.wait()

    def go_on(self, **changes: str) -> Ended:
        """Start the next attempt's executor, and return how it ended."""
        with self.executor(**changes) as executor:
            return executor.ended()

    @property
    def head(self) -> HeadAt:
        """The head as it stands."""
        at = read_head(self.store, self.keys)
        assert isinstance(at, HeadAt)
        return at

    @property
    def state(self) -> State:
        """What is recorded."""
        return load(self.store, self.head.head)

    def events(self, kind: type[E]) -> list[E]:
        """Return the recorded events of one kind, in order."""
        found = (event for record in records_of(self.store, self.keys) for event in record.events)
        return [event for event in found if isinstance(event, kind)]

    def lines(self, name: str) -> list[str]:
        """Return the lines of a file of the world."""
        file = self.world / name
        return file.read_text().splitlines() if file.exists() else []


@dataclass
class Executor:
    """A running executor."""

    process: subprocess.Popen[bytes]
    log: Path
    last_words: Path

    def ended(self, patience: float = PATIENCE) -> Ended:
        """Wait for its end, and return how it ended."""
        code = self.process.wait(patience)
        text = self.log.read_text(errors="replace")
        lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
        said = json.loads(self.last_words.read_bytes()) if self.last_words.exists() else {}
        return Ended(code, said, lines, text)

    def stop(self) -> None:
        """Send SIGTERM."""
        self.process.send_signal(signal.SIGTERM)

    def wait_for(self, text: str) -> None:
        """Return once the log holds the text."""
        wait_until(lambda: text in self.log.read_text(errors="replace"))
