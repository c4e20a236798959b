"""`milepost store check`: what a person reads, what a script reads, and the exit codes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from milepost.cli.app import app
from milepost.testing.fake_s3 import FakeS3, Fault, Reply
from tests.support.bent_stores import CarelessS3


@pytest.fixture
def s3() -> Iterator[FakeS3]:
    with FakeS3() as fake:
        yield fake


def milepost(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["store", "check", *map(str, arguments)])


def url(s3: FakeS3) -> str:
    return f"s3://{s3.bucket}/p?endpoint={s3.endpoint}"


@pytest.mark.req("S2")
def test_a_good_store_is_shown_as_a_table_and_left_empty(s3: FakeS3) -> None:
    done = milepost(url(s3), "--credentials", s3.credentials)

    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert done.exit_code == 0, done.output
    assert lines[0] == "check outcome what was seen"
    assert lines[4] == (
        "stale-etag passed a replacement on condition of an older ETag is refused, and changes nothing"
    )
    assert done.stderr.splitlines() == [
        "checking s3://milepost/p with 32 writers ...",
        "s3://milepost/p kept every promise that it was asked for",
    ]
    assert s3.objects() == {}


def test_scripts_get_json_and_nothing_else(tmp_path: Path) -> None:
    done = milepost(f"file:{tmp_path}", "--json")

    said = json.loads(done.stdout)
    assert (done.exit_code, said["store"], said["safe"], said["unsafe"]) == (0, f"file:{tmp_path}", True, [])
    assert {each["name"]: each["outcome"] for each in said["checks"]}["checksum"] == "not-applicable"


@pytest.mark.req("S2")
def test_an_unsafe_store_ends_with_1_and_says_what_to_do() -> None:
    with CarelessS3() as s3:
        done = milepost(url(s3), "--credentials", s3.credentials)

    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert done.exit_code == 1
    assert lines[1] == "create-race failed 32 of 32 writers were told that they alone had written"
    assert done.stderr.splitlines()[-1] == (
        "do not use s3://milepost/p: create-race, replace-race, create-once, stale-etag, missing-key failed, "
        "so two executors could both write one run; use another server, or a newer version of this one"
    )


def test_a_store_that_cannot_be_checked_is_not_called_unsafe(s3: FakeS3) -> None:
    s3.fail(Fault(Reply(403, "AccessDenied"), times=999))

    done = milepost(url(s3), "--credentials", s3.credentials, "--json")

    assert (done.exit_code, done.stdout) == (1, "")
    assert "StoreRefused: s3://milepost/p/_probe/" in done.stderr
    assert "allow these keys to get and put objects below the prefix" in done.stderr


def test_what_is_no_store_is_a_wrong_call() -> None:
    done = milepost("https://example.com")

    assert done.exit_code == 2
    assert "must be file:PATH, or s3://BUCKET/PREFIX" in done.stderr
