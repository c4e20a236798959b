"""JSON text and its bounds: what may be read from a bucket, and how it is written.

Writing keeps the order of keys, because an author's dict keeps it; only `digest` sorts, so that two dicts
that are equal have one digest. Reading refuses what this module never writes: duplicate keys, NaN and
Infinity, numbers beyond a float's or an exact integer's range, lone surrogates, and anything deeper or
larger than the bounds, all in time linear in the input.
"""

from __future__ import annotations

import hashlib
import json
import re
from array import array
from itertools import accumulate
from math import isfinite
from typing import Any, Final, Never, TypeAlias

from milepost.errors import NotStorable

__all__ = [
    "JSON",
    "MAX_BYTES",
    "MAX_DEPTH",
    "MAX_EXACT",
    "MAX_PARTS",
    "NO_STACK",
    "TAG",
    "TOO_MANY_PARTS",
    "DecodeError",
    "digest",
    "dumps",
    "loads",
    "oversize",
    "reread",
]

JSON: TypeAlias = Any
"""Only `dict` with `str` keys, `list`, `str`, `int`, finite `float`, `bool` and `None`."""

NO_STACK: Final = "the call stack has no room left for its nesting"

TAG: Final = "$mp"
"""The key that marks an object as a tag. A dict of the author's that holds it is stored as pairs."""

MAX_BYTES: Final = 256 * 1024 * 1024
"""The largest JSON text, in bytes, that is written or read as one value."""

MAX_PARTS: Final = 2_000_000
"""The most lists, objects, items and pairs of one JSON text. Reading as many takes about 0.5 GB of memory."""

TOO_MANY_PARTS: Final = f"it has more than {MAX_PARTS} parts"

MAX_DEPTH: Final = 200
"""The most levels of JSON that one value may have. A tuple, a set or a model takes two."""

MAX_EXACT: Final = 2**53 - 1
"""The largest integer that every reader of JSON keeps exactly; larger ones are tagged."""

# A record and the head wrap a value in a few levels of their own.
_MAX_TEXT_DEPTH: Final = MAX_DEPTH + 56

_STRING: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\Z)', re.DOTALL)
_SURROGATE_ESCAPE: Final = re.compile(rb"\\u[dD][89a-fA-F]")
_LEVELS: Final = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_NOT_BRACKETS: Final = bytes(code for code in range(256) if code not in b"[]{}")
_LONGEST_INTEGER: Final = len(str(-MAX_EXACT))

_ordered: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_sorted: Final = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True
).encode


class DecodeError(ValueError):
    """Stored data is not what this codec writes, or not what the declared type can hold.

    `path` leads to the part at fault. Who knows the object's key turns this into `Corrupt`.
    """

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path} cannot be read: {why}")
        self.path = path
        self.why = why


def dumps(data: JSON) -> bytes:
    """Return compact UTF-8 JSON with the keys in their own order.

    `data` must be JSON as `encode` returns it. Raises ValueError for NaN, infinities and lone surrogates,
    TypeError for other types.
    """
    return _ordered(data).encode()


def digest(data: JSON, raw: bytes = b"") -> str:
    """Return the SHA-256, in hex, of `data` with every dict in sorted order. `raw` is its text, if at hand.

    Values that differ only in the order of a dict's keys have one digest. It is no content address of
    stored bytes: for that, hash what `dumps` returned. Raises NotStorable where the call stack is too full.
    """
    if raw and b"{" not in raw:
        return hashlib.sha256(raw).hexdigest()
    try:
        text = _sorted(data)
        if f'"{TAG}":"dict"' in text:
            text = _sorted(_with_sorted_pairs(data))
    except RecursionError:
        raise NotStorable("value", NO_STACK) from None
    return hashlib.sha256(text.encode()).hexdigest()


def loads(raw: bytes) -> JSON:
    """Return the data in a JSON text. Raises DecodeError for whatever `dumps` would not have written."""
    if why := oversize(raw):
        raise DecodeError("value", why)
    if raw.count(b"[") + raw.count(b"{") > _MAX_TEXT_DEPTH and _depth(raw) > _MAX_TEXT_DEPTH:
        raise DecodeError("value", f"it is nested deeper than {_MAX_TEXT_DEPTH} levels")
    try:
        data = _read(raw.decode())
        if _SURROGATE_ESCAPE.search(raw):
            _ordered(data).encode()
    except (UnicodeDecodeError, UnicodeEncodeError) as error:
        raise DecodeError("value", f"it is not UTF-8 text: {error.reason}") from None
    except DecodeError:
        raise
    except RecursionError:
        raise DecodeError("value", NO_STACK) from None
    except ValueError as error:
        raise DecodeError("value", f"it is not JSON: {error}") from None
    return data


def oversize(raw: bytes) -> str:
    """Return in what a text is over the bounds of size and of parts, or nothing."""
    if len(raw) > MAX_BYTES:
        return f"its {len(raw)} bytes are more than {MAX_BYTES}"
    # Each string takes memory while they are removed, and each item or pair has two at most.
    quotes = raw.count(b'"') - raw.count(b'\\"')
    if quotes > 4 * MAX_PARTS or (_parts(raw) > MAX_PARTS and _parts(_STRING.sub(b"", raw)) > MAX_PARTS):
        return TOO_MANY_PARTS
    return ""


def _parts(raw: bytes) -> int:
    return raw.count(b",") + raw.count(b"[") + raw.count(b"{")


def reread(raw: bytes) -> JSON:
    """Return the data of a text that `dumps` has just written, without the checks of `loads`."""
    return json.loads(raw.decode())


def _depth(raw: bytes) -> int:
    brackets = _STRING.sub(b"", raw).translate(_LEVELS, delete=_NOT_BRACKETS)
    return max(accumulate(array("b", brackets)), default=0)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    held = dict(pairs)
    if len(held) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise DecodeError("value", f"the key {key[:40]!a} stands twice in one object")
            seen.add(key)
    return held


def _integer(text: str) -> int:
    if len(text) <= _LONGEST_INTEGER and abs(number := int(text)) <= MAX_EXACT:
        return number
    raise DecodeError("value", f"the integer {text[:20]}... is beyond ±(2^53 - 1)")


def _float(text: str) -> float:
    if isfinite(number := float(text)):
        return number
    raise DecodeError("value", f"the number {text[:20]} is beyond the range of a float")


def _constant(text: str) -> Never:
    raise DecodeError("value", f"{text} is not JSON")


_read: Final = json.JSONDecoder(
    object_pairs_hook=_unique, parse_int=_integer, parse_float=_float, parse_constant=_constant
).decode


def _with_sorted_pairs(data: JSON) -> JSON:
    """Return `data` with the pairs of every tagged dict in the order of their keys' text."""
    if isinstance(data, list):
        return [_with_sorted_pairs(part) for part in data]
    if not isinstance(data, dict):
        return data
    held = {key: _with_sorted_pairs(part) for key, part in data.items()}
    if held.get(TAG) == "dict" and isinstance(held.get("v"), list):
        held["v"] = sorted(held["v"], key=_sorted)
    return held
