"""Histories that a scenario begins with, made by the product's code on a store in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from milepost.checkpoint.archive import Archive
from milepost.checkpoint.base import make_base
from milepost.checkpoint.claim import claim
from milepost.checkpoint.head import draft
from milepost.checkpoint.history import HeadAt, load
from milepost.checkpoint.memory import MemoryStore
from milepost.checkpoint.store import Found
from tests.model.passes import one_pass
from tests.model.replay import PATIENT, Draws
from tests.model.tables import Tables
from tests.model.world import Objects
from tests.support.histories import NOON, a_claim, a_new_head, a_step

__all__ = ["FAT", "begun", "grown", "named"]

FAT = 16_000
"""Characters of a result of which two do not fit one tail: from the second on, each seals the one before."""


def begun(tables: Tables, run: str, **start: Any) -> Objects:
    """Return a run that nobody has claimed; `start` is what it was asked for, where that is not the dull."""
    head = a_new_head(entropy=Draws(f"begin {run}"), keys=tables.keys(run), **start)
    return ((head.keys.head, tables.bodies.number(head.body())),)


def grown(tables: Tables, run: str, steps: int, *, bases: tuple[int, ...] = ()) -> Objects:
    """Return a run of attempt 1 with so many fat steps, `p1` and on; a base before each step in `bases`."""
    store, keys, entropy = MemoryStore(clock=lambda: 0.0), tables.keys(run), Draws(f"past of {run}")
    first = a_new_head(entropy=entropy, keys=keys)
    store.put_new(keys.head, first.body(), {})
    at = claim(store, keys, a_claim(1, writer="past"), at=NOON, entropy=entropy, patience=PATIENT)
    assert isinstance(at, HeadAt)
    state = load(store, at.head)
    for number in range(1, steps + 1):
        event = a_step(f"p{number}", f"p{number}".ljust(FAT, "."))
        planned = draft(at.head, (event,), at=NOON, entropy=entropy)
        archive = Archive(store, keys)
        merged = [(named, archive.segment(named)) for named in planned.merging]
        base = make_base(state, keys, planned.head.nonce) if number in bases else None
        commit = planned.commit(merged, base)
        for key, body in commit.objects:
            store.put_new(key, body, {})
        for named in planned.merging:
            store.delete(keys.segment(named.epoch, named.first, named.last, named.nonce))
        at = _replaced(store, replace(at, head=commit.head))
        state.apply(commit.record, commit.head.chain, keys.head)
    return stored(tables, store)


def named(tables: Tables, objects: Objects) -> Objects:
    """Return the bucket after an operator's two passes without a fault: a run that is named, and its pod."""
    store, entropy = MemoryStore(clock=lambda: 0.0), Draws("the operator before")
    for key, body in objects:
        store.put_new(key, tables.bodies.thing(body), {})
    assert [one_pass(store, entropy, again=True) for _ in range(2)] == ["StartRun", "CreatePod"]
    return stored(tables, store)


def _replaced(store: MemoryStore, at: HeadAt) -> HeadAt:
    store.delete(at.head.keys.head)
    store.put_new(at.head.keys.head, at.head.body(), {})
    return at


def stored(tables: Tables, store: MemoryStore) -> Objects:
    """Return what is in a store as a bucket of the model."""
    objects: list[tuple[str, int]] = []
    for listed in store.list(""):
        found = store.get(listed.key)
        assert isinstance(found, Found)
        objects.append((listed.key, tables.bodies.number(found.body)))
    return tuple(sorted(objects))
