"""Random faults at random requests, from a seed: what `tests.faults.scene` adds before each attempt of a run.

Faults come from every kind that a store, or the way to it, is known for; now and then the store is away for
longer than an executor waits, and now and then the executor is killed. Whatever a process says of it, the
next attempt goes on, until the run has ended.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Final

from milepost.testing.faults import Action, Delay, Drop, Fault, Flip, Reply, Truncate
from tests.faults.points import Blow, When
from tests.faults.scene import Door

__all__ = ["KINDS", "Soak"]

DEADLINE_S: Final = 1.5
"""How long an executor of a soak waits for its store: a handful of tries."""

_REQUESTS: Final = 150
_SHARE: Final = 0.15
_OUTAGES: Final = 0.015
_KILLS: Final = 0.4

KINDS: Final[Mapping[str, tuple[float, Callable[[random.Random], Action]]]] = {
    "delay": (3, lambda chance: Delay(chance.uniform(0.01, 0.2), after=chance.random() < 0.5)),
    "409": (3, lambda _: Reply(409, "ConditionalRequestConflict")),
    "412": (2, lambda _: Reply(412, "PreconditionFailed")),
    "429": (2, lambda _: Reply(429, "TooManyRequests")),
    "request timeout": (2, lambda chance: Reply(400, "RequestTimeout", after=chance.random() < 0.5)),
    "expired token": (2, lambda _: Reply(400, "ExpiredToken")),
    "500": (3, lambda chance: Reply(500, "InternalError", after=chance.random() < 0.5)),
    "503": (3, lambda chance: Reply(503, "SlowDown", after=chance.random() < 0.3)),
    "reset": (4, lambda chance: Drop(after=chance.random() < 0.5, reset=True)),
    "dropped": (4, lambda chance: Drop(after=chance.random() < 0.7)),
    "truncated": (2, lambda chance: Truncate(chance.randrange(200))),
    "truncated on its way there": (2, lambda chance: Truncate(chance.randrange(200), upload=True)),
    "flipped": (2, lambda chance: Flip(chance.randrange(2000))),
    "flipped on its way there": (2, lambda chance: Flip(chance.randrange(2000), upload=True)),
    "flipped and mended": (0.5, lambda chance: Flip(chance.randrange(2000), mended=True)),
    "clock skew": (1, lambda _: Reply(403, "RequestTimeTooSkewed")),
    "bucket missing": (0.3, lambda _: Reply(404, "NoSuchBucket")),
    "forbidden": (0.2, lambda _: Reply(403, "AccessDenied")),
}


class Soak:
    """The faults of one run. The same seed and run give the same faults at the same requests."""

    def __init__(self, seed: int, run: int) -> None:
        self._chance = random.Random(f"{seed}/{run}")  # noqa: S311  (it is to be repeatable)

    def arm(self, door: Door) -> Blow | None:
        """Add the faults of the next attempt, and return whether and where it is to be killed."""
        chance = self._chance
        weights = [weight for weight, _ in KINDS.values()]
        makers = [make for _, make in KINDS.values()]
        for nth in range(1, _REQUESTS + 1):
            if chance.random() < _OUTAGES:
                door.store.fail(Fault(Reply(503, "SlowDown"), nth=nth, times=chance.randrange(4, 12)))
            elif chance.random() < _SHARE:
                (make,) = chance.choices(makers, weights)
                door.store.fail(Fault(make(chance), nth=nth))
        if chance.random() >= _KILLS:
            return None
        return Blow(chance.randrange(1, 40), chance.choice(list(When)))
