"""Tells when nothing of a run is under way any more but what waits at gates.

What is under way is what the engine knows of: steps, the pauses between their tries, reads and writes of the
store. Of what the author's code does beside that nothing is known, so some time has to pass in which nothing
of it begins. That time comes in slices: where the code holds the event loop for long, only one of them has
passed by that. Callbacks and no task: the author's code may cancel every task that it finds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["Stillness"]

_SLICES: Final = 4


class Stillness:
    """Counts what is frozen and what is under way. `linger` is in seconds.

    `on_still` is called once, in the turn of the loop in which it is known, so that nothing begins between.
    """

    def __init__(self, linger: float, on_still: Callable[[], None]) -> None:
        self._linger = linger
        self._on_still = on_still
        self._frozen = 0
        self._under_way = 0
        self._begun = 0
        self._timer: asyncio.TimerHandle | None = None
        self._let_go: list[Callable[[], bool]] = []

    def begin(self) -> None:
        """Count something as going on until as many have ended."""
        self._under_way += 1
        self._begun += 1

    def end(self) -> None:
        """Count one less as going on."""
        self._under_way -= 1
        self._watch()

    @contextmanager
    def under_way(self) -> Iterator[None]:
        """Count something as going on meanwhile."""
        self.begin()
        try:
            yield
        finally:
            self.end()

    @contextmanager
    def frozen(self, let_go: Callable[[], bool]) -> Iterator[None]:
        """Count something as waiting at a gate.

        `let_go` is called where all else is still, and says whether something can begin by what it lets go.
        """
        self._frozen += 1
        self._let_go.append(let_go)
        self._watch()
        try:
            yield
        finally:
            self._frozen -= 1
            self._let_go.remove(let_go)

    def _watch(self) -> None:
        if self._timer is None and self._frozen and not self._under_way:
            self._wait(_SLICES)

    def _wait(self, slices: int) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._linger / _SLICES, self._look, slices - 1, self._begun)

    def _look(self, slices: int, begun: int) -> None:
        self._timer = None
        if not self._frozen or self._under_way:
            return
        if begun != self._begun:
            self._wait(_SLICES)
        elif slices:
            self._wait(slices)
        elif self._something_begins():
            self._wait(_SLICES)
        else:
            self._on_still()

    def _something_begins(self) -> bool:
        begins = False
        for let_go in list(self._let_go):
            begins |= let_go()
        return begins
