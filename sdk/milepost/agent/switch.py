"""The process's switch: which steps are in flight, and that none starts any more once it was stopped.

Whoever asks to start one then is left waiting for ever. Unwinding the author's code would run its `finally`
blocks for a run that is going on elsewhere.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager, suppress
from contextvars import ContextVar, Token
from typing import Final, NoReturn

from typing_extensions import override

from milepost.agent.stillness import Stillness

__all__ = ["HALT_PATIENCE", "Switch"]

HALT_PATIENCE: Final = 30.0
"""Seconds that steps in flight have to end when the run halts."""


class Switch:
    """Counts a process's steps in flight, each of which is under way as `stillness` counts it."""

    def __init__(self, stillness: Stillness) -> None:
        self.stopping = False
        self._stillness = stillness
        self._in_flight: set[_InFlight] = set()
        self._halting: set[_InFlight | None] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._landed = asyncio.Event()
        # Nothing else holds on to what waits for ever, and what is collected is unwound.
        self._left: list[asyncio.Future[None]] = []

    @property
    def in_flight(self) -> int:
        """How many steps are running."""
        return len(self._in_flight)

    def step(self) -> AbstractContextManager[None]:
        """Count a step as running, from its start until its record is durable."""
        return _InFlight(self)

    def stop(self) -> None:
        """Start no step from now on."""
        self.stopping = True

    async def pass_through(self) -> None:
        """Return if the agent's code may go on; never return once the process is stopping."""
        if self.stopping:
            await self.leave()

    async def leave(self) -> NoReturn:
        """Never return."""
        self._left.append(asyncio.get_running_loop().create_future())
        await self._left[-1]
        raise AssertionError("nobody says that it is over")

    async def idle(self) -> None:
        """Return once no step is in flight."""
        await self._idle.wait()

    async def let_others_end(self) -> None:
        """Stop, and return once all in flight have ended but those that wait here, too; or after a while."""
        self.stop()
        self._halting.add(_current.get())
        with suppress(TimeoutError):
            async with asyncio.timeout(HALT_PATIENCE):
                while self._in_flight - self._halting:
                    self._landed.clear()
                    await self._landed.wait()

    def _began(self, step: _InFlight) -> None:
        self._in_flight.add(step)
        self._idle.clear()
        self._stillness.begin()

    def _ended(self, step: _InFlight) -> None:
        self._stillness.end()
        self._in_flight.discard(step)
        self._landed.set()
        if not self._in_flight:
            self._idle.set()


class _InFlight(AbstractContextManager[None]):
    """A running step. No generator, which costs as much as a tenth of a small step."""

    def __init__(self, switch: Switch) -> None:
        self._switch = switch

    @override
    def __enter__(self) -> None:
        self._switch._began(self)  # noqa: SLF001  (its other half)
        self._mark: Token[_InFlight | None] = _current.set(self)

    @override
    def __exit__(self, *_: object) -> None:
        _current.reset(self._mark)
        self._switch._ended(self)  # noqa: SLF001  (its other half)


# The running step: tasks that it has made are parts of it.
_current: Final[ContextVar[_InFlight | None]] = ContextVar("milepost_in_flight", default=None)
