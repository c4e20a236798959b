"""Run an agent in this process, on a store in memory: quick enough for a unit test, and with the real engine.

What a process does is done here by a thread with an event loop of its own; where the process would end, the
thread does, or is left standing for good, since the author's code is never unwound. So a gate ends it, too,
and the agent's function runs again from its beginning for the next attempt, as everywhere.

It finds nothing of what `crash_everywhere` finds: nothing is killed here, and what the agent keeps in
variables stays. The one surprise is that the agent runs in another thread than the test.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import queue
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Final, NoReturn

import structlog
from typing_extensions import override

from milepost.agent.agents import Agent
from milepost.api.exits import Exit
from milepost.api.names import StoreKeys
from milepost.api.resource import Phase, RunSpec
from milepost.checkpoint.head import Head
from milepost.checkpoint.history import HeadAt, read_head
from milepost.checkpoint.memory import MemoryStore
from milepost.checkpoint.records import Started
from milepost.checkpoint.runs import NewRun, Runs
from milepost.checkpoint.sending import Patience
from milepost.checkpoint.store import Store
from milepost.executor.ending import Ending, ending_of, ending_of_exit
from milepost.executor.session import Session
from milepost.executor.settings import Settings
from milepost.executor.stopping import Stop
from milepost.testing.answers import Answers, Unanswered, answer_open_gates
from milepost.testing.clock import Clock
from milepost.testing.ledger import FOLDER
from milepost.testing.outcome import Ran, came_to, left_in
from milepost.testing.points import in_no_time

__all__ = ["simulate"]

MOST_ATTEMPTS: Final = 1000

_LINGER: Final = 0.02
"""Seconds that the agent stays at a gate where nothing else is going on."""

_STORE_DEADLINE: Final = 20.0

_left: Final[list[Any]] = []
"""What was left waiting at gates: what is collected is unwound, and the author's code in it would go on."""


@cache
def _keeper() -> threading.Thread:
    """Return a thread that keeps what was left, also when the interpreter ends and clears its modules."""
    keeper = threading.Thread(target=_stand, args=(_left,), name="keeper", daemon=True)
    keeper.start()
    return keeper


def simulate(
    agent: Agent[..., Any],
    inputs: Mapping[str, Any] | None = None,
    *,
    answers: Answers | None = None,
    clock: Clock | None = None,
    store: Store | None = None,
    world: Path | None = None,
    goal: str = "",
    spec: Mapping[str, Any] | None = None,
    timeout: float = 60.0,
) -> Ran:
    """Run the agent to its end in this process, and return what came of it, also where it failed.

    `answers` are given at its gates; `clock` stands still but for timers, which take no time. `store` may be
    any that holds no run of a simulation yet (default: in memory), `world` is the folder whose name the agent
    finds in MILEPOST_TEST_FOLDER (default: a new one). `spec` are further fields of a manifest's spec.
    `timeout` is in seconds, from one gate to the next. Not for use inside of a running event loop.

    Raises AssertionError where the run does not come to an end.
    """
    fields = {"goal": goal, "inputs": dict(inputs or {}), **(spec or {})}
    parsed = RunSpec.model_validate({"agent": {"image": "none", "entrypoint": "test:agent"}, **fields})
    with ExitStack() as stack:
        folder = world or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="milepost-world-")))
        stack.enter_context(_in_environment(FOLDER, str(folder)))
        said = stack.enter_context(_log_of_agent())
        simulation = _Simulation(agent, parsed, store or MemoryStore(), clock or Clock(), folder, timeout)
        simulation.to_its_end(answers)
        ran = came_to(simulation.store, simulation.head, left_in(folder), simulation.attempt)
    return replace(ran, log=tuple(said))


