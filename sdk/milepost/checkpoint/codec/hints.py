"""What a declared type says about the parts of a value: which classes it names, and where.

A declared type is a hint and never a check: it only lets its classes through, at the places where it names
them. Whatever it does not say is `Any`, under which no class is let through. Nothing is ever imported or
looked up by a name from stored data.

Unions of two or more types besides None have *arms*. Equal unions may list their arms in another order
(typing caches them by equality), so an arm is stored with its position and its label.
"""

from __future__ import annotations

import collections.abc
import sys
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from functools import lru_cache
from inspect import get_annotations, isclass
from typing import Annotated, Any, Final, Literal, NewType, Self, TypeVar, Union, get_args, get_origin

from typing_extensions import is_typeddict

__all__ = [
    "arms",
    "bare",
    "base_of",
    "element",
    "fields",
    "is_union",
    "label",
    "may_hold",
    "named_class",
    "pair",
    "resolve",
    "tuple_elements",
    "typed_dict",
    "with_self",
]

_WRAPPERS: Final = frozenset({Annotated, typing.ClassVar, typing.Final, typing.Required, typing.NotRequired})
_UNIONS: Final = (Union, types.UnionType)


def bare(declared: Any) -> Any:
    """Return the type without names, notes and None around it: `Annotated[Note | None, ...]` is `Note`."""
    if declared is Any:
        return Any
    for _ in range(100):
        inner = _unwrapped(declared)
        if inner is declared:
            return declared
        declared = inner
    return Any


def _unwrapped(declared: Any) -> Any:
    origin = get_origin(declared)
    if origin in _WRAPPERS or getattr(origin, "_name", None) == "ReadOnly":
        return get_args(declared)[0]
    if origin in _UNIONS:
        inner = [part for part in get_args(declared) if part is not types.NoneType]
        return inner[0] if len(inner) == 1 else declared
    if origin is Literal:
        return _literal(declared)
    if isinstance(declared, NewType):
        return declared.__supertype__
    if isinstance(declared, TypeVar):
        return Union[declared.__constraints__] if declared.__constraints__ else declared.__bound__ or Any  # noqa: UP007 - made from a tuple
    if type(declared).__name__ == "TypeAliasType":  # of typing from 3.12 on, and of typing_extensions
        return _aliased(declared)
    if type(origin).__name__ == "TypeAliasType":
        bindings = dict(zip(origin.__type_params__, get_args(declared), strict=False))
        return _bound(_aliased(origin), bindings)
    if declared is object or isinstance(declared, str | typing.ForwardRef):
        return Any
    return declared


@lru_cache(maxsize=1024)
def _aliased(alias: Any) -> Any:
    """Return what an alias stands for. Before 3.12 one that names itself has to do so in text."""
    module = sys.modules.get(alias.__module__)
    return resolve(alias.__value__, vars(module) if module else {}, {alias.__name__: alias})


def _literal(declared: Any) -> Any:
    enums = tuple(dict.fromkeys(type(value) for value in get_args(declared) if isinstance(value, Enum)))
    return Union[enums] if enums else Any  # noqa: UP007 - made from a tuple


def is_union(declared: Any) -> bool:
    """Tell whether a bare type has arms."""
    return get_origin(declared) in _UNIONS


def arms(declared: Any) -> list[Any]:
    """Return the bare types of a union, nested ones flattened, None left out."""
    found: list[Any] = []
    for part in get_args(declared):
        inner = bare(part)
        if is_union(inner):
            found += arms(inner)
        elif inner is not types.NoneType:
            found.append(inner)
    return found


def label(declared: Any) -> str:
    """Return a short name for messages and arms, without modules: `list[Note]`."""
    origin, parts = get_origin(declared), get_args(declared)
    if origin in _UNIONS:
        return " | ".join(label(part) for part in parts)
    if origin is not None and origin is not Literal and parts:
        inner = ", ".join(label(part) for part in parts)
        return f"{label(origin)}[{inner}]"
    if isclass(declared):
        return "None" if declared is types.NoneType else declared.__name__
    if isinstance(declared, list):
        return "[...]"
    return "..." if declared is ... else str(declared).rpartition(".")[2]


def named_class(declared: Any) -> tuple[type | None, tuple[Any, ...]]:
    """Return the class that a bare type names, and the types it is given: `Box[Note]` -> (Box, (Note,))."""
    origin = get_origin(declared)
    if isclass(origin):
        return origin, get_args(declared)
    return (declared, ()) if isclass(declared) else (None, ())


def may_hold(arm: Any, kind: type) -> bool:
    """Tell whether a value of exactly this class can be meant by this arm of a union."""
    named, parts = named_class(arm)
    if named is None:
        return False
    if is_typeddict(named):
        return kind is dict
    return kind is named or (bool(parts) and kind in _CONTAINERS and _covers(named, kind))


_CONTAINERS: Final = frozenset({list, tuple, set, frozenset, dict})


def element(declared: Any, kind: type) -> Any:
    """Return the declared type of the elements of a list, set or frozenset."""
    if declared is Any:
        return Any
    origin, parts = get_origin(declared), get_args(declared)
    return parts[0] if len(parts) == 1 and _covers(origin, kind) else Any


def _covers(origin: Any, kind: type) -> bool:
    """Tell whether a native is of a generic class, which is itself or abstract, as Sequence is of list."""
    if origin is kind:
        return True
    return isclass(origin) and origin.__module__ == "collections.abc" and issubclass(kind, origin)


def tuple_elements(declared: Any, length: int) -> Sequence[Any]:
    """Return the declared types of a tuple's elements."""
    origin, parts = get_origin(declared), get_args(declared)
    if origin is tuple:
        if len(parts) == 2 and parts[1] is ...:  # noqa: PLR2004 - tuple[Note, ...]
            return [parts[0]] * length
        return parts if len(parts) == length else [Any] * length
    return [element(declared, tuple)] * length


