"""Operators beside each other, the user who changes what they work on, and the pods that they make."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from typing_extensions import override

from milepost.checkpoint.store import Store
from tests.model.executors import At, Executor
from tests.model.passes import PODS, RESOURCE, Resource
from tests.model.replay import Draws, Raised
from tests.model.tables import Tables
from tests.model.world import Call, Move, Objects, Process, World, Worlds

__all__ = ["Operator", "Pod", "User", "applied"]


def applied(tables: Tables, objects: Objects, resource: Resource | None) -> Objects:
    """Return the bucket with this resource, and no other, or with none."""
    bucket = dict(objects)
    bucket.pop(RESOURCE, None)
    if resource is not None:
        bucket[RESOURCE] = tables.bodies.number(json.dumps(resource).encode())
    return tuple(sorted(bucket.items()))


class Passing(NamedTuple):
    """One pass. Its result is what was done, in words."""

    seed: str

    def run_it(self, store: Store, tables: Tables) -> str:
        return tables.code.one_pass(store, Draws(self.seed))


class Operator:
    """An operator that makes so many passes; `place` counts down. It may die in any of them."""

    def __init__(self, name: str) -> None:
        self.name = name

    def moves(self, worlds: Worlds, world: World, me: int) -> Iterator[Move]:
        process = world.actors[me]
        if process.doing is None and process.place:
            passing = Passing(f"{self.name}/{process.lives}/{process.place}")
            yield f"{self.name} begins a pass", worlds.begin(world, me, passing, process.place - 1)

    def returned(self, worlds: Worlds, world: World, me: int, value: Any) -> World:  # noqa: ARG002
        return worlds.settle(world, me, world.actors[me].place)

    def raised(self, worlds: Worlds, world: World, me: int, error: Raised) -> World:
        after = worlds.settle(world, me, world.actors[me].place)
        # A run may be deleted between two reads of a pass. That a name leads nowhere is looked for elsewhere.
        expected = error.name in ("RunDeleted", "Missing")
        return after._replace(
            wrong="" if expected else f"{self.name} ended with {error.name}: {error.message}"
        )

    def crashed(self, process: Process) -> tuple[Process, tuple[Call, ...]] | None:
        return (Process(process.place, lives=process.lives + 1), ()) if process.doing else None


class User:
    """Deletes the resource and applies it anew, as the next of `versions`; `place` counts what is left."""

    def __init__(self, tables: Tables, versions: tuple[Resource | None, ...]) -> None:
        self.name = "the user"
        self._tables = tables
        self._versions = versions

    def moves(self, worlds: Worlds, world: World, me: int) -> Iterator[Move]:
        left: int = world.actors[me].place
        if left:
            version = self._versions[-left]
            objects = applied(self._tables, world.objects, version)
            said = (
                f"the user applies {version.uid} with work {version.work}"
                if version
                else "the user deletes it"
            )
            yield said, worlds.settle(world, me, left - 1)._replace(objects=objects)

    def returned(self, worlds: Worlds, world: World, me: int, value: Any) -> World:  # noqa: ARG002
        return world

    def raised(self, worlds: Worlds, world: World, me: int, error: Raised) -> World:  # noqa: ARG002
        return world

    def crashed(self, process: Process) -> tuple[Process, tuple[Call, ...]] | None:  # noqa: ARG002
        return None


class Pod(Executor):
    """An executor without a run, until it takes up a pod that an operator made. A killed pod may live on."""

    @override
    def moves(self, worlds: Worlds, world: World, me: int) -> Iterator[Move]:
        at: At = world.actors[me].place
        if at.run:
            yield from super().moves(worlds, world, me)
            return
        for key in _untaken(world):
            _, run, _, attempt = key.split("/")
            placed = worlds.settle(world, me, At("new", run, int(attempt), pod=key))
            yield f"{self.name} is the pod of attempt {attempt} of run {run[:4]}", placed


def _untaken(world: World) -> list[str]:
    taken = {actor.place.pod for actor in world.actors if isinstance(actor.place, At)}
    return [key for key, _ in world.objects if key.startswith(PODS) and key not in taken]
