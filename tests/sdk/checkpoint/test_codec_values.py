from __future__ import annotations

import array
import collections
import datetime as dt
import math
import sys
import uuid
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from pathlib import PurePosixPath
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from milepost.checkpoint.codec import (
    MAX_BYTES,
    MAX_DEPTH,
    MAX_PARTS,
    decode,
    digest,
    dumps,
    encode,
    first_difference,
    loads,
    store,
)
from milepost.errors import NotStorable

PARIS = ZoneInfo("Europe/Paris")
SUMMER_ENDS = dt.datetime(2026, 10, 25, 2, 30, 0, 1, tzinfo=PARIS)
EAST = dt.timezone(dt.timedelta(hours=5, minutes=30, seconds=1))

VALUES: dict[str, Any] = {
    "none": None,
    "true": True,
    "false": False,
    "zero": 0,
    "one, which is not true": 1,
    "largest exact integer": 2**53 - 1,
    "first big integer": 2**53,
    "big": 2**64,
    "big negative": -(2**63) - 1,
    "integer of 20,000 digits": 7**23_000,
    "float that looks like an integer": 1.0,
    "float": 0.1,
    "tiny float": 5e-324,
    "huge float": 1.7976931348623157e308,
    "negative zero": -0.0,
    "nan": math.nan,
    "infinity": math.inf,
    "negative infinity": -math.inf,
    "empty text": "",
    "text": 'naïve ☃ 😀 \x00 \u2028 \\ "',
    "lone surrogate": "a\ud800b",
    "two surrogates that are no pair": "\ud83d" + "\ude00",
    "text that looks like a number": "1.0",
    "bytes": b"\x00\xff",
    "no bytes": b"",
    "complex": complex(1.5, -0.0),
    "complex nan": complex(math.nan, math.inf),
    "decimal": Decimal("1.10"),
    "decimal exponent": Decimal("1E+3"),
    "decimal negative zero": Decimal("-0.00"),
    "decimal nan": Decimal("NaN123"),
    "decimal signalling nan": Decimal("sNaN"),
    "decimal infinity": Decimal("-Infinity"),
    "uuid": uuid.UUID("12345678-1234-5678-1234-567812345678"),
    "uuid made safely": uuid.UUID(int=1, is_safe=uuid.SafeUUID.safe),
    "date": dt.date(1, 1, 1),
    "time": dt.time(23, 59, 59, 999_999),
    "time, second reading": dt.time(2, 30, fold=1),
    "time with an offset": dt.time(2, 30, tzinfo=EAST),
    "timedelta": dt.timedelta(days=-1, microseconds=1),
    "longest timedelta": dt.timedelta.max,
    "naive datetime": dt.datetime(2026, 1, 2, 3, 4, 5, 6),  # noqa: DTZ001 - naive values are values too
    "datetime": dt.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=dt.UTC),
    "datetime with an offset": dt.datetime(2026, 1, 2, tzinfo=EAST),
    "datetime with a named offset": dt.datetime(2026, 1, 2, tzinfo=dt.timezone(dt.timedelta(hours=1), "CET")),
    "datetime with an odd name": dt.datetime(2026, 1, 2, tzinfo=dt.timezone(dt.timedelta(0), "\ud800")),
    "datetime in a zone": SUMMER_ENDS,
    "datetime in a zone, second reading": SUMMER_ENDS.replace(fold=1),
    "tuple": (1, (2, ()), [3]),
    "set": {1, "a", None, (1, 2)},
    "set of tuples": {(1, 2), (3, 4)},
    "set with nan": {math.nan, 1.0},
    "empty set": set(),
    "frozenset": frozenset({frozenset(), frozenset({1})}),
    "list": [1, [2, [3, {}]]],
    "dict": {"b": 1, "a": {"": None}},
    "integer keys": {1: "a", "1": "b"},
    "mixed keys": {None: 1, True: 2, (1, 2): 3, 2.5: 4, b"x": 5, frozenset({1}): 6},
    "nan key": {math.nan: 1},
    "date keys": {dt.date(2026, 1, 1): [1]},
    "surrogate key": {"\udc00": 1},
    "a tag's key": {"$mp": "tuple", "v": [1]},
    "a tag's key, nested": {"x": {"$mp": {"$mp": 1}}},
    "pairs that look like a tag": {"$mp": "dict", "v": [[1, 2]]},
    "a constructor of another library": {
        "lc": 1,
        "type": "constructor",
        "id": ["langchain", "llms", "OpenAI"],
        "kwargs": {"api_key": {"lc": 1, "type": "secret", "id": ["AWS_SECRET_ACCESS_KEY"]}},
    },
    "what looks like code": {"py/object": "os.system", "__reduce__": ["os.system", ["id"]], "__proto__": {}},
}


