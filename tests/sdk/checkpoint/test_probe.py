from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from milepost.checkpoint.file import FileStore
from milepost.checkpoint.memory import MemoryStore
from milepost.checkpoint.probe import FOLDER, Check, Effort, Outcome, Report, probe
from milepost.checkpoint.s3 import S3Store
from milepost.checkpoint.sending import Patience
from milepost.checkpoint.store import Store
from milepost.errors import StoreRefused, StoreUnavailable
from milepost.testing.fake_s3 import FakeS3, Fault, Reply
from tests.support.bent_stores import BENT, Bent, Closed, MixesBodies, Silent, SlowToOne, Throttling
from tests.support.store_doubles import FakeTime

QUICK = Effort(writers=8, creations=2, replacements=2, samples=3)
PATIENCE = Patience(os.urandom, deadline=60.0)
CHECKS = [
    "create-race", "replace-race", "create-once", "stale-etag", "missing-key", "checksum", "read-after-write",
    "list-after-write", "latency", "delete",
]  # fmt: skip


def outcomes(report: Report) -> dict[str, str]:
    return {check.name: str(check.outcome) for check in report.checks}


@pytest.fixture
def fake() -> Iterator[FakeS3]:
    with FakeS3() as s3:
        yield s3


@pytest.mark.req("S2")
@pytest.mark.parametrize("make", [MemoryStore, Bent, lambda: None], ids=["memory", "wrapped", "file"])
def test_a_store_that_keeps_its_promises_passes(make: Callable[[], Store | None], tmp_path: Path) -> None:
    store = make() or FileStore(tmp_path)

    report = probe(store, patience=PATIENCE, effort=QUICK)

    assert outcomes(report) == dict.fromkeys(CHECKS, "passed") | {"checksum": "not-applicable"}
    assert (report.unsafe, list(store.list(""))) == ((), [])


@pytest.mark.req("S2")
def test_a_store_behind_s3_passes_its_checksums_too_and_is_left_empty(fake: FakeS3) -> None:
    store = S3Store(fake.config("p"))

    report = probe(store, patience=PATIENCE, effort=QUICK)

    assert outcomes(report) == dict.fromkeys(CHECKS, "passed")
    assert list(store.list("")) == []


@pytest.mark.req("S2")
@pytest.mark.parametrize("check", BENT)
def test_a_broken_promise_is_found_by_its_check(check: str) -> None:
    report = probe(BENT[check](), patience=PATIENCE, effort=QUICK)

    assert check in [each.name for each in report.unsafe], report.as_json()


@pytest.mark.req("S2")
@pytest.mark.parametrize("check", ["create-race", "replace-race"])
def test_a_race_with_two_winners_is_told_by_their_number(check: str) -> None:
    report = probe(
        BENT[check](), patience=PATIENCE, effort=Effort(writers=2, creations=1, replacements=1, samples=1)
    )

    assert {each.name: each.detail for each in report.unsafe}[check] == (
        "2 of 2 writers were told that they alone had written"
    )


@pytest.mark.req("S2")
def test_a_winner_whose_bytes_are_not_those_that_are_kept_is_none() -> None:
    report = probe(MixesBodies(), patience=PATIENCE, effort=QUICK)

    assert report.unsafe[0].detail == (
        "the store holds other bytes than those of the one writer that was told it had won"
    )


@pytest.mark.req("S2")
def test_answers_that_are_lost_make_neither_a_winner_nor_a_failure() -> None:
    store, clock = Throttling(), FakeTime()
    patience = Patience(os.urandom, monotonic=clock.monotonic, pause=clock.pause, deadline=1e6)

    report = probe(store, patience=patience, effort=QUICK)

    assert (report.unsafe, list(store.list(""))) == ((), [])


@pytest.mark.req("S2")
def test_a_store_that_gives_no_answer_is_unavailable_and_not_unsafe() -> None:
    with pytest.raises(StoreUnavailable, match="time-out"):
        probe(Silent(), patience=Patience(os.urandom, deadline=0.1), effort=Effort(writers=2))


@pytest.mark.req("S2")
def test_a_store_that_lets_one_writer_wait_too_long_is_unavailable_and_not_unsafe() -> None:
    store = SlowToOne()

    with pytest.raises(StoreUnavailable, match="had no answer in time"):
        probe(store, patience=Patience(os.urandom, deadline=0.1), effort=Effort(writers=2))


def test_a_checksum_that_could_not_be_tried_is_no_failure(fake: FakeS3) -> None:
    fake.fail(Fault(Reply(503, "SlowDown"), method="PUT", key="/damaged", times=99))

    with pytest.raises(StoreUnavailable, match="503 SlowDown"):
        probe(S3Store(fake.config()), patience=PATIENCE, effort=QUICK)
    assert [key for key in fake.objects() if FOLDER in key] == []


def test_credentials_that_may_not_write_are_refused_by_their_reason() -> None:
    with pytest.raises(StoreRefused, match="allow it"):
        probe(Closed(own="team/"), patience=PATIENCE, effort=QUICK)


def test_credentials_that_may_not_delete_are_told_what_stays() -> None:
    store = Closed(own="team/", guarded=frozenset({"delete"}))

    report = probe(store, patience=PATIENCE, effort=QUICK)

    assert report.checks[-1].outcome is Outcome.NOT_APPLICABLE
    assert f"{len(list(store.list(FOLDER)))} small objects stay" in report.checks[-1].detail


def test_no_round_begins_after_the_bound_and_one_is_always_run() -> None:
    report = probe(MemoryStore(), patience=PATIENCE, effort=Effort(writers=2, samples=1, bound=0.0))

    assert [check.figures["rounds"] for check in report.checks[:2]] == [1, 1]


def test_the_report_has_a_form_in_json() -> None:
    report = Report(
        "memory:",
        (
            Check("create-race", Outcome.FAILED, "2 of 32 writers won"),
            Check("latency", Outcome.PASSED, "fast", {"put_p50_ms": 1.5}),
        ),
        0.12345,
    )

    assert json.loads(json.dumps(report.as_json())) == {
        "store": "memory:",
        "safe": False,
        "unsafe": ["create-race"],
        "seconds": 0.123,
        "checks": [
            {
                "name": "create-race",
                "outcome": "failed",
                "detail": "2 of 32 writers won",
                "figures": {},
            },
            {"name": "latency", "outcome": "passed", "detail": "fast", "figures": {"put_p50_ms": 1.5}},
        ],
    }
