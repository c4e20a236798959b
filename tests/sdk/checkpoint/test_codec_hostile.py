from __future__ import annotations

import datetime as dt
import enum
import json
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import BaseModel
from typing_extensions import override

from milepost.checkpoint.codec import MAX_BYTES, MAX_DEPTH, DecodeError, decode, digest, dumps, loads

BOUND_SECONDS = 60


class Note(BaseModel):
    title: str


class Odd(BaseModel):
    when: list[Note] = []
    _private: int = 0


@dataclass
class Point:
    x: int = 0


class Pair(NamedTuple):
    a: int
    b: int


class Colour(enum.Enum):
    RED = 1


class Rights(enum.Flag):
    READ = 1


class MyList(list[int]):
    pass


@dataclass(frozen=True)
class Frozen:
    x: int


@dataclass
class Touchy:
    x: int

    @override
    def __eq__(self, other: object) -> bool:
        raise RuntimeError

    @override
    def __hash__(self) -> int:
        return 1


def unlucky() -> int:
    raise LookupError


@dataclass
class Unlucky:
    x: int = field(default_factory=unlucky)


class Refusing:
    """An attribute that takes no value."""

    def __set__(self, owner: object, value: int) -> None:
        raise OSError


@dataclass
class Guarded:
    x: int


Guarded.x = Refusing()  # type: ignore[assignment]  # as a descriptor is put there


class Rude(enum.Flag):
    A = 1

    @classmethod
    @override
    def _missing_(cls, value: object) -> Rude:
        raise LookupError


HOSTILE_TEXT: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "not JSON"),
    "half": (b'{"a": [1, ', "not JSON"),
    "two values": (b"1 2", "not JSON"),
    "trailing comma": (b"[1,]", "not JSON"),
    "not utf-8": (b'"\xff"', "not UTF-8"),
    "surrogate in utf-8": (b'"\xed\xa0\x80"', "not UTF-8"),
    "byte order mark": (b"\xef\xbb\xbf1", "not JSON"),
    "escaped lone surrogate": (b'{"a": ["\\uD800"]}', "not UTF-8"),
    "escaped lone surrogate in a key": (b'{"\\udc00": 1}', "not UTF-8"),
    "nan": (b'{"a": NaN}', "NaN is not JSON"),
    "infinity": (b"[Infinity]", "Infinity is not JSON"),
    "negative infinity": (b"-Infinity", "-Infinity is not JSON"),
    "number beyond a float": (b"1e999", "beyond the range of a float"),
    "inexact integer": (b"9007199254740993", "beyond"),
    "integer of a million digits": (b"9" * 1_000_000, "beyond"),
    "negative integer of a million digits": (b"[-" + b"9" * 1_000_000 + b"]", "beyond"),
    "float of a million digits": (b"1" * 1_000_000 + b".0", "beyond the range of a float"),
    "duplicate key": (b'[{"a": 1, "b": 2, "a": 3}]', "the key 'a' stands twice"),
    "duplicate key by an escape": (b'{"a": 1, "\\u0061": 2}', "stands twice"),
    "a million lists": (b"[" * 1_000_000, "deeper than"),
    "a million lists, closed": (b"[" * 1_000_000 + b"]" * 1_000_000, "deeper than"),
    "a million objects": (b'{"a":' * 1_000_000, "deeper than"),
    "deep behind brackets in text": (b'["' + b"]" * 500 + b'",' + b"[" * 500, "deeper than"),
    "deep behind an escaped quote": (b'["\\"' + b"]" * 500 + b'",' + b"[" * 500, "deeper than"),
    "quotes that never end": (b"[" * 300 + b'"' + b'\\"' * 500_000, "deeper than"),
    "too large": (b" " * (MAX_BYTES + 1), f"more than {MAX_BYTES}"),
}


@pytest.mark.req("F-E8")
@pytest.mark.timeout(BOUND_SECONDS)
@pytest.mark.parametrize(("raw", "why"), HOSTILE_TEXT.values(), ids=HOSTILE_TEXT.keys())
def test_text_that_was_never_written_is_refused_in_bounded_time(raw: bytes, why: str) -> None:
    with pytest.raises(DecodeError) as refused:
        loads(raw)

    assert why in refused.value.why
    assert len(str(refused.value)) < 500


def test_brackets_in_text_are_not_depth() -> None:
    value = {"a": "[{" * 10_000, "b": ['\\"[' * 1_000]}

    assert loads(dumps(value)) == value


