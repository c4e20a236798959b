"""The one writer of a process: takes events, makes records of them, and says when they are durable.

Whatever ends while a commit is on its way goes into the next one, so side-by-side steps share their writes.
A caller that is cancelled does not undo its commit: what was handed over is written, in order. An outcome
that is not known is resolved before the next body is built.

When the run is lost, to another writer, to its deletion or to a store that gives no answer, `on_lost` is
called in the committer's thread and must not return: the author's code, which may catch everything, or
block the event loop, must not go on.
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
from milepost.checkpoint.records import Event, Finished, Halted, Record
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
        self._in_flight: list[_Waiting] = []
        self._busy = False
        self._ended = claimed.head.phase.terminal
        self._lost: BaseException | None = None
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

        Raises Misuse in a forked child, which must not write with its parent's claim, and after the event
        that ended the run; and what the run was lost to, should `on_lost` not have ended the process.
        """
        if os.getpid() != self._pid:
            raise Misuse("a forked process cannot record steps of its parent's run")
        if self._lost is not None:
            raise self._lost
        if self._ended:
            raise Misuse("nothing can be recorded after the end of the run")
        self._ended = any(isinstance(event, Finished) for event in events)
        loop = asyncio.get_running_loop()
        waiting = _Waiting(events, loop.create_future())
        self._waiting.append(waiting)
        if not self._busy:
            self._busy = True
            # What ends in this turn of the loop shares the first write too.
            loop.call_soon(self._write_next)
        await asyncio.shield(waiting.done)

    async def flush(self) -> None:
        """Return once nothing that was handed over is still on its way."""
        while on_its_way := (*self._in_flight, *self._waiting):
            await asyncio.shield(on_its_way[-1].done)

    def lose(self, error: Exception) -> NoReturn:
        """Give the run up as for a commit: its owner could not read or write what a commit depends on."""
        self._on_lost(error)

    def _write_next(self) -> None:
        self._in_flight, self._waiting = _batch(self._waiting)
        events = tuple(event for waiting in self._in_flight for event in waiting.events)
        # Callbacks and no task: the author's code may cancel every task that it finds.
        writing = asyncio.get_running_loop().run_in_executor(self._thread, self._write_or_lose, events)
        writing.add_done_callback(self._written)

    def _written(self, writing: asyncio.Future[Committed]) -> None:
        error = writing.exception()
        if error is not None:
            self._fail(error)
            return
        committed = writing.result()
        try:
            self._state.apply(committed.record, committed.head.chain, committed.head.keys.head)
            self._on_commit(committed)
        except Exception as unexpected:  # noqa: BLE001  (whatever it is, callers must not wait for ever)
            self._fail(unexpected)
            self._on_lost(unexpected)
        written, self._in_flight = self._in_flight, []
        for waiting in written:
            waiting.done.set_result(None)
        self._busy = bool(self._waiting)
        if self._busy:
            self._write_next()

    def _fail(self, error: BaseException) -> None:
        """Write nothing from now on. Only reached where `on_lost` raises instead of ending the process."""
        self._lost = error
        for waiting in (*self._in_flight, *self._waiting):
            waiting.done.set_exception(error)
            waiting.done.exception()  # a caller that was cancelled does not ask for it any more
        self._in_flight, self._waiting = [], []

    def _write_or_lose(self, events: tuple[Event, ...]) -> Committed:
        """Run in the committer's own thread, so that losing the run ends a process whose loop is blocked."""
        try:
            return self._write(events)
        except Exception as error:  # noqa: BLE001  (whatever it is, the outcome is not known)
            self._on_lost(error)

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


def _batch(waiting: list[_Waiting]) -> tuple[list[_Waiting], list[_Waiting]]:
    """Split off what the next record holds: all that wait, but an end or a halt has a record to itself.

    So it always fits the head, where it is looked for.
    """
    closing = [any(isinstance(event, Finished | Halted) for event in each.events) for each in waiting]
    if closing[0]:
        return waiting[:1], waiting[1:]
    split = closing.index(True) if True in closing else len(waiting)
    return waiting[:split], waiting[split:]
