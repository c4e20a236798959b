"""Round trips over declared types that are made up together with values of them."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import uuid
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Annotated, Any, NamedTuple, NewType, Optional, Union, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, create_model
from typing_extensions import TypedDict

from milepost.checkpoint.codec import (
    decode,
    digest,
    dumps,
    encode,
    first_difference,
    loads,
    store,
)
from milepost.errors import NotStorable

any_text = st.text(st.characters(exclude_categories=()), max_size=5) | st.sampled_from(["$mp", "v", ""])


class Colour(enum.Enum):
    RED = 1
    BLUE = "blue"


class Rights(enum.IntFlag):
    READ = 1
    WRITE = 2


class Word(str):
    __slots__ = ()


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)
    a: int = 0


class Twin(BaseModel):
    model_config = ConfigDict(frozen=True)
    a: int = 0


class Kind(NamedTuple):
    """A declared type, values of it, and whether they can be keys."""

    declared: Any
    values: st.SearchStrategy[Any]
    hashable: bool


def leaf(declared: Any, values: st.SearchStrategy[Any]) -> Kind:
    return Kind(declared, values, hashable=True)


LEAVES = [
    leaf(type(None), st.none()),
    leaf(bool, st.booleans()),
    leaf(int, st.integers() | st.integers(2**53 - 1, 2**53 + 1)),
    leaf(float, st.floats(allow_nan=False)),
    leaf(str, any_text),
    leaf(bytes, st.binary(max_size=4)),
    leaf(Decimal, st.decimals(allow_nan=False)),
    leaf(uuid.UUID, st.uuids()),
    leaf(dt.datetime, st.datetimes(timezones=st.none() | st.timezones())),
    leaf(dt.timedelta, st.timedeltas()),
    leaf(Colour, st.sampled_from(Colour)),
    leaf(Rights, st.integers(0, 7).map(Rights)),
    leaf(Word, st.text(max_size=3).map(Word)),
    leaf(Frozen, st.builds(Frozen) | st.builds(Frozen, a=st.integers())),
    leaf(Twin, st.builds(Twin, a=st.integers())),
]

# As values: what they are given is known at run time only.
LIST, SEQUENCE, TUPLE, DICT, MAPPING, SET, FROZENSET, UNION, OPTIONAL, ANNOTATED, NAMED, TYPED, NEW = (
    cast("Any", it)
    for it in (
        *(list, Sequence, tuple, dict, Mapping, set, frozenset),
        *(Union, Optional, Annotated, NamedTuple, TypedDict, NewType),
    )
)
few: Mapping[str, Any] = {"max_size": 3}


def containers(inner: Kind) -> list[Kind]:
    many, numbers = st.lists(inner.values, **few), st.integers()
    made = [
        Kind(LIST[inner.declared], many, hashable=False),
        Kind(SEQUENCE[inner.declared], many | many.map(tuple), hashable=False),
        Kind(TUPLE[inner.declared, ...], many.map(tuple), hashable=inner.hashable),
        Kind(TUPLE[int, inner.declared], st.tuples(numbers, inner.values), hashable=inner.hashable),
        Kind(DICT[str, inner.declared], st.dictionaries(any_text, inner.values, **few), hashable=False),
        Kind(
            MAPPING[int, inner.declared], st.dictionaries(st.integers(), inner.values, **few), hashable=False
        ),
        Kind(OPTIONAL[inner.declared], st.none() | inner.values, hashable=inner.hashable),
        Kind(ANNOTATED[inner.declared, "note"], inner.values, hashable=inner.hashable),
        *classes(inner),
    ]
    if inner.hashable:
        made += [
            Kind(SET[inner.declared], st.sets(inner.values, **few), hashable=False),
            Kind(FROZENSET[inner.declared], st.frozensets(inner.values, **few), hashable=True),
            Kind(
                DICT[inner.declared, int], st.dictionaries(inner.values, st.integers(), **few), hashable=False
            ),
        ]
    return made


def classes(inner: Kind) -> list[Kind]:
    """Return classes made for this type alone, with a field of it."""
    data = dataclasses.make_dataclass("Data", [("it", inner.declared), ("n", int, 0)], slots=True)
    frozen = dataclasses.make_dataclass("Froze", [("it", inner.declared)], frozen=True)
    model = create_model(
        "Model",
        __config__=ConfigDict(arbitrary_types_allowed=True, extra="allow"),
        it=(inner.declared, ...),
        n=(int, 0),
    )
    named = NAMED("Named", [("it", inner.declared), ("n", int)])
    typed = TYPED("Typed", {"it": inner.declared, "$mp": str}, total=False)
    new = NEW("New", data)
    values = inner.values
    # Built without validation, which would coerce: a model may hold whatever was put there.
    models = st.builds(lambda it, more: model.model_construct(it=it, more=more), values, any_text)
    return [
        Kind(data, st.builds(data, values), hashable=False),
        Kind(new, st.builds(data, values, st.integers()), hashable=False),
        Kind(frozen, st.builds(frozen, values), hashable=inner.hashable),
        Kind(model, models, hashable=False),
        Kind(named, st.builds(named, values, st.integers()), hashable=inner.hashable),
        Kind(typed, st.fixed_dictionaries({}, optional={"it": values, "$mp": any_text}), hashable=False),
    ]


def either(one: Kind, other: Kind) -> Kind:
    return Kind(
        UNION[one.declared, other.declared], one.values | other.values, one.hashable and other.hashable
    )


kinds = st.recursive(
    st.sampled_from(LEAVES),
    lambda inner: (
        inner.flatmap(lambda kind: st.sampled_from(containers(kind))) | st.builds(either, inner, inner)
    ),
    max_leaves=4,
)
slow = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])


@pytest.mark.req("S1")
@slow
@given(st.data())
def test_a_value_of_a_made_up_type_comes_back(data: st.DataObject) -> None:
    kind = data.draw(kinds)
    value = data.draw(kind.values)

    stored, copy = store(value, kind.declared)

    assert first_difference(value, copy) is None
    read = loads(dumps(stored))
    assert first_difference(value, decode(read, kind.declared)) is None
    assert digest(encode(copy, kind.declared)) == digest(stored)


@pytest.mark.req("S1")
@slow
@given(st.data())
def test_a_value_under_another_type_comes_back_or_is_refused(data: st.DataObject) -> None:
    kind, other = data.draw(kinds), data.draw(kinds)
    value = data.draw(kind.values)

    try:
        _, copy = store(value, other.declared)
    except NotStorable as refused:
        assert refused.path.startswith("result")  # noqa: PT017 - it may as well be stored
        return
    assert first_difference(value, copy) is None


@pytest.mark.req("S1")
@slow
@given(st.data())
def test_no_declared_type_changes_what_is_native(data: st.DataObject) -> None:
    kind, other = data.draw(kinds), data.draw(kinds)
    value = data.draw(kind.values)
    try:
        stored, _ = store(value)
    except NotStorable:
        return

    assert first_difference(value, decode(stored, other.declared)) is None
