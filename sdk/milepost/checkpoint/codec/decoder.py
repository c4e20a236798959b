"""JSON back to values. The data chooses among a closed set of tags; only the declared type brings classes.

A tag that is not known, or not of its exact shape, is refused with its path. Nothing is imported, looked up
or called by a name from the data.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from enum import Enum, Flag
from math import isfinite
from typing import Any, Final, TypeVar

from milepost.checkpoint.codec import hints, objects
from milepost.checkpoint.codec.leaves import READERS, Odd
from milepost.checkpoint.codec.paths import Key, Where, show
from milepost.checkpoint.codec.wire import JSON, MAX_DEPTH, TAG, DecodeError

__all__ = ["decode"]

A = TypeVar("A")
R = TypeVar("R")

# Python compares each with each where hashes are equal, and whoever writes the data can make them so.
_MAX_ALIKE: Final = 1_000


def decode(data: JSON, declared: Any, where: Where, depth: int) -> Any:
    """Return the value of data that stands `depth` levels deep. Raises DecodeError."""
    kind = type(data)
    if kind is str or kind is int or data is None or kind is bool:
        return data
    if kind is float and isfinite(data):
        return data
    if depth >= MAX_DEPTH:
        raise DecodeError(show(where), f"it is nested deeper than {MAX_DEPTH} levels")
    if kind is list:
        inner = hints.element(hints.bare(declared), list)
        return [decode(part, inner, (where, index), depth + 1) for index, part in enumerate(data)]
    if kind is not dict:
        raise DecodeError(show(where), f"a {kind.__name__} is not JSON")
    declared = hints.bare(declared)
    if TAG in data:
        return _tagged(data, declared, where, depth)
    typed, values = hints.typed_dict(declared), hints.pair(declared)[1]
    return {
        key: decode(part, typed.get(key, Any) if typed else values, (where, key), depth + 1)
        for key, part in data.items()
    }


def _tagged(data: dict[str, JSON], declared: Any, where: Where, depth: int) -> Any:
    tag = data[TAG]
    if type(tag) is not str:
        raise DecodeError(show(where), "its tag is not text")
    if (reader := READERS.get(tag)) is not None:
        _check_shape(data, where, reader.may)
        try:
            return reader.value(data)
        except Odd as odd:
            raise DecodeError(show(where), str(odd)) from None
    if tag not in _COMPOUNDS:
        raise DecodeError(show(where), f"the tag {tag[:40]!a} is not known")
    read, may = _COMPOUNDS[tag]
    _check_shape(data, where, may)
    return read(data, declared, where, depth)


def _check_shape(data: dict[str, JSON], where: Where, may: frozenset[str]) -> None:
    if "v" not in data:
        raise DecodeError(show(where), f"the tag {data[TAG]!a} has no value")
    for key in data:
        if key not in (TAG, "v") and key not in may:
            raise DecodeError(show(where), f"the tag {data[TAG]!a} cannot have the key {key[:40]!a}")


def _list(data: JSON, where: Where) -> list[JSON]:
    if type(data) is not list:
        raise DecodeError(show(where), f"a list must stand here, not a {type(data).__name__}")
    return data


def _object(data: JSON, where: Where) -> dict[str, JSON]:
    if type(data) is not dict:
        raise DecodeError(show(where), f"an object must stand here, not a {type(data).__name__}")
    return data


def _tuple(data: dict[str, JSON], declared: Any, where: Where, depth: int) -> tuple[Any, ...]:
    items = _list(data["v"], where)
    parts = hints.tuple_elements(declared, len(items))
    return tuple([decode(item, parts[index], (where, index), depth + 2) for index, item in enumerate(items)])


def _set(data: dict[str, JSON], declared: Any, where: Where, depth: int) -> Any:
    kind: type[set[Any] | frozenset[Any]] = set if data[TAG] == "set" else frozenset
    inner = hints.element(declared, kind)
    items = _list(data["v"], where)
    parts = [decode(item, inner, (where, index), depth + 2) for index, item in enumerate(items)]
    for index, part in enumerate(parts):
        _hashed(hash, part, (where, index))
    _check_flood(parts, where)
    value = _hashed(kind, parts, where)
    if len(value) != len(parts):
        raise DecodeError(show(where), "two elements of this set are equal")
    return value


def _dict(data: dict[str, JSON], declared: Any, where: Where, depth: int) -> dict[Any, Any]:
    keys, values = hints.pair(declared)
    typed = hints.typed_dict(declared)
    pairs = _list(data["v"], where)
    held: list[tuple[Any, Any]] = []
    for index, pair in enumerate(pairs):
        if type(pair) is not list or len(pair) != 2:  # noqa: PLR2004 - key and value
            raise DecodeError(show((where, index)), "a pair of key and value must stand here")
        key = decode(pair[0], keys, (where, Key(index)), depth + 3)
        _hashed(hash, key, (where, Key(index)))
        inner = typed.get(key, Any) if typed and type(key) is str else values
        there: Where = (where, key if type(key) is str else Key(key))
        held.append((key, decode(pair[1], inner, there, depth + 3)))
    _check_flood([key for key, _ in held], where)
    value = _hashed(dict, held, where)
    if len(value) != len(pairs):
        raise DecodeError(show(where), "two keys of this dict are equal")
    return value


def _hashed(make: Callable[[A], R], given: A, where: Where) -> R:
    """Return what `make` gives, which asks for hashes and equality."""
    try:
        return make(given)
    except Exception as error:  # noqa: BLE001 - whatever an author's __hash__ or __eq__ says to data that is not theirs
        raise DecodeError(show(where), f"it cannot be hashed: {type(error).__name__}") from None


def _check_flood(parts: list[Any], where: Where) -> None:
    if len(parts) > _MAX_ALIKE and (alike := max(Counter(map(hash, parts)).values())) > _MAX_ALIKE:
        raise DecodeError(show(where), f"{alike} of its elements or keys have one hash")


def _arm(data: dict[str, JSON], declared: Any, where: Where, depth: int) -> Any:
    index, name = data.get("i"), data.get("t")
    if type(index) is not int or index < 0 or type(name) is not str:
        raise DecodeError(show(where), "an arm of a union has a position and a label")
    found = hints.arms(declared) if hints.is_union(declared) else [declared]
    labels = [hints.label(arm) for arm in found]
    if not (index < len(labels) and labels[index] == name):
        if labels.count(name) != 1:
            raise DecodeError(
                show(where), f"the declared type {hints.label(declared)} has no arm {name[:80]!a} at {index}"
            )
        index = labels.index(name)
    return decode(data["v"], found[index], where, depth + 1)


def _class_for(data: dict[str, JSON], declared: Any, where: Where) -> tuple[type, tuple[Any, ...]]:
    """Return the class that the declared type names, if it is one that the tag is for."""
    cls, given = hints.named_class(declared)
    wanted = "enum" if data[TAG] == "flag" else data[TAG]
    if cls is None or objects.kind_of(cls) != wanted:
        raise DecodeError(
            show(where), f"the declared type {hints.label(declared)} names no class for the tag {wanted!a}"
        )
    return cls, given


def _enum(data: dict[str, JSON], declared: Any, where: Where, _depth: int) -> Any:
    cls, _ = _class_for(data, declared, where)
    assert issubclass(cls, Enum)
    name = data["v"]
    if type(name) is not str or name not in cls.__members__:
        raise DecodeError(show(where), f"{cls.__name__} has no member of the stored name")
    return cls.__members__[name]


def _flag(data: dict[str, JSON], declared: Any, where: Where, depth: int) -> Any:
    cls, _ = _class_for(data, declared, where)
    number = decode(data["v"], Any, where, depth + 1)
    if not issubclass(cls, Flag) or type(number) is not int:
        raise DecodeError(show(where), f"{cls.__name__} is no Flag, or its value no integer")
    try:
        return cls(number)
    except Exception:  # noqa: BLE001 - the class may have its own way to look up members
        raise DecodeError(show(where), f"{cls.__name__} has no such combination") from None


def _of(data: dict[str, JSON], declared: Any, where: Where, depth: int) -> Any:
    cls, _ = _class_for(data, declared, where)
    base = objects.native_base(cls)
    assert base is not None
    content = decode(data["v"], hints.base_of(declared, base), where, depth + 1)
    if type(content) is not (dict if issubclass(base, dict) else base):
        raise DecodeError(
            show(where), f"{cls.__name__} holds a {base.__name__}, not a {type(content).__name__}"
        )
    try:
        return objects.rebuild_native(cls, base, content)
    except Exception as error:  # noqa: BLE001 - a class may be made by its own constructor only, and say so in its way
        raise DecodeError(show(where), f"{cls.__name__} cannot be rebuilt: {error}") from None


def _instance(data: dict[str, JSON], declared: Any, where: Where, depth: int) -> Any:
    cls, given = _class_for(data, declared, where)
    kind = objects.kind_of(cls)
    assert kind is not None
    names = objects.field_names(cls, kind)
    field_hints = objects.field_hints(cls, given, kind)
    fields: dict[str, Any] = {}
    for name, part in _object(data["v"], where).items():
        if name not in names:
            raise DecodeError(show((where, name)), f"{cls.__name__} has no such field")
        fields[name] = decode(part, field_hints.get(name, Any), (where, name), depth + 2)
    unset = _list(data.get("unset", []), where)
    for name in names:
        if name not in fields and name not in unset:
            fields[name] = _default(cls, kind, name, where)
    state = (
        objects.State(fields, **_model_rest(data, cls, where, depth))
        if kind == "model"
        else objects.State(fields)
    )
    try:
        return objects.rebuild(cls, kind, state)
    except Exception as error:  # noqa: BLE001 - an attribute may be a descriptor, which is code of the author's
        raise DecodeError(show(where), f"{cls.__name__} cannot be rebuilt: {error}") from None


def _default(cls: type, kind: objects.Kind, name: str, where: Where) -> Any:
    try:
        value = objects.default_of(cls, kind, name)
    except Exception as error:  # noqa: BLE001 - a default factory is code of the author's
        raise DecodeError(
            show((where, name)), f"it is not stored, and its default raises {type(error).__name__}"
        ) from None
    if value is objects.MISSING:
        raise DecodeError(show((where, name)), f"it is not stored, and {cls.__name__} has no default for it")
    return value


def _model_rest(data: dict[str, JSON], cls: type, where: Where, depth: int) -> dict[str, Any]:
    chosen = decode(data.get("set", list(_object(data["v"], where))), Any, where, depth + 1)
    private = data.get("private")
    declared = objects.private_hints(cls) if "extra" in data or private is not None else {}
    extra = decode(data.get("extra"), declared.get(objects.EXTRA, Any), where, depth + 1)
    if type(chosen) is not list or not all(type(name) is str for name in chosen):
        raise DecodeError(show(where), "the names of its fields that were set are no list of names")
    if extra is not None and type(extra) is not dict:
        raise DecodeError(show(where), "its extra fields are no object")
    if private is not None:
        private = {
            name: decode(part, declared.get(name, Any), (where, name), depth + 2)
            for name, part in _object(private, where).items()
        }
    return {"chosen": frozenset(chosen), "extra": extra, "private": private}


_NONE: Final[frozenset[str]] = frozenset()
_COMPOUNDS: Final[Mapping[str, tuple[Callable[[dict[str, JSON], Any, Where, int], Any], frozenset[str]]]] = {
    "tuple": (_tuple, _NONE),
    "set": (_set, _NONE),
    "frozenset": (_set, _NONE),
    "dict": (_dict, _NONE),
    "arm": (_arm, frozenset({"i", "t"})),
    "enum": (_enum, _NONE),
    "flag": (_flag, _NONE),
    "of": (_of, _NONE),
    "model": (_instance, frozenset({"set", "unset", "extra", "private"})),
    "data": (_instance, frozenset({"unset"})),
    "named": (_instance, _NONE),
}