def test_many_lists_side_by_side_are_not_depth() -> None:
    assert loads(b"[" + b"[[]]," * 10_000 + b"[]]") == [[[]]] * 10_000 + [[]]


HOSTILE_DATA: dict[str, tuple[Any, Any, str]] = {
    "unknown tag": ({"$mp": "os.system", "v": "id"}, Any, "value"),
    "unknown tag, nested": ({"a": [{"$mp": "object", "v": 1}]}, Any, "value.a[0]"),
    "tag that is no text": ({"$mp": ["tuple"], "v": []}, Any, "value"),
    "tag without a value": ({"$mp": "tuple"}, Any, "value"),
    "tag with another key": ({"$mp": "tuple", "v": [], "then": 1}, Any, "value"),
    "tag of another tag's keys": ({"$mp": "date", "v": "2026-01-01", "fold": 1}, Any, "value"),
    "not JSON": ({"a": (1,)}, Any, "value.a"),
    "nan": ([float("nan")], Any, "value[0]"),
    "tuple of text": ({"$mp": "tuple", "v": "ab"}, Any, "value"),
    "set of lists": ({"$mp": "set", "v": [[1]]}, Any, "value[0]"),
    "set of what raises when it is hashed": (
        {"$mp": "set", "v": [{"$mp": "data", "v": {}, "unset": ["x"]}]},
        set[Frozen],
        "value[0]",
    ),
    "key that raises when it is hashed": (
        {"$mp": "dict", "v": [[{"$mp": "data", "v": {}, "unset": ["x"]}, 1]]},
        dict[Frozen, int],
        "value[0]",
    ),
    "set of what raises when it is compared": (
        {"$mp": "set", "v": [{"$mp": "data", "v": {"x": 1}}, {"$mp": "data", "v": {"x": 2}}]},
        set[Touchy],
        "value",
    ),
    "field whose default raises": ({"$mp": "data", "v": {}}, Unlucky, "value.x"),
    "attribute that raises when it is set": ({"$mp": "data", "v": {"x": 1}}, Guarded, "value"),
    "flag with its own look-up": ({"$mp": "flag", "v": 64}, Rude, "value"),
    "set of twins": ({"$mp": "set", "v": [1, 1.0]}, Any, "value"),
    "dict of no pairs": ({"$mp": "dict", "v": [[1, 2], [1]]}, Any, "value[1]"),
    "dict of texts": ({"$mp": "dict", "v": ["ab"]}, Any, "value[0]"),
    "dict with twins": ({"$mp": "dict", "v": [[1, 2], [True, 3]]}, Any, "value"),
    "dict with a list as key": ({"$mp": "dict", "v": [[[], 2]]}, Any, "value[0]"),
    "base64": ({"$mp": "bytes", "v": "!!"}, Any, "value"),
    "base64 that is no text": ({"$mp": "bytes", "v": 1}, Any, "value"),
    "text": ({"$mp": "str", "v": "/w=="}, Any, "value"),
    "hexadecimal": ({"$mp": "int", "v": "0x_1"}, Any, "value"),
    "decimal digits": ({"$mp": "int", "v": "9" * 10_000}, Any, "value"),
    "no number": ({"$mp": "int", "v": "x"}, Any, "value"),
    "float": ({"$mp": "float", "v": "1.0"}, Any, "value"),
    "complex": ({"$mp": "complex", "v": [1.0]}, Any, "value"),
    "complex of text": ({"$mp": "complex", "v": ["1", 1.0]}, Any, "value"),
    "decimal": ({"$mp": "decimal", "v": "1e5x"}, Any, "value"),
    "decimal in other words": ({"$mp": "decimal", "v": " 1 "}, Any, "value"),
    "uuid": ({"$mp": "uuid", "v": "12"}, Any, "value"),
    "uuid in other words": ({"$mp": "uuid", "v": "{12345678123456781234567812345678}"}, Any, "value"),
    "uuid of odd safety": (
        {"$mp": "uuid", "v": "12345678-1234-5678-1234-567812345678", "safe": 9},
        Any,
        "value",
    ),
    "timedelta": ({"$mp": "timedelta", "v": [10**10, 0, 0]}, Any, "value"),
    "timedelta of too many parts": ({"$mp": "timedelta", "v": [1] * 9}, Any, "value"),
    "timedelta of floats": ({"$mp": "timedelta", "v": [1.5, 0, 0]}, Any, "value"),
    "timedelta in other words": ({"$mp": "timedelta", "v": [0, 86_400, 0]}, Any, "value"),
    "date": ({"$mp": "date", "v": "2026-13-01"}, Any, "value"),
    "date in other words": ({"$mp": "date", "v": "20260101"}, Any, "value"),
    "time": ({"$mp": "time", "v": "25:00:00"}, Any, "value"),
    "datetime": ({"$mp": "datetime", "v": "yesterday"}, Any, "value"),
    "datetime with its offset": ({"$mp": "datetime", "v": "2026-01-01T00:00:00+01:00"}, Any, "value"),
    "datetime in other words": ({"$mp": "datetime", "v": "2026-01-01 00:00:00"}, Any, "value"),
    "fold": ({"$mp": "time", "v": "01:00:00", "fold": 2}, Any, "value"),
    "fold that is no integer": ({"$mp": "time", "v": "01:00:00", "fold": True}, Any, "value"),
    "offset": ({"$mp": "time", "v": "01:00:00", "offset": [5, 0, 0]}, Any, "value"),
    "zone and pydantic's": (
        {"$mp": "time", "v": "01:00:00", "parsed": [0, 0, 0], "zone": "UTC"},
        Any,
        "value",
    ),
    "pydantic's with a name": (
        {"$mp": "time", "v": "01:00:00", "parsed": [0, 0, 0], "name": "UTC"},
        Any,
        "value",
    ),
    "pydantic's too far": ({"$mp": "time", "v": "01:00:00", "parsed": [1, 0, 0]}, Any, "value"),
    "pydantic's too fine": ({"$mp": "time", "v": "01:00:00", "parsed": [0, 0, 1]}, Any, "value"),
    "pydantic's beyond all": ({"$mp": "time", "v": "01:00:00", "parsed": [999_999_999, 0, 0]}, Any, "value"),
    "two zones": ({"$mp": "time", "v": "01:00:00", "offset": [0, 0, 0], "zone": "UTC"}, Any, "value"),
    "zone": ({"$mp": "time", "v": "01:00:00", "zone": "Europe/Atlantis"}, Any, "value"),
    "zone outside": ({"$mp": "time", "v": "01:00:00", "zone": "../../etc/passwd"}, Any, "value"),
    "zone by its place": ({"$mp": "time", "v": "01:00:00", "zone": "/etc/passwd"}, Any, "value"),
    "zone that is a folder": ({"$mp": "time", "v": "01:00:00", "zone": "Europe"}, Any, "value"),
    "zone with a zero byte": ({"$mp": "time", "v": "01:00:00", "zone": "UTC\x00"}, Any, "value"),
    "model where none is declared": ({"$mp": "model", "v": {"title": "a"}}, Any, "value"),
    "model where a dataclass is declared": ({"$mp": "model", "v": {}}, Point, "value"),
    "model of a list": ({"$mp": "model", "v": []}, Note, "value"),
    "model with an unknown field": (
        {"$mp": "model", "v": {"title": "a", "__class__": 1}},
        Note,
        "value.__class__",
    ),
    "model with odd names": ({"$mp": "model", "v": {"title": "a"}, "set": [1]}, Note, "value"),
    "model with odd extras": ({"$mp": "model", "v": {"title": "a"}, "extra": [1]}, Note, "value"),
    "model with odd private": ({"$mp": "model", "v": {"when": []}, "private": 1}, Odd, "value"),
    "model with odd unset": ({"$mp": "model", "v": {}, "unset": "title"}, Note, "value"),
    "model inside": (
        {"$mp": "model", "v": {"when": [{"$mp": "model", "v": {}}]}},
        Odd,
        "value.when[0].title",
    ),
    "dataclass with a dunder": ({"$mp": "data", "v": {"__dict__": {}}}, Point, "value.__dict__"),
    "dataclass with a method": ({"$mp": "data", "v": {"__init__": 1}}, Point, "value.__init__"),
    "named tuple without a field": ({"$mp": "named", "v": {"a": 1}}, Pair, "value.b"),
    "named tuple with one more": ({"$mp": "named", "v": {"a": 1, "b": 2, "c": 3}}, Pair, "value.c"),
    "member": ({"$mp": "enum", "v": "__class__"}, Colour, "value"),
    "member by a list": ({"$mp": "enum", "v": ["RED"]}, Colour, "value"),
    "flag of an enum": ({"$mp": "flag", "v": 1}, Colour, "value"),
    "flag": ({"$mp": "flag", "v": 64}, Rights, "value"),
    "subclass of other content": ({"$mp": "of", "v": {"a": 1}}, MyList, "value"),
    "truth as a subclass of int": ({"$mp": "of", "v": 1}, bool, "value"),
    "native as a subclass": ({"$mp": "of", "v": [1]}, list, "value"),
    "arm of no union": ({"$mp": "arm", "i": 1, "t": "Point", "v": 1}, Note, "value"),
    "arm far away": ({"$mp": "arm", "i": 10**9, "t": "x", "v": 1}, Note | Point, "value"),
    "arm before the first": ({"$mp": "arm", "i": -1, "t": "Point", "v": 1}, Note | Point, "value"),
    "arm by a truth": ({"$mp": "arm", "i": True, "t": "Point", "v": 1}, Note | Point, "value"),
    "arm without a label": ({"$mp": "arm", "i": 1, "v": 1}, Note | Point, "value"),
}


