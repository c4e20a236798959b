"""The one writer of a process: takes events, makes records of them, and says when they are durable.

Whatever ends while a commit is on its way goes into the next one, so side-by-side steps share their writes.
A caller that is cancelled does not undo its commit: what was handed over is written, in order. An outcome
that is not known is resolved before the next body is built.

When the run is lost, to another writer, to its deletion or to a store that gives no answer, `on_lost` is
called and must not return: the author's code, which may catch everything, must not go on.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import NoReturn

from milepost.api.names import Entropy
from milepost.checkpoint.answers import Done, Purpose, Write
from milepost.checkpoint.fold import State
from milepost.checkpoint.head import Head, next_head
from milepost.checkpoint.history import HeadAt
from milepost.checkpoint.records import Event, Record
from milepost.checkpoint.sending import Patience, send
from milepost.checkpoint.store import Store
from milepost.errors import Misuse

__all__ = ["Committed", "Committer"]


@dataclass(frozen=True)
class Committed:
    """One commit as it is logged: the record's number, the bytes written, and how long the store took."""

    head: Head
    record: Record
    size: int
    duration_s: float


@dataclass(frozen=True)
class _Waiting:
    events: tuple[Event, ...]
    done: asyncio.Future[None]


class Committer:
    """Owns the head from the claim on. Use it from one event loop, in the process that claimed."""

    def __init__(
        self,
        store: Store,
        claimed: HeadAt,
        state: State,
        *,
        clock: Callable[[], datetime],
        entropy: Entropy,
        patience: Patience,
        on_lost: Callable[[Exception], NoReturn],
        on_commit: Callable[[Committed], None] = lambda _: None,
    ) -> None:
        self._store = store
        self._at = claimed
        self._state = state
        self._clock = clock
        self._entropy = entropy
        self._patience = patience
        self._on_lost = on_lost
        self._on_commit = on_commit
        self._waiting: list[_Waiting] = []
        self._writer: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="committer")
        self._pid = os.getpid()

    @property
    def head(self) -> Head:
        """The newest acknowledged head."""
        return self._at.head

    @property
    def state(self) -> State:
        """The state folded up to the newest acknowledged record."""
        return self._state

    async def commit(self, *events: Event) -> None:
        """Return once these events are durable, all in one record.

        Raises Misuse in a forked child, which must not write with its parent's claim.
        """
        if os.getpid() != self._pid:
            raise Misuse("a forked process cannot record steps of its parent's run")
        waiting = _Waiting(events, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._write_all(), name="committer")
        await asyncio.shield(waiting.done)

    async def flush(self) -> None:
        """Return once nothing that was handed over is still on its way."""
        while self._writer is not None and not self._writer.done():
            await asyncio.shield(self._writer)

    async def _write_all(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            batch, self._waiting = self._waiting, []
            events = tuple(event for waiting in batch for event in waiting.events)
            try:
                committed = await loop.run_in_executor(self._thread, self._write, events)
            except Exception as error:  # noqa: BLE001  (whatever it is, the outcome is not known)
                self._on_lost(error)
            self._state.apply(committed.record, committed.head.chain, committed.head.keys.head)
            self._on_commit(committed)
            for waiting in batch:
                if not waiting.done.done():
                    waiting.done.set_result(None)

    def _write(self, events: tuple[Event, ...]) -> Committed:
        began = self._patience.monotonic()
        commit = next_head(self._at.head, events, at=self._clock(), entropy=self._entropy)
        size = 0
        if commit.segment is not None:
            key, body = commit.segment
            send(self._store, Write(Purpose.CREATE, key, body), self._patience)
            size += len(body)
        head = commit.head
        body = head.body()
        write = Write(Purpose.COMMIT, head.keys.head, body, head.metadata(), self._at.etag, head)
        outcome = send(self._store, write, self._patience)
        assert isinstance(outcome, Done), "a commit that is not done raises"
        self._at = HeadAt(head, outcome.etag)
        return Committed(head, commit.record, size + len(body), self._patience.monotonic() - began)
