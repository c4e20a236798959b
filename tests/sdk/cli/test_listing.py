"""`milepost list`: the runs of a store, from the store alone."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from milepost.api.names import StoreKeys
from milepost.api.resource import AgentSpec, Phase, RunSpec
from milepost.api.summary import NameState
from milepost.checkpoint.claim import replace_head
from milepost.checkpoint.file import FileStore
from milepost.checkpoint.history import HeadAt, read_head
from milepost.checkpoint.records import Event, Finished, Planned
from milepost.checkpoint.runs import HeadSeen, NewRun, Runs
from milepost.cli.app import app
from milepost.cli.listing import Listed, listed_runs
from tests.support.histories import NOON, a_claim, a_step, some_patience
from tests.support.watched_store import WatchedStore


class Shop:
    """A store in a folder, and what is done in it at times of the test's own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = FileStore(folder)
        self.runs = Runs(self.store, lambda: NOON, os.urandom)
        self.hours = 0

    def new(self, name: str, namespace: str = "default", goal: str = "", digest: str = "spec-1") -> NewRun:
        spec = RunSpec(agent=AgentSpec(image="i", entrypoint="a:b"), goal=goal)
        return NewRun(namespace, name, "uid-1", "cluster-1", spec, digest)

    def begin(self, name: str, namespace: str = "default", goal: str = "") -> StoreKeys:
        keys = StoreKeys(namespace, self.runs.start(self.new(name, namespace, goal)))
        self.touch(keys)
        return keys

    def record(self, keys: StoreKeys, *events: Event, attempt: int = 1) -> None:
        seen = read_head(self.store, keys)
        assert isinstance(seen, HeadAt)
        replace_head(
            self.store,
            seen,
            (a_claim(attempt), *events),
            at=NOON,
            entropy=os.urandom,
            patience=some_patience(),
        )
        self.touch(keys)

    def touch(self, keys: StoreKeys) -> None:
        """Let the head be written an hour after all that was written before."""
        self.hours += 1
        os.utime(self.folder / keys.head, (self.hours * 3600, self.hours * 3600))

    def supersede(self, keys: StoreKeys, name: str, goal: str = "") -> StoreKeys:
        seen, head = self.runs.look_up(keys.namespace, name), self.runs.observe(keys)
        assert seen is not None
        assert isinstance(head, HeadSeen)
        new = self.new(name, keys.namespace, goal, digest="spec-2")
        after = StoreKeys(keys.namespace, self.runs.supersede(seen, head, new))
        self.touch(keys)
        self.touch(after)
        return after

    def listed(self, **more: bool | int | str) -> list[Listed]:
        return list(listed_runs(self.runs, **more))  # type: ignore[arg-type]  # options of a test


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def milepost(shop: Shop, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["list", "--store", shop.store.uri, *arguments])


def ids(rows: list[Listed]) -> list[str]:
    return [row.run_id for row in rows]


@pytest.mark.req("F5")
def test_runs_are_listed_newest_first_with_goal_status_time_and_steps(shop: Shop) -> None:
    two = shop.begin("two", "team", goal="sort the mail")
    shop.record(two, Planned(total=3), a_step("list"))
    one = shop.begin("one")
    shop.record(one, a_step("list"), Finished(phase=Phase.SUCCEEDED, reason="Completed"), attempt=2)

    shown = milepost(shop)

    assert [" ".join(line.split()) for line in shown.stdout.splitlines()] == [
        "namespace name status steps attempt updated goal",
        "default one Succeeded 1 2 01-01 12:00:00",
        "team two Running 1/3 1 01-01 12:00:00 sort the mail",
    ]
    assert "default" not in milepost(shop, "--namespace", "team").stdout


def test_objects_of_others_are_passed_over(shop: Shop) -> None:
    keys = shop.begin("one")
    for key in ("_owner", f"Old_Things/runs/{keys.run_id}/head", "Old_Things/names/one", "default/names/a/b"):
        shop.store.put_new(key, b"{}", {})

    assert ids(shop.listed(everything=True)) == [keys.run_id]
    assert CliRunner().invoke(app, ["steps", "--store", shop.store.uri]).exit_code == 0


@pytest.mark.req("F5")
def test_scripts_get_json(shop: Shop) -> None:
    keys = shop.begin("one", goal="sort the mail")

    assert json.loads(milepost(shop, "--json").stdout) == [
        {
            "namespace": "default",
            "name": "one",
            "run_id": keys.run_id,
            "status": "Pending",
            "steps": 0,
            "steps_total": None,
            "attempt": 0,
            "updated": NOON.isoformat(),
            "goal": "sort the mail",
            "named": True,
            "problem": "",
            "failed": 0,
            "skipped": 0,
            "group": "",
            "tokens": 0,
            "cost_usd": 0.0,
            "waits_for": [],
        }
    ]