@pytest.mark.req("S1", "F-E8", "F-E9")
@pytest.mark.parametrize(("data", "declared", "path"), HOSTILE_DATA.values(), ids=HOSTILE_DATA.keys())
def test_a_hostile_tag_is_refused_with_its_path(data: Any, declared: Any, path: str) -> None:
    with pytest.raises(DecodeError) as refused:
        decode(data, declared)

    assert refused.value.path == path


@pytest.mark.req("F-E8")
@pytest.mark.parametrize(
    "wrap", [lambda it: [it], lambda it: {"a": it}, lambda it: {"$mp": "tuple", "v": [it]}]
)
def test_data_nested_too_deep_is_refused(wrap: Any) -> None:
    data: Any = []
    for _ in range(MAX_DEPTH + 1):
        data = wrap(data)

    with pytest.raises(DecodeError, match=f"deeper than {MAX_DEPTH} levels"):
        decode(data)


@pytest.mark.req("F-E9")
@pytest.mark.parametrize(
    "payload",
    [
        {"lc": 1, "type": "constructor", "id": ["langchain_core", "prompts", "PromptTemplate"], "kwargs": {}},
        {"lc": 1, "type": "secret", "id": ["OPENAI_API_KEY"]},
        {
            "lc": 2,
            "type": "constructor",
            "id": ["os", "system"],
            "method": [None],
            "args": ["id"],
            "kwargs": {},
        },
        {"__type__": "os.system", "__args__": ["id"], "py/reduce": [{"py/type": "os.system"}]},
        {"__proto__": {"admin": True}, "constructor": {"prototype": {}}},
    ],
)
def test_a_constructor_of_another_library_is_inert_data(payload: dict[str, Any]) -> None:
    assert decode(loads(json.dumps(payload).encode())) == payload
    assert decode(loads(json.dumps(payload).encode()), Note) == payload


