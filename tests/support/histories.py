"""Builders of records, heads and claimed runs: each takes what its test is about, else the dull case."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Literal

from milepost.api.names import Entropy, StoreKeys
from milepost.api.resource import Phase
from milepost.checkpoint.answers import Done, Purpose, Write
from milepost.checkpoint.claim import claim
from milepost.checkpoint.head import Commit, Head, first_head, next_head
from milepost.checkpoint.history import HeadAt
from milepost.checkpoint.records import (
    Claimed,
    ErrorData,
    Event,
    Finished,
    PreviousEnd,
    Started,
    StepCompleted,
    StepFailure,
    StepPlace,
    ToolCalled,
    Value,
)
from milepost.checkpoint.sending import Patience, send
from milepost.checkpoint.store import Store
from tests.support.store_doubles import FakeTime, Numbers

KEYS = StoreKeys("team", "a" * 20)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def some_patience(*, deadline: float = 60.0, time: FakeTime | None = None) -> Patience:
    time = time or FakeTime()
    return Patience(Numbers(), deadline=deadline, monotonic=time.monotonic, pause=time.pause)


def a_start(**changes: Any) -> Started:
    dull: dict[str, Any] = {
        "namespace": "team",
        "name": "triage",
        "resource_uid": "uid-1",
        "cluster": "cluster-1",
        "key_root": "a" * 20,
        "spec_digest": "spec-1",
        "entrypoint": "triage.agent:main",
        "inputs": {"limit": 3},
    }
    return Started(**{**dull, **changes})


def an_end(attempt: int = 1, *, fault: Literal["disruption", "agent", "memory", "start"]) -> PreviousEnd:
    causes = {"disruption": "Evicted", "agent": "Crashed", "memory": "OOMKilled", "start": "ImagePull"}
    return PreviousEnd(attempt=attempt, cause=causes[fault], fault=fault)


def a_claim(attempt: int = 1, **changes: Any) -> Claimed:
    return Claimed(**{"attempt": attempt, "writer": f"pod-{attempt}", "image": "agent:1", **changes})


def a_place(name: str, ordinal: int = 0) -> StepPlace:
    return StepPlace(id=name, name=name, ordinal=ordinal)


def a_step(name: str, result: Any = "done", *, attempt: int = 1) -> StepCompleted:
    return StepCompleted(
        step=a_place(name),
        attempt=attempt,
        result=Value(inline=result, size=len(str(result))),
        result_digest=hashlib.sha256(repr(result).encode()).hexdigest(),
        started_at=NOON.isoformat(),
        ended_at=NOON.isoformat(),
    )


def a_failure(name: str, *, attempt: int = 1, final: bool = False) -> StepFailure:
    return StepFailure(
        step=a_place(name),
        attempt=attempt,
        final=final,
        error=ErrorData(kind="builtins.ValueError", message="no"),
        started_at=NOON.isoformat(),
        ended_at=NOON.isoformat(),
    )


def a_call(step: str, call: int = 1) -> ToolCalled:
    return ToolCalled(
        step=step,
        call=call,
        tool="send",
        effect="keyed",
        key=f"{'a' * 20}/{step}",
        arguments="0" * 64,
        attempt=1,
        started_at=NOON.isoformat(),
        duration_s=0.5,
    )


def an_outcome(phase: Phase = Phase.SUCCEEDED, **changes: Any) -> Finished:
    return Finished(**{"phase": phase, "reason": "Completed", **changes})


def a_new_head(*, entropy: Entropy, keys: StoreKeys = KEYS, **start: Any) -> Head:
    return first_head(
        keys,
        name="triage",
        resource_uid="uid-1",
        cluster="cluster-1",
        spec_digest="spec-1",
        key_root=keys.run_id,
        events=(a_start(**{"key_root": keys.run_id, **start}),),
        at=NOON,
        entropy=entropy,
    ).head


def after(head: Head, *events: Event, entropy: Entropy) -> Commit:
    return next_head(head, events, at=NOON, entropy=entropy)


def commits(*events: Event, entropy: Entropy | None = None) -> Iterator[Commit]:
    """Yield the commits of a run that starts and then records one event after another, without a store."""
    entropy = entropy or Numbers()
    head = a_new_head(entropy=entropy)
    for event in events:
        commit = after(head, event, entropy=entropy)
        yield commit
        head = commit.head


def begin(store: Store, *, entropy: Entropy, keys: StoreKeys = KEYS) -> HeadAt:
    """Create the head of a run that nobody has claimed."""
    head = a_new_head(entropy=entropy, keys=keys)
    write = Write(Purpose.CREATE, keys.head, head.body(), head.metadata(), head=head)
    outcome = send(store, write, some_patience())
    assert isinstance(outcome, Done)
    return HeadAt(head, outcome.etag)


def take(store: Store, attempt: int = 1, *, entropy: Entropy, **changes: Any) -> HeadAt:
    """Claim the run, which must not have ended."""
    taken = claim(
        store, KEYS, a_claim(attempt, **changes), at=NOON, entropy=entropy, patience=some_patience()
    )
    assert isinstance(taken, HeadAt)
    return taken
