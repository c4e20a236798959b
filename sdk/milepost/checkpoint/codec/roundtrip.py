"""The codec's three calls: encode, decode, and store, which does both and compares.

The author always gets the decoded copy that `store` returns, so that a step gives the same value when it runs
and when it is read from the log. Nothing that `store` returns shares a part with the value it was given.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from math import isfinite
from typing import Any

from milepost.checkpoint.codec import decoder
from milepost.checkpoint.codec.compare import first_difference
from milepost.checkpoint.codec.encoder import ELSEWHERE, Encoder
from milepost.checkpoint.codec.leaves import text
from milepost.checkpoint.codec.wire import (
    JSON,
    MAX_BYTES,
    MAX_DEPTH,
    MAX_EXACT,
    MAX_PARTS,
    NO_STACK,
    TAG,
    DecodeError,
    dumps,
    oversize,
    reread,
)
from milepost.errors import NotStorable

__all__ = ["decode", "encode", "store", "undeclared"]


def encode(value: Any, declared: Any = Any, *, path: str = "value") -> JSON:
    """Return a value as JSON that shares no part with it.

    Models, dataclasses, NamedTuples, Enums and subclasses of natives are stored only where `declared` names
    their class. Raises NotStorable with the path of the first part that has no exact form.
    """
    try:
        return Encoder().encode(value, declared, (None, path), 0)
    except RuntimeError as error:
        raise _unsteady(error, path) from None


def decode(data: JSON, declared: Any = Any, *, path: str = "value") -> Any:
    """Return the value that `encode` stored, sharing no part with `data`.

    `declared` is the type that the value was stored under. A field that the class has got since then takes
    its default. Raises DecodeError, naming the path, for all that `encode` would not have written.
    """
    try:
        return decoder.decode(data, declared, (None, path), 0)
    except RecursionError:
        raise DecodeError(path, NO_STACK) from None


def undeclared(data: JSON, *, path: str = "value") -> Any:
    """Return what `encode` stored where the declared type is not at hand: of an instance what it holds.

    What needs no declared type comes back as it was, so a dict of models comes as a dict of their fields.
    """
    with suppress(DecodeError):
        return decode(data, path=path)
    if isinstance(data, dict) and TAG in data:
        return undeclared(data.get("v"), path=path)
    if isinstance(data, dict):
        return {name: undeclared(part, path=path) for name, part in data.items()}
    return [undeclared(part, path=path) for part in data] if isinstance(data, list) else data


def store(value: Any, declared: Any = Any, *, path: str = "result") -> tuple[JSON, Any]:
    """Return a value's JSON and the copy that reading it gives, proved equal in type and value.

    Raises NotStorable with the path of the part that cannot be stored or does not come back equal, or if the
    JSON has more than MAX_BYTES bytes or MAX_PARTS parts.
    """
    try:
        return _store(value, declared, path)
    except RuntimeError as error:
        raise _unsteady(error, path) from None


def _unsteady(error: RuntimeError, path: str) -> NotStorable:
    if isinstance(error, RecursionError):
        return NotStorable(path, NO_STACK)
    # What a dict or set says whose size changes while one walks over it.
    return NotStorable(path, f"it was changed while it was being stored ({error})")


def _store(value: Any, declared: Any, path: str) -> tuple[JSON, Any]:
    if value is None or type(value) is bool:
        return value, value
    if _is_plain(value):
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
    if why := oversize(raw):
        raise NotStorable(path, f"{why}; {ELSEWHERE}")
    return raw


def _is_plain(value: Any) -> bool:  # noqa: C901 - one loop with few calls: it decides what a small step costs
    """Tell, level by level, whether a value is JSON as it stands. A no is only that the walk must decide.

    One list or text may stand in many places: what is too much is found before any of it is copied.
    """
    level = [value]
    parts = size = 0
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for part in level:
            kind = type(part)
            if kind is str:
                size += len(part)
                if size > MAX_BYTES or (not part.isascii() and text(part) is not part):
                    return False
            elif kind is int or kind is float:
                if not _is_plain_number(part):
                    return False
            elif kind is dict or kind is list:
                parts += len(part)
                keys = _plain_keys(part) if kind is dict else 0
                if parts > MAX_PARTS or keys is None:
                    return False
                size += keys
                below += part.values() if kind is dict else part
            elif kind is not bool and part is not None:
                return False
        if size > MAX_BYTES or not below:
            return size <= MAX_BYTES
        level = below
    return False


def _is_plain_number(value: float) -> bool:
    return -MAX_EXACT <= value <= MAX_EXACT or (type(value) is float and isfinite(value))


def _plain_keys(keys: Iterable[Any]) -> int | None:
    """Return how many characters they have, or None if one of them is tagged."""
    size = 0
    for key in keys:
        if type(key) is not str or key == TAG or not (key.isascii() or text(key) is key):
            return None
        size += len(key)
    return size
