"""`milepost steps` and `milepost list`: what they show of a store, and what they say of a damaged one."""

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from milepost.api.names import StoreKeys
from milepost.api.resource import RunSpec
from milepost.api.summary import NameState
from milepost.checkpoint.claim import replace_head
from milepost.checkpoint.file import FileStore
from milepost.checkpoint.gates import AnswerType, Decided, Gate, GateOpened, GateType, Waiting
from milepost.checkpoint.history import HeadAt, read_head
from milepost.checkpoint.records import (
    Claimed,
    ErrorData,
    Event,
    Intended,
    Planned,
    Resumed,
    StepCompleted,
    StepFailure,
    StepPlace,
    StepSkipped,
    Usage,
    Value,
    Withdrawn,
)
from milepost.checkpoint.runs import NewRun, Runs
from milepost.checkpoint.sending import Patience
from milepost.cli import show, stores
from milepost.cli.app import app
from milepost.errors import InvalidRun
from tests.support.histories import a_call

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    return FileStore(tmp_path / "store")


def runs_in(store: FileStore) -> Runs:
    return Runs(store, lambda: NOON, os.urandom)


def begin(store: FileStore, name: str, namespace: str = "default") -> StoreKeys:
    spec = RunSpec.model_validate({"agent": {"image": "i", "entrypoint": "a:b"}})
    run_id = runs_in(store).start(NewRun(namespace, name, "uid", "cluster", spec, "digest"))
    return StoreKeys(namespace, run_id)


def claim(store: FileStore, keys: StoreKeys, attempt: int, *events: Event) -> None:
    """Add a record that begins with the claim of an attempt."""
    seen = read_head(store, keys)
    assert isinstance(seen, HeadAt)
    replace_head(
        store,
        seen,
        (Claimed(attempt=attempt, writer=f"w{attempt}"), *events),
        at=NOON + timedelta(minutes=attempt),
        entropy=os.urandom,
        patience=Patience(os.urandom),
    )


def at(seconds: float) -> str:
    return (NOON + timedelta(seconds=seconds)).isoformat()


def completed(name: str, ordinal: int, *, attempt: int = 1, size: int = 7) -> StepCompleted:
    return StepCompleted(
        step=StepPlace(id=name, name=name, ordinal=ordinal),
        attempt=attempt,
        result=Value(inline=1, size=size),
        result_digest="d",
        started_at=at(0),
        ended_at=at(1.5),
    )


def failed(name: str, ordinal: int, *, attempt: int, final: bool) -> StepFailure:
    return StepFailure(
        step=StepPlace(id=name, name=name, ordinal=ordinal),
        attempt=attempt,
        final=final,
        error=ErrorData(kind="builtins.ValueError", message="no"),
        started_at=at(2),
        ended_at=at(2.25),
    )


def milepost(store: FileStore, *arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments, "--store", store.uri])


def test_the_steps_of_the_only_run_are_shown(store: FileStore) -> None:
    keys = begin(store, "one")
    listed = completed("list", 1).model_copy(update={"summary": "three letters"})
    claim(store, keys, 1, Planned(total=4), listed, failed("save", 2, attempt=1, final=False))
    claim(
        store, keys, 2, completed("save", 2, attempt=2, size=20_000), failed("send", 3, attempt=3, final=True)
    )

    shown = milepost(store, "steps")

    assert [" ".join(line.split()) for line in shown.stdout.splitlines()] == [
        "seq step status tries started took size epoch attempt note",
        "2 list recorded 1 03-01 12:00:00 1.50 s 7 B 1 1 three letters",
        "3 save recorded 2 03-01 12:00:00 1.50 s 19.5 KiB 2 2",
        "3 send failed 3 03-01 12:00:02 0.25 s 2 2 builtins.ValueError: no",
    ]
    counts = "2/4 steps, 1 failed, attempt 2, record 3"
    assert shown.stderr == f"run default/one ({keys.run_id}): Running, {counts}\n"


def test_a_step_that_failed_and_will_be_tried_again_is_shown_with_its_error(store: FileStore) -> None:
    claim(store, begin(store, "one"), 1, failed("save", 1, attempt=1, final=False))

    assert json.loads(milepost(store, "steps", "one", "--json").stdout) == [
        {
            "seq": 2,
            "step": "save",
            "status": "tried",
            "attempts": 1,
            "started": at(2),
            "duration_s": 0.25,
            "size": None,
            "epoch": 1,
            "pod": 1,
            "error": "builtins.ValueError: no",
            "description": "",
            "summary": "",
            "meta": {},
            "calls": [],
            "tokens": 0,
            "cost_usd": 0.0,
            "by": "",
            "at": "",
            "reason": "",
        }
    ]


