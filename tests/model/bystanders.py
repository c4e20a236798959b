"""Who is around a run and is not its writer: a reader, a sweeper, and whatever damages a base."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from milepost.checkpoint.base import base_key
from tests.model.activities import Reading, Sweeping
from tests.model.replay import Raised
from tests.model.tables import Tables
from tests.model.truth import Log, Truth
from tests.model.world import Call, Move, Process, World, Worlds

__all__ = ["Damager", "Reader", "Sweep"]


class Reader:
    """Reads the whole history so many times, while others write, merge and delete. `place` counts down."""

    def __init__(self, tables: Tables, truth: Truth, run: str) -> None:
        self.name = "the reader"
        self._tables = tables
        self._truth = truth
        self._run = run

    def moves(self, worlds: Worlds, world: World, me: int) -> Iterator[Move]:
        process = world.actors[me]
        if process.doing is None and process.place:
            yield f"{self.name} begins", worlds.begin(world, me, Reading(self._run), process.place - 1)

    def returned(self, worlds: Worlds, world: World, me: int, value: Any) -> World:
        after = worlds.settle(world, me, world.actors[me].place)
        key = self._tables.keys(self._run).head
        log = self._truth.log(world.objects, key)
        if value == -1 or not isinstance(log, Log):
            return after
        state = self._tables.states.thing(value)
        if log.lines[state.seq - 1 : state.seq] != (state.digest,):
            return after._replace(wrong=f"I1: a reader saw a record {state.seq} that is not in the log")
        return after

    def raised(self, worlds: Worlds, world: World, me: int, error: Raised) -> World:
        after = worlds.settle(world, me, world.actors[me].place)
        key = self._tables.keys(self._run).head
        # While a run is being deleted its parts go first: what is missing then is no damage.
        if error.name == "Missing" and not isinstance(self._truth.log(world.objects, key), Log):
            return after
        return after._replace(
            wrong=f"a reader was told of damage that is none: {error.name}: {error.message}"
        )

    def crashed(self, process: Process) -> tuple[Process, tuple[Call, ...]] | None:  # noqa: ARG002
        return None


class Sweep:
    """Sweeps the store so many times. Its clock shows `age` seconds since everything was written."""

    def __init__(self, name: str, age: float) -> None:
        self.name = name
        self._age = age

    def moves(self, worlds: Worlds, world: World, me: int) -> Iterator[Move]:
        process = world.actors[me]
        if process.doing is None and process.place:
            sweeping = Sweeping(self._age, f"{self.name}/{process.lives}/{process.place}")
            yield f"{self.name} begins", worlds.begin(world, me, sweeping, process.place - 1)

    def returned(self, worlds: Worlds, world: World, me: int, value: Any) -> World:  # noqa: ARG002
        return worlds.settle(world, me, world.actors[me].place)

    def raised(self, worlds: Worlds, world: World, me: int, error: Raised) -> World:
        after = worlds.settle(world, me, world.actors[me].place)
        return after._replace(wrong=f"{self.name} ended with {error.name}: {error.message}")

    def crashed(self, process: Process) -> tuple[Process, tuple[Call, ...]] | None:
        """Return the sweeper after it died and came back, with the sweeps it has left."""
        return (Process(process.place, lives=process.lives + 1), ()) if process.doing else None


class Damager:
    """Destroys or changes bases that the head names, `place` of them."""

    def __init__(self, tables: Tables, run: str) -> None:
        self.name = "damage"
        self._tables = tables
        self._run = run

    def moves(self, worlds: Worlds, world: World, me: int) -> Iterator[Move]:
        left: int = world.actors[me].place
        bucket = dict(world.objects)
        head = bucket.get(self._tables.keys(self._run).head)
        if not left or head is None:
            return
        settled = worlds.settle(world, me, left - 1)
        for named in self._tables.head(head).bases:
            key = base_key(self._tables.keys(self._run), named)
            if key not in bucket:
                continue
            rest = {each: body for each, body in bucket.items() if each != key}
            yield f"base {named.seq} is lost", settled._replace(objects=tuple(sorted(rest.items())))
            raw: bytes = self._tables.bodies.thing(bucket[key])
            if (changed := _without_a_step(raw)) != raw:
                rest[key] = self._tables.bodies.number(changed)
                yield f"base {named.seq} loses a step", settled._replace(objects=tuple(sorted(rest.items())))

    def returned(self, worlds: Worlds, world: World, me: int, value: Any) -> World:  # noqa: ARG002
        return world

    def raised(self, worlds: Worlds, world: World, me: int, error: Raised) -> World:  # noqa: ARG002
        return world

    def crashed(self, process: Process) -> tuple[Process, tuple[Call, ...]] | None:  # noqa: ARG002
        return None


def _without_a_step(base: bytes) -> bytes:
    """Return a base that reads well and does not know of the last completed step."""
    before, mark, after = base.partition(b'"completed":[')
    steps, end, rest = after.partition(b"]]")
    first, _, _ = steps.rpartition(b",[")
    return before + mark + first + end[1 if first else 0 :] + rest if steps else base
