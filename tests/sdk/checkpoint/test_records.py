from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.checkpoint.records import (
    FIRST_DIGEST,
    ErrorData,
    Halted,
    Input,
    Record,
    StepPlace,
    Value,
    digest_of,
    line_of,
    parse_line,
)
from milepost.errors import Corrupt, FormatTooNew
from tests.support.histories import (
    NOON,
    a_call,
    a_claim,
    a_failure,
    a_start,
    a_step,
    an_end,
    an_outcome,
)

plain_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def a_record(*events: Any, **changes: Any) -> Record:
    dull = {"seq": 1, "epoch": 1, "worker": "pod-1", "prev": FIRST_DIGEST, "at": NOON.isoformat()}
    return Record(**{**dull, **changes}, events=events)


def test_every_kind_of_event_reads_back_equal() -> None:
    record = a_record(
        a_start(),
        a_claim(2, tools={"send": "1"}, code_digest="c", previous_end=an_end(1, fault="memory")),
        a_call("one"),
        a_step("one"),
        a_failure("two", final=True),
        Halted(reason="InputsInvalid", message="limit: not a number"),
        an_outcome(result=Value(blob="b" * 64, size=20_000)),
    )

    assert parse_line(line_of(record), "k") == record


@given(plain_json)
def test_values_are_never_changed_on_the_way(value: Any) -> None:
    record = a_record(a_step("one", result=value))

    line = line_of(record)

    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert line.splitlines(keepends=True) == [line]
    back = parse_line(line, "k")
    assert repr(back) == repr(record)


@pytest.mark.req("A1")
def test_a_step_carries_its_place_inputs_digests_attempt_and_times() -> None:
    step = a_step("one").model_copy(
        update={
            "step": StepPlace(id="1:left/one#2", branch="1:left", name="one", number=2, ordinal=7),
            "inputs": (
                Input(digest="d1", inline=Value(inline=[1], size=3)),
                Input(digest="d2", result_of="zero"),
            ),
            "declared": "builtins.int",
            "attempt": 3,
        }
    )

    stored = json.loads(line_of(a_record(step)))["events"][0]

    assert stored == {
        "kind": "step_completed",
        "step": {
            "id": "1:left/one#2",
            "branch": "1:left",
            "name": "one",
            "number": 2,
            "ordinal": 7,
        },
        "attempt": 3,
        "inputs": [
            {"digest": "d1", "inline": {"inline": [1], "size": 3}},
            {"digest": "d2", "result_of": "zero"},
        ],
        "declared": "builtins.int",
        "result": {"inline": "done", "size": 4},
        "result_digest": step.result_digest,
        "started_at": NOON.isoformat(),
        "ended_at": NOON.isoformat(),
    }


def test_text_that_is_not_unicode_is_kept_readable() -> None:
    error = ErrorData(kind="builtins.OSError", message="no such file: \udcff", chain=("\ud800",))

    assert parse_line(line_of(a_record(a_failure("one").model_copy(update={"error": error}))), "k")
    assert error == ErrorData(kind="builtins.OSError", message="no such file: \\udcff", chain=("\\ud800",))


def test_a_value_counts_as_large_in_its_record_as_it_does_alone() -> None:
    text = "\N{SNOWMAN}" * 1000

    assert len(line_of(a_record(a_step("one", result=text)))) < len(text.encode()) + 1000


def test_a_message_about_a_run_is_cut_to_fit_a_head() -> None:
    assert len(Halted(reason="AgentRaised", message="x" * 100_000).message) == 2000


@pytest.mark.req("D2")
@pytest.mark.parametrize(
    ("line", "what"),
    [
        (b"", "not JSON"),
        (b"\xff\xfe\n", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]\n", "does not say its format"),
        (b'{"seq":1}\n', "does not say its format"),
        (b'{"format":1,"seq":1}\n', "wrong shape"),
        (line_of(a_record(a_step("one"))).replace(b"step_completed", b"step_compleated"), "wrong shape"),
        (line_of(a_record(a_step("one"))).replace(b'"attempt":1', b'"mood":1'), "wrong shape"),
    ],
)
def test_a_line_that_is_no_record_is_reported_with_the_object_it_stands_in(line: bytes, what: str) -> None:
    with pytest.raises(Corrupt, match=what) as caught:
        parse_line(line, "team/runs/x/head")
    assert caught.value.key == "team/runs/x/head"


@pytest.mark.req("D10")
def test_a_record_of_a_newer_format_is_refused_with_both_formats_named() -> None:
    with pytest.raises(FormatTooNew) as caught:
        parse_line(b'{"format":4,"anything":"at all"}\n', "k")
    assert (caught.value.kind, caught.value.found, caught.value.known) == ("record", 4, 3)


def test_the_digest_is_that_of_the_stored_bytes() -> None:
    one = line_of(a_record(a_step("one")))

    assert digest_of(one) == digest_of(bytes(one))
    assert digest_of(one) != digest_of(one.replace(b"done", b"gone"))
