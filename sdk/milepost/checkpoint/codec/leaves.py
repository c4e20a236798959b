"""The types that hold no other values, each with the closed tag it is stored under.

A leaf is stored as what rebuilds it exactly: a datetime keeps its zone's key and its fold, a timezone its
name, a Decimal its exponent. Only the exact types are here; a subclass is another class.

The one surprise is text with lone surrogates, as models produce it: UTF-8 has no form for it, so it is
stored as the Base64 of its surrogate-passing UTF-8. NaN is stored as NaN, without its payload.
"""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal, InvalidOperation
from math import isfinite
from typing import Any, Final, NamedTuple
from uuid import UUID, SafeUUID
from zoneinfo import ZoneInfo

from pydantic_core import TzInfo

from milepost.checkpoint.codec.wire import JSON, MAX_EXACT, TAG

__all__ = ["READERS", "WRITERS", "Odd", "Reader", "Writer", "number", "text"]


class Odd(ValueError):
    """A leaf that cannot be stored or read, and why; the walker adds the path."""


class Writer(NamedTuple):
    """How values of one exact type are stored: under `tag`, with the fields that `fields` returns."""

    tag: str
    fields: Callable[[Any], dict[str, JSON]]


class Reader(NamedTuple):
    """How the fields of one tag become a value; `may` names fields that it can have beside `v`."""

    value: Callable[[Mapping[str, JSON]], Any]
    may: frozenset[str] = frozenset()


def text(value: str) -> JSON:
    """Return a string as it stands, or tagged where UTF-8 has no form for it."""
    if value.isascii():
        return value
    try:
        value.encode()
    except UnicodeEncodeError:
        return {TAG: "str", "v": b64encode(value.encode("utf-8", "surrogatepass")).decode()}
    return value


def number(value: float) -> JSON:
    """Return an int or float as it stands, or tagged where JSON would not keep it."""
    if type(value) is int:
        return value if -MAX_EXACT <= value <= MAX_EXACT else {TAG: "int", "v": hex(value)}
    return value if isfinite(value) else {TAG: "float", "v": repr(value)}


def _is(value: Any, kind: type, what: str) -> Any:
    if type(value) is not kind:
        raise Odd(f"{what} must be of type {kind.__name__}, not {type(value).__name__}")
    return value


def _base64(value: JSON) -> bytes:
    try:
        return b64decode(_is(value, str, "Base64"), validate=True)
    except (binascii.Error, ValueError):
        raise Odd("it is not Base64") from None


def _read_text(fields: Mapping[str, JSON]) -> str:
    try:
        return _base64(fields["v"]).decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        raise Odd("it is not text") from None


def _read_integer(fields: Mapping[str, JSON]) -> int:
    try:
        value = int(_is(fields["v"], str, "an integer"), 16)
    except ValueError:
        raise Odd("it is not a hexadecimal integer") from None
    if hex(value) != fields["v"]:
        raise Odd("it is not a hexadecimal integer")
    return value


def _read_float(fields: Mapping[str, JSON]) -> float:
    if (name := fields["v"]) not in ("nan", "inf", "-inf"):
        raise Odd("only nan, inf and -inf are tagged")
    return float(name)


def _write_complex(value: complex) -> dict[str, JSON]:
    return {"v": [number(value.real), number(value.imag)]}


def _read_complex(fields: Mapping[str, JSON]) -> complex:
    parts = _is(fields["v"], list, "a complex number")
    if len(parts) != 2:  # noqa: PLR2004 - real and imaginary
        raise Odd("a complex number has two parts")
    return complex(*(_part(part) for part in parts))


def _part(data: JSON) -> float:
    if type(data) is dict and data.keys() == {TAG, "v"} and data[TAG] == "float":
        return _read_float(data)
    value: float = _is(data, float, "a part of a complex number")
    return value


def _read_bytes(fields: Mapping[str, JSON]) -> bytes:
    return _base64(fields["v"])


def _write_decimal(value: Decimal) -> dict[str, JSON]:
    return {"v": str(value)}


def _read_decimal(fields: Mapping[str, JSON]) -> Decimal:
    try:
        value = Decimal(_is(fields["v"], str, "a Decimal"))
    except InvalidOperation:
        raise Odd("it is not a Decimal") from None
    if str(value) != fields["v"]:
        raise Odd("it is not a Decimal as Python writes it")
    return value


def _write_uuid(value: UUID) -> dict[str, JSON]:
    safe = value.is_safe.value
    return {"v": str(value)} if safe is None else {"v": str(value), "safe": safe}


def _read_uuid(fields: Mapping[str, JSON]) -> UUID:
    try:
        value = UUID(_is(fields["v"], str, "a UUID"), is_safe=SafeUUID(fields.get("safe")))
    except ValueError:
        raise Odd("it is not a UUID") from None
    if str(value) != fields["v"]:
        raise Odd("it is not a UUID as Python writes it")
    return value


def _parts_of(value: timedelta) -> list[int]:
    return [value.days, value.seconds, value.microseconds]


def _read_timedelta(fields: Mapping[str, JSON]) -> timedelta:
    return _timedelta(fields["v"])


def _timedelta(data: JSON) -> timedelta:
    parts = [_is(part, int, "a part of a timedelta") for part in _is(data, list, "a timedelta")]
    try:
        value = timedelta(*parts)
    except (OverflowError, TypeError):
        raise Odd("it is not a timedelta") from None
    if _parts_of(value) != parts:
        raise Odd("a timedelta is stored as days, seconds and microseconds")
    return value


