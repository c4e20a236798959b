"""`milepost decide` with each of its words, on a folder and on a bucket, without any process of the run's."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from milepost.api.names import StoreKeys
from milepost.api.resource import Phase, RunSpec
from milepost.checkpoint import inbox
from milepost.checkpoint.answers import Purpose
from milepost.checkpoint.claim import replace_head
from milepost.checkpoint.gates import Gate, GateType
from milepost.checkpoint.history import HeadAt, read_head
from milepost.checkpoint.opening import open_store
from milepost.checkpoint.records import Halted
from milepost.checkpoint.runs import NewRun, Runs
from milepost.checkpoint.sending import Patience
from milepost.checkpoint.store import Store
from milepost.cli.app import app
from milepost.local.answering import OPTIONS
from milepost.testing import Clock
from milepost.testing.fake_s3 import FakeS3

GATE = Gate(
    id="g" * 20,
    type=GateType.HALT,
    place="pay",
    name="OutcomeUnknown",
    request_digest="d" * 64,
    since="2026-03-01T00:00:00+00:00",
    options=tuple(OPTIONS.values()),
)


@pytest.fixture(params=["file", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if request.param == "file":
        yield f"file:{tmp_path}/store"
        return
    for name, value in (("ACCESS_KEY_ID", "key"), ("SECRET_ACCESS_KEY", "secret"), ("SESSION_TOKEN", "")):
        monkeypatch.setenv(f"AWS_{name}", value)
    with FakeS3() as s3:
        yield f"s3://{s3.bucket}/p?endpoint={s3.endpoint}&region=us-east-1"


def halted(store: Store) -> StoreKeys:
    """Begin a run that has halted where all that there is can be decided."""
    spec = RunSpec.model_validate({"agent": {"image": "none", "entrypoint": "test:agent"}})
    keys = StoreKeys(
        "default", Runs(store, Clock(), os.urandom).start(NewRun("default", "pay", "u", "c", spec, "d"))
    )
    events = (Halted(reason="OutcomeUnknown", message="it may have happened", gate=GATE),)
    patience = Patience(os.urandom)
    assert replace_head(
        store,
        head_of(store, keys),
        events,
        at=Clock()(),
        entropy=os.urandom,
        patience=patience,
        purpose=Purpose.COMMIT,
    )
    return keys


def head_of(store: Store, keys: StoreKeys) -> HeadAt:
    at = read_head(store, keys)
    assert isinstance(at, HeadAt)
    return at


def decide(store: str, *arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["decide", "pay", *arguments, "--store", store])
    return done.exit_code, done.stderr


@pytest.mark.req("D8", "E3", "F4")
@pytest.mark.parametrize("word", OPTIONS)
def test_a_decision_is_left_for_the_next_process_and_the_first_one_stands(store: str, word: str) -> None:
    opened = open_store(store)
    keys = halted(opened)

    assert decide(store, word, "--reason", "seen") == (
        0,
        f"pay: {word} is decided; `milepost run` goes on with it\n",
    )

    given = inbox.read(opened, keys, GATE.id)
    assert given is not None
    assert (given.type, given.reason, given.request_digest) == (OPTIONS[word], "seen", "d" * 64)
    code, said = decide(store, "accept" if word != "accept" else "done")
    assert code != 0
    assert "has its answer, and nothing was changed" in said
    assert inbox.read(opened, keys, GATE.id) == given


@pytest.mark.req("D8", "F4")
def test_a_halted_run_is_cancelled_for_good(store: str) -> None:
    opened = open_store(store)
    keys = halted(opened)

    assert decide(store, "cancel") == (0, "pay: ended as Cancelled\n")
    assert head_of(opened, keys).head.phase is Phase.CANCELLED
    code, said = decide(store, "accept")
    assert code != 0
    assert "ended as Cancelled, and takes no answers" in said
