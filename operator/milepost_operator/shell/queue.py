"""A queue of keys: each at most once in it, never handled twice at once, and again later if asked.

It replaces timers, daemons and per-object workers. Whatever happens to a run puts its key here; one pass
then looks at everything. A key that is put while its pass is under way gets another pass afterwards, so that
no change is missed. It knows nothing of Kubernetes, and its clock is an argument.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Generic, TypeVar

__all__ = ["Again", "KeyedQueue", "work"]

K = TypeVar("K", bound=Hashable)

_FIRST_DELAY: Final = 0.5
_LONGEST_DELAY: Final = 60.0
_DOUBLINGS: Final = 16


@dataclass(frozen=True)
class Again:
    """When a pass wants the next one. `retry` asks for a delay that grows each time in a row."""

    after: timedelta | None = None
    retry: bool = False


class KeyedQueue(Generic[K]):
    """The bookkeeping. `monotonic` gives seconds; nothing here waits but `arrived`."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._now = monotonic
        self._ready: dict[K, None] = {}
        self._running: set[K] = set()
        self._dirty: set[K] = set()
        self._due: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._failures: dict[K, int] = {}
        self._order = itertools.count()
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._ready)

    def put(self, key: K) -> None:
        """Ask for a pass over the key as soon as possible."""
        self._due.pop(key, None)
        if key in self._running:
            self._dirty.add(key)
            return
        self._ready.setdefault(key)
        self._changed.set()

    def put_after(self, key: K, delay: float) -> None:
        """Ask for a pass in `delay` seconds, or earlier if one is already asked for earlier."""
        due = self._now() + delay
        if key in self._ready or due >= self._due.get(key, float("inf")):
            return
        self._due[key] = due
        heapq.heappush(self._heap, (due, next(self._order), key))
        self._changed.set()

    def take(self) -> K | None:
        """Return the next key that is due, which is then in hand until `done`; None if there is none."""
        while self._heap and self._heap[0][0] <= self._now():
            due, _, key = heapq.heappop(self._heap)
            if self._due.get(key) == due:
                self.put(key)
        if not self._ready:
            return None
        key = next(iter(self._ready))
        del self._ready[key]
        self._running.add(key)
        return key

    def done(self, key: K, again: Again) -> None:
        """Say that the pass over the key is over, and when it wants the next one."""
        self._running.discard(key)
        dirty = key in self._dirty
        self._dirty.discard(key)
        failures = self._failures.pop(key, 0)
        if again.retry:
            self._failures[key] = failures + 1
            self.put_after(key, min(_FIRST_DELAY * 2 ** min(failures, _DOUBLINGS), _LONGEST_DELAY))
        elif again.after is not None:
            self.put_after(key, again.after.total_seconds())
        if dirty:
            self.put(key)

    async def arrived(self) -> None:
        """Return when `take` may have something: something was put, or the next key is due."""
        if self._ready:
            return
        self._changed.clear()
        wait = self._heap[0][0] - self._now() if self._heap else None
        try:
            async with asyncio.timeout(None if wait is None else max(wait, 0)):
                await self._changed.wait()
        except TimeoutError:
            pass


async def work(queue: KeyedQueue[K], handle: Callable[[K], Awaitable[Again]], workers: int) -> None:
    """Handle keys with so many workers at once, until cancelled. `handle` must not raise."""

    async def worker() -> None:
        while True:
            while (key := queue.take()) is None:
                await queue.arrived()
            again = Again(retry=True)
            try:
                again = await handle(key)
            finally:
                queue.done(key, again)

    async with asyncio.TaskGroup() as group:
        for _ in range(workers):
            group.create_task(worker())
