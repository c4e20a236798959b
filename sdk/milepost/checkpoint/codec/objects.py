"""Taking instances of an author's classes apart, and putting them together without running their code.

A rebuilt instance gets its attributes directly: no `__init__`, `__post_init__` or validator runs, because
each could coerce, compute or refuse, and the copy would no longer be equal. So everything an instance holds
must be known: an attribute that its class does not declare is refused. What a `cached_property` left behind
is dropped and computed again.
"""

from __future__ import annotations

import copy
import dataclasses
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any, Final, Literal, TypeAlias

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from milepost.checkpoint.codec import hints

__all__ = [
    "EXTRA",
    "MISSING",
    "NATIVES",
    "Kind",
    "State",
    "Undeclared",
    "default_of",
    "field_hints",
    "field_names",
    "kind_of",
    "native_base",
    "private_hints",
    "rebuild",
    "take_apart",
    "to_native",
]

Kind: TypeAlias = Literal["model", "data", "named", "enum", "of"]
"""A pydantic model, a dataclass, a NamedTuple, an Enum, or another subclass of a native."""

MISSING: Final = object()

EXTRA: Final = "__pydantic_extra__"

_PYDANTIC_SLOTS: Final = ("__pydantic_fields_set__", EXTRA, "__pydantic_private__")

# The unbound methods of the native types, because a subclass may have overridden its own.
_TO_NATIVE: Final[Mapping[type, Callable[[Any], Any]]] = {
    str: str.__str__,
    int: int.__int__,
    float: float.__float__,
    bytes: lambda value: bytes.__getitem__(value, slice(None)),
    list: lambda value: list(list.__iter__(value)),
    tuple: lambda value: tuple(tuple.__iter__(value)),
    set: lambda value: set(set.__iter__(value)),
    frozenset: lambda value: frozenset(frozenset.__iter__(value)),
    OrderedDict: lambda value: dict(OrderedDict.items(value)),
    dict: lambda value: dict(dict.items(value)),
}
NATIVES: Final = tuple(_TO_NATIVE)


class Undeclared(ValueError):
    """An instance holds what its class does not declare."""

    def __init__(self, attribute: str, why: str) -> None:
        super().__init__(why)
        self.attribute = attribute
        self.why = why


@dataclass(frozen=True)
class State:
    """All that an instance holds, by name. Only a model has the last three."""

    fields: dict[str, Any]
    chosen: frozenset[str] = frozenset()
    extra: dict[str, Any] | None = None
    private: dict[str, Any] | None = None


def kind_of(cls: type) -> Kind | None:
    """Return how instances of a class are stored where it is declared, or None if they cannot be."""
    if issubclass(cls, BaseException):
        return None
    if issubclass(cls, Enum):
        return "enum"
    base = native_base(cls)
    if issubclass(cls, BaseModel):
        return "model" if base is None and cls is not BaseModel else None
    if dataclasses.is_dataclass(cls):
        return "data" if base is None else None
    if base is tuple and isinstance(getattr(cls, "_fields", None), tuple):
        return "named"
    if base in (None, cls) and cls is not OrderedDict:
        return None
    # A default factory is code, which is never stored.
    return None if hasattr(cls, "default_factory") else "of"


def native_base(cls: type) -> type | None:
    """Return the native that a class is or derives from."""
    return next((base for base in NATIVES if issubclass(cls, base)), None)


def to_native(value: Any, base: type) -> Any:
    """Return the content of an instance of a native's subclass as that native."""
    return _TO_NATIVE[base](value)


def field_names(cls: type, kind: Kind) -> tuple[str, ...]:
    """Return the names of the fields that a class declares, in order."""
    if kind == "model":
        return tuple(_model_fields(cls))
    if kind == "named":
        names: tuple[str, ...] = cls._fields  # type: ignore[attr-defined]  # checked by kind_of
        return names
    return tuple(one.name for one in dataclasses.fields(cls)) if kind == "data" else ()


def field_hints(cls: type, given: tuple[Any, ...], kind: Kind) -> Mapping[str, Any]:
    """Return the declared types of a class's fields."""
    if kind == "model":
        return {name: hints.with_self(info.annotation, cls) for name, info in _model_fields(cls).items()}
    return hints.fields(cls, given)


def private_hints(cls: type) -> Mapping[str, Any]:
    """Return the declared types of a model's private attributes, and of its extra fields as EXTRA."""
    return hints.fields(cls, ())


