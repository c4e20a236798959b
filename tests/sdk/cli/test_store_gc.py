"""`milepost store gc`: what it shows, what it deletes, and what it leaves."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from milepost.api.names import StoreKeys
from milepost.api.resource import AgentSpec, DeletionPolicy, Phase, RunSpec
from milepost.api.summary import NameState
from milepost.checkpoint.claim import replace_head
from milepost.checkpoint.file import FileStore
from milepost.checkpoint.history import HeadAt, read_head
from milepost.checkpoint.records import Event, Finished
from milepost.checkpoint.runs import NewRun, Runs
from milepost.cli.app import app
from tests.support.histories import NOON, a_claim, a_step, some_patience

pytestmark = pytest.mark.req("C6")

DAY = 24 * 3600.0


class Shop:
    """A store in a folder with runs of some age."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = FileStore(folder)
        self.runs = Runs(self.store, lambda: NOON, os.urandom)

    def begin(self, name: str, policy: DeletionPolicy = DeletionPolicy.RETAIN) -> StoreKeys:
        spec = RunSpec(agent=AgentSpec(image="i", entrypoint="a:b"), deletion_policy=policy)
        return StoreKeys("team", self.runs.start(NewRun("team", name, "uid-1", "cluster-1", spec, "digest")))

    def record(self, keys: StoreKeys, *events: Event, attempt: int = 1) -> None:
        seen = read_head(self.store, keys)
        assert isinstance(seen, HeadAt)
        claimed = a_claim(attempt)
        replace_head(
            self.store, seen, (claimed, *events), at=NOON, entropy=os.urandom, patience=some_patience()
        )

    def ended(self, name: str) -> StoreKeys:
        keys = self.begin(name)
        for number in range(4):
            self.record(keys, a_step(f"s{number}", "x" * 12_000), attempt=number + 1)
        self.record(keys, Finished(phase=Phase.SUCCEEDED, reason="Completed"), attempt=9)
        return keys

    def age(self, seconds: float) -> None:
        """Let everything that is there be so much older."""
        for path in self.folder.rglob("*"):
            if path.is_file():
                then = time.time() - seconds
                os.utime(path, (then, then))

    def keys(self) -> list[str]:
        return sorted(each.key for each in self.store.list(""))


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def milepost(shop: Shop, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["store", "gc", shop.store.uri, *arguments])


def lines(shown: Result) -> list[str]:
    return [" ".join(line.split()) for line in shown.stdout.splitlines()]


def test_a_dry_run_says_what_would_go_and_deletes_nothing(shop: Shop) -> None:
    keys = shop.ended("one")
    shop.age(31 * DAY)
    before, size = shop.keys(), sum(each.size for each in shop.store.list(keys.run))

    shown = milepost(shop, "--dry-run")

    assert lines(shown) == [
        "object or run name why objects size age",
        f"{keys.run} one it ended longer ago than its retention of 30 days 2 {size / 1024:.1f} KiB 31 d",
    ]
    assert shown.stderr == f"2 objects, {size / 1024:.1f} KiB to be deleted in {shop.store.uri}\n"
    assert shop.keys() == before


@pytest.mark.req("C5")
def test_what_is_applied_is_gone_and_the_name_tells_the_outcome(shop: Shop) -> None:
    shop.ended("one")
    kept = shop.begin("two")
    shop.age(31 * DAY)

    shown = milepost(shop, "--apply", "--json")

    said = json.loads(shown.stdout)
    assert (said["applied"], said["objects"], [row["name"] for row in said["rows"]]) == (True, 2, ["one"])
    assert shop.keys() == ["team/names/one", "team/names/two", kept.head]
    assert milepost(shop, "--dry-run").stdout == ""


def test_useless_objects_are_shown_one_by_one(shop: Shop) -> None:
    keys = shop.ended("one")
    shop.store.put_new(keys.blob("a" * 64), b"xyz", {})
    shop.age(3600)

    (row,) = json.loads(milepost(shop, "--apply", "--json").stdout)["rows"]

    assert {name: row[name] for name in ("key", "why", "objects", "bytes")} == {
        "key": keys.blob("a" * 64),
        "why": "the run has ended, and no record names it",
        "objects": 1,
        "bytes": 3,
    }
    assert row["age_s"] == pytest.approx(3600, abs=60)
    assert milepost(shop, "--apply").stdout == ""


@pytest.mark.req("K6")
def test_no_run_goes_for_want_of_a_resource_that_nobody_was_asked_about(shop: Shop) -> None:
    shop.begin("one", DeletionPolicy.DELETE)
    shop.age(100 * DAY)
    before = shop.keys()

    milepost(shop, "--apply", "--orphans", "--forget-names")

    assert shop.keys() == before


def test_objects_of_no_run_go_only_on_request(shop: Shop) -> None:
    keys = StoreKeys("team", "b" * 20)
    shop.store.put_new(keys.blob("a" * 64), b"xyz", {})
    shop.age(2 * DAY)

    assert "give --orphans to delete it" in milepost(shop, "--apply").stdout
    assert shop.keys() == [keys.blob("a" * 64)]
    assert "1 object, 3 B deleted" in milepost(shop, "--apply", "--orphans").stderr
    assert shop.keys() == []


@pytest.mark.req("I4")
def test_damage_is_said_and_left_alone(shop: Shop) -> None:
    keys = shop.ended("one")
    shop.store.delete(keys.head)
    shop.age(100 * DAY)
    before = shop.keys()

    shown = milepost(shop, "--apply", "--orphans", "--json")

    (row,) = json.loads(shown.stdout)["rows"]
    assert (row["key"], row["goes"], row["left"]) == (keys.run, False, "left alone")
    assert shop.keys() == before


def test_a_name_starts_anew_once_it_is_forgotten(shop: Shop) -> None:
    shop.ended("one")
    shop.age(31 * DAY)
    milepost(shop, "--apply")
    seen = shop.runs.look_up("team", "one")
    assert seen is not None
    assert seen.record.state is NameState.EXPIRED

    assert "the name starts anew" in milepost(shop, "--dry-run", "--forget-names").stdout
    assert shop.runs.look_up("team", "one") is not None
    milepost(shop, "--apply", "--forget-names")

    assert shop.runs.look_up("team", "one") is None


def test_only_one_namespace_is_looked_at_where_one_is_given(shop: Shop) -> None:
    shop.ended("one")
    shop.age(31 * DAY)

    assert milepost(shop, "--dry-run", "--namespace", "other").stdout == ""


@pytest.mark.parametrize("flags", [[], ["--dry-run", "--apply"]])
def test_whether_to_delete_has_to_be_said(shop: Shop, flags: list[str]) -> None:
    shown = milepost(shop, *flags)

    assert (shown.exit_code, shown.stderr) == (
        2,
        "milepost: --dry-run: give either --dry-run or --apply\n",
    )
