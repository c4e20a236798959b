"""The one writer of a process: takes events, makes records of them, and says when they are durable.

Whatever ends while a commit is on its way goes into the next one, so side-by-side steps share their writes;
a caller that knows of others about to end can let its write linger for them. With `every_steps` over 1 only
each so many completions are waited for: the others are handed over, and lost with the process until then.
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
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import NoReturn

from milepost.api.names import Entropy
from milepost.checkpoint.answers import Done, Purpose, Write
from milepost.checkpoint.archive import Archive
from milepost.checkpoint.base import Base, base_due, make_base
from milepost.checkpoint.fold import State, Totals, advance
from milepost.checkpoint.head import Commit, Draft, Head, draft
from milepost.checkpoint.history import HeadAt, read_base
from milepost.checkpoint.records import Event, Finished, Halted, Record
from milepost.checkpoint.sealed import Segment
from milepost.checkpoint.sending import Patience, persist, send
from milepost.checkpoint.store import Store
from milepost.checkpoint.thread import CallingThread, Outcome
from milepost.errors import Damaged, Misuse, RunHalted

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
    deferred: bool
    held: bool = False


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
        archive: Archive | None = None,
        every_steps: int = 1,
        explain: Callable[[Damaged], str] = str,
    ) -> None:
        """Take what the module's own words name. `explain` blocks, and tells people what damage means."""
        self._store = store
        self._at = claimed
        self._keys = claimed.head.keys
        self._archive = archive or Archive(store, self._keys)
        self._every_steps = every_steps
        self.explain = explain
        self._state = state
        self._totals = state.totals
        self._uncounted: list[Event] = []
        self._clock = clock
        self._entropy = entropy
        self._patience = patience
        self._on_lost = on_lost
        self._on_commit = on_commit
        self._waiting: list[_Waiting] = []
        self._in_flight: list[_Waiting] = []
        self._watching: list[asyncio.Future[None]] = []
        self._busy = False
        self._flushing = 0
        self._lingering: asyncio.TimerHandle | None = None
        self._ended = claimed.head.phase.terminal
        self._lost: BaseException | None = None
        self._damage: RunHalted | None = None
        self._thread = CallingThread("committer")
        self._pid = os.getpid()

    @property
    def head(self) -> Head:
        """The newest acknowledged head."""
        return self._at.head

    @property
    def archive(self) -> Archive:
        """The run's records by their number."""
        return self._archive

    @property
    def state(self) -> State:
        """The state folded up to the newest acknowledged record."""
        return self._state

    @property
    def totals(self) -> Totals:
        """The counts with all that was handed over, durable or not."""
        for event in self._uncounted:
            self._totals, _ = advance(self._totals, self._state.phase, event)
        self._uncounted.clear()
        return self._totals

    async def commit(
        self, *events: Event, deferrable: bool = False, held: bool = False, linger: float = 0.0
    ) -> None:
        """Return once these events are durable, all in one record.

        Where they are `deferrable` and fewer than `every_steps` such wait with them, return at once instead:
        they become durable with the next write, whatever that is for. So do those that are `held`, however
        many there are. `linger` is how many seconds a write
        that nothing else hastens may wait for others to join it.

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
        self._uncounted += events
        waiting = _Waiting(events, asyncio.get_running_loop().create_future(), deferrable, held)
        self._waiting.append(waiting)
        if held or (deferrable and self._every_steps > 1 and self._deferred() < self._every_steps):
            return
        self._write_soon(linger)
        await waiting.done

    async def flush(self) -> None:
        """Return once nothing that was handed over is still on its way."""
        self._flushing += 1
        try:
            while self._in_flight or self._waiting:
                await self._next_write()
        finally:
            self._flushing -= 1

    async def settle(self) -> None:
        """Return once nothing is left that its caller was told had ended before it was durable."""
        self._flushing += 1
        try:
            newest_first = reversed((*self._in_flight, *self._waiting))
            told = (each for each in newest_first if each.held or (each.deferred and self._every_steps > 1))
            last = next(told, None)
            while any(each is last for each in (*self._in_flight, *self._waiting)):
                await self._next_write()
        finally:
            self._flushing -= 1

    def close(self) -> None:
        """Return once what is on its way is written, and the committer's thread has ended. Blocks."""
        self._thread.close()

    def lose(self, error: Exception) -> NoReturn:
        """Give the run up as for a commit: its owner could not read or write what a commit depends on."""
        self._fail(error)
        self._on_lost(error)

    async def _next_write(self) -> None:
        """Return once one more write has ended. Raises what the run was lost to."""
        self._write_soon()
        written = asyncio.get_running_loop().create_future()
        self._watching.append(written)
        await written

    def _write_soon(self, linger: float = 0.0) -> None:
        if self._busy or (linger and self._lingering is not None):
            return
        loop = asyncio.get_running_loop()
        if linger:
            self._lingering = loop.call_later(linger, self._write_next)
            return
        if self._lingering is not None:
            self._lingering.cancel()
        self._busy = True
        # Not at once: what ends in this turn of the loop shares the write.
        loop.call_soon(self._write_next)

    def _write_next(self) -> None:
        self._busy, self._lingering = True, None
        self._in_flight, self._waiting = _batch(self._waiting)
        events = tuple(event for waiting in self._in_flight for event in waiting.events)
        # Callbacks and no task: the author's code may cancel every task that it finds.
        self._thread.call(partial(self._write_or_lose, events), self._written)

    def _written(self, outcome: Outcome) -> None:
        committed, error = outcome
        if error is not None:
            self._fail(error)
            return
        try:
            self._state.apply(committed.record, committed.head.chain, self._keys.head)
            self._on_commit(committed)
        except Exception as unexpected:  # noqa: BLE001  (whatever it is, callers must not wait for ever)
            self._fail(unexpected)
            self._on_lost(unexpected)
        written = [*(waiting.done for waiting in self._in_flight), *self._watching]
        self._in_flight, self._watching = [], []
        if not self._waiting:
            self._totals, self._uncounted = self._state.totals, []
        for done in written:
            # A caller that was cancelled waits no more.
            if not done.done():
                done.set_result(None)
        if self._damage is not None:
            self._halt(self._damage)
        self._busy = self._wanted()
        if self._busy:
            self._write_next()

    def _halt(self, why: RunHalted) -> None:
        """Record that the history is damaged, after what has ended already, and then go no further."""
        if self._ended:
            return
        if isinstance(self._state.outcome, Halted):
            self._fail(why)
            self._on_lost(why)
        if any(isinstance(event, Halted) for each in self._waiting for event in each.events):
            return
        halted = Halted(reason=why.reason, message=why.message)
        done = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting((halted,), done, deferred=False))

    def _wanted(self) -> bool:
        """Tell whether somebody waits for what was handed over meanwhile, or enough of it is there."""
        if self._flushing:
            return bool(self._waiting)
        can_wait = sum(each.deferred or each.held for each in self._waiting)
        return can_wait < len(self._waiting) or self._deferred() >= self._every_steps

    def _deferred(self) -> int:
        return sum(each.deferred and not each.held for each in self._waiting)

    def _fail(self, error: BaseException) -> None:
        """Write nothing from now on. Only reached where `on_lost` raises instead of ending the process."""
        self._lost = error
        for done in (*(each.done for each in (*self._in_flight, *self._waiting)), *self._watching):
            if not done.done():
                done.set_exception(error)
                done.exception()  # where it was handed over nobody asks for it
        self._in_flight, self._waiting, self._watching = [], [], []

    def _write_or_lose(self, events: tuple[Event, ...]) -> Committed:
        """Run in the committer's own thread, so that losing the run ends a process whose loop is blocked."""
        try:
            return self._write(events)
        except Exception as error:  # noqa: BLE001  (whatever it is, the outcome is not known)
            self._on_lost(error)

    def _write(self, events: tuple[Event, ...]) -> Committed:
        began = self._patience.monotonic()
        planned = draft(self._at.head, events, at=self._clock(), entropy=self._entropy)
        merged = self._merged(planned)
        commit = planned.commit(merged, self._base(planned))
        size = 0
        for key, body in commit.objects:
            send(self._store, Write(Purpose.CREATE, key, body), self._patience)
            size += len(body)
        if not self._may_let_go(commit):
            commit = planned.commit(merged)
        head = commit.head
        body = head.body()
        write = Write(Purpose.COMMIT, self._keys.head, body, head.metadata(), self._at.etag, head)
        outcome = send(self._store, write, self._patience)
        assert isinstance(outcome, Done), "a commit that is not done raises"
        self._at = HeadAt(head, outcome.etag)
        self._archive.let_go([named for named, _ in merged])
        return Committed(head, commit.record, size + len(body), self._patience.monotonic() - began)

    def _merged(self, planned: Draft) -> list[tuple[Segment, tuple[bytes, ...]]]:
        """Read what the commit merges. What is damaged is left as it is, and nothing merged."""
        try:
            return [(named, self._read(named)) for named in planned.merging]
        except Damaged as error:
            self._damage = RunHalted(type(error).__name__, self.explain(error))
            return []

    def _read(self, named: Segment) -> tuple[bytes, ...]:
        return persist(lambda: self._archive.segment(named), self._patience)

    def _base(self, planned: Draft) -> tuple[Base, bytes] | None:
        """Make a base of what is acknowledged so far, where one is due."""
        head = planned.head
        ending = any(isinstance(event, Finished) for event in planned.record.events)
        if not (planned.sealed or ending) or not base_due(head.segments, head.bases, ending=ending):
            return None
        return make_base(self._state, self._keys, head.nonce)

    def _may_let_go(self, commit: Commit) -> bool:
        """Tell whether the commit drops no base, or only after its own was read back as it was written."""
        before, after = self._at.head.bases, commit.head.bases
        if before == after or set(before) <= set(after):
            return True
        try:
            persist(lambda: read_base(self._store, self._keys, after[-1]), self._patience)
        except Damaged as error:
            self._damage = RunHalted(type(error).__name__, self.explain(error))
        return self._damage is None


def _batch(waiting: list[_Waiting]) -> tuple[list[_Waiting], list[_Waiting]]:
    """Split off what the next record holds: all that wait, but an end or a halt has a record to itself.

    So it always fits the head, where it is looked for.
    """
    if len(waiting) == 1:
        return waiting, []
    closing = [any(isinstance(event, Finished | Halted) for event in each.events) for each in waiting]
    if closing[0]:
        return waiting[:1], waiting[1:]
    split = closing.index(True) if True in closing else len(waiting)
    return waiting[:split], waiting[split:]