TAGS = [
    *("str", "int", "float", "bytes", "complex", "decimal", "uuid", "timedelta", "date", "time", "datetime"),
    *("tuple", "set", "frozenset", "dict", "arm", "enum", "flag", "of", "model", "data", "named"),
]

json_data = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=3) | st.sampled_from(["$mp", "v", "i", "t"]), inner, max_size=4)
        | st.fixed_dictionaries(
            {
                "$mp": st.sampled_from(TAGS),
                "v": inner,
            },
            optional={"i": inner, "t": inner, "set": inner, "unset": inner, "zone": inner, "offset": inner},
        )
    ),
    max_leaves=20,
)


@pytest.mark.req("F-E8")
@given(
    json_data, st.sampled_from([Any, Note, Odd, Point, Pair, Colour, Rights, MyList, Note | Point, list[Odd]])
)
@example({"$mp": "time", "v": "01:00:00", "zone": ""}, Any)
@example({"$mp": "datetime", "v": "0001-01-01T00:00:00", "offset": [0, 1, 0]}, dt.datetime)
def test_any_data_is_read_or_refused(data: Any, declared: Any) -> None:
    digest(data)
    with suppress(DecodeError):
        decode(data, declared)


@pytest.mark.req("F-E8")
@given(
    st.binary(max_size=40)
    | st.text(alphabet='{}[]",:\\u\t 0123eE+-.dDaNItrulfs', max_size=40).map(str.encode)
)
def test_any_bytes_are_read_or_refused(raw: bytes) -> None:
    try:
        data = loads(raw)
    except DecodeError:
        return
    assert loads(dumps(data)) == data
