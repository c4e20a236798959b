"""The codec's three calls: encode, decode, and store, which does both and compares.

The author always gets the decoded copy that `store` returns, so that a step gives the same value when it runs
and when it is read from the log. Nothing that `store` returns shares a part with the value it was given.
"""

from __future__ import annotations

from math import isfinite
from typing import Any

from milepost.checkpoint.codec import decoder
from milepost.checkpoint.codec.compare import first_difference
from milepost.checkpoint.codec.encoder import MAX_PARTS, Encoder
from milepost.checkpoint.codec.leaves import text
from milepost.checkpoint.codec.wire import (
    JSON,
    MAX_BYTES,
    MAX_DEPTH,
    MAX_EXACT,
    TAG,
    DecodeError,
    dumps,
    reread,
)
from milepost.errors import NotStorable

__all__ = ["decode", "encode", "store"]


def encode(value: Any, declared: Any = Any, *, path: str = "value") -> JSON:
    """Return a value as JSON that shares no part with it.

    Models, dataclasses, NamedTuples, Enums and subclasses of natives are stored only where `declared` names
    their class. Raises NotStorable with the path of the first part that has no exact form.
    """
    try:
        return Encoder().encode(value, declared, (None, path), 0)
    except RecursionError:
        raise NotStorable(path, "the call stack has no room left for its nesting") from None


def decode(data: JSON, declared: Any = Any, *, path: str = "value") -> Any:
    """Return the value that `encode` stored, sharing no part with `data`.

    `declared` is the type that the value was stored under. A field that the class has got since then takes
    its default. Raises DecodeError, naming the path, for all that `encode` would not have written.
    """
    try:
        return decoder.decode(data, declared, (None, path), 0)
    except RecursionError:
        raise DecodeError(path, "the call stack has no room left for its nesting") from None


def store(value: Any, declared: Any = Any, *, path: str = "result") -> tuple[JSON, Any]:
    """Return a value's JSON and the copy that reading it gives, proved equal in type and value.

    Raises NotStorable with the path of the part that cannot be stored or does not come back equal, or if the
    JSON has more than MAX_BYTES bytes.
    """
    if _is_plain(value):
        raw = _bounded(dumps(value), path)
        copy = reread(raw)
        # The text of plain JSON tells types, values and order apart, so equal text is an equal value.
        if dumps(copy) == raw:
            return reread(raw), copy
    data = reread(_bounded(dumps(encode(value, declared, path=path)), path))
    try:
        copy = decode(data, declared, path=path)
    except DecodeError as error:
        raise NotStorable(error.path, f"it was stored and could not be read back: {error.why}") from error
    if (found := first_difference(value, copy, path=path)) is not None:
        where, how = found
        raise NotStorable(where, f"it would not come back as it is: {how}")
    return data, copy


def _bounded(raw: bytes, path: str) -> bytes:
    if len(raw) > MAX_BYTES:
        raise NotStorable(
            path,
            f"its {len(raw)} bytes are more than {MAX_BYTES}; store them elsewhere and return their name",
        )
    return raw


def _is_plain(value: Any) -> bool:
    """Tell, level by level, whether a value is JSON as it stands. A no is only that the walk must decide."""
    level = [value]
    parts = 0
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for part in level:
            kind = type(part)
            if kind is dict:
                if not all(type(key) is str and key != TAG and _is_text(key) for key in part):
                    return False
                children = part.values()
            elif kind is list:
                children = part
            elif _is_plain_leaf(part, kind):
                continue
            else:
                return False
            # One list may stand in many places: counted before it is copied.
            parts += len(children)
            if parts > MAX_PARTS:
                return False
            below += children
        if not below:
            return True
        level = below
    return False


def _is_plain_leaf(value: Any, kind: type[Any]) -> bool:
    if kind is str:
        return _is_text(value)
    if kind is int:
        return bool(-MAX_EXACT <= value <= MAX_EXACT)
    if kind is float:
        return isfinite(value)
    return kind is bool or value is None


def _is_text(value: str) -> bool:
    return value.isascii() or text(value) is value