@pytest.mark.req("S1", "F-E8", "F-E9")
@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES.keys())
def test_a_value_comes_back_equal_in_type_and_value(value: Any) -> None:
    data, copy = store(value)

    assert first_difference(value, copy) is None
    assert first_difference(value, decode(loads(dumps(data)))) is None


@pytest.mark.req("S1")
@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES.keys())
def test_what_is_stored_is_json_that_every_reader_keeps_exactly(value: Any) -> None:
    data = encode({"in a dict": [value]})

    assert first_difference(loads(dumps(data)), data) is None


class MyStr(str):
    __slots__ = ()


class MyInt(int):
    pass


class Thing:
    pass


def a_cycle() -> list[Any]:
    value: list[Any] = [1]
    value.append({"self": value})
    return value


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


def an_explosion() -> list[Any]:
    value: list[Any] = []
    for _ in range(100):
        value = [value, value]
    return value


REFUSED: dict[str, tuple[Callable[[], Any], str, str]] = {
    "object": (Thing, "result", "no lossless form"),
    "function in a list": (lambda: {"items": [1, lambda: 1]}, "result.items[1]", "no lossless form"),
    "odd key": (lambda: {"odd key": [Thing()]}, 'result["odd key"][0]', "no lossless form"),
    "surrogate in the path": (lambda: {"\ud800": Thing()}, 'result["\\ud800"]', "no lossless form"),
    "number as key": (lambda: {1: {"a": Thing()}}, "result[1].a", "no lossless form"),
    "key": (lambda: {Thing: 1}, "result[<type>]", "no lossless form"),
    "part of a key": (lambda: {(1, Thing): 1}, "result[(1, <type>)][1]", "no lossless form"),
    "in a tuple": (lambda: {"a": (1, [Thing()])}, "result.a[1][0]", "no lossless form"),
    "in a set": (lambda: {"a": {(1, Thing)}}, "result.a{(1, <type>)}[1]", "no lossless form"),
    "exception": (lambda: [ValueError("x")], "result[0]", "raise it, or return its message"),
    "bytearray": (lambda: bytearray(b"x"), "result", "use bytes(...)"),
    "array": (lambda: array.array("b"), "result", "no lossless form"),
    "range": (lambda: [range(3)], "result[0]", "use list(...)"),
    "generator": (lambda: (x for x in "a"), "result", "no lossless form"),
    "coroutine function": (lambda: test_a_cycle_is_refused, "result", "no lossless form"),
    "fraction": (lambda: Fraction(1, 3), "result", "no lossless form"),
    "path": (lambda: PurePosixPath("a"), "result", "no lossless form"),
    "subclass of str": (lambda: [MyStr("a")], "result[0]", "subclass of str"),
    "subclass of int": (lambda: {"n": MyInt(1)}, "result.n", "convert it with int(...)"),
    "ordered dict": (collections.OrderedDict, "result", "convert it with dict(...)"),
    "default dict": (lambda: collections.defaultdict(list), "result", "convert it with dict(...)"),
    "foreign zone": (
        lambda: {"when": dt.datetime(2026, 1, 1, tzinfo=type("Odd", (dt.tzinfo,), {})())},
        "result.when",
        "only datetime.timezone and zoneinfo.ZoneInfo",
    ),
    "cycle": (lambda: {"a": a_cycle()}, "result.a[1].self", "it holds itself"),
    "too many parts": (lambda: ({0}, [0] * (MAX_PARTS + 1)), "result[1]", f"more than {MAX_PARTS} parts"),
    "explosion of shared lists": (an_explosion, "result", f"more than {MAX_PARTS} parts"),
}


@pytest.mark.req("S1")
@pytest.mark.parametrize(("make", "path", "why"), REFUSED.values(), ids=REFUSED.keys())
def test_a_value_without_exact_form_is_refused_with_its_path(
    make: Callable[[], Any], path: str, why: str
) -> None:
    with pytest.raises(NotStorable) as refused:
        store(make())

    assert (refused.value.path[: len(path)], why in refused.value.why) == (path, True)


def test_a_cycle_is_refused() -> None:
    with pytest.raises(NotStorable, match=r"^result\[1\].self cannot be stored: it holds itself$"):
        store(a_cycle())


@pytest.mark.req("S1")
@pytest.mark.parametrize("levels", [MAX_DEPTH + 1, 2_000, 100_000])
def test_a_value_nested_too_deep_is_refused(levels: int) -> None:
    value = nested(levels)

    with pytest.raises(NotStorable, match=f"deeper than {MAX_DEPTH} levels"):
        store(value)


def test_the_deepest_value_is_stored() -> None:
    value = nested(MAX_DEPTH)

    assert store(value)[1] == value
    assert decode(encode(value)) == value


