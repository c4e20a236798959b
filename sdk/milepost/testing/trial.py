"""One run of an agent in processes of its own, from its beginning to its end, struck at one point or at none.

It is what the operator does on a cluster, made repeatable: the store and the outside world are folders that
are new for each run, the run has the same id each time, and so have its keys and its random numbers, and the
clock stands still but for timers. What differs between two runs is thus the agent's own.

Each process has another seed for the hashes of strings, as each pod has: what depends on the order of a set
differs between them.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from milepost.agent.agents import Agent
from milepost.api.exits import Exit
from milepost.api.names import StoreKeys
from milepost.api.resource import Phase, RunSpec
from milepost.checkpoint.file import FileStore
from milepost.checkpoint.head import Head
from milepost.checkpoint.history import HeadAt, read_head
from milepost.checkpoint.records import PreviousEnd
from milepost.checkpoint.runs import NewRun, Runs
from milepost.checkpoint.sending import Patience
from milepost.local.process import Executor, Exited
from milepost.testing.answers import Answers, Unanswered, answer_open_gates
from milepost.testing.clock import Clock
from milepost.testing.ledger import FOLDER
from milepost.testing.outcome import Ran, came_to, left_in
from milepost.testing.points import ORDER, How, Order, Point

__all__ = ["Case", "Failed", "Trial", "entrypoint_of"]

COMMAND: Final = (sys.executable, "-m", "milepost.testing.executor")

LINGER: Final = "0.1"
"""Seconds that a process stays at a gate where nothing else is going on; a pod stays longer."""

MOST_PROCESSES: Final = 1000
"""Processes of one run, after which it is taken for one that never ends."""

_LAST_LINES: Final = 8


class Failed(Exception):
    """A run did not come to its end; says why."""


@dataclass(frozen=True)
class Case:
    """What is the same in all runs of a test. `timeout` is how many seconds each process may take."""

    spec: RunSpec
    answers: Answers | None = None
    effects: Callable[[Path], Any] | None = None
    timeout: float = 60.0
    environment: Mapping[str, str] = field(default_factory=dict)

    def effects_in(self, world: Path) -> Any:
        """Return what a run has left outside: what the author's function says, or all of the folder."""
        return left_in(world) if self.effects is None else self.effects(world)


def entrypoint_of(agent: Agent[..., Any] | str) -> str:
    """Return `package.module:name` of an agent that another process can import. Raises ValueError."""
    if isinstance(agent, str):
        return agent
    module = agent.fn.__module__
    if module == "__main__":
        raise ValueError(
            f"agent {agent.name} is defined in the program that runs the test, which another process cannot "
            "import; put it into a module of its own"
        )
    named = [key for key, value in vars(sys.modules[module]).items() if value is agent]
    if not named:
        raise ValueError(
            f"agent {agent.name} is no name in module {module}, so that another process cannot import it; "
            "define it at the top level of the module"
        )
    return f"{module}:{named[0]}"


