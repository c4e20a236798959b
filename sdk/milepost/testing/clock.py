"""A clock for tests: it stands still until somebody moves it, so that days pass in no time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

__all__ = ["START", "Clock"]

START: Final = datetime(2024, 1, 1, 12, tzinfo=UTC)
"""The time at which a clock stands that is told nothing else."""


class Clock:
    """A clock that stands still. Calling it gives the time, in UTC, as Milepost's own clocks do."""

    def __init__(self, start: datetime = START) -> None:
        """Stand at `start`, which names its zone; raises ValueError where it does not."""
        if start.tzinfo is None:
            raise ValueError(f"{start} names no zone; a clock without one stands nowhere")
        self._now = start.astimezone(UTC)

    def __call__(self) -> datetime:
        """Return the time."""
        return self._now

    def advance(self, by: timedelta | float) -> None:
        """Let time pass: a timedelta, or seconds. Raises ValueError for what would turn it back."""
        step = by if isinstance(by, timedelta) else timedelta(seconds=by)
        if step < timedelta(0):
            raise ValueError(f"a clock does not go back, here by {-step}")
        self._now += step

    def advance_to(self, when: datetime) -> None:
        """Let time pass until `when`; where that is over already, nothing happens."""
        self._now = max(self._now, when.astimezone(UTC))
