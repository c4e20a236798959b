from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict

from milepost.checkpoint.codec import decode, digest, dumps, encode, first_difference, loads, store
from milepost.errors import NotStorable

zones = (
    st.none()
    | st.timezones(no_cache=True)
    | st.builds(
        dt.timezone,
        st.timedeltas(dt.timedelta(hours=-23), dt.timedelta(hours=23)),
        st.text(max_size=5),
    )
    | st.builds(dt.timezone, st.timedeltas(dt.timedelta(hours=-23), dt.timedelta(hours=23)))
)
any_text = st.text(st.characters(exclude_categories=()), max_size=8) | st.sampled_from(["$mp", "v"])

leaves: st.SearchStrategy[Hashable] = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(2**53 - 2, 2**53 + 2)
    | st.floats()
    | st.complex_numbers()
    | any_text
    | st.binary(max_size=8)
    | st.decimals()
    | st.uuids(allow_nil=True)
    | st.dates()
    | st.times(timezones=st.none())
    | st.timedeltas()
    | st.datetimes(timezones=zones, allow_imaginary=True)
)
keys: st.SearchStrategy[Any] = st.recursive(
    leaves.filter(lambda value: not _is_signalling(value)),
    lambda inner: st.lists(inner, max_size=3).map(tuple) | st.frozensets(inner, max_size=3),
    max_leaves=4,
)
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | any_text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(any_text, inner, max_size=4),
    max_leaves=20,
)
tags = st.fixed_dictionaries(
    {"$mp": st.sampled_from(["tuple", "dict", "model", "arm", "x"]), "v": st.lists(leaves, max_size=2)}
)
values: st.SearchStrategy[Any] = st.recursive(
    leaves | keys | tags,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(any_text, inner, max_size=4)
        | st.dictionaries(keys, inner, max_size=3)
        | st.sets(keys, max_size=3)
    ),
    max_leaves=15,
)


def _is_signalling(value: Any) -> bool:
    return bool(getattr(value, "is_snan", bool)())


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Point:
    at: Any
    near: list[Point] = field(default_factory=list)


class Pair(NamedTuple):
    one: Colour
    two: Point | None


class Note(BaseModel):
    model_config = ConfigDict(extra="allow", arbitrary_types_allowed=True)
    body: Any = None
    pairs: dict[str, Pair] = {}
    kind: Colour | Point | None = None
    _seen: Any = None


class Memo(BaseModel):
    body: Any = None


colours = st.sampled_from(Colour)
points = st.recursive(
    st.builds(Point, values), lambda inner: st.builds(Point, values, st.lists(inner, max_size=2))
)
pairs = st.builds(Pair, colours, st.none() | points)


@st.composite
def notes(draw: st.DrawFn) -> Note:
    chosen = draw(st.sets(st.sampled_from(["body", "pairs", "kind", "more"])))
    parts = {
        "body": values,
        "pairs": st.dictionaries(any_text, pairs, max_size=2),
        "kind": st.none() | colours | points,
        "more": values,
    }
    note = Note.model_construct(**{name: draw(parts[name]) for name in sorted(chosen)})
    note._seen = draw(values)
    return note


slow = settings(suppress_health_check=[HealthCheck.too_slow])


def assert_comes_back(value: Any, declared: Any) -> None:
    data, copy = store(value, declared)
    assert first_difference(value, copy) is None
    read = loads(dumps(data))
    assert first_difference(read, data) is None
    assert first_difference(value, decode(read, declared)) is None
    assert first_difference(encode(copy, declared), data) is None
    assert digest(encode(value, declared)) == digest(data)
    assert digest(data, dumps(data)) == digest(data)


@pytest.mark.req("S1")
@slow
@given(values)
def test_every_value_comes_back(value: Any) -> None:
    assert_comes_back(value, Any)


@pytest.mark.req("S1")
@given(plain)
def test_every_plain_value_comes_back(value: Any) -> None:
    assert_comes_back(value, Any)


@pytest.mark.req("S1")
@slow
@given(st.lists(notes() | st.builds(Memo, body=values) | points | pairs | colours | st.none(), max_size=3))
def test_every_instance_comes_back_where_its_class_is_declared(value: Any) -> None:
    assert_comes_back(value, list[Note | Memo | Point | Pair | Colour | None])


@pytest.mark.req("S1")
@slow
@given(notes(), st.lists(st.sampled_from(["list", "dict", "tuple", "model"]), max_size=4))
def test_an_instance_in_any_is_refused_with_its_path(note: Note, around: list[str]) -> None:
    value: Any = note
    path = ""
    for kind in around:
        match kind:
            case "list":
                value, path = [1, value], "[1]" + path
            case "dict":
                value, path = {"a b": value}, '["a b"]' + path
            case "tuple":
                value, path = (value,), "[0]" + path
            case _:
                value, path = Point(value), ".at" + path

    declared = Point if around and around[-1] == "model" else Any
    with pytest.raises(NotStorable) as refused:
        store(value, declared)

    wanted = "result" + path
    assert wanted.startswith(refused.value.path)
    assert "model" in around or refused.value.path == wanted


@slow
@given(values, values)
def test_two_values_have_one_text_only_if_nothing_differs(one: Any, other: Any) -> None:
    assert (dumps(encode(one)) == dumps(encode(other))) == (first_difference(one, other) is None)