def _model_fields(cls: type) -> Mapping[str, FieldInfo]:
    assert issubclass(cls, BaseModel)
    return cls.model_fields


def default_of(cls: type, kind: Kind, name: str) -> Any:
    """Return a fresh default of a field, or MISSING if it has none.

    It is for values stored before the class had the field.
    """
    if kind == "named":
        return getattr(cls, "_field_defaults", {}).get(name, MISSING)
    if kind == "model":
        info = _model_fields(cls)[name]
        if info.is_required() or info.default_factory_takes_validated_data:
            return MISSING
        return info.get_default(call_default_factory=True, validated_data={})
    one = next(one for one in dataclasses.fields(cls) if one.name == name)
    if one.default_factory is not dataclasses.MISSING:
        return one.default_factory()
    return MISSING if one.default is dataclasses.MISSING else copy.copy(one.default)


def take_apart(value: Any, kind: Kind) -> State:
    """Return what a model, dataclass or NamedTuple holds. Raises Undeclared for what is not its class's."""
    cls = type(value)
    names = field_names(cls, kind)
    held = _attributes(value)
    if kind == "named":
        _refuse_rest(cls, held)
        items = to_native(value, tuple)
        if len(items) != len(names):
            raise Undeclared("_fields", f"it holds {len(items)} items for {len(names)} fields")
        return State(dict(zip(names, items, strict=True)))
    chosen, extra, private = (held.pop(name, None) for name in _PYDANTIC_SLOTS)
    if kind == "model":
        _check_model(chosen, extra, private)
    fields = {name: held.pop(name) for name in names if name in held}
    _refuse_rest(cls, held)
    return State(fields, frozenset(chosen or ()), extra, private)


def _check_model(chosen: Any, extra: Any, private: Any) -> None:
    if not all(type(name) is str for name in chosen or ()):
        raise Undeclared("model_fields_set", "it holds what is not a name")
    for slot, held in ((EXTRA, extra), ("__pydantic_private__", private)):
        if held is not None and type(held) is not dict:
            raise Undeclared(slot, f"it is a {type(held).__name__}, not a dict")


def native_of(value: Any, base: type) -> Any:
    """Return the content of a native's subclass. Raises Undeclared if the instance has attributes too."""
    _refuse_rest(type(value), _attributes(value))
    return to_native(value, base)


def _refuse_rest(cls: type, held: Mapping[str, Any]) -> None:
    for name in held:
        raise Undeclared(name, f"the class {cls.__name__} does not declare this attribute")


def _attributes(value: Any) -> dict[str, Any]:
    """Return all that is in the instance's `__dict__` and slots, without what can be computed again."""
    cls = type(value)
    try:
        held = dict(object.__getattribute__(value, "__dict__"))
    except AttributeError:
        held = {}
    # Left there by calling `Box[int](...)`; it says nothing that the value does not.
    held.pop("__orig_class__", None)
    for name in [name for name in held if isinstance(getattr(cls, name, None), cached_property)]:
        del held[name]
    for owner in cls.__mro__:
        for name in _slots(owner):
            try:
                held[name] = object.__getattribute__(value, name)
            except AttributeError:
                continue
    return held


def _slots(owner: type) -> list[str]:
    names = owner.__dict__.get("__slots__", ())
    names = (names,) if isinstance(names, str) else tuple(names)
    own = owner.__name__.lstrip("_")
    return [
        f"_{own}{name}" if name.startswith("__") and not name.endswith("__") else name
        for name in names
        if name not in ("__dict__", "__weakref__")
    ]


def rebuild(cls: type, kind: Kind, state: State) -> Any:
    """Return a new instance that holds exactly `state`. Raises TypeError or AttributeError if it cannot."""
    if kind == "named":
        return tuple.__new__(cls, tuple(state.fields[name] for name in field_names(cls, kind)))
    value: Any = object.__new__(cls)
    for name, part in state.fields.items():
        object.__setattr__(value, name, part)
    if kind == "model":
        for name, part in zip(_PYDANTIC_SLOTS, (set(state.chosen), state.extra, state.private), strict=True):
            object.__setattr__(value, name, part)
    return value


def rebuild_native(cls: type, base: type, content: Any) -> Any:
    """Return an instance of a native's subclass with this content."""
    value: Any
    if base in (dict, OrderedDict):
        value = base.__new__(cls)
        for key, part in content.items():
            base.__setitem__(value, key, part)
        return value
    if base in (list, set):
        value = base.__new__(cls)
        base.__init__(value, content)
        return value
    return base.__new__(cls, content)
