"""The engine's one way to the log: what is recorded, making values durable, committing.

It also holds the process's two switches. Once `stop` was called no step starts any more: whoever asks to
start one is left waiting for ever, since unwinding the author's code would run its `finally` blocks for a
run that is going on elsewhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime

from milepost.api.names import Entropy
from milepost.checkpoint import codec, values
from milepost.checkpoint.committer import Committer
from milepost.checkpoint.fold import State
from milepost.checkpoint.records import Event, Input, Value
from milepost.checkpoint.sending import Patience
from milepost.checkpoint.store import Store

__all__ = ["MAX_INLINE_INPUT", "Journal"]

MAX_INLINE_INPUT = 2 * 1024
"""Bytes of an input that a step's record carries itself."""


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
        self._store = store
        self._committer = committer
        self._patience = patience
        self._in_flight = 0
        self._stopping = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._noted: list[Event] = []
        self.clock = clock
        self.entropy = entropy

    @property
    def state(self) -> State:
        """What is recorded so far."""
        return self._committer.state

    @property
    def key_root(self) -> str:
        """First part of every idempotency key."""
        return self._committer.head.key_root

    def note(self, event: Event) -> None:
        """Record the event with the next commit, whatever that is; it is not worth a write of its own."""
        self._noted.append(event)

    async def commit(self, *events: Event) -> None:
        """Return once the events are durable, in one record."""
        noted, self._noted = self._noted, []
        await self._committer.commit(*noted, *events)

    async def keep(self, data: codec.JSON) -> Value:
        """Return the record's form of an encoded value, made durable first where it is large."""
        small = values.inline(data)
        if small is not None:
            return small
        return await asyncio.to_thread(
            values.keep, self._store, self._committer.head.keys, data, self._patience
        )

    async def read(self, value: Value) -> codec.JSON:
        """Return an encoded value from its record or its blob. Raises Missing or Corrupt."""
        if not value.blob:
            return value.inline
        return await asyncio.to_thread(values.read, self._store, self._committer.head.keys, value)

    def input(self, data: codec.JSON) -> Input:
        """Return the record's form of one encoded argument."""
        raw = codec.dumps(data)
        digest = codec.digest(data)
        if len(raw) <= MAX_INLINE_INPUT:
            return Input(digest=digest, inline=Value(inline=data, size=len(raw)))
        return Input(digest=digest, result_of=self.state.steps_by_result.get(digest, ""))

    def stop(self) -> None:
        """Start no step from now on."""
        self._stopping = True

    async def idle(self) -> None:
        """Return once no step is in flight and nothing is on its way to the store."""
        await self._idle.wait()
        await self._committer.flush()

    async def may_start(self) -> None:
        """Return if a step may start; never return once the process is stopping."""
        if self._stopping:
            await asyncio.get_running_loop().create_future()

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
