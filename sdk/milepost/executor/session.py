"""One executor's life: claim, load, run the agent, record how it ended.

SIGTERM lets the steps in flight end, if they do so within the grace period, and starts no new one. The
author's code is never unwound: where it waits it is left waiting, and the process ends around it.
"""

from __future__ import annotations

import asyncio
import os
import platform
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, Final, NoReturn, TypeVar

import structlog

from milepost.agent.agents import Agent
from milepost.agent.branch import Branch, current_branch
from milepost.agent.failures import leaves, message_of, qualified
from milepost.agent.journal import Journal, Rules
from milepost.agent.run import Run
from milepost.agent.standing import check_end
from milepost.api.exits import Exit
from milepost.api.resource import MAX_RESULT_BYTES, Phase
from milepost.checkpoint import claim as claiming
from milepost.checkpoint import codec, history
from milepost.checkpoint.answers import Purpose
from milepost.checkpoint.archive import Archive
from milepost.checkpoint.committer import Committed, Committer
from milepost.checkpoint.damage import explain
from milepost.checkpoint.fold import State, environment_of
from milepost.checkpoint.head import Head
from milepost.checkpoint.history import HeadAt
from milepost.checkpoint.isolation import Isolation, check_isolation
from milepost.checkpoint.records import Claimed, Finished, Halted, Started, Value
from milepost.checkpoint.sending import Patience, persist
from milepost.checkpoint.store import Store
from milepost.errors import (
    CannotStart,
    Damaged,
    FormatTooNew,
    NotStorable,
    RunDeleted,
    StepFailed,
    StoreRefused,
    StoreUnavailable,
)
from milepost.executor.anchor import check_anchor
from milepost.executor.ending import Ending, ending_of
from milepost.executor.entrypoint import code_digest, find_agent
from milepost.executor.logs import StoreTrouble, log_claim, log_commit
from milepost.executor.resuming import resume
from milepost.executor.settings import Settings
from milepost.executor.stopping import Stop, StopSignal

__all__ = ["Session"]

T = TypeVar("T")

THREADS: Final = 1000
"""Most plain functions that run at once. Threads are made as they are needed, and how many are needed is for
the agent's `limit` to say: a function that waits for one does so in its step's time.
"""

MAX_SHOWN: Final = 5
"""Gates, or steps, that a message about them names."""

RELEASED: Final = Ending(Exit.RELEASED, "Released", "stopped by SIGTERM; the next pod goes on")


class _Stopped(Exception):
    """SIGTERM came before the agent was started."""


def _now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251  (the executor is a shell: it holds the clock)


