from __future__ import annotations

import datetime as dt
import hashlib
from typing import Any

import pytest

from milepost.api.digest import check_inputs, spec_digest
from milepost.api.resource import RunSpec
from milepost.errors import InvalidRun

AGENT = {"image": "example.com/agent:1", "entrypoint": "triage.agent:run"}
PLAIN = {"agent": AGENT}


def a_spec(**fields: Any) -> RunSpec:
    return RunSpec.model_validate(PLAIN | fields)


def test_the_digest_covers_these_bytes_for_ever() -> None:
    whole = a_spec(goal="Sort the mail.", inputs={"b": [1, 0.5], "a": "é"}, store={"name": "big"}, rerun="2")

    plainly = '{"entrypoint":"triage.agent:run","version":1}'
    wholly = (
        '{"entrypoint":"triage.agent:run","goal":"Sort the mail.","inputs":{"a":"é","b":[1,0.5]},'
        '"rerun":"2","store":"big","version":1}'
    )
    assert spec_digest(a_spec()) == hashlib.sha256(plainly.encode()).hexdigest()
    assert spec_digest(whole) == hashlib.sha256(wholly.encode()).hexdigest()


@pytest.mark.parametrize(
    "defaults",
    [
        {"goal": ""},
        {"inputs": {}},
        {"rerun": ""},
        {"store": {}},
        {"store": {"name": "default"}},
        {"retry": {"stepAttempts": 3}},
        {"suspend": False, "cancel": False},
        {"pod": {"gracePeriodSeconds": 60, "env": []}},
    ],
)
def test_a_field_at_its_default_counts_as_absent(defaults: dict[str, Any]) -> None:
    assert spec_digest(a_spec(**defaults)) == spec_digest(a_spec())


@pytest.mark.parametrize(
    "change",
    [
        {"suspend": True},
        {"cancel": True},
        {"agent": AGENT | {"image": "example.com/agent:2"}},
        {"agent": AGENT | {"version": "2"}},
        {"retry": {"stepAttempts": 5}},
        {"pod": {"nodeSelector": {"disk": "fast"}}},
    ],
)
def test_what_does_not_define_the_work_leaves_the_digest_as_it_is(change: dict[str, Any]) -> None:
    assert spec_digest(a_spec(**change)) == spec_digest(a_spec())


def test_everything_that_defines_the_work_changes_the_digest() -> None:
    changes: list[dict[str, Any]] = [
        {},
        {"goal": "a"},
        {"rerun": "a"},
        {"store": {"name": "a"}},
        {"agent": AGENT | {"entrypoint": "triage.agent:other"}},
        {"inputs": {"a": 1}},
        {"inputs": {"b": 1}},
        {"inputs": {"a": 2}},
        {"inputs": {"a": "1"}},
        {"inputs": {"a": None}},
        {"inputs": {"a": [1]}},
        {"inputs": {"a": {"b": 1}}},
        {"inputs": {"goal": "a"}},
    ]

    assert len({spec_digest(a_spec(**change)) for change in changes}) == len(changes)


def test_the_order_of_keys_does_not_matter_and_that_of_lists_does() -> None:
    one = a_spec(inputs={"a": {"c": 1, "b": [1, 2]}, "d": 2})

    assert spec_digest(one) == spec_digest(a_spec(inputs={"d": 2, "a": {"b": [1, 2], "c": 1}}))
    assert spec_digest(one) != spec_digest(a_spec(inputs={"a": {"c": 1, "b": [2, 1]}, "d": 2}))


def test_a_whole_number_is_the_same_with_and_without_its_point() -> None:
    assert spec_digest(a_spec(inputs={"a": 1.0})) == spec_digest(a_spec(inputs={"a": 1}))


@pytest.mark.parametrize("number", [2**53 - 1, -(2**53) + 1, 1e300, 0, True])
def test_numbers_that_json_carries_exactly_are_taken(number: float) -> None:
    check_inputs({"n": number})


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("inputs", "field"),
    [
        ({"n": 2**53}, "spec.inputs.n"),
        ({"n": -(2**53)}, "spec.inputs.n"),
        ({"a": [{"b": 2**64}]}, "spec.inputs.a[0].b"),
        ({"x": float("nan")}, "spec.inputs.x"),
        ({"x": [float("-inf")]}, "spec.inputs.x[0]"),
        ({"day": dt.date(2020, 1, 1)}, "spec.inputs.day"),
        ({"map": {1: "one"}}, "spec.inputs.map"),
        ({"text": "\ud800"}, "spec.inputs.text"),
        ({"\udfff": 1}, "spec.inputs"),
        ({"deep": nested(100)}, "spec.inputs"),
        ({"deep": nested(100_000)}, "spec.inputs"),
    ],
)
def test_inputs_that_json_cannot_carry_are_refused_by_name(inputs: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRun) as raised:
        check_inputs(inputs)

    assert raised.value.field == field


def test_inputs_of_128_kib_are_taken_and_a_byte_more_is_refused() -> None:
    around = len('{"s":""}')
    check_inputs({"s": "x" * (128 * 1024 - around)})

    with pytest.raises(InvalidRun, match="131073 bytes are more than 131072"):
        check_inputs({"s": "x" * (128 * 1024 - around + 1)})


def test_inputs_are_measured_in_bytes_not_characters() -> None:
    with pytest.raises(InvalidRun):
        check_inputs({"s": "é" * (70 * 1024)})


def test_a_goal_that_is_no_text_is_refused_by_name() -> None:
    with pytest.raises(InvalidRun) as raised:
        spec_digest(a_spec(goal="ok").model_copy(update={"goal": "\ud800"}))

    assert raised.value.field == "spec.goal"
