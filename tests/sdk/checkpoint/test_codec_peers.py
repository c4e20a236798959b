"""What other checkpointers altered, refused or executed: ours keeps it, or says where and why not."""

from __future__ import annotations

import base64
import datetime as dt
import enum
import json
import math
import pickle
import sys
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from typing_extensions import override

from milepost.checkpoint.codec import DecodeError, decode, dumps, first_difference, loads, store
from milepost.errors import NotStorable


class Note(BaseModel):
    title: str


@dataclass
class Point:
    x: int


class Colour(enum.Enum):
    RED = 1


class OddlyMade(Exception):
    def __init__(self, code: int, *, detail: str) -> None:
        super().__init__(code, detail)


def nested(levels: int) -> Any:
    value: Any = []
    for _ in range(levels):
        value = [value]
    return value


KEPT: dict[str, tuple[Any, Any]] = {
    "2**64": (2**64, Any),
    "-2**63-1": (-(2**63) - 1, Any),
    "lone surrogate": ("a\ud800b", Any),
    "set of a tuple": ({(1, 2)}, Any),
    "frozenset": (frozenset({(1, 2)}), Any),
    "tuple": ((1, 2), Any),
    "bytes": (b"\x00\xff", Any),
    "int, tuple and None as keys": ({1: "a", "1": "b", (1, 2): "c", None: "d"}, Any),
    "datetime with an offset and microseconds": (
        dt.datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=dt.timezone(dt.timedelta(hours=5, minutes=45))),
        Any,
    ),
    "Decimal": (Decimal("1.10"), Any),
    "Enum": (Colour.RED, Colour),
    "pydantic model": (Note(title="a"), Note),
    "dataclass": (Point(1), Point),
    "UUID": (uuid.UUID(int=7), Any),
    "timedelta": (dt.timedelta(microseconds=1), Any),
    "complex": (complex(1, -0.0), Any),
    "NaN": ([math.nan, math.inf], Any),
}


@pytest.mark.req("S1")
@pytest.mark.parametrize(("value", "declared"), KEPT.values(), ids=KEPT.keys())
def test_what_others_altered_comes_back(value: Any, declared: Any) -> None:
    data, copy = store(value, declared)

    assert first_difference(value, copy) is None
    assert first_difference(value, decode(loads(dumps(data)), declared)) is None


REFUSED: dict[str, tuple[Callable[[], Any], str, str]] = {
    "bytearray": (lambda: {"a": bytearray(b"x")}, "result.a", "use bytes(...)"),
    "range": (lambda: [range(3)], "result[0]", "use list(...)"),
    "exception": (lambda: [OddlyMade(1, detail="x")], "result[0]", "raise it, or return its message"),
    "lambda in a list": (
        lambda: {"items": [1, 2, 3, {"when": lambda: 1}]},
        "result.items[3].when",
        "lossless",
    ),
    "2,000 levels": (lambda: nested(2_000), "result[0]", "nested deeper than"),
    "model where Any is declared": (lambda: [Note(title="a")], "result[0]", "annotate"),
}


@pytest.mark.req("S1")
@pytest.mark.parametrize(("make", "path", "why"), REFUSED.values(), ids=REFUSED.keys())
def test_what_others_lost_without_a_word_is_refused_with_its_path(
    make: Callable[[], Any], path: str, why: str
) -> None:
    with pytest.raises(NotStorable) as refused:
        store(make())

    assert refused.value.path[: len(path)] == path
    assert why in refused.value.why


class Bomb:
    """Its pickle writes a file when it is loaded."""

    def __init__(self, target: Path) -> None:
        self.target = target

    @override
    def __reduce__(self) -> tuple[Any, ...]:
        return Path.write_text, (self.target, "executed")


def constructor(target: str) -> dict[str, Any]:
    """CVE-2025-64439: the constructor objects that a JSON fallback on lone surrogates used to call."""
    return {
        "lc": 2,
        "type": "constructor",
        "id": ["pathlib", "Path"],
        "method": ["write_text", None],
        "args": [target, "executed \ud800"],
        "kwargs": {},
    }


