"""A run in memory that has sealed, merged, written bases and blobs, and objects of it to damage."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable

from milepost import Call, Run, tool
from milepost.api.names import StoreKeys
from milepost.api.summary import NameRecord
from milepost.checkpoint.base import base_key
from milepost.checkpoint.head import Head
from milepost.checkpoint.history import HeadAt, read_head
from milepost.checkpoint.memory import MemoryStore
from milepost.checkpoint.runs import NameSeen, Runs
from milepost.checkpoint.sealed import segment_key
from milepost.checkpoint.store import Found, Store
from tests.support.histories import KEYS
from tests.support.sessions import RunInMemory, now

STEPS = 180
BLOB_STEP = 5


@tool(effect="keyed")
async def send(call: Call, number: int) -> str:
    """Return the key, which is all that is sent."""
    SENT.append(call.key)
    return f"{call.key} {number}"


SENT: list[str] = []
"""The keys that `send` was called with, in order."""


def agent(steps: int = STEPS, *, ran: list[str] | None = None) -> Callable[[Run], Awaitable[int]]:
    """Return an agent's code of so many steps; the names of those that run are added to `ran`."""
    done = ran if ran is not None else []

    def work(number: int) -> str:
        done.append(f"step-{number}")
        return chr(ord("a") + number % 26) * (20_000 if number == BLOB_STEP else 5000)

    async def code(run: Run) -> int:
        for number in range(steps):
            await run.step(f"step-{number}", work, number, summary=f"worked on {number}")
            if number % 50 == 0:
                await run.step(f"send-{number}", send, number)
        return steps

    return code


async def a_long_run(steps: int = STEPS) -> RunInMemory:
    """Return a run of which the second attempt is at work, with a name."""
    run = RunInMemory()
    await run.go_on(agent(steps // 2))
    await run.go_on(agent(steps))
    give_name(run.store)
    return run


def give_name(store: Store, keys: StoreKeys = KEYS, name: str = "triage") -> None:
    """Let a name stand for the run."""
    record = NameRecord(name, keys.run_id, "uid-1", "spec-1")
    assert runs_of(store)._write_name(keys.namespace, record, etag="") is None


def runs_of(store: Store) -> Runs:
    return Runs(store, now, os.urandom)


def name_of(store: Store, name: str = "triage") -> NameSeen:
    seen = runs_of(store).look_up("team", name)
    assert seen is not None
    return seen


def head_of(store: Store, keys: StoreKeys = KEYS) -> Head:
    at = read_head(store, keys)
    assert isinstance(at, HeadAt)
    return at.head


def segments_of(store: Store) -> list[str]:
    """Return the keys of the segments that the head names, oldest first."""
    head = head_of(store)
    return [segment_key(KEYS, segment) for segment in head.segments]


def bases_of(store: Store) -> list[str]:
    """Return the keys of the bases that the head names, oldest first."""
    head = head_of(store)
    return [base_key(KEYS, base) for base in head.bases]


def prune(store: Store) -> None:
    """Delete what no head names any more, as the sweep does."""
    kept = {KEYS.head, *segments_of(store), *bases_of(store)}
    for listed in list(store.list(KEYS.run)):
        if listed.key not in kept and "/blobs/" not in listed.key:
            store.delete(listed.key)


def copy_of(store: Store) -> MemoryStore:
    """Return another store with the same objects."""
    other = MemoryStore()
    for key, body in contents(store).items():
        other.put_new(key, body, {})
    return other


def contents(store: Store, prefix: str = "") -> dict[str, bytes]:
    return {listed.key: body_of(store, listed.key) for listed in store.list(prefix)}


def body_of(store: Store, key: str) -> bytes:
    found = store.get(key)
    assert isinstance(found, Found)
    return found.body


def overwrite(store: Store, key: str, body: bytes) -> None:
    """Put other bytes in an object's place, as an administrator or a disk may."""
    store.delete(key)
    store.put_new(key, body, {})


def flip(store: Store, key: str, at: int | None = None) -> None:
    """Flip one bit of an object, in the middle where it is not said."""
    body = bytearray(body_of(store, key))
    body[len(body) // 2 if at is None else at] ^= 1
    overwrite(store, key, bytes(body))
