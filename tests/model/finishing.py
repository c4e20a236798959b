"""What must be possible: from wherever everybody has stopped, somebody fresh ends the run.

A state is quiet where nobody is in the middle of anything. There a pod of a new attempt is started in a world
without faults, or, where all pods are lost, an operator that makes one. It must record every step and a
successful end, without an effect taking place twice.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Protocol

from milepost.api.resource import Phase
from milepost.api.summary import NameState
from tests.model.executors import At, Executor, Plan
from tests.model.operators import Operator, Pod
from tests.model.passes import PODS, RESOURCE
from tests.model.replay import Replayer
from tests.model.tables import Tables
from tests.model.truth import Log, Truth
from tests.model.world import Applied, Objects, Process, World, Worlds

__all__ = ["Finisher", "FreshOperator", "FreshPod"]

_FRESH = 99
_PASSES = 8
_ENOUGH = 300
"""Moves within which a run of the model has ended, or never does."""


class Finisher(Protocol):
    """Ends runs from quiet states."""

    def wrong(self, world: World) -> str:
        """Return why the run cannot be ended from a quiet state; nothing if it can, or somebody is busy."""
        ...


class FreshPod:
    """Starts a pod of a new attempt in quiet states, once for each that looks the same to it."""

    def __init__(self, tables: Tables, truth: Truth, plan: Plan, run: str) -> None:
        self._plan = plan
        self._key = tables.keys(run).head
        self._actor = Executor.born(run, _FRESH)
        executor = Executor("the fresh pod", tables, truth, plan)
        self._ends = _Ends(Worlds((executor,), Replayer(tables), say=tables.say), truth)

    def wrong(self, world: World) -> str:
        if _busy(world):
            return ""
        start = World(world.objects, (self._actor,), effects=world.effects)
        return self._ends.wrong(start, lambda after: self._judge(after.objects))

    def _judge(self, objects: Objects) -> str:
        log = self._ends.truth.log(objects, self._key)
        if not isinstance(log, Log):
            return ""
        wanted = {step for group in self._plan.groups for step in group}
        if log.head.phase is not Phase.SUCCEEDED or not wanted <= log.steps.keys():
            return f"a fresh pod leaves the run {log.head.phase}, with {sorted(log.steps)} recorded"
        return ""


class FreshOperator:
    """Loses all pods in quiet states, and starts an operator that makes another."""

    def __init__(self, tables: Tables, truth: Truth, plan: Plan) -> None:
        self._tables = tables
        programs = (Operator("the fresh operator"), Pod("the fresh pod", tables, truth, plan))
        self._actors = (Process(_PASSES), Executor.born("", 0))
        self._ends = _Ends(Worlds(programs, Replayer(tables), say=tables.say, deletes=True), truth)

    def wrong(self, world: World) -> str:
        bucket = dict(world.objects)
        if RESOURCE not in bucket or _busy(world):
            return ""
        objects = tuple(item for item in world.objects if not item[0].startswith(PODS))
        return self._ends.wrong(World(objects, self._actors, effects=world.effects), self._judge)

    def _judge(self, after: World) -> str:
        bucket = dict(after.objects)
        names = [key for key in bucket if "/names/" in key]
        if not names:
            return "a fresh operator begins no run"
        record = json.loads(self._tables.bodies.thing(bucket[names[0]]))
        if record["state"] == NameState.EXPIRED:
            # All that is left to do is to report how it ended.
            return "" if record["outcome"] else "the name of a run that expired does not say how it ended"
        log = self._ends.truth.log(after.objects, self._tables.keys(record["run_id"]).head)
        phase = log.head.phase if isinstance(log, Log) else "Deleting"
        return "" if phase == Phase.SUCCEEDED else f"a fresh operator leaves the run {phase}"


class _Ends:
    """Goes on in a world by always taking the first move, once for each that looks the same."""

    def __init__(self, worlds: Worlds, truth: Truth) -> None:
        self.truth = truth
        self._worlds = worlds
        self._known: dict[tuple[Objects, tuple[Applied, ...]], str] = {}

    def wrong(self, start: World, judge: Callable[[World], str]) -> str:
        seen = (start.objects, start.effects)
        if seen not in self._known:
            self._known[seen] = self._try(start, judge)
        return self._known[seen]

    def _try(self, world: World, judge: Callable[[World], str]) -> str:
        for _ in range(_ENOUGH):
            following = next(iter(self._worlds.moves(world)), None)
            if following is None:
                return judge(world)
            before, (_, world) = world, following
            if wrong := self.truth.between(before.objects, world.objects) or self.truth.wrong(world):
                return f"somebody fresh goes on, and then: {wrong}"
        return "somebody fresh goes on, and never comes to an end"


def _busy(world: World) -> bool:
    """Tell whether anybody is in the middle of something."""
    places = (actor.place for actor in world.actors if isinstance(actor.place, At))
    return any(actor.doing for actor in world.actors) or any(at.stage not in ("new", "gone") for at in places)