@pytest.mark.req("A1", "A2")
def test_a_step_is_shown_with_its_authors_words_and_its_tool_calls(store: FileStore) -> None:
    words = {"description": "Send it.", "summary": "sent to 3", "meta": {"cost": 2}}
    claim(store, begin(store, "one"), 1, a_call("send"), completed("send", 1).model_copy(update=words))

    (row,) = json.loads(milepost(store, "steps", "one", "--json").stdout)

    assert {name: row[name] for name in words} == words
    assert [(call["tool"], call["effect"], call["key"]) for call in row["calls"]] == [
        ("send", "keyed", f"{'a' * 20}/send")
    ]


def test_steps_in_segments_are_shown_too(store: FileStore) -> None:
    keys = begin(store, "one")
    for number in range(1, 4):
        step = completed(f"s{number}", number)
        claim(
            store, keys, number, step.model_copy(update={"result": Value(inline="x" * 15_000, size=15_002)})
        )

    assert len(list(store.list(f"{keys.run}segments/"))) == 1
    rows = json.loads(milepost(store, "steps", "--json").stdout)
    assert [(row["seq"], row["step"]) for row in rows] == [(2, "s1"), (3, "s2"), (4, "s3")]


def test_one_of_several_runs_has_to_be_named(store: FileStore) -> None:
    begin(store, "one")
    begin(store, "two", "team")

    shown = milepost(store, "steps")

    assert (shown.exit_code, shown.stdout) == (2, "")
    assert shown.stderr == "milepost: NAME: choose one of default/one, team/two\n"


def test_a_run_of_another_namespace_is_found_by_name_and_namespace(store: FileStore) -> None:
    begin(store, "two", "team")

    assert milepost(store, "steps", "two").exit_code == 2
    assert milepost(store, "steps", "two", "--namespace", "team").exit_code == 0


@pytest.mark.req("I4")
def test_a_damaged_log_is_reported_by_the_name_of_its_object(store: FileStore, tmp_path: Path) -> None:
    keys = begin(store, "one")
    for number in range(1, 4):
        step = completed(f"s{number}", number)
        claim(
            store, keys, number, step.model_copy(update={"result": Value(inline="x" * 15_000, size=15_002)})
        )
    segment = next(store.list(f"{keys.run}segments/")).key
    (tmp_path / "store" / segment).unlink()

    shown = milepost(store, "steps")

    assert (shown.exit_code, shown.stdout) == (1, "")
    assert shown.stderr.startswith(f"Missing: {segment}: the head names it for records ")


def test_a_name_whose_head_is_gone_is_damage(store: FileStore) -> None:
    keys = begin(store, "one")
    store.delete(keys.head)

    shown = milepost(store, "steps", "one")

    lines = shown.stderr.splitlines()
    assert (shown.exit_code, lines[0]) == (1, f"Missing: {keys.head}: a name leads to it, and it is gone")
    assert lines[1].startswith("`milepost store verify` says what can be trusted")


def test_a_run_whose_checkpoints_have_expired_is_said_to_have(store: FileStore) -> None:
    keys = begin(store, "one")
    seen = runs_in(store).look_up("default", "one")
    assert seen is not None
    runs_in(store).change_name("default", seen, state=NameState.EXPIRED, outcome="Failed")
    store.delete(keys.head)

    shown = milepost(store, "steps", "one")

    assert (shown.exit_code, shown.stderr) == (
        2,
        "milepost: NAME: run default/one ended as Failed, and its checkpoints have expired\n",
    )


@pytest.mark.parametrize("command", ["steps", "list"])
def test_what_can_be_no_namespace_is_refused(store: FileStore, command: str) -> None:
    shown = milepost(store, command, "--namespace", "..")

    assert (shown.exit_code, shown.stderr) == (2, "milepost: metadata.namespace: '..' must be a DNS label\n")


def test_an_empty_store_is_said_to_be_empty(store: FileStore) -> None:
    assert milepost(store, "steps").stderr == f"milepost: NAME: there is no run in {store.uri}\n"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("file:.milepost", "file:/here/.milepost"),
        ("file:/there/store", "file:/there/store"),
        ("file:///there/store", "file:/there/store"),
        ("file:../store", "file:/store"),
        ("s3://bucket/p?endpoint=http://h:1", "s3://bucket/p?endpoint=http://h:1"),
    ],
)
def test_a_store_is_named_by_its_url(given: str, expected: str) -> None:
    assert stores.store_url(given, Path("/here")) == expected


@pytest.mark.parametrize("given", ["", "file:", "folder", "gs://bucket"])
def test_what_names_no_store_is_refused(given: str) -> None:
    with pytest.raises(InvalidRun, match="must be file:PATH, or s3://BUCKET/PREFIX"):
        stores.store_url(given, Path("/here"))


@pytest.mark.parametrize(
    ("number", "expected"), [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1_572_864, "1.5 MiB")]
)
def test_sizes_are_for_people(number: int, expected: str) -> None:
    assert show.size(number) == expected