@dataclass
class _Simulation:
    agent: Agent[..., Any]
    spec: RunSpec
    store: Store
    clock: Clock
    world: Path
    timeout: float
    attempt: int = 0
    keys: StoreKeys = field(init=False)

    def __post_init__(self) -> None:
        new = NewRun("test", "test", "test", "test", self.spec, "test")
        self.keys = StoreKeys("test", Runs(self.store, self.clock, bytes).start(new))

    @property
    def head(self) -> Head:
        at = read_head(self.store, self.keys)
        assert isinstance(at, HeadAt), "the run was begun here, and nobody deletes it"
        return at.head

    def to_its_end(self, answers: Answers | None) -> None:
        patience = Patience(os.urandom, deadline=_STORE_DEADLINE)
        while self.attempt < MOST_ATTEMPTS:
            self.attempt += 1
            ending = self._live()
            head = self.head
            if head.phase.terminal:
                return
            if head.phase is Phase.HALTED or (head.phase is Phase.WAITING and ending.code == Exit.COMMITTED):
                try:
                    answer_open_gates(self.store, head, answers, self.clock, patience, self.world)
                except Unanswered as error:
                    raise AssertionError(f"the agent does not come to its end: {error}") from None
                continue
            raise AssertionError(
                f"the agent does not come to its end: its process would have ended with exit code "
                f"{ending.code}, {ending.reason}: {ending.message}"
            )
        raise AssertionError(f"the agent has not come to its end after {self.attempt} processes")

    def _live(self) -> Ending:
        """Do what one process does, and return how it would have ended."""
        session = _Session(self._settings(), self.store, _silent(), self.clock, pause=in_no_time)
        session.agent = self.agent
        context = contextvars.copy_context()
        threading.Thread(target=context.run, args=(session.live,), name="simulated", daemon=True).start()
        try:
            ending = session.ending.get(timeout=self.timeout)
        except queue.Empty:
            raise AssertionError(f"the agent has not ended after {self.timeout:g} s") from None
        if isinstance(ending, BaseException):
            raise ending
        return ending

    def _settings(self) -> Settings:
        return Settings(
            store=self.store.uri,
            credentials=None,
            keys=self.keys,
            attempt=self.attempt,
            writer=f"thread-{self.attempt}",
            pod="",
            node="",
            image="",
            agent_version="",
            previous_end=None,
            grace=0.0,
            store_deadline=_STORE_DEADLINE,
            linger=_LINGER,
            termination_log=None,
            limits=self.spec.limits,
        )


class _Session(Session):
    """A session that ends no process. `ending` gets how it would have ended it, or what is wrong with it."""

    agent: Agent[..., Any]

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        self.ending: queue.SimpleQueue[Ending | BaseException] = queue.SimpleQueue()
        self._loop: asyncio.AbstractEventLoop | None = None

    def live(self) -> None:
        """Live in the running thread, which is a new one."""
        self._thread = threading.get_ident()
        loop = self._loop = asyncio.new_event_loop()
        try:
            ending: Ending | BaseException = loop.run_until_complete(self.run())
        except Exception as error:  # noqa: BLE001  (whatever it is, the test hears of it)
            ending = ending_of(error)
        except BaseException as error:  # noqa: BLE001  (the author's code wants the process to end)
            ending = ending_of_exit(error)
        for task in asyncio.all_tasks(loop):
            # It is left as it is, on purpose, and that is no reason to warn.
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001
            _left.append(task)
            _keeper()
        loop.close()
        self.ending.put(ending)

    @override
    def stop_signal(self) -> Stop:
        return Stop()

    @override
    def find(self, started: Started) -> Agent[..., Any]:
        self.agent.arguments(started.inputs)
        return self.agent

    @override
    def _lost(self, error: Exception) -> NoReturn:
        self.ending.put(ending_of(error))
        if threading.get_ident() != self._thread:
            # The loop's own thread goes first, so that nothing of the author's runs on.
            assert self._loop is not None, "what was lost had begun"
            self._loop.call_soon_threadsafe(_stand)
            raise _Lost from error
        _stand()


class _Lost(Exception):
    """Ends the thread of the committer, which nobody waits for any more."""


def _stand(*_kept: object) -> NoReturn:
    """Stand still for ever, as a process that has ended does."""
    while True:
        threading.Event().wait()


@contextmanager
def _in_environment(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


@contextmanager
def _log_of_agent() -> Iterator[list[str]]:
    """Collect what the agent says by `run.log`, from INFO on."""
    said: list[str] = []

    class _Keep(logging.Handler):
        @override
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    logger, handler = logging.getLogger("milepost.agent"), _Keep()
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(min(logging.INFO, before or logging.INFO))
    try:
        yield said
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


def _silent() -> structlog.stdlib.BoundLogger:
    """Return a log that says nothing but how the agent failed, with its traceback."""

    def tell(_logger: Any, _name: str, event: MutableMapping[str, Any]) -> NoReturn:
        if event.get("exc_info"):
            traceback.print_exc(file=sys.stderr)
        raise structlog.DropEvent

    made: structlog.stdlib.BoundLogger = structlog.wrap_logger(
        structlog.ReturnLogger(), processors=[tell], wrapper_class=structlog.stdlib.BoundLogger
    )
    return made