@dataclass
class Session:
    """Everything between the environment and the exit code."""

    settings: Settings
    store: Store
    log: structlog.stdlib.BoundLogger
    clock: Callable[[], datetime] = _now
    entropy: Callable[[int], bytes] = os.urandom
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep

    def __post_init__(self) -> None:
        self._patience = Patience(
            self.entropy,
            deadline=self.settings.store_deadline,
            on_trouble=StoreTrouble(self.log, self.settings.store_deadline),
        )
        self._work: asyncio.Task[Ending] | None = None
        self._returned = False

    async def run(self) -> Ending:
        """Go on with the run and return how the process should end. Errors that end it are raised."""
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(THREADS, thread_name_prefix="step"))
        self._stop = self.stop_signal()
        try:
            return await self._go_on()
        except _Stopped:
            return RELEASED

    async def _go_on(self) -> Ending:
        archive = Archive(self.store, self.settings.keys)
        isolated = asyncio.create_task(self._unless_stopped(self._check_isolation), name="isolation")
        agent: Agent[..., Any] | None = None
        seen: HeadAt | None = None
        cannot: CannotStart | Damaged | None = None
        try:
            seen, started = await self._unless_stopped(lambda: self._started(archive))
            agent = self.find(started)
        except (CannotStart, Damaged) as error:
            # The head can still be written: what is wrong is recorded for people to see.
            cannot = error
        await isolated
        began = time.monotonic()
        try:
            taken = await self._unless_stopped(lambda: self._claim(agent, seen))
        except Damaged as error:
            # It is the head itself that is damaged, so that nothing can be recorded.
            message = await asyncio.to_thread(self._explain, error)
            return Ending(Exit.HALTED, type(error).__name__, message)
        if isinstance(taken, claiming.Ended):
            return Ending(Exit.COMMITTED, "AlreadyEnded", f"the run is {taken.head.phase} already")
        log_claim(self.log, taken.head, time.monotonic() - began)
        state: State | None = None
        if cannot is None:
            try:
                state = await self._unless_stopped(lambda: self._load(taken.head, archive))
            except Damaged as error:
                cannot = error
        if cannot is not None or state is None or agent is None:
            assert cannot is not None, "what was not found has a reason"
            return await self._cannot_go_on(taken, cannot)
        return await self._run_agent(agent, self._committer(taken, state, archive))

    def stop_signal(self) -> Stop:
        """Return what tells when the process is to stop."""
        return StopSignal(self.settings.grace, self._leave_behind)

    def find(self, started: Started) -> Agent[..., Any]:
        """Return the agent that the run is of. Raises CannotStart."""
        # The version is the manifest's of today: unlike the entrypoint it may change while the run goes on.
        agent = find_agent(started.entrypoint, self.settings.agent_version)
        agent.arguments(started.inputs)
        return agent

    def _check_isolation(self) -> None:
        if self.settings.isolation is Isolation.REQUIRED:
            check_isolation(self.store, self.settings.keys.namespace)

    async def _cannot_go_on(self, taken: HeadAt, why: CannotStart | Damaged) -> Ending:
        """Record why the run cannot go on. A history that could not be read can still be continued."""
        if isinstance(why, Damaged):
            reason, message = type(why).__name__, await asyncio.to_thread(self._explain, why)
        else:
            reason, message = why.reason, why.message
        await asyncio.to_thread(
            claiming.replace_head,
            self.store,
            taken,
            (Halted(reason=reason, message=message),),
            at=self.clock(),
            entropy=self.entropy,
            patience=self._patience,
            purpose=Purpose.COMMIT,
        )
        return Ending(Exit.HALTED, reason, message)

    async def _unless_stopped(self, call: Callable[[], T]) -> T:
        """Return what a call gives that is harmless to repeat and to leave. Raises _Stopped at SIGTERM."""
        calling = asyncio.create_task(asyncio.to_thread(persist, call, self._patience))
        await _first_of(calling, self._stop.asked)
        if self._stop.asked.done():
            raise _Stopped
        return calling.result()

    def _started(self, archive: Archive) -> tuple[HeadAt, Started]:
        """Return the head, and record 1, which says what to run: it is in the head or the first segment."""

        def read(seen: HeadAt) -> tuple[HeadAt, Started]:
            return seen, archive.event(seen.head, 1, Started, lambda _: True)

        found = history.consistently(self.store, self.settings.keys, read)
        if found is None:
            raise RunDeleted(self.settings.keys.run_id)
        return found

    def _explain(self, error: Damaged) -> str:
        """Return what people need to know of a damaged history. Blocks."""
        with suppress(Damaged, FormatTooNew, StoreRefused, StoreUnavailable):
            seen = history.read_head(self.store, self.settings.keys)
            if isinstance(seen, HeadAt):
                where, name = self.settings.store, seen.head.name
                return explain(self.store, self.settings.keys, error, where=where, name=name)
        return explain(self.store, self.settings.keys, error, where=self.settings.store)

    def _load(self, head: Head, archive: Archive) -> State:
        def damaged(error: Damaged | FormatTooNew) -> None:
            self.log.warning("base-damaged", object=error.key, error=str(error))

        state = history.load(self.store, head, archive, on_damage=damaged)
        if self.settings.anchor is not None:
            check_anchor(self.settings.anchor, head, archive)
        return state

    def _claim(self, agent: Agent[..., Any] | None, seen: HeadAt | None) -> claiming.Claim:
        claimed = Claimed(
            attempt=self.settings.attempt,
            writer=self.settings.writer,
            pod=self.settings.pod,
            node=self.settings.node,
            image=self.settings.image,
            code_digest=code_digest(agent) if agent else "",
            agent_version=agent.version if agent else "",
            milepost_version=f"{version('milepost')} on Python {platform.python_version()}",
            tools={tool.name: tool.version for tool in agent.tools} if agent else {},
            environment=agent.environment if agent else {},
            policy=self.settings.policy.recorded(),
            previous_end=self.settings.previous_end,
        )
        return claiming.claim(
            self.store,
            self.settings.keys,
            claimed,
            at=self.clock(),
            entropy=self.entropy,
            patience=self._patience,
            seen=seen,
        )

    def _committer(self, taken: HeadAt, state: State, archive: Archive) -> Committer:
        return Committer(
            self.store,
            taken,
            state,
            clock=self.clock,
            entropy=self.entropy,
            patience=self._patience,
            on_lost=self._lost,
            on_commit=self._committed,
            archive=archive,
            every_steps=state.started.every_steps if state.started else 1,
            explain=self._explain,
        )

    def _lost(self, error: Exception) -> NoReturn:
        ending_of(error).leave(self.log, self.settings.termination_log)

    def _leave_behind(self) -> NoReturn:
        RELEASED.leave(self.log, self.settings.termination_log)

    def _committed(self, committed: Committed) -> None:
        try:
            log_commit(self.log, committed)
        except OSError:
            # Whoever read the log is gone. The record stands, and that is what the run is about.
            return

    async def _run_agent(self, agent: Agent[..., Any], committer: Committer) -> Ending:
        taken = committer.head
        limits = self.settings.limits
        claimed, began = await self._unless_stopped(lambda: _claimed(taken, committer.archive))
        journal = Journal(
            self.store,
            committer,
            clock=self.clock,
            entropy=self.entropy,
            patience=self._patience,
            rules=Rules(
                steps=limits.steps,
                tokens=limits.tokens,
                cost_nano_usd=None if limits.cost_usd is None else round(limits.cost_usd * 1e9),
                memory_every=agent.memory_every,
                same_code=_same_code(committer.state, agent),
                linger=self.settings.linger,
                environment=environment_of(claimed),
            ),
            pause=self.pause,
        )
        await resume(journal, agent, self.settings.policy)
        await journal.begin()
        if self._stop.asked.done():
            return RELEASED
        current_branch.set(Branch(now=datetime.fromisoformat(began)))
        # Held on to beyond this call: a task that is collected is unwound.
        self._work = asyncio.create_task(self._finish(agent, journal), name="agent")
        await _first_of(self._work, self._stop.asked, journal.waits)
        if self._work.done():
            return self._work.result()
        if self._stop.asked.done():
            return await self._release(self._work, journal)
        return await self._wait(self._work, journal)

    async def _wait(self, work: asyncio.Task[Ending], journal: Journal) -> Ending:
        """Record that the run waits at its gates, and leave them to the next pod."""
        while True:
            recorded = asyncio.create_task(journal.record_waiting(), name="waiting")
            await _first_of(work, recorded)
            if work.done():
                return work.result()
            if not recorded.cancelled():
                break
        recorded.result()
        if self._returned:
            # Its code was busy in a way of its own, and came to its end after all.
            await _first_of(work)
            return work.result()
        gates = [f"{gate.type} {gate.name}" for gate in journal.state.gates.values()]
        return Ending(Exit.COMMITTED, "Waiting", f"waits for {_listed(gates)}")

    async def _release(self, work: asyncio.Task[Ending], journal: Journal) -> Ending:
        """Let what is in flight end, then leave the run to the next pod."""
        journal.stop()
        self.log.info("stopping", grace_s=self.settings.grace)
        idle = asyncio.create_task(journal.idle(), name="idle")
        began = time.monotonic()
        await _first_of(work, idle, timeout=self._stop.patience)
        if work.done():
            return work.result()
        self.log.info("released", waited_s=round(time.monotonic() - began, 3), finished=idle.done())
        return RELEASED

    async def _finish(self, agent: Agent[..., Any], journal: Journal) -> Ending:
        """Run the agent to its end and record how it ended.

        Steps that it started and did not wait for are waited for here, so that what they do is recorded.
        """
        current_branch.get().main = asyncio.current_task()
        result: Value | None = None
        failure: Ending | None
        try:
            value = await agent.fn(Run(journal, retry=agent.retry), **agent.arguments(journal.state.inputs()))
            data, _ = codec.store(value, codec.declared_result(agent.fn), path="result")
            # A task that was made last has not begun yet what it awaits.
            await asyncio.sleep(0)
        except (SystemExit, KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:
            failure = _failure(error)
            self.log.exception("agent-failed", reason=failure.reason)
            journal.never_awaited()
        else:
            failure = _never_awaited(journal.never_awaited())
            if failure is None:
                await check_end(journal, current_branch.get())
            # The status holds what is small; of all else it names the blob.
            result = None if failure else await journal.keep(data, MAX_RESULT_BYTES)
        self._returned = True
        journal.stop()
        await journal.idle()
        await journal.remember()
        ending = failure or _completion(journal.state, journal.left_open)
        phase = Phase.FAILED if failure else Phase.SUCCEEDED
        await journal.commit(
            Finished(phase=phase, reason=ending.reason, message=ending.message, result=result)
        )
        return ending


def _claimed(taken: Head, archive: Archive) -> tuple[Claimed, str]:
    """Return the claim that was made with this head, and the time of the run's first record. Blocks."""
    return archive.event(taken, taken.seq, Claimed, lambda _: True), archive.record(taken, 1).at


async def _first_of(*things: asyncio.Future[Any], timeout: float | None = None) -> None:  # noqa: ASYNC109  (as in asyncio.wait)
    """Return once one of them is done, or after the timeout in seconds.

    The author's code may cancel every task that it finds, the one that waits here among them: that ends
    what the author started, and not the process.
    """
    until = None if timeout is None else time.monotonic() + timeout
    while not any(thing.done() for thing in things):
        left = None if until is None else until - time.monotonic()
        if left is not None and left <= 0:
            return
        with suppress(asyncio.CancelledError):
            await asyncio.wait(things, timeout=left, return_when=asyncio.FIRST_COMPLETED)


def _never_awaited(places: list[str]) -> Ending | None:
    if not places:
        return None
    message = f"the agent's code has begun and never awaited {_listed(places)}; write `await run.step(...)`"
    return Ending(Exit.COMMITTED, "StepNeverAwaited", message)


def _listed(names: list[str]) -> str:
    return ", ".join(names[:MAX_SHOWN]) + (", ..." if len(names) > MAX_SHOWN else "")


def _completion(state: State, left: list[str]) -> Ending:
    """Return how a run ends whose agent has returned: also with what the agent did without.

    `left` are the steps that had not ended when it did, since nobody awaited the tasks that they are in.
    """
    failed = sum(tries[-1].final and not tries[-1].cancelled for tries in state.failed.values())
    said = [
        *([f"{failed} step{'s' * (failed > 1)} failed"] if failed else []),
        *([f"{len(state.skipped)} skipped"] if state.skipped else []),
        *(f"phase {group} went on without {', '.join(gone)}" for group, gone in state.degraded.items()),
        *([f"nobody awaited {_listed(left)}, which had not ended"] if left else []),
    ]
    return Ending(Exit.COMMITTED, "CompletedWithErrors" if said else "Completed", "; ".join(said))


def _failure(error: BaseException) -> Ending:
    """Return how the process ends on what escaped the agent, which is how the run ended."""
    inner = leaves(error)
    failed = [each for each in inner if isinstance(each, StepFailed)]
    message = "; ".join(message_of(each) for each in inner[:3])
    if len(failed) == len(inner):
        reason = "ResultNotStorable" if failed[0].of(NotStorable) else "StepFailed"
        return Ending(Exit.COMMITTED, reason, message, failed[0].step)
    if isinstance(error, NotStorable):
        return Ending(Exit.COMMITTED, "ResultNotStorable", message)
    said = "; ".join(f"{qualified(each)}: {message_of(each)}" for each in inner[:3])
    return Ending(Exit.COMMITTED, "AgentRaised", said)


def _same_code(state: State, agent: Agent[..., Any]) -> bool:
    return state.codes == {code_digest(agent)}