def table(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


def a_gate(name: str, type_: GateType = GateType.APPROVAL, **changes: Any) -> Gate:
    dull = {"id": name * 5, "type": type_, "place": f"@{name}", "name": name, "since": at(0)}
    return Gate(**{**dull, **changes})


def an_intent(step: str, tool: str) -> Intended:
    return Intended(
        step=step, call=1, tool=tool, effect="verified", key="k", arguments="a", attempt=1, started_at=at(1)
    )


@pytest.mark.req("F4")
def test_gates_are_shown_as_they_wait_and_with_who_answered_when_and_why(store: FileStore) -> None:
    answered = Decided(
        gate="good", place="@good", type=AnswerType.DENY, by="ann", at=at(90), reason="not yet"
    )
    good = a_gate("good", id="good", key="x")
    claim(
        store,
        begin(store, "one"),
        1,
        completed("draft", 1),
        GateOpened(gate=good),
        answered,
        GateOpened(gate=a_gate("late", until=at(3600))),
        Waiting(),
    )

    shown = milepost(store, "steps")

    assert table(shown.stdout) == [
        "seq step status tries started took size epoch attempt note",
        "2 draft recorded 1 03-01 12:00:00 1.50 s 7 B 1 1",
        "2 @good denied 03-01 12:00:00 90.00 s 1 1 by ann at 03-01 12:01:30: not yet",
        "2 @late waiting 03-01 12:00:00 1 1 approval late",
    ]
    assert shown.stderr.endswith("; waits for approval late until 2026-03-01 13:00:00 UTC\n")
    assert table(milepost(store, "list").stdout) == [
        "namespace name status steps attempt waits for updated goal",
        "default one Waiting 1 1 approval late until 2026-03-01 13:00:00 UTC 03-01 12:01:00",
    ]


def test_a_call_of_which_nobody_knows_is_a_row_until_somebody_does(store: FileStore) -> None:
    keys = begin(store, "one")
    claim(store, keys, 1, an_intent("pay", "wire"))
    open_ = table(milepost(store, "steps").stdout)
    claim(store, keys, 2, a_call("pay").model_copy(update={"call": 1}), completed("pay", 1))

    assert open_[1] == (
        "2 pay unconfirmed 03-01 12:00:01 1 1 call 1 of wire was begun; what became of it is not recorded"
    )
    assert [line.split()[1:3] for line in table(milepost(store, "steps").stdout)[1:]] == [["pay", "recorded"]]


def test_an_answer_that_left_the_outcome_open_confirms_nothing(store: FileStore) -> None:
    raised = a_call("pay").model_copy(
        update={"unconfirmed": True, "error": ErrorData(kind="builtins.OSError", message="cut")}
    )
    claim(store, begin(store, "one"), 1, an_intent("pay", "wire"), raised)

    assert [line.split()[2] for line in table(milepost(store, "steps").stdout)[1:]] == ["unconfirmed"]


@pytest.mark.req("D5", "D6")
def test_steps_that_were_skipped_withdrawn_or_adopted_are_shown_as_such(store: FileStore) -> None:
    keys = begin(store, "one")
    claim(
        store,
        keys,
        1,
        completed("read", 1),
        completed("sort", 2),
        StepSkipped(step=StepPlace(id="send", name="send", ordinal=3), reason="nobody to send it to"),
        Withdrawn(step="sort", reason="its check failed"),
    )
    before = table(milepost(store, "steps").stdout)
    claim(
        store,
        keys,
        2,
        completed("count", 4),
        Resumed(strategy="RestartWithContext"),
        completed("read", 1).model_copy(update={"adopted": "read"}),
    )

    assert before == [
        "seq step status tries started took size epoch attempt note",
        "2 read recorded 1 03-01 12:00:00 1.50 s 7 B 1 1",
        "2 send skipped 03-01 12:01:00 1 1 nobody to send it to",
        "2 sort withdrawn 1 03-01 12:00:00 1.50 s 7 B 1 1 its check failed",
    ]
    assert [line.split()[1:3] for line in table(milepost(store, "steps").stdout)[1:]] == [
        ["sort", "withdrawn"],
        ["count", "fact"],
        ["read", "adopted"],
    ]


@pytest.mark.req("A3")
def test_what_models_used_is_shown_for_each_step_and_run_where_any_was(store: FileStore) -> None:
    usage = Usage(input_tokens=1500, output_tokens=20, cost_nano_usd=2_500_000)
    step = completed("draft", 1, attempt=2).model_copy(update={"usage": usage})
    try_ = failed("draft", 1, attempt=1, final=False).model_copy(update={"usage": usage})
    claim(store, begin(store, "one"), 1, try_, step, completed("send", 2))

    assert table(milepost(store, "steps").stdout) == [
        "seq step status tries started took size epoch attempt tokens cost",
        "2 draft recorded 2 03-01 12:00:00 1.50 s 7 B 1 1 3,040 $0.0050",
        "2 send recorded 1 03-01 12:00:00 1.50 s 7 B 1 1",
    ]
    assert table(milepost(store, "list").stdout)[0].split()[5:7] == ["tokens", "cost"]