def test_runs_that_no_name_leads_to_are_shown_on_request(shop: Shop) -> None:
    old = shop.begin("one")
    new = shop.supersede(old, "one")
    unnamed = shop.begin("two")
    shop.store.delete("default/names/two")

    assert ids(shop.listed()) == [new.run_id]
    assert [(row.run_id, row.status, row.named) for row in shop.listed(everything=True)] == [
        (unnamed.run_id, "Pending", False),
        (new.run_id, "Pending", True),
        (old.run_id, "Cancelled", False),
    ]


def test_a_newer_head_that_was_never_named_does_not_stand_for_its_name(shop: Shop) -> None:
    first = shop.begin("one")
    shop.record(first)
    newer = StoreKeys("default", shop.runs._create_head(shop.new("one")))
    shop.touch(newer)

    assert ids(shop.listed()) == [first.run_id]


@pytest.mark.req("F5")
@pytest.mark.parametrize("reason", ["Superseded", "Repaired"])
def test_a_run_that_was_ended_last_for_its_successor_does_not_stand_for_the_name(
    shop: Shop, reason: str
) -> None:
    old = shop.begin("one")
    shop.record(old)
    new = StoreKeys("default", shop.runs._create_head(shop.new("one")))
    shop.touch(new)
    name, head = shop.runs.look_up("default", "one"), shop.runs.observe(old)
    assert name is not None
    assert isinstance(head, HeadSeen)
    shop.runs.change_name("default", name, run_id=new.run_id)
    shop.runs.end(head, phase=Phase.CANCELLED, reason=reason, message="")
    shop.touch(old)

    assert ids(shop.listed()) == [new.run_id]


@pytest.mark.req("I4")
@pytest.mark.parametrize("body", [b"{}", b'{"format":99}\n'])
def test_a_damaged_head_is_a_row_and_not_the_end(shop: Shop, body: bytes) -> None:
    other = shop.begin("other")
    keys = shop.begin("one")
    shop.store.delete(keys.head)
    shop.store.put_new(keys.head, body, {})
    shop.touch(keys)

    damaged, sound = shop.listed()

    assert (damaged.run_id, damaged.name, damaged.status in ("Corrupt", "FormatTooNew")) == (
        keys.run_id,
        "",
        True,
    )
    assert keys.head in damaged.problem
    assert sound.run_id == other.run_id


def test_a_run_without_a_head_is_a_row(shop: Shop) -> None:
    keys = shop.begin("one")
    shop.store.put_new(keys.blob("a" * 64), b"x", {})
    shop.store.delete(keys.head)

    (row,) = shop.listed()

    assert (row.run_id, row.status, row.problem) == (
        keys.run_id,
        "Missing",
        "it has no head; `milepost store gc --dry-run` says what it is",
    )


def test_names_without_a_head_are_shown_on_request(shop: Shop) -> None:
    expired, lost, freed = shop.begin("expired"), shop.begin("lost"), shop.begin("freed")
    for name, state in (("expired", NameState.EXPIRED), ("freed", NameState.FREE)):
        seen = shop.runs.look_up("default", name)
        assert seen is not None
        shop.runs.change_name("default", seen, state=state, outcome="Succeeded")
    for keys in (expired, lost, freed):
        shop.store.delete(keys.head)

    assert shop.listed() == []
    assert shop.listed(everything=True) == [
        Listed("default", "expired", expired.run_id, "Succeeded", problem="its checkpoints have expired"),
        Listed("default", "lost", lost.run_id, "Missing", problem="its head is gone or cannot be read"),
    ]


@pytest.mark.req("S8")
def test_it_costs_one_get_for_each_run_that_is_shown(shop: Shop) -> None:
    for number in range(10):
        keys = shop.begin(f"run-{number}")
        for step in range(8):
            shop.record(keys, a_step(f"s{step}", "x" * 12_000), attempt=step + 1)
    watched = WatchedStore(shop.store)
    runs = replace(shop.runs, store=watched)

    rows = list(listed_runs(runs, limit=4))

    assert [row.name for row in rows] == ["run-9", "run-8", "run-7", "run-6"]
    assert [call.split()[0] for call in watched.calls] == ["list", "get", "get", "get", "get"]


def test_only_the_newest_are_shown_and_that_is_said(shop: Shop) -> None:
    for number in range(3):
        shop.begin(f"run-{number}")

    shown = milepost(shop, "--limit", "2")

    assert [line.split()[1] for line in shown.stdout.splitlines()] == ["name", "run-2", "run-1"]
    assert shown.stderr == "the newest 2; --limit 0 shows all\n"
    assert len(milepost(shop, "--limit", "0").stdout.splitlines()) == 4


def test_a_store_without_runs_is_said_to_be_one(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["list", "--store", f"file:{tmp_path / 'misspelt'}"])

    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr == f"there is no run in file:{tmp_path / 'misspelt'}\n"