def _write_date(value: date) -> dict[str, JSON]:
    return {"v": value.isoformat()}


def _write_moment(value: datetime | time) -> dict[str, JSON]:
    fields: dict[str, JSON] = {"v": value.replace(tzinfo=None).isoformat()}
    if value.fold:
        fields["fold"] = 1
    return fields | _write_zone(value.tzinfo)


def _write_zone(zone: tzinfo | None) -> dict[str, JSON]:
    if zone is None:
        return {}
    if type(zone) is timezone:
        offset, *name = zone.__getinitargs__()  # type: ignore[attr-defined]  # how pickle asks; typeshed omits it
        fields: dict[str, JSON] = {"offset": _parts_of(offset)}
        return fields | {"name": text(name[0])} if name else fields
    if type(zone) is ZoneInfo and zone.key:
        return {"zone": zone.key}
    if type(zone) is TzInfo:  # of every datetime with an offset that pydantic has parsed
        return {"parsed": _parts_of(zone.utcoffset(None) or timedelta())}
    raise Odd(
        f"its tzinfo is a {type(zone).__qualname__}, and only datetime.timezone and zoneinfo.ZoneInfo with a "
        "key, and what pydantic makes, can be rebuilt; convert it with .astimezone(...)"
    )


def _read_zone(fields: Mapping[str, JSON]) -> tzinfo | None:
    if len(fields.keys() & {"zone", "offset", "parsed"}) > 1 or ("name" in fields and "offset" not in fields):
        raise Odd("it has two zones")
    if "zone" in fields:
        return _zone(fields)
    if "parsed" in fields:
        return _parsed(fields)
    if "offset" not in fields:
        return None
    try:
        offset = _timedelta(fields["offset"])
        if "name" not in fields:
            return timezone(offset)
        name = fields["name"]
        if type(name) is dict and name.keys() == {TAG, "v"} and name[TAG] == "str":
            name = _read_text(name)
        return timezone(offset, _is(name, str, "a timezone's name"))
    except ValueError as error:
        raise Odd(str(error)) from None


def _zone(fields: Mapping[str, JSON]) -> ZoneInfo:
    key = _is(fields["zone"], str, "a zone")
    try:
        # It opens a file by this name, and refuses one that leaves its directory.
        return ZoneInfo(key)
    except (KeyError, ValueError, OSError):
        raise Odd(f"this image knows no time zone {key[:40]!a}; install the package tzdata") from None


def _parsed(fields: Mapping[str, JSON]) -> TzInfo:
    offset = _timedelta(fields["parsed"])
    if offset.microseconds:
        raise Odd("pydantic's offsets have whole seconds")
    try:
        return TzInfo(86_400 * offset.days + offset.seconds)
    except (ValueError, OverflowError) as error:
        raise Odd(str(error)) from None


def _read_moment(kind: type[Any], fields: Mapping[str, JSON]) -> Any:
    iso = _is(fields["v"], str, f"a {kind.__name__}")
    fold = _is(fields.get("fold", 0), int, "fold")
    try:
        value = kind.fromisoformat(iso)
        if value.tzinfo is not None or value.isoformat() != iso:
            raise ValueError  # noqa: TRY301 - one reaction to all that is odd
        return value.replace(fold=fold, tzinfo=_read_zone(fields))
    except Odd:
        raise
    except ValueError:
        raise Odd(f"it is not a {kind.__name__} as Python writes it") from None


def _read_datetime(fields: Mapping[str, JSON]) -> datetime:
    value: datetime = _read_moment(datetime, fields)
    return value


def _read_time(fields: Mapping[str, JSON]) -> time:
    value: time = _read_moment(time, fields)
    return value


def _read_date(fields: Mapping[str, JSON]) -> date:
    iso = _is(fields["v"], str, "a date")
    try:
        value = date.fromisoformat(iso)
    except ValueError:
        raise Odd("it is not a date") from None
    if value.isoformat() != iso:
        raise Odd("it is not a date as Python writes it")
    return value


_ZONED: Final = frozenset({"fold", "offset", "name", "zone", "parsed"})

WRITERS: Final[Mapping[type, Writer]] = {
    bytes: Writer("bytes", lambda value: {"v": b64encode(value).decode()}),
    complex: Writer("complex", _write_complex),
    Decimal: Writer("decimal", _write_decimal),
    UUID: Writer("uuid", _write_uuid),
    timedelta: Writer("timedelta", lambda value: {"v": _parts_of(value)}),
    date: Writer("date", _write_date),
    time: Writer("time", _write_moment),
    datetime: Writer("datetime", _write_moment),
}
"""By exact type. `str`, `int` and `float` are natives and written by `text` and `number`."""

READERS: Final[Mapping[str, Reader]] = {
    "bytes": Reader(_read_bytes),
    "complex": Reader(_read_complex),
    "decimal": Reader(_read_decimal),
    "uuid": Reader(_read_uuid, frozenset({"safe"})),
    "timedelta": Reader(_read_timedelta),
    "date": Reader(_read_date),
    "time": Reader(_read_time, _ZONED),
    "datetime": Reader(_read_datetime, _ZONED),
    "str": Reader(_read_text),
    "int": Reader(_read_integer),
    "float": Reader(_read_float),
}
"""By tag, with those of the natives that JSON cannot hold."""