class Trial:
    """One run in a folder, with at most one point at which one of its processes is struck.

    `struck` says, once that has happened, what the record at the point says.
    """

    def __init__(self, case: Case, folder: Path, *, seed: int, point: Point | None = None) -> None:
        self.case = case
        self.seed = seed
        self.point = point
        self.clock = Clock()
        self.attempt = 0
        self.world = folder / "world"
        self.world.mkdir(parents=True)
        self.store = FileStore(folder / "store")
        self._mark = folder / "mark"
        self._patience = Patience(os.urandom)
        run_id = Runs(self.store, self.clock, bytes).start(
            NewRun("test", "test", "test", "test", case.spec, "test")
        )
        self.keys = StoreKeys("test", run_id)

    @property
    def struck(self) -> str | None:
        return self._mark.read_text(encoding="utf-8") if self._mark.exists() else None

    def to_its_end(self) -> Ran:
        """Bring the run to its end and say what it came to; a process that is killed is followed by another.

        Raises Failed.
        """
        previous: PreviousEnd | None = None
        while self.attempt < MOST_PROCESSES:
            before = self.struck
            with self.executor(previous) as (executor, lines):
                exited = self.ended(executor, lines)
            previous = self.after(exited, lines, struck=before != self.struck)
            if previous is None and self.head.phase.terminal:
                return self.came_to()
        raise Failed(f"it has not come to its end after {self.attempt} processes")

    def after(self, exited: Exited, lines: deque[str], *, struck: bool) -> PreviousEnd | None:
        """See to it that another process can go on, and return what it is told of the last one.

        Raises Failed where none could.
        """
        head = self.head
        if head.phase.terminal:
            return None
        if struck and exited.code == -signal.SIGKILL:
            return PreviousEnd(
                attempt=self.attempt,
                cause="KilledBySignal",
                fault="disruption",
                exit_code=128 + signal.SIGKILL,
                message="SIGKILL",
                proved=True,
            )
        waits = head.phase is Phase.WAITING and exited.code == Exit.COMMITTED
        if not waits and not (head.phase is Phase.HALTED and exited.code == Exit.HALTED):
            raise Failed(_unexpected(exited, lines))
        try:
            answer_open_gates(self.store, head, self.case.answers, self.clock, self._patience, self.world)
        except Unanswered as error:
            raise Failed(str(error)) from error
        return None

    @contextmanager
    def executor(
        self, previous: PreviousEnd | None = None, *, how: How = How.KILL
    ) -> Iterator[tuple[Executor, deque[str]]]:
        """Start the next process; yield it, and the last lines of its log. It is killed in the end."""
        self.attempt += 1
        lines: deque[str] = deque(maxlen=_LAST_LINES)
        order = Order(self.clock(), self.point if self.struck is None else None, how, str(self._mark))
        with Executor(
            self._environment(order, previous), Path.cwd(), lines.append, COMMAND, errors_as_lines=True
        ) as executor:
            yield executor, lines

    def _environment(self, order: Order, previous: PreviousEnd | None) -> dict[str, str]:
        own = {key: value for key, value in os.environ.items() if not key.startswith("MILEPOST_")}
        return {
            **own,
            **self.case.environment,
            # Where this process finds modules, so does that one.
            "PYTHONPATH": os.pathsep.join(filter(None, map(os.path.abspath, filter(None, sys.path)))),
            "PYTHONHASHSEED": str(self.seed * 1000 + self.attempt),
            "PYTHONUNBUFFERED": "1",
            "MILEPOST_STORE": self.store.uri,
            "MILEPOST_NAMESPACE": self.keys.namespace,
            "MILEPOST_RUN_ID": self.keys.run_id,
            "MILEPOST_ATTEMPT": str(self.attempt),
            "MILEPOST_POD_UID": f"process-{self.attempt}",
            "MILEPOST_GRACE_SECONDS": "5",
            "MILEPOST_LINGER_SECONDS": LINGER,
            "MILEPOST_LIMITS": self.case.spec.limits.model_dump_json(by_alias=True, exclude_none=True),
            "MILEPOST_PREVIOUS_END": json.dumps(previous.model_dump()) if previous else "",
            ORDER: order.dumps(),
            FOLDER: str(self.world),
        }

    def ended(self, executor: Executor, lines: deque[str], *, within: float | None = None) -> Exited:
        """Wait for a process to end, for as long as the case allows. Raises Failed where it does not."""
        seconds = within or self.case.timeout
        late = threading.Event()

        def end() -> None:
            late.set()
            os.kill(executor.pid, signal.SIGKILL)

        timer = threading.Timer(seconds, end)
        timer.start()
        try:
            exited = executor.wait()
        finally:
            timer.cancel()
        if late.is_set():
            raise Failed(f"a process had not ended after {seconds:g} s{_last_of(lines)}")
        return exited

    @property
    def head(self) -> Head:
        """The head as it stands."""
        at = read_head(self.store, self.keys)
        assert isinstance(at, HeadAt), "the run was begun here, and nobody deletes it"
        return at.head

    def came_to(self) -> Ran:
        """Return what the run has come to, verified as a resume would."""
        return came_to(self.store, self.head, self.case.effects_in(self.world), self.attempt)


def _unexpected(exited: Exited, lines: deque[str]) -> str:
    how = f"by signal {-exited.code}" if exited.code < 0 else f"with exit code {exited.code}"
    said = f": {exited.reason}: {exited.message}" if exited.reason or exited.message else ""
    return f"its process ended {how}{said or _last_of(lines)}"


def _last_of(lines: deque[str]) -> str:
    return "; the last that it said:\n" + "\n".join(f"    {line}" for line in lines) if lines else ""
