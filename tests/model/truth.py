"""What must hold in every state: the invariants, read off the bucket by the product's own readers.

A run's log is read whole in every state, as a resume reads it, and compared with what it was one move
before. So no ghost of what was acknowledged is needed: what is in the log when it is acknowledged is in all
later logs, since each log begins with the one before.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

from milepost.api.names import StoreKeys
from milepost.api.resource import Phase
from milepost.api.summary import NameState
from milepost.checkpoint.base import base_key
from milepost.checkpoint.fold import State
from milepost.checkpoint.head import Head
from milepost.checkpoint.history import load, read_records
from milepost.checkpoint.memory import MemoryStore
from milepost.checkpoint.records import Event, StepCompleted
from milepost.checkpoint.sealed import segment_key
from milepost.errors import MilepostError
from tests.model.decided import found_wrong, labelled
from tests.model.passes import RESOURCE, Resource
from tests.model.tables import Tables
from tests.model.world import Objects, World, bodies_of

__all__ = ["Log", "Truth", "keys_of"]

_END = frozenset({Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELLED})


@dataclass(frozen=True)
class Log:
    """A run as it is stored.

    `lines` are its records' digests; `steps` says of each recorded step in which epoch, and what the receiver
    had answered: of one that was declared to stand no more under a name of its own, `step~1`. `blobs` are the
    keys of its results' blobs, `state` the number of its state, `events` all that is recorded, in order.
    """

    head: Head
    lines: tuple[str, ...]
    steps: dict[str, tuple[int, str]]
    blobs: tuple[str, ...]
    state: int
    events: tuple[Event, ...] = ()


def keys_of(head_key: str) -> StoreKeys:
    """Return the keys of the run whose head this is."""
    namespace, _, run, _ = head_key.split("/")
    return StoreKeys(namespace, run)


class Truth:
    """The invariants of one scenario.

    `damaging`: something in it damages objects. `halts` are the reasons for which a run of it may halt.
    `ends_well`: nothing in it ends a run but its agent, which returns.
    """

    def __init__(
        self,
        tables: Tables,
        *,
        damaging: bool = False,
        halts: frozenset[str] = frozenset(),
        ends_well: bool = False,
    ) -> None:
        self._tables = tables
        self._damaging = damaging
        self._halts = halts
        self._ends_well = ends_well
        self._said: dict[Any, str] = {}
        self._logs: dict[Any, Log | str] = {}
        self._compared: dict[tuple[Objects, Objects], str] = {}

    def log(self, objects: Objects, head_key: str) -> Log | str | None:
        """Return the run's log; what is wrong with it; None if there is no head, or no log any more."""
        bucket = bodies_of(objects)
        if head_key not in bucket:
            return None
        try:
            head = self._tables.head(bucket[head_key])
        except MilepostError as error:
            return f"I1: {error}"
        if head.phase is Phase.DELETING:
            return None
        named = [segment_key(head.keys, each) for each in head.segments]
        named += [base_key(head.keys, each) for each in head.bases]
        known = (bucket[head_key], tuple(bucket.get(key) for key in named))
        if known not in self._logs:
            self._logs[known] = self._read(bucket, head, named)
        return self._logs[known]

    def wrong(self, world: World) -> str:
        """Return which invariant does not hold of a world, or nothing."""
        if world.wrong:
            return world.wrong
        for key, body in world.objects:
            wrong = ""
            if "/names/" in key:
                wrong = self._name_leads(world, key, body)
            elif key.endswith("/head"):
                wrong = self._run_holds(world, key)
            if wrong:
                return wrong
        return ""

    def _run_holds(self, world: World, key: str) -> str:
        """The log is whole, nothing it names is gone, and what it says of effects is what took place."""
        if key in world.gone:
            return f"a deleted run came back: {key}"
        log = self.log(world.objects, key)
        if not isinstance(log, Log):
            return log or ""
        halted = log.head.phase is Phase.HALTED and log.head.reason not in self._halts
        if halted and not self._damaging:
            return f"I4: the run halted though nothing was damaged: {log.head.message}"
        if self._ends_well and log.head.phase in (Phase.FAILED, Phase.CANCELLED):
            return f"the run has ended as {log.head.phase}: {log.head.message}"
        if missing := set(log.blobs) - bodies_of(world.objects).keys():
            return f"I4: a record names {min(missing)}, and it is not there"
        for effect in world.effects:
            said = log.steps.get(effect.step, (0, effect.answer))[1]
            if effect.key.startswith(log.head.key_root) and said != effect.answer:
                return f"I3: step {effect.step} is recorded with {said}, its receiver said {effect.answer}"
        return self._superseded_in_force(world, log.head) or self._said_once(world, log)

    def _said_once(self, world: World, log: Log) -> str:
        """What was decided is what lies in the inbox, and what was done is what was decided."""
        there = tuple(item for item in world.objects if item[0].startswith(log.head.keys.inbox))
        known = (dict(world.objects)[log.head.keys.head], there, world.effects, world.made)
        if known not in self._said:
            answers = {key: self._tables.bodies.thing(body) for key, body in there}
            self._said[known] = found_wrong(log.events, log.head, answers, world.effects, world.made)
        return self._said[known]

    def _name_leads(self, world: World, key: str, body: int) -> str:
        """A name that is kept leads to a head."""
        record = json.loads(self._tables.bodies.thing(body))
        head = self._tables.keys(record["run_id"]).head
        if record["state"] == NameState.KEPT and head not in dict(world.objects):
            return f"D1: {key} leads to run {record['run_id'][:4]}, which has no head"
        return ""

    def _superseded_in_force(self, world: World, head: Head) -> str:
        """Nobody ends the run of the resource that is there as if it had been replaced."""
        found = dict(world.objects).get(RESOURCE)
        if found is None or head.reason != "Superseded":
            return ""
        if Resource(*json.loads(self._tables.bodies.thing(found))).uid == head.resource_uid:
            return f"F-C5: run {head.run_id[:4]} was superseded, and its resource is the one that is there"
        return ""

    def between(self, before: Objects, after: Objects) -> str:
        """Return what is wrong with what a move did to the bucket, or nothing."""
        if before == after:
            return ""
        if (before, after) not in self._compared:
            self._compared[before, after] = self._compare(before, after)
        return self._compared[before, after]

    def _compare(self, before: Objects, after: Objects) -> str:
        new = bodies_of(after)
        for key, body in before:
            if new.get(key) == body:
                continue
            if "/inbox/" in key and (wrong := self._inbox_lost(key, new)):
                return wrong
            if not key.endswith("/head"):
                continue
            old = self._tables.head(body)
            if key not in new:
                if old.phase is not Phase.DELETING:
                    return "I4: the head of a run that is not being deleted was deleted"
                continue
            if wrong := self._succeeds(old, self._tables.head(new[key]), before, after, key):
                return wrong
        return ""

    def _inbox_lost(self, key: str, new: dict[str, int]) -> str:
        """An answer stays as it was given, as long as its run has not ended."""
        namespace, _, run, _ = key.split("/")
        head = new.get(StoreKeys(namespace, run).head)
        if key in new:
            return f"I9: the answer {key} was replaced"
        if head is not None and not self._tables.head(head).phase.terminal:
            return f"I9: the answer {key} was deleted, and its run is under way"
        return ""

    def _succeeds(self, old: Head, new: Head, before: Objects, after: Objects, key: str) -> str:
        if old.phase is Phase.DELETING:
            return "I6: a run that was being deleted goes on"
        if new.phase is Phase.DELETING:
            return "" if new.epoch > old.epoch else "I6: deleting did not take the run from its writer"
        if old.phase in _END:
            return f"I6: a run that had ended as {old.phase} went on"
        if (new.epoch, new.seq, new.attempt) < (old.epoch, old.seq, old.attempt) or new.attempt < old.attempt:
            return f"I6: epoch, record or attempt fell from {old.epoch, old.seq, old.attempt}"
        first, second = self.log(before, key), self.log(after, key)
        if not isinstance(first, Log) or not isinstance(second, Log):
            return second if isinstance(second, str) else ""
        if second.lines[: len(first.lines)] != first.lines:
            return f"I1, I4: record {old.seq} was replaced"
        return ""

    def _read(self, bucket: dict[str, int], head: Head, named: list[str]) -> Log | str:
        store = MemoryStore(clock=lambda: 0.0)
        for key in (head.keys.head, *named):
            if key in bucket:
                store.put_new(key, self._tables.bodies.thing(bucket[key]), {})
        try:
            state = load(store, head)
            whole = load(store, replace(head, bases=()))
        except MilepostError as error:
            return f"I1, I4: {error}"
        if state != whole:
            return "I12: what the base says and what the records say differ"
        if not self._damaging and any(base_key(head.keys, each) not in bucket for each in head.bases):
            return "C5: a base that the head names is gone"
        lines: list[str] = []
        steps: dict[str, tuple[int, str]] = {}
        blobs: list[str] = []
        events: list[Event] = []
        folded = State()
        for _, records in read_records(store, head):
            for record, digest in records:
                lines.append(digest)
                folded.apply(record, digest, head.keys.head)
                events += record.events
                for event in record.events:
                    if isinstance(event, StepCompleted):
                        label = labelled(event.step.id, folded.generations)
                        steps[label] = (record.epoch, event.summary or str(event.result.inline))
                        blobs += [head.keys.blob(event.result.blob)] if event.result.blob else []
        number = self._tables.states.number(state)
        return Log(head, tuple(lines), steps, tuple(blobs), number, tuple(events))
