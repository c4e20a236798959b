"""Equal in type and value, asked of the values themselves and never of an author's `__eq__`.

Stricter than `==`: True is not 1, 1 is not 1.0, -0.0 is not 0.0, a dict's order counts, and one instant in
two zones is two values. In one thing it is laxer: NaN equals NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from math import copysign
from typing import Any, Final
from uuid import UUID
from zoneinfo import ZoneInfo

from pydantic_core import TzInfo

from milepost.checkpoint.codec import objects
from milepost.checkpoint.codec.paths import Element, Key, Where, show

__all__ = ["first_difference"]

_Found = tuple[Where, str]

# Elements that hashing does not pair are compared each with each; beyond this it would take minutes.
_MAX_PAIRS: Final = 100_000


def first_difference(one: Any, other: Any, *, path: str = "value") -> tuple[str, str] | None:
    """Return the path of the first part that differs and how it does, or None if there is none.

    Both values must be of types that the codec stores. Instances are compared by what they hold.
    """
    found = _difference(one, other, (None, path))
    return None if found is None else (show(found[0]), found[1])


def _difference(one: Any, other: Any, where: Where) -> _Found | None:
    kind = type(one)
    if kind is not type(other):
        return where, f"a {kind.__name__} became a {type(other).__name__}"
    if (same := _SAME.get(kind)) is not None:
        return None if same(one, other) else (where, "its value changed")
    if kind is list or kind is tuple:
        return _sequence(one, other, where)
    if kind is dict:
        return _dict(one, other, where)
    if kind is set or kind is frozenset:
        return _set(one, other, where)
    return _instance(one, other, where)


def _sequence(one: Any, other: Any, where: Where) -> _Found | None:
    if len(one) != len(other):
        return where, f"it had {len(one)} items and has {len(other)}"
    for index, part in enumerate(one):
        if (found := _difference(part, other[index], (where, index))) is not None:
            return found
    return None


def _dict(one: Mapping[Any, Any], other: Mapping[Any, Any], where: Where) -> _Found | None:
    if len(one) != len(other):
        return where, f"it had {len(one)} keys and has {len(other)}"
    for (key, part), (key_there, part_there) in zip(one.items(), other.items(), strict=True):
        if _difference(key, key_there, where) is not None:
            return (where, Key(key)), "this key, or the order of the keys, changed"
        there: Where = (where, key if type(key) is str else Key(key))
        if (found := _difference(part, part_there, there)) is not None:
            return found
    return None


def _set(one: Iterable[Any], other: Iterable[Any], where: Where) -> _Found | None:
    """Match each element with one that is equal in type and value.

    Hashing finds nearly all; NaN, and classes with a hash of their own, are left to the comparison in pairs.
    """
    left = list(other)
    by_hash = {part: part for part in left}
    unmatched = []
    taken: set[int] = set()
    for part in one:
        twin = by_hash.get(part, part)
        if part in by_hash and id(twin) not in taken and _difference(part, twin, where) is None:
            taken.add(id(twin))
        else:
            unmatched.append(part)
    left = [part for part in left if id(part) not in taken]
    pairs = 0
    for part in unmatched:
        for index, twin in enumerate(left):
            pairs += 1
            if _difference(part, twin, where) is None:
                del left[index]
                break
        else:
            return (where, Element(part)), "this element changed"
        if pairs > _MAX_PAIRS:
            return where, (
                "its elements do not hash by their value, and there are too many to compare each with each; "
                "use a list, or a class that is equal by value"
            )
    return (where, "an element was added") if left else None


def _instance(one: Any, other: Any, where: Where) -> _Found | None:
    cls = type(one)
    if isinstance(one, Enum):
        return None if one is other else (where, "it is another member")
    kind = objects.kind_of(cls)
    if kind == "of":
        base = objects.native_base(cls)
        assert base is not None
        return _difference(objects.native_of(one, base), objects.native_of(other, base), where)
    if kind is None:
        return where, f"a {cls.__name__} cannot be compared"
    before, after = objects.take_apart(one, kind), objects.take_apart(other, kind)
    if before.chosen != after.chosen:
        return (where, "model_fields_set"), "it changed"
    for left, right in (
        (before.fields, after.fields),
        (before.extra, after.extra),
        (before.private, after.private),
    ):
        if (found := _difference(left, right, where)) is not None:
            return found
    return None


def _same_float(one: float, other: float) -> bool:
    if one != one or other != other:  # noqa: PLR0124 - NaN is what differs from itself
        return one != one and other != other  # noqa: PLR0124 - as above
    return one == other and copysign(1.0, one) == copysign(1.0, other)


def _same_complex(one: complex, other: complex) -> bool:
    return _same_float(one.real, other.real) and _same_float(one.imag, other.imag)


def _same_decimal(one: Decimal, other: Decimal) -> bool:
    return one.as_tuple() == other.as_tuple()


def _same_moment(one: Any, other: Any) -> bool:
    plain = one.replace(tzinfo=None) == other.replace(tzinfo=None)
    if not plain or one.fold != other.fold or not _same_zone(one.tzinfo, other.tzinfo):
        return False
    # A zone that was read from a file of the author's can have the key of another one.
    return (one.utcoffset(), one.dst(), one.tzname()) == (other.utcoffset(), other.dst(), other.tzname())


def _same_zone(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if type(one) is timezone:
        # Equal timezones can have two names; how pickle asks for both.
        return bool(one.__getinitargs__() == other.__getinitargs__())  # type: ignore[attr-defined]  # not in typeshed
    if type(one) is ZoneInfo:
        return bool(one.key == other.key)
    if type(one) is TzInfo:
        return bool(one.utcoffset(None) == other.utcoffset(None))
    return one is other


def _same_uuid(one: UUID, other: UUID) -> bool:
    return one.int == other.int and one.is_safe is other.is_safe


def _equal(one: Any, other: Any) -> bool:
    return bool(one == other)


_SAME: Final[Mapping[type, Callable[[Any, Any], bool]]] = {
    str: _equal,
    int: _equal,
    bool: _equal,
    type(None): _equal,
    bytes: _equal,
    date: _equal,
    timedelta: _equal,
    float: _same_float,
    complex: _same_complex,
    Decimal: _same_decimal,
    datetime: _same_moment,
    time: _same_moment,
    UUID: _same_uuid,
}