def secret_reader(_: str) -> dict[str, Any]:
    """CVE-2025-68664: a dict of the user's that was taken for the library's own marker."""
    return {"lc": 1, "type": "secret", "id": ["MILEPOST_CANARY"]}


def template(_: str) -> dict[str, Any]:
    """CVE-2025-68664: a class by its import path, with what its constructor is given."""
    kwargs = {"template": "{{ cycler.__init__.__globals__ }}", "template_format": "jinja2"}
    return {"lc": 1, "type": "constructor", "id": ["this", "PromptTemplate"], "kwargs": kwargs}


def packed(target: str) -> bytes:
    """CVE-2026-28277: a msgpack extension that names a module, a callable and its arguments."""
    body = b"\x93\xa7pathlib\xa4Path\x91" + bytes([0xA0 | 5]) + target.encode()[:5]
    return b"\xc7" + bytes([len(body)]) + b"\x00" + body


def pickled(target: str) -> bytes:
    """CVE-2026-27794: a pickle where a value is expected."""
    return pickle.dumps(Bomb(Path(target)))


def by_name(_: str) -> dict[str, Any]:
    """Markers of other serializers: jsonpickle, YAML, Ruby on Rails' JSON, .NET."""
    return {
        "py/object": "this.Zen",
        "py/reduce": [{"py/type": "os.system"}, {"py/tuple": ["id"]}],
        "!!python/object/apply:os.system": ["id"],
        "json_class": "this",
        "$type": "System.Diagnostics.Process",
        "__class__": "this.Zen",
        "__proto__": {"admin": True},
        "constructor": {"prototype": {"admin": True}},
    }


PAYLOADS = [constructor, secret_reader, template, packed, pickled, by_name]


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a file that a payload would write, in an environment with a secret that one would read."""
    monkeypatch.setenv("MILEPOST_CANARY", "the secret")
    return tmp_path / "executed"


def assert_inert(value: Any, target: Path) -> None:
    assert not target.exists()
    assert "this" not in sys.modules
    assert "the secret" not in repr(value)


@pytest.mark.req("F-E8", "F-E9")
@pytest.mark.parametrize("declared", [Any, Note, Note | Point, list[Note]], ids=str)
@pytest.mark.parametrize("payload", PAYLOADS, ids=lambda it: it.__name__)
def test_a_payload_in_a_result_is_data_that_comes_back(
    payload: Callable[[str], Any], declared: Any, target: Path
) -> None:
    value = {"from the model": [payload(str(target))], "$mp": payload(str(target))}

    data, copy = store(value, declared)

    read = decode(loads(dumps(data)), declared)
    assert (first_difference(value, copy), first_difference(value, read)) == (None, None)
    assert_inert(read, target)


@pytest.mark.req("F-E8", "F-E9")
@pytest.mark.parametrize("payload", PAYLOADS, ids=lambda it: it.__name__)
def test_a_payload_in_a_bucket_is_data_or_refused(payload: Callable[[str], Any], target: Path) -> None:
    planted = payload(str(target))
    raw = planted if isinstance(planted, bytes) else json.dumps(planted).encode()

    try:
        read = decode(loads(raw), Note)
    except DecodeError:
        read = None
    assert_inert(read, target)


@pytest.mark.req("F-E8", "F-E9")
@pytest.mark.parametrize("payload", PAYLOADS, ids=lambda it: it.__name__)
@pytest.mark.parametrize("tag", ["object", "pickle", "model", "data", "of", "enum", "bytes", "arm", "named"])
def test_a_payload_behind_a_tag_is_refused_or_data(
    payload: Callable[[str], Any], tag: str, target: Path
) -> None:
    planted = payload(str(target))
    if isinstance(planted, bytes):
        planted = base64.b64encode(planted).decode()
    hostile = {"$mp": tag, "v": planted, **({"i": 0, "t": "this.Zen"} if tag == "arm" else {})}

    try:
        read = decode(json.loads(json.dumps(hostile)), Note | Point)
    except DecodeError as refused:
        read = str(refused)
    assert_inert(read, target)
