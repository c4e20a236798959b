"""The engine's one way to the log: what is recorded, making values durable, committing.

It also holds the process's switch: once `stop` was called no step starts any more, and whoever asks to start
one is left waiting for ever, since unwinding the author's code would run its `finally` blocks for a run that
is going on elsewhere. Where the run is lost or halted nothing here raises into the author's code, which may
catch everything: the process ends instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from typing import Any, Final, NoReturn, TypeVar

from milepost.api.names import Entropy
from milepost.checkpoint import codec, values
from milepost.checkpoint.committer import Committer
from milepost.checkpoint.fold import State
from milepost.checkpoint.records import Event, Halted, Input, Planned, StepCompleted, Value
from milepost.checkpoint.sending import Patience, persist
from milepost.checkpoint.store import Store
from milepost.errors import Damaged, FormatTooNew, MilepostError, RunHalted

__all__ = ["LINGER", "MAX_INLINE_INPUT", "Journal"]

T = TypeVar("T")

MAX_INLINE_INPUT = 2 * 1024
"""Bytes of an input that a step's record carries itself."""

LINGER: Final = 0.005
"""Seconds that a commit waits for other running steps to end and share its write."""

_BLOBS_AT_ONCE: Final = 4


class Journal:
    """A claimed run's log, as the engine uses it."""

    def __init__(
        self,
        store: Store,
        committer: Committer,
        *,
        clock: Callable[[], datetime],
        entropy: Entropy,
        patience: Patience,
    ) -> None:
        self._values = values.Values(store, committer.head.keys, patience)
        self._committer = committer
        self._patience = patience
        self._in_flight = 0
        self._committing = 0
        self._stopping = False
        self._idle = asyncio.Event()
        self._idle.set()
        # Nothing else holds on to what waits for ever, and what is collected is unwound.
        self._left: list[asyncio.Future[None]] = []
        self._noted: list[Event] = []
        self._planned = self.state.totals.steps_total
        # Not the loop's own threads: the author's functions may occupy all of those.
        self._threads = ThreadPoolExecutor(_BLOBS_AT_ONCE, thread_name_prefix="blobs")
        self.clock = clock
        self.entropy = entropy

    @property
    def state(self) -> State:
        """What is recorded so far."""
        return self._committer.state

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self._committer.head.run_id

    @property
    def key_root(self) -> str:
        """First part of every idempotency key."""
        return self._committer.head.key_root

    def plan(self, total: int) -> None:
        """Record with the next commit, whatever that is, how many steps there will be; once if said twice."""
        if total != self._planned:
            self._planned = total
            self._noted.append(Planned(total=total))

    async def commit(self, *events: Event, deferrable: bool = False) -> None:
        """Return once the events are durable, in one record; or, if `deferrable`, handed over at least.

        Where other steps are running the write waits a moment, so that those which end now share it.
        """
        noted, self._noted = self._noted, []
        self._committing += 1
        linger = LINGER if self._in_flight > self._committing else 0.0
        try:
            await self._committer.commit(*noted, *events, deferrable=deferrable, linger=linger)
        finally:
            self._committing -= 1

    async def recorded(self, step: str) -> StepCompleted | None:
        """Return the record of a completed step; None if the step is not completed."""
        place = self.state.completed.get(step)
        if place is None:
            return None
        archive, head = self._committer.archive, self._committer.head

        def wanted(event: StepCompleted) -> bool:
            return event.step.id == step

        # What is wrong with a record at hand is met again below, where the process ends for it.
        with suppress(Damaged, FormatTooNew):
            at_hand = archive.event_at_hand(head, place.seq, StepCompleted, wanted)
            if at_hand is not None:
                return at_hand
        return await self._from_store(partial(archive.event, head, place.seq, StepCompleted, wanted))

    async def keep(self, data: codec.JSON, most: int = values.MAX_INLINE) -> Value:
        """Return the record's form of an encoded value, made durable first where it is larger than `most`."""
        formed = values.form(data, most)
        if isinstance(formed, Value):
            return formed
        return await self._from_store(partial(self._values.write, formed))

    async def read(self, value: Value, declared: Any, *, path: str) -> Any:
        """Return a recorded value, each time a new copy, decoded as the type that the code declares today."""
        data = value.inline
        if value.blob:
            data = await self._from_store(partial(self._values.read, value, of=path))
        try:
            return codec.decode(data, declared, path=path)
        except codec.DecodeError as error:
            await self._halt(
                "RecordedTypeChanged",
                f"{error}; it was recorded under a type that this code does not declare any more",
            )

    def input(self, data: codec.JSON) -> Input:
        """Return the record's form of one encoded argument."""
        raw = codec.dumps(data)
        digest = codec.digest(data)
        if len(raw) <= MAX_INLINE_INPUT:
            return Input(digest=digest, inline=Value(inline=data, size=len(raw)))
        return Input(digest=digest, result_of=self.state.steps_by_result.get(digest, ""))

    async def settle(self) -> None:
        """Return once every step that has returned is recorded: what is done next may follow from it."""
        await self._committer.settle()

    def stop(self) -> None:
        """Start no step from now on."""
        self._stopping = True

    async def idle(self) -> None:
        """Return once no step is in flight and nothing is on its way to the store.

        What was only handed over is written at once: there may be no time left after the last step.
        """
        await self._committer.flush()
        await self._idle.wait()
        await self._committer.flush()

    async def may_start(self) -> None:
        """Return if a step may start; never return once the process is stopping."""
        if self._stopping:
            self._left.append(asyncio.get_running_loop().create_future())
            await self._left[-1]

    @contextmanager
    def in_flight(self) -> Iterator[None]:
        """Count a step as running, from its start until its record is durable."""
        self._in_flight += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._in_flight -= 1
            if self._in_flight == 0:
                self._idle.set()

    async def _from_store(self, call: Callable[[], T]) -> T:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._threads, persist, call, self._patience)
        except Damaged as error:
            message = await loop.run_in_executor(self._threads, self._committer.explain, error)
            await self._halt(type(error).__name__, message)
        except MilepostError as error:
            self._committer.lose(error)

    async def _halt(self, reason: str, message: str) -> NoReturn:
        """Record why the run cannot go on, and end the process."""
        self.stop()
        await self._committer.commit(Halted(reason=reason, message=message))
        self._committer.lose(RunHalted(reason, message))
