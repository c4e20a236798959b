"""One executor's life: claim, load, run the agent, record how it ended.

SIGTERM lets the steps in flight end, if they do so within the grace period, and starts no new one. The
author's code is never unwound: where it waits it is left waiting, and the process ends around it.
"""

from __future__ import annotations

import asyncio
import os
import platform
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, Final, NoReturn

import structlog

from milepost.agent.agents import Agent
from milepost.agent.branch import Branch, current_branch
from milepost.agent.journal import Journal
from milepost.agent.run import Run
from milepost.agent.steps import qualified
from milepost.api.exits import Exit
from milepost.api.resource import Phase
from milepost.checkpoint import claim as claiming
from milepost.checkpoint import codec, history
from milepost.checkpoint.committer import Committer
from milepost.checkpoint.fold import State
from milepost.checkpoint.head import Head, parse_segment
from milepost.checkpoint.history import HeadAt
from milepost.checkpoint.records import Claimed, Finished, Halted, Record, Started
from milepost.checkpoint.sending import Patience
from milepost.checkpoint.store import Found, Store
from milepost.errors import CannotStart, Damaged, Missing, NotStorable, RunDeleted, StepFailed
from milepost.executor.ending import Ending, ending_of
from milepost.executor.entrypoint import code_digest, find_agent
from milepost.executor.logs import log_commit
from milepost.executor.settings import Settings

__all__ = ["Session"]

MARGIN: Final = 3.0
"""Seconds of the grace period that are kept for the last write and for the exit itself."""

THREADS: Final = 64
"""Most plain functions that may run as steps at once; asyncio's own default is smaller than a fan-out."""


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

    def __post_init__(self) -> None:
        self._patience = Patience(self.entropy, deadline=self.settings.store_deadline)
        self._stop = asyncio.Event()

    async def run(self) -> Ending:
        """Go on with the run and return how the process should end. Errors that end it are raised."""
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(THREADS, thread_name_prefix="step"))
        loop.add_signal_handler(signal.SIGTERM, self._stop.set)
        started = await asyncio.to_thread(self._started)
        agent, cannot = self._find(started)
        taken = await asyncio.to_thread(self._claim, agent)
        if isinstance(taken, claiming.Ended):
            return Ending(Exit.COMMITTED, "AlreadyEnded", f"the run is {taken.head.phase} already")
        try:
            state = await asyncio.to_thread(history.load, self.store, taken.head)
        except Damaged as error:
            # The head can still be written: what is wrong with the history is recorded for people to see.
            committer = self._committer(taken, _state_of(taken.head))
            return await self._halt(committer, type(error).__name__, str(error))
        committer = self._committer(taken, state)
        self.log.info("claimed", epoch=taken.head.epoch, seq=taken.head.seq, done=len(state.completed))
        if agent is None:
            assert cannot is not None, "an agent that was not found has a reason"
            return await self._halt(committer, cannot.reason, cannot.message)
        return await self._work(agent, committer)

    def _started(self) -> Started:
        """Return record 1, which says what to run: it is in the head, or in the first segment."""
        seen = history.read_head(self.store, self.settings.keys)
        if not isinstance(seen, HeadAt):
            raise RunDeleted(self.settings.keys.run_id)
        records: tuple[tuple[Record, str], ...] = seen.head.records()
        if seen.head.segments:
            first = seen.head.segments[0]
            key = seen.head.keys.segment(first.epoch, first.first, first.last, first.nonce)
            found = self.store.get(key)
            if not isinstance(found, Found):
                raise Missing(key, "the head names it, and it is gone")
            records = parse_segment(found.body, first, seen.head)
        started = records[0][0].events[0]
        assert isinstance(started, Started), "record 1 is `started`"
        return started

    def _find(self, started: Started) -> tuple[Agent[..., Any] | None, CannotStart | None]:
        try:
            agent = find_agent(started.entrypoint, started.agent_version)
            agent.arguments(started.inputs)
        except CannotStart as error:
            return None, error
        return agent, None

    def _claim(self, agent: Agent[..., Any] | None) -> claiming.Claim:
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
            previous_end=self.settings.previous_end,
        )
        return claiming.claim(
            self.store,
            self.settings.keys,
            claimed,
            at=self.clock(),
            entropy=self.entropy,
            patience=self._patience,
        )

    def _committer(self, taken: HeadAt, state: State) -> Committer:
        return Committer(
            self.store,
            taken,
            state,
            clock=self.clock,
            entropy=self.entropy,
            patience=self._patience,
            on_lost=self._lost,
            on_commit=lambda committed: log_commit(self.log, committed),
        )

    def _lost(self, error: Exception) -> NoReturn:
        ending_of(error).leave(self.log, self.settings.termination_log)

    async def _work(self, agent: Agent[..., Any], committer: Committer) -> Ending:
        journal = Journal(
            self.store, committer, clock=self.clock, entropy=self.entropy, patience=self._patience
        )
        current_branch.set(Branch())
        arguments = agent.arguments(journal.state.inputs())
        work = asyncio.create_task(_finish(agent, arguments, journal), name="agent")
        stop = asyncio.create_task(self._stop.wait(), name="stop")
        await asyncio.wait({work, stop}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            return await self._release(work, journal)
        return work.result()

    async def _release(self, work: asyncio.Task[Ending], journal: Journal) -> Ending:
        """Let what is in flight end, then leave the run to the next pod."""
        journal.stop()
        self.log.info("stopping", grace_s=self.settings.grace)
        idle = asyncio.create_task(journal.idle(), name="idle")
        began = time.monotonic()
        await asyncio.wait(
            {work, idle}, timeout=max(self.settings.grace - MARGIN, 0.5), return_when=asyncio.FIRST_COMPLETED
        )
        if work.done():
            return work.result()
        self.log.info("released", waited_s=round(time.monotonic() - began, 3), finished=idle.done())
        return Ending(Exit.RELEASED, "Released", "stopped by SIGTERM; the next pod goes on")

    async def _halt(self, committer: Committer, reason: str, message: str) -> Ending:
        await committer.commit(Halted(reason=reason, message=message))
        return Ending(Exit.HALTED, reason, message)


def _state_of(head: Head) -> State:
    """Return a state that can only be continued: its history could not be read."""
    return State(seq=head.seq, epoch=head.epoch, digest=head.chain, phase=Phase.RUNNING, totals=head.totals)


async def _finish(agent: Agent[..., Any], arguments: dict[str, Any], journal: Journal) -> Ending:
    """Run the agent to its end and record how it ended."""
    try:
        value = await agent.fn(Run(journal), **arguments)
        data, _ = codec.store(value, codec.declared_result(agent.fn), path="result")
    except StepFailed as error:
        reason = "ResultNotStorable" if error.of(NotStorable) else "StepFailed"
        return await _record_end(journal, Phase.FAILED, reason, str(error), step=error.step)
    except NotStorable as error:
        return await _record_end(journal, Phase.FAILED, "ResultNotStorable", str(error))
    except Exception as error:  # noqa: BLE001  (what escapes the agent is how the run ended)
        return await _record_end(journal, Phase.FAILED, "AgentRaised", f"{qualified(error)}: {error}")
    await journal.commit(Finished(phase=Phase.SUCCEEDED, reason="Completed", result=await journal.keep(data)))
    return Ending(Exit.COMMITTED, "Completed")


async def _record_end(journal: Journal, phase: Phase, reason: str, message: str, *, step: str = "") -> Ending:
    await journal.commit(Finished(phase=phase, reason=reason, message=message[:2000]))
    return Ending(Exit.COMMITTED, reason, message, step)