def test_a_value_stored_from_a_deep_call_is_refused_and_raises_nothing_else() -> None:
    def from_deep(value: Any, calls: int) -> None:
        if calls:
            from_deep(value, calls - 1)
        else:
            store(value)

    for value in (nested(150), [(nested(140),)]):
        with pytest.raises(NotStorable, match="the call stack has no room left"):
            from_deep(value, sys.getrecursionlimit() - 150)


def test_the_deepest_dict_is_walked() -> None:
    value: dict[str, Any] = {"n": (1, 2)}
    for _ in range(MAX_DEPTH - 4):
        value = {"n": value}

    assert store(value)[1] == value


@pytest.mark.req("A6")
def test_a_value_larger_than_the_limit_is_refused() -> None:
    with pytest.raises(NotStorable) as refused:
        store("x" * MAX_BYTES)

    assert str(refused.value) == (
        f"result cannot be stored: its {MAX_BYTES + 2} bytes are more than {MAX_BYTES}; "
        "keep it elsewhere, as a file or an object of your own, and return its address"
    )


def test_two_places_that_share_a_list_get_two_equal_lists() -> None:
    shared = [1]

    copy = store([shared, shared])[1]

    assert copy == [[1], [1]]
    assert copy[0] is not copy[1]


@pytest.mark.parametrize("value", [{"a": [1]}, {"a": (1, [2])}])
def test_nothing_that_is_returned_shares_a_part_with_the_value(value: dict[str, Any]) -> None:
    data, copy = store(value)
    before = dumps(data)

    value["a"] = copy["a"] = "changed"

    assert dumps(data) == before


def test_a_dict_keeps_the_order_of_its_keys() -> None:
    value = {"b": 1, "a": {2: 1, 1: 2}}

    copy = store(value)[1]

    assert [list(copy), list(copy["a"])] == [["b", "a"], [2, 1]]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({1: {"a": 1, "b": 2}, 2: 3}, {2: 3, 1: {"b": 2, "a": 1}}),
        ({"x", "y", "z"}, {"z", "y", "x"}),
    ],
)
def test_the_order_of_keys_does_not_change_the_digest(one: Any, other: Any) -> None:
    assert digest(encode(one)) == digest(encode(other))


def test_the_digest_tells_values_apart() -> None:
    values = [1, True, 1.0, "1", None, [1], (1,), {1}, {"1": 1}, {1: 1}, [[1, 1]], -0.0, 0.0, b"1"]

    assert len({digest(encode(value)) for value in values}) == len(values)


DIFFERENT: dict[str, tuple[Any, Any, str]] = {
    "bool and int": (True, 1, "value"),
    "int and float": (1, 1.0, "value"),
    "zeros": ([0.0], [-0.0], "value[0]"),
    "nan and number": (math.nan, 1.0, "value"),
    "complex zeros": (complex(0, 0.0), complex(0, -0.0), "value"),
    "decimals of one value": (Decimal("1.0"), Decimal("1.00"), "value"),
    "one instant, two zones": (SUMMER_ENDS.replace(fold=1), SUMMER_ENDS.astimezone(dt.UTC), "value"),
    "one offset, two names": (
        dt.time(1, tzinfo=dt.UTC),
        dt.time(1, tzinfo=dt.timezone(dt.timedelta(0), "Z")),
        "value",
    ),
    "fold": (dt.time(1), dt.time(1, fold=1), "value"),
    "zone and offset": (SUMMER_ENDS, SUMMER_ENDS.replace(tzinfo=dt.UTC), "value"),
    "safety of a uuid": (uuid.UUID(int=1), uuid.UUID(int=1, is_safe=uuid.SafeUUID.safe), "value"),
    "order of keys": ({"a": 1, "b": 2}, {"b": 2, "a": 1}, 'value["a"]'),
    "keys": ({1: 2}, {True: 2}, "value[1]"),
    "length": ([1], [1, 2], "value"),
    "fewer keys": ({"a": 1}, {}, "value"),
    "inside": ({"a": [{"b": (1, 2)}]}, {"a": [{"b": (1, 3)}]}, "value.a[0].b[1]"),
    "element": ({1, 2}, {1, 3}, "value{2}"),
    "element's type": ({1}, {True}, "value{1}"),
    "one element more": ({1}, {1, 2}, "value"),
    "set and frozenset": ({1}, frozenset({1}), "value"),
    "what cannot be compared": (Thing(), Thing(), "value"),
}


@pytest.mark.req("S1")
@pytest.mark.parametrize(("one", "other", "path"), DIFFERENT.values(), ids=DIFFERENT.keys())
def test_a_difference_in_type_or_value_is_found(one: Any, other: Any, path: str) -> None:
    found = first_difference(one, other)

    assert found is not None
    assert found[0] == path
