"""A whole executor as an activity: the product's own session, with its event loop held still.

Everything from the claim to how the process ends is the product's. The loop's clock moves only when nothing
is left to do, threads are calls in place, and where the store, or the receiver of effects, has not answered
yet the loop stops: what was asked for is the request that the process waits with. As the loop does
everything in the same order each time, the same answers lead to the same place.

The surprise: what is left standing in the author's code has to be unwound here, since thousands of such
processes live in one. By then its outcome is known, and nothing that it does is seen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from typing import Any, NamedTuple, NoReturn, TypeVar
from unittest.mock import patch

import structlog
from typing_extensions import override

from milepost.agent.agents import Agent
from milepost.checkpoint.archive import Archive
from milepost.checkpoint.committer import Committer
from milepost.checkpoint.fold import State
from milepost.checkpoint.history import HeadAt
from milepost.checkpoint.records import PreviousEnd, Started
from milepost.checkpoint.store import Store
from milepost.checkpoint.thread import CallingThread, Outcome
from milepost.executor import session
from milepost.executor.ending import Ending, ending_of
from milepost.executor.settings import Settings
from milepost.executor.stopping import Stop
from tests.model.agents import AGENTS, SETTLES, asked
from tests.model.replay import PATIENT, Asks, Draws, Reply, Scripted, Settle, first_try
from tests.model.tables import Tables
from tests.support.histories import NOON

__all__ = ["Living"]

T = TypeVar("T")


class _Leaves(SystemExit):
    """The process ends here."""


class Living(NamedTuple):
    """One executor's life, of an attempt of the run. Its result: exit code, reason and message.

    `proved`: whether it is told that nothing of the attempt before is at work any more; None: it is told
    nothing of it.
    """

    run: str
    attempt: int
    writer: str
    agent: str
    seed: str
    proved: bool | None = None

    def run_it(self, store: Store, tables: Tables) -> tuple[int, str, str]:
        scripted = getattr(store, "inner", store)
        assert isinstance(scripted, Scripted)
        answers = scripted.answers
        with _around(), tables.code.bent():
            process = tables.under_way.pop((self, answers[:-1]), None) if answers else None
            if process is None:
                process = _Process(self._session(store, tables), scripted)
            else:
                process.answer(answers[-1])
            ending: Ending | None = process.go_on()
        if ending is not None:
            return int(ending.code), ending.reason, ending.message
        asked = process.scripted.asked
        if process.single and first_try(asked) == len(answers):
            tables.under_way[self, answers] = process
        else:
            process.unwind()
        scripted.asked[:] = asked[: len(answers) + 1]
        raise Asks

    def _session(self, store: Store, tables: Tables) -> _Session:
        made = _Session(
            self._settings(tables),
            store,
            _silent(),
            clock=lambda: NOON,
            entropy=Draws(self.seed),
            pause=_pause,
        )
        made.agent = AGENTS[self.agent]
        return made

    def _settings(self, tables: Tables) -> Settings:
        end = None
        if self.proved is not None:
            end = PreviousEnd(
                attempt=self.attempt - 1, cause="Evicted", fault="disruption", proved=self.proved
            )
        return Settings(
            store="model:",
            credentials=None,
            keys=tables.keys(self.run),
            attempt=self.attempt,
            writer=self.writer,
            pod="",
            node="",
            image="",
            agent_version="",
            previous_end=end,
            grace=0.0,
            store_deadline=float("inf"),
            linger=1.0,
            termination_log=None,
        )


class _Session(session.Session):
    """A session that ends no process."""

    agent: Agent[..., Any]
    lost: Ending | None = None

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        self._patience = PATIENT

    @override
    def stop_signal(self) -> Stop:
        return Stop()

    @override
    def find(self, started: Started) -> Agent[..., Any]:
        return self.agent

    @override
    def _committer(self, taken: HeadAt, state: State, archive: Archive) -> Committer:
        committer = super()._committer(taken, state, archive)
        committer._thread = _InPlace("committer")
        return committer

    @override
    def _lost(self, error: Exception) -> NoReturn:
        self.lost = ending_of(error)
        raise _Leaves


class _Pending(NamedTuple):
    """A call that waits for an answer: to be made again with it, from where it began to ask and to draw."""

    call: Callable[[], Any]
    give: Callable[[Outcome], object]
    asked: int
    drawn: int


class _Process:
    """A session in an event loop of its own. `go_on` leads it to its next request, or to its end."""

    def __init__(self, made: _Session, scripted: Scripted) -> None:
        self.scripted = scripted
        self._made = made
        self._loop = _Still(self)
        self._pending: list[_Pending] = []
        self._life: asyncio.Task[Ending] | None = None

    @property
    def writer(self) -> str:
        """The pod that it is."""
        return self._made.settings.writer

    @property
    def single(self) -> bool:
        """Whether it waits for one answer only, so that it may be gone on with."""
        return len(self._pending) == 1

    def answer(self, reply: Reply) -> None:
        """Give it the answer that it waits for."""
        self.scripted.answers = (*self.scripted.answers, reply)

    def go_on(self) -> Ending | None:
        """Return how the session ends; None where it waits for an answer."""
        with suppress(_Leaves):
            if self._life is None:
                self._life = self._loop.create_task(self._made.run())
                self._life.add_done_callback(lambda _: self._loop.stop())
            for pending in self._taken():
                del self.scripted.asked[pending.asked :]
                self._draws.count = pending.drawn
                self.make(pending.call, pending.give)
            while not (self._pending or self._life.done()):
                assert not self._loop.still, "a process that waits for nothing never ends"
                self._loop.run_forever()
        if self._pending:
            return None
        try:
            if self._made.lost is not None:
                return self._made.lost
            assert self._life is not None
            error = self._life.exception()
            return self._life.result() if error is None else _ending(error)
        finally:
            self.unwind()

    def make(self, call: Callable[[], Any], give: Callable[[Outcome], object]) -> None:
        """Make a call of another thread, here and now, and give on what comes of it, once that is known."""
        asked, drawn = len(self.scripted.asked), self._draws.count
        try:
            outcome: Outcome = call(), None
        except Asks:
            self._pending.append(_Pending(call, give, asked, drawn))
            self._loop.stop()
            return
        except Exception as error:  # noqa: BLE001  (handed to whoever asked for the call)
            outcome = None, error
        give(outcome)

    def unwind(self) -> None:
        """Take down what is left standing in the author's code and around it."""
        asyncio.events._set_running_loop(self._loop)
        try:
            for task in self._loop.tasks:
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                coroutine: Any = task.get_coro()
                with suppress(BaseException):
                    coroutine.close()
        finally:
            asyncio.events._set_running_loop(None)
            self._loop.close()

    @property
    def _draws(self) -> Draws:
        draws = self._made.entropy
        assert isinstance(draws, Draws)
        return draws

    def _taken(self) -> list[_Pending]:
        taken, self._pending = self._pending, []
        return taken


