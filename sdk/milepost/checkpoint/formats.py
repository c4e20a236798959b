"""Format versions: one for each kind of object that is stored, and how older ones become today's.

A reader upgrades what it has read, in memory, one version at a time; the stored bytes stay as they are, and
digests are over those. A head is written in today's format by whoever claims the run next, which fences
every writer that knows only the older one in the same write. A format that is newer than this program's is
refused, with both versions named.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import fields
from enum import StrEnum
from math import isfinite
from typing import Any, Final, Never, TypeAlias, TypeVar

from pydantic_core import PydanticSerializationError, to_json

from milepost.errors import Corrupt, FormatTooNew

__all__ = ["NEWEST", "Kind", "checked", "read_json", "upgrade", "write_json"]

T = TypeVar("T")


class Kind(StrEnum):
    """What is stored. A blob has no version of its own: the record that names it says how to read it."""

    HEAD = "head"
    RECORD = "record"
    SEGMENT = "segment"
    BASE = "base"
    NAME = "name"
    OWNER = "owner"
    ANSWER = "answer"


NEWEST: Final[Mapping[Kind, int]] = {
    Kind.HEAD: 3,
    Kind.RECORD: 3,
    Kind.SEGMENT: 1,
    Kind.BASE: 2,
    Kind.NAME: 2,
    Kind.OWNER: 1,
    Kind.ANSWER: 1,
}

Fields: TypeAlias = Mapping[str, Any]

_MOST_FIELDS: Final = 100
"""More than any kind ever had. Each one that is unknown would be complained of."""


def _head_1(head: Fields) -> Fields:
    """Bases, levels of segments, retention and what a listing shows came with format 2."""
    segments = [{**segment, "level": 0} for segment in head["segments"]]
    return {
        **head,
        "segments": segments,
        "bases": [],
        "goal": "",
        "created": "",
        "updated": "",
        "deletion_policy": "Retain",
        "retention_s": 30 * 24 * 3600,
    }


def _head_2(head: Fields) -> Fields:
    """Open gates, the agent's memory and further counts came with format 3."""
    return {**head, "memory": "", "gates": []}


def _same(fields: Fields) -> Fields:
    """Change nothing: what came with the next format says by its default what its absence meant."""
    return fields


def _name_1(name: Fields) -> Fields:
    """How long the run is kept, whose resource it is and what is left of it came with format 2."""
    return {
        **name,
        "cluster": "",
        "deletion_policy": "Retain",
        "retention_s": 30 * 24 * 3600,
        "state": "Kept",
    }


_NEXT: Final[Mapping[tuple[Kind, int], Callable[[Fields], Fields]]] = {
    (Kind.HEAD, 1): _head_1,
    (Kind.HEAD, 2): _head_2,
    (Kind.RECORD, 1): _same,
    (Kind.RECORD, 2): _same,
    (Kind.BASE, 1): _same,
    (Kind.NAME, 1): _name_1,
}


def upgrade(kind: Kind, data: Any, key: str) -> dict[str, Any]:
    """Return the fields of an object of `key`, as today's format has them, without the version.

    Raises Corrupt where it does not say its format or lacks what that format has, FormatTooNew where a newer
    Milepost wrote it.
    """
    found = data.get("format") if isinstance(data, Mapping) else None
    if not isinstance(found, int) or isinstance(found, bool) or found < 1:
        raise Corrupt(key, f"the {kind} does not say its format")
    if len(data) > _MOST_FIELDS:
        raise Corrupt(key, f"the {kind} has {len(data)} fields")
    newest = NEWEST[kind]
    if found > newest:
        raise FormatTooNew(key, kind=kind, found=found, known=newest)
    upgraded: Fields = {name: value for name, value in data.items() if name != "format"}
    for version in range(found, newest):
        migrate = _NEXT.get((kind, version))
        if migrate is None:
            raise Corrupt(key, f"the {kind} has format {version}, which this version reads no more")
        try:
            upgraded = migrate(upgraded)
        except (KeyError, TypeError, AttributeError) as error:
            raise Corrupt(key, f"the {kind} is not what format {version} holds: {error!r}") from error
    return dict(upgraded)


def read_json(raw: bytes) -> Any:
    """Return the data of a JSON text.

    Raises ValueError for what is none, and for what no Milepost writes: keys that stand twice in an object,
    NaN and infinities, nesting without end.
    """
    try:
        return _decode(raw.decode())
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def write_json(data: Mapping[str, Any]) -> bytes:
    """Return data as compact JSON.

    Text is UTF-8, not escapes: a value that counts as small when it is measured is small here too. Raises
    ValueError for NaN and infinities, which `read_json` refuses.
    """
    # The faster one. It has no form for half of a surrogate pair, which a file's name may hold.
    with suppress(PydanticSerializationError):
        raw = to_json(data)
        # It would write those that are no JSON, too. One letter is found at a tenth of a word's cost.
        if not (b"N" in raw and b"NaN" in raw) and not (b"I" in raw and b"Infinity" in raw):
            return raw
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", "backslashreplace")


def checked(kind: type[T], given: Mapping[str, Any]) -> T:
    """Return the dataclass of these fields. Raises TypeError where a number or a text is something else."""
    for field in fields(kind):  # type: ignore[arg-type]  # who calls this gives a dataclass
        wanted = _PLAIN.get(str(field.type))
        if wanted is not None and field.name in given and type(given[field.name]) is not wanted:
            raise TypeError(f"{field.name} is not of type {field.type}")
    return kind(**given)


_PLAIN: Final[Mapping[str, type]] = {"int": int, "str": str}


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    held = dict(pairs)
    if len(held) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return held


def _finite(text: str) -> float:
    if not isfinite(number := float(text)):
        raise ValueError(f"the number {text[:20]} is beyond the range of a float")
    return number


def _constant(text: str) -> Never:
    raise ValueError(f"{text} is not JSON")


_decode: Final = json.JSONDecoder(
    object_pairs_hook=_unique, parse_float=_finite, parse_constant=_constant
).decode
