"""A sweep on real servers: their dates, listings and deletions."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from milepost.api.names import StoreKeys
from milepost.api.resource import AgentSpec, Phase, RunSpec
from milepost.api.summary import NameState
from milepost.checkpoint.answers import Done, Purpose, Write
from milepost.checkpoint.archive import Archive
from milepost.checkpoint.claim import claim
from milepost.checkpoint.deletion import Sweeper
from milepost.checkpoint.head import draft
from milepost.checkpoint.history import HeadAt, load
from milepost.checkpoint.records import Event, Finished
from milepost.checkpoint.runs import HeadSeen, NewRun, Runs
from milepost.checkpoint.s3 import S3Config, S3Store, open_store
from milepost.checkpoint.sealed import segment_key
from milepost.checkpoint.sending import send
from milepost.checkpoint.sweep import Ages
from tests.support.histories import NOON, a_claim, a_step, some_patience

pytestmark = [pytest.mark.s3, pytest.mark.req("C5", "C6")]


def commit(store: S3Store, at: HeadAt, *events: Event) -> HeadAt:
    """Record events as a committer does, merging where that is due."""
    planned = draft(at.head, events, at=NOON, entropy=os.urandom)
    archive = Archive(store, at.head.keys)
    made = planned.commit([(named, archive.segment(named)) for named in planned.merging])
    for key, body in made.objects:
        send(store, Write(Purpose.CREATE, key, body), some_patience())
    head = made.head
    write = Write(Purpose.COMMIT, head.keys.head, head.body(), head.metadata(), at.etag, head)
    outcome = send(store, write, some_patience())
    assert isinstance(outcome, Done)
    return HeadAt(head, outcome.etag)


def test_merged_segments_go_while_a_run_lives_and_all_of_it_after_its_end(
    real_config: Callable[[str], S3Config],
) -> None:
    store = open_store(real_config(""))
    runs = Runs(store, lambda: NOON, os.urandom)
    spec = RunSpec(agent=AgentSpec(image="i", entrypoint="a:b"), retention_seconds=0)
    keys = StoreKeys("team", runs.start(NewRun("team", "triage", "uid-1", "cluster-1", spec, "spec-1")))
    taken = claim(store, keys, a_claim(), at=NOON, entropy=os.urandom, patience=some_patience())
    assert isinstance(taken, HeadAt)
    at = taken
    for number in range(14):
        at = commit(store, at, a_step(f"s{number}", "x" * 12_000))
    sweeper = Sweeper(runs, ages=Ages(passed_over=0))

    def sweep() -> int:
        return sum(sweeper.carry_out(finding).objects for finding in list(sweeper.look(["team"])))

    before = len(list(store.list(f"{keys.run}segments/")))
    gone = sweep()
    left = {each.key for each in store.list(f"{keys.run}segments/")}
    assert gone == before - len(at.head.segments) > 0
    assert left == {segment_key(keys, named) for named in at.head.segments}
    seen = runs.observe(keys)
    assert isinstance(seen, HeadSeen)
    assert load(store, seen.at.head).totals.steps_done == 14

    commit(store, at, Finished(phase=Phase.SUCCEEDED, reason="Completed"))
    sweep()

    assert [each.key for each in store.list("")] == ["team/names/triage"]
    name = runs.look_up("team", "triage")
    assert name is not None
    assert (name.record.state, name.record.outcome) == (NameState.EXPIRED, "Succeeded")