class _InPlace(CallingThread):
    """Makes its calls at once, in the loop's own thread."""

    @override
    def call(self, fn: Callable[[], Any], then: Callable[[Outcome], None]) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, _Still)
        loop.process.make(fn, lambda outcome: loop.call_soon(then, outcome))


class _Still(asyncio.BaseEventLoop):
    """An event loop whose time passes where nothing else is left to do, and into which nothing comes."""

    def __init__(self, process: _Process) -> None:
        super().__init__()
        self.process = process
        self.still = False
        self.tasks: list[asyncio.Task[Any]] = []
        self.set_task_factory(self._task)
        self._now = 0.0
        self._selector = self
        # What is left standing says nothing to anybody.
        self.set_exception_handler(lambda _loop, _context: None)

    def _task(self, _: asyncio.AbstractEventLoop, work: Any, **named: Any) -> asyncio.Task[Any]:
        made: asyncio.Task[Any] = asyncio.Task(work, loop=self, **named)
        self.tasks.append(made)
        return made

    @property
    def scripted(self) -> Scripted:
        """What answers for all that is outside."""
        return self.process.scripted

    @override
    def time(self) -> float:
        return self._now

    def select(self, timeout: float | None) -> list[Any]:
        """Let the time pass until the next timer; without one nothing will ever happen here."""
        if timeout is None:
            self.still = True
            self.stop()
        else:
            self._now += timeout
        return []

    def _process_events(self, events: list[Any]) -> None:
        assert not events

    def _write_to_self(self) -> None:
        """Wake nobody: there is no other thread."""

    @override
    def run_in_executor(  # type: ignore[override]  # of the thread pool nothing is used
        self, executor: Any, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Call the function here and now. Where it waits for an answer the future is not done yet."""
        future: asyncio.Future[T] = self.create_future()

        def give(outcome: Outcome) -> None:
            value, error = outcome
            if future.cancelled():
                return
            if error is None:
                future.set_result(value)
            else:
                future.set_exception(error)

        self.process.make(partial(func, *args), give)
        return future


def _ending(error: BaseException) -> Ending:
    if isinstance(error, Exception):
        return ending_of(error)
    raise error


async def _pause(seconds: float) -> None:
    if seconds >= SETTLES:
        await asked(Settle())


@contextmanager
def _around() -> Iterator[None]:
    """Do not look up which version is installed, which takes longer than all else."""
    with patch.object(session, "version", lambda _: "0"):
        yield


@cache
def _silent() -> structlog.stdlib.BoundLogger:
    def drop(*_: Any) -> NoReturn:
        raise structlog.DropEvent

    made: structlog.stdlib.BoundLogger = structlog.wrap_logger(
        structlog.ReturnLogger(), processors=[drop], wrapper_class=structlog.stdlib.BoundLogger
    )
    return made
