"""Pods that live a whole executor's life, one attempt each, on one run.

A pod is made once the one before it has begun, whatever has become of that. Of one that has ended the next
one is told so; of one that may be asleep it is not. A pod that dies does not come back: the next one is
another attempt.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from milepost.api.exits import Exit
from tests.model.replay import Raised
from tests.model.sessions import Living
from tests.model.world import Call, Move, Process, World, Worlds

__all__ = ["Life", "LivingPod"]

_QUIETLY = frozenset({int(Exit.COMMITTED), int(Exit.FENCED), int(Exit.RELEASED)})


class Life(NamedTuple):
    """Where a pod is: `new`, `alive` or `gone`; `reason` is why it has ended, empty where it died."""

    stage: str
    attempt: int
    reason: str = ""


class LivingPod:
    """The pod of one attempt. `halts` are the reasons for which the run may halt, by what the scenario does.

    `in_turn`: it starts only where the one before has ended.
    """

    def __init__(
        self,
        name: str,
        run: str,
        attempt: int,
        agent: str,
        halts: frozenset[str] = frozenset(),
        *,
        in_turn: bool = False,
    ) -> None:
        self.name = name
        self._run = run
        self._attempt = attempt
        self._agent = agent
        self._halts = halts
        self._starts_after = ("gone",) if in_turn else ("alive", "gone")

    def born(self) -> Process:
        """Return the process before it has done anything."""
        return Process(Life("new", self._attempt))

    def moves(self, worlds: Worlds, world: World, me: int) -> Iterator[Move]:
        process = world.actors[me]
        if process.place.stage != "new":
            return
        before = self._before(world)
        if before is not None and before.stage not in self._starts_after:
            return
        living = Living(
            self._run,
            self._attempt,
            self.name,
            self._agent,
            f"{self.name}/{process.lives}",
            None if before is None else before.stage == "gone",
        )
        yield f"{self.name} starts", worlds.begin(world, me, living, process.place._replace(stage="alive"))

    def returned(self, worlds: Worlds, world: World, me: int, value: Any) -> World:
        code, reason, message = value
        after = worlds.settle(world, me, Life("gone", self._attempt, reason))
        allowed = code in _QUIETLY or (code == Exit.HALTED and reason in self._halts)
        return (
            after if allowed else after._replace(wrong=f"{self.name} ended with {code} {reason}: {message}")
        )

    def raised(self, worlds: Worlds, world: World, me: int, error: Raised) -> World:
        after = worlds.settle(world, me, Life("gone", self._attempt, error.name))
        return after._replace(wrong=f"{self.name} ended with {error.name}: {error.message}")

    def crashed(self, process: Process) -> tuple[Process, tuple[Call, ...]] | None:
        if process.place.stage != "alive":
            return None
        return Process(Life("gone", self._attempt), lives=process.lives + 1), ()

    def _before(self, world: World) -> Life | None:
        lives = (actor.place for actor in world.actors if isinstance(actor.place, Life))
        return max((life for life in lives if life.attempt < self._attempt), key=_attempt, default=None)


def _attempt(life: Life) -> int:
    return life.attempt