def pair(declared: Any) -> tuple[Any, Any]:
    """Return the declared types of a dict's keys and values."""
    if declared is Any:
        return Any, Any
    origin, parts = get_origin(declared), get_args(declared)
    if len(parts) == 2 and _covers(origin, dict):  # noqa: PLR2004 - key and value
        return parts
    if len(parts) == 1 and origin in {collections.abc.Iterable, collections.abc.Collection}:
        return parts[0], Any
    return Any, Any


def typed_dict(declared: Any) -> Mapping[str, Any] | None:
    """Return the declared types of a TypedDict's keys, or None if the bare type is none."""
    if declared is Any:
        return None
    cls, given = named_class(declared)
    return fields(cls, given) if cls is not None and is_typeddict(cls) else None


def base_of(declared: Any, base: type) -> Any:
    """Return what a subclass of a native says of it: of `class Notes(list[Note])` it is `list[Note]`."""
    cls, given = named_class(declared)
    if cls is None:
        return Any
    if get_origin(declared) is base and len(given) == 2:  # noqa: PLR2004 - OrderedDict[str, Note]
        return dict.__class_getitem__(given)
    for owner, bindings in _bindings(cls, given).items():
        for parent in owner.__dict__.get("__orig_bases__", ()):
            if get_origin(parent) is base:
                return _bound(parent, bindings)
    return Any


def fields(cls: type, given: tuple[Any, ...]) -> Mapping[str, Any]:
    """Return the declared types of the attributes of a class, with its type variables filled in.

    An annotation that cannot be resolved says nothing: its attribute is `Any`.
    """
    hints = _hints(cls)
    if not given and not any(hasattr(owner, "__parameters__") for owner in cls.__mro__):
        return {name: hint for name, (hint, _) in hints.items()}
    bindings = _bindings(cls, given)
    return {name: _bound(hint, bindings.get(owner, {})) for name, (hint, owner) in hints.items()}


@lru_cache(maxsize=1024)
def _hints(cls: type) -> Mapping[str, tuple[Any, type]]:
    """Return each attribute's annotation and the class that wrote it."""
    found: dict[str, tuple[Any, type]] = {}
    for owner in reversed(cls.__mro__):
        module = sys.modules.get(owner.__module__)
        names = {**vars(owner), owner.__name__: owner, cls.__name__: cls}
        for name, raw in get_annotations(owner).items():
            hint = resolve(raw, vars(module) if module else {}, names, in_class=True)
            found[name] = with_self(hint, cls), owner
    return found


def resolve(
    raw: Any, global_names: dict[str, Any], names: Mapping[str, Any], *, in_class: bool = False
) -> Any:
    """Return an annotation with the names in its text looked up, or `Any` if one of them is not known."""
    holder: Any = {"__annotations__": {"it": raw}}
    holder = type("Holder", (), holder) if in_class else types.SimpleNamespace(**holder)
    try:
        return typing.get_type_hints(holder, global_names, dict(names), include_extras=True)["it"]
    except Exception:  # noqa: BLE001 - evaluates the author's text; one that fails says as much as none at all
        return Any


def with_self(declared: Any, cls: type) -> Any:
    """Return a type with `cls` in the place of `Self`."""
    if declared is Self:
        return cls
    parts = get_args(declared)
    if not parts or "Self" not in repr(declared):
        return declared
    inner = tuple(with_self(part, cls) for part in parts)
    if inner == parts:
        return declared
    origin = get_origin(declared)
    try:
        return Union[inner] if origin in _UNIONS else origin[inner]  # noqa: UP007 - made from a tuple
    except TypeError:  # a Callable or a note, which no stored value needs
        return declared


def _bindings(cls: type, given: tuple[Any, ...]) -> Mapping[type, Mapping[Any, Any]]:
    """Return, for a class and each of its generic bases, what stands for its type variables."""
    found: dict[type, Mapping[Any, Any]] = {}
    for owner, parts in _generics(cls, given):
        found.setdefault(owner, dict(zip(getattr(owner, "__parameters__", ()), parts, strict=False)))
    return found


def _generics(cls: type, given: tuple[Any, ...]) -> Iterator[tuple[type, tuple[Any, ...]]]:
    yield cls, given
    # A generic model with its types filled in is a class of its own, and remembers of which one.
    model = _model_generics(cls)
    variables: Any = model.get("parameters") or getattr(cls, "__parameters__", ())
    mine = dict(zip(variables, given, strict=False))
    if model.get("origin") is not None:
        yield from _generics(model["origin"], tuple(_bound(part, mine) for part in model["args"]))
        return
    for parent in cls.__dict__.get("__orig_bases__", cls.__bases__):
        origin = get_origin(parent) or parent
        if isclass(origin) and origin not in (object, typing.Generic):
            parts = get_args(parent) or _model_generics(parent).get("parameters", ())
            yield from _generics(origin, tuple(_bound(part, mine) for part in parts))


def _model_generics(cls: Any) -> Mapping[str, Any]:
    found: Mapping[str, Any] = vars(cls).get("__pydantic_generic_metadata__", {})
    return found


def _bound(declared: Any, bindings: Mapping[Any, Any]) -> Any:
    """Return a type with its type variables replaced."""
    if isinstance(declared, TypeVar):
        return bindings.get(declared, declared)
    unbound = () if isclass(declared) else getattr(declared, "__parameters__", ())
    if not unbound:
        return declared
    try:
        return declared[tuple(bindings.get(one, Any) for one in unbound)]
    except TypeError:  # a ParamSpec or a TypeVarTuple, which no stored value needs
        return Any
