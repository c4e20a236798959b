"""The codec's three calls: encode, decode, and store, which does both and compares.

The author always gets the decoded copy that `store` returns, so that a step gives the same value when it runs
and when it is read from the log. Nothing that `store` returns shares a part with the value it was given.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite
from typing import Any

from milepost.checkpoint.codec import decoder
from milepost.checkpoint.codec.compare import first_difference
from milepost.checkpoint.codec.encoder import MAX_PARTS, TOO_MANY_PARTS, Encoder
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
    try:
        return _store(value, declared, path)
    except RecursionError:
        raise NotStorable(path, "the call stack has no room left for its nesting") from None


def _store(value: Any, declared: Any, path: str) -> tuple[JSON, Any]:
    if _is_plain(value, path):
        raw = _bounded(dumps(value), path)
        copy = reread(raw)
        # What `==` does not see, True or 1 or 1.0, -0.0 or 0.0, the order of keys, JSON's text tells apart.
        if copy == value:
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


def _is_plain(value: Any, path: str) -> bool:
    """Tell, level by level, whether a value is JSON as it stands. A no is only that the walk must decide.

    Raises NotStorable if it has too many parts.
    """
    level = [value]
    parts = 0
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for part in level:
            kind = type(part)
            if kind is str or kind is int or kind is float:
                if not _is_plain_leaf(part):
                    return False
            elif kind is dict or kind is list:
                # One list may stand in many places: counted before it is copied.
                parts += len(part)
                if parts > MAX_PARTS:
                    raise NotStorable(path, TOO_MANY_PARTS)
                if kind is dict and not _are_plain_keys(part):
                    return False
                below += part.values() if kind is dict else part
            elif kind is not bool and part is not None:
                return False
        if not below:
            return True
        level = below
    return False


def _is_plain_leaf(value: str | float) -> bool:
    if isinstance(value, str):
        return value.isascii() or text(value) is value
    return -MAX_EXACT <= value <= MAX_EXACT or (isinstance(value, float) and isfinite(value))


def _are_plain_keys(keys: Iterable[Any]) -> bool:
    for key in keys:
        if type(key) is not str or key == TAG or not (key.isascii() or text(key) is key):
            return False
    return True
