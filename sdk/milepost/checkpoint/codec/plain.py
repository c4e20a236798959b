"""Stored values as JSON for people and their tools: readable, and never read back as values."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from math import isfinite
from typing import Any

from milepost.checkpoint.codec.roundtrip import undeclared
from milepost.checkpoint.codec.wire import JSON

__all__ = ["plain"]


def plain(data: JSON) -> JSON:
    """Return what `encode` stored without its tags: models as objects, tuples as lists, times as text.

    Different values may look the same. What is shown for approval is bound by the digest of the stored form.
    """
    return _plain(undeclared(data))


def _plain(value: Any) -> JSON:
    match value:
        case None | bool() | str():
            return value
        case int() | float():
            return value if not isinstance(value, float) or isfinite(value) else str(value)
        case bytes() | bytearray():
            return base64.b64encode(value).decode()
        case Mapping():
            return {_key(key): _plain(part) for key, part in value.items()}
        case list() | tuple():
            return [_plain(part) for part in value]
        case set() | frozenset():
            return sorted((_plain(part) for part in value), key=json.dumps)
        case _:
            return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _key(key: Any) -> str:
    shown = _plain(key)
    return shown if isinstance(shown, str) else json.dumps(shown)
