"""Values to JSON, walked part by part; what has no exact form is refused with its path.

Two places that share one list get two equal lists: only equality in type and value is kept, not identity. A
value that holds itself is refused.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from decimal import Decimal
from enum import Flag
from types import CoroutineType
from typing import Any, Final

from milepost.checkpoint.codec import hints, objects
from milepost.checkpoint.codec.leaves import WRITERS, Odd, Writer, number, text
from milepost.checkpoint.codec.paths import Element, Key, Where, show
from milepost.checkpoint.codec.wire import (
    JSON,
    MAX_BYTES,
    MAX_DEPTH,
    MAX_EXACT,
    MAX_PARTS,
    TAG,
    TOO_MANY_PARTS,
    dumps,
)
from milepost.errors import NotStorable

__all__ = ["ELSEWHERE", "Encoder"]

ELSEWHERE: Final = "keep it elsewhere, as a file or an object of your own, and return its address"

# Unions are resolved by trying the arms that fit; without a bound, arms of arms would take exponential time.
_MAX_TRIALS: Final = 10_000

_ADVICE: Final = {
    bytearray: "use bytes(...)",
    memoryview: "use bytes(...)",
    range: "use list(...)",
    deque: "use list(...)",
    CoroutineType: "await it",
}


class Encoder:
    """Encodes one value. Use a new one for each."""

    def __init__(self) -> None:
        # Shared parts and texts count as often as they are reached: so often they would be written.
        self._parts_left = MAX_PARTS
        self._size = 0
        self._trials_left = _MAX_TRIALS
        self._named = 0
        self._open: set[int] = set()
        self._compounds: dict[type, Callable[[Any, Any, Where, int], JSON]] = {
            list: self._list,
            dict: self._dict,
            tuple: self._tuple,
            set: self._set,
            frozenset: self._set,
        }

    def encode(self, value: Any, declared: Any, where: Where, depth: int) -> JSON:
        """Return the JSON of a value that stands `depth` levels deep. Raises NotStorable."""
        kind = type(value)
        if kind is str:
            data = text(value)
            self._weigh(len(value) if data is value else len(data["v"]), where)
            return data
        if value is None or kind is bool:
            return value
        if kind is int or kind is float:
            return value if -MAX_EXACT <= value <= MAX_EXACT else self._odd_number(value, where)
        if (writer := WRITERS.get(kind)) is not None:
            return self._leaf(value, writer, where)
        if depth >= MAX_DEPTH:
            raise NotStorable(show(where), f"it is nested deeper than {MAX_DEPTH} levels of JSON")
        if id(value) in self._open:
            raise NotStorable(show(where), "it holds itself")
        self._open.add(id(value))
        try:
            if declared is not Any:
                declared = hints.bare(declared)
                if hints.is_union(declared):
                    return self._arm(value, declared, where, depth)
            return self._compounds.get(kind, self._named_class)(value, declared, where, depth)
        finally:
            self._open.discard(id(value))

    def _odd_number(self, value: float, where: Where) -> JSON:
        if isinstance(value, int):
            self._weigh(value.bit_length() // 4, where)
        return number(value)

    def _leaf(self, value: Any, writer: Writer, where: Where) -> JSON:
        if type(value) is bytes:
            self._weigh(4 * len(value) // 3, where)
        try:
            fields = writer.fields(value)
        except Odd as odd:
            raise NotStorable(show(where), str(odd)) from None
        if type(value) is Decimal:
            self._weigh(len(fields["v"]), where)
        return {TAG: writer.tag, **fields}

    def _weigh(self, size: int, where: Where) -> None:
        """Count characters that will be written, before they are: each takes a byte or more."""
        self._size += size
        if self._size > MAX_BYTES:
            why = f"with it, the value has at least {self._size} bytes, more than {MAX_BYTES}; {ELSEWHERE}"
            raise NotStorable(show(where), why)

    def _count(self, value: Any, where: Where) -> None:
        self._parts_left -= len(value) + 1
        if self._parts_left < 0:
            raise NotStorable(show(where), f"{TOO_MANY_PARTS}; {ELSEWHERE}")

    # Loops, not comprehensions: each would take a frame of its own, and a value may have 200 levels.

    def _list(self, value: list[Any], declared: Any, where: Where, depth: int) -> JSON:
        self._count(value, where)
        inner = hints.element(declared, list)
        data: list[JSON] = []
        for index, part in enumerate(value):
            data.append(self.encode(part, inner, (where, index), depth + 1))
        return data

    def _tuple(self, value: tuple[Any, ...], declared: Any, where: Where, depth: int) -> JSON:
        self._count(value, where)
        parts = hints.tuple_elements(declared, len(value))
        data: list[JSON] = []
        for index, part in enumerate(value):
            data.append(self.encode(part, parts[index], (where, index), depth + 2))
        return {TAG: "tuple", "v": data}

    def _set(self, value: Any, declared: Any, where: Where, depth: int) -> JSON:
        self._count(value, where)
        kind = type(value)
        inner = hints.element(declared, kind)
        data = [self.encode(part, inner, (where, Element(part)), depth + 2) for part in value]
        # A set has no order, so its text gets one that does not depend on the process.
        return {TAG: kind.__name__, "v": sorted(data, key=dumps)}

    def _dict(self, value: dict[Any, Any], declared: Any, where: Where, depth: int) -> JSON:
        self._count(value, where)
        typed = hints.typed_dict(declared)
        keys, values = hints.pair(declared)
        if all(type(key) is str and key != TAG and type(text(key)) is str for key in value):
            data: dict[str, JSON] = {}
            self._weigh(sum(map(len, value)), where)
            for key, part in value.items():
                inner = typed.get(key, Any) if typed else values
                data[key] = self.encode(part, inner, (where, key), depth + 1)
            return data
        pairs: list[JSON] = []
        for key, part in value.items():
            inner = typed.get(key, Any) if typed else values
            there: Where = (where, key if type(key) is str else Key(key))
            stored = self.encode(key, keys, (where, Key(key)), depth + 3)
            pairs.append([stored, self.encode(part, inner, there, depth + 3)])
        return {TAG: "dict", "v": pairs}

    def _arm(self, value: Any, declared: Any, where: Where, depth: int) -> JSON:
        """Encode under the first arm that takes the value, and note which, where that says anything."""
        refused: NotStorable | None = None
        write = self._compounds.get(type(value), self._named_class)
        for index, arm in enumerate(hints.arms(declared)):
            if not hints.may_hold(arm, type(value)):
                continue
            self._trials_left -= 1
            if self._trials_left < 0:
                raise NotStorable(
                    show(where), f"the declared type {hints.label(declared)} fits in too many ways"
                )
            before = self._named
            try:
                inner = write(value, arm, where, depth + 1)
            except NotStorable as error:
                if self._trials_left < 0:
                    raise
                refused = refused or error
                continue
            if self._named == before:
                return inner
            return {TAG: "arm", "i": index, "t": hints.label(arm), "v": inner}
        if refused is not None:
            raise refused
        return write(value, declared, where, depth)

    def _named_class(self, value: Any, declared: Any, where: Where, depth: int) -> JSON:
        cls = type(value)
        named, given = hints.named_class(declared)
        kind = objects.kind_of(cls)
        if kind is None or cls is not named:
            raise NotStorable(show(where), _why_not(cls, kind, declared))
        self._named += 1
        try:
            if kind == "enum":
                return _enum(value)
            if kind == "of":
                return self._subclass(value, declared, where, depth)
            return self._object(value, kind, given, where, depth)
        except objects.Undeclared as found:
            raise NotStorable(show((where, found.attribute)), found.why) from None

    def _subclass(self, value: Any, declared: Any, where: Where, depth: int) -> JSON:
        base = objects.native_base(type(value))
        assert base is not None
        content = objects.native_of(value, base)
        return {TAG: "of", "v": self.encode(content, hints.base_of(declared, base), where, depth + 1)}

    def _object(
        self, value: Any, kind: objects.Kind, given: tuple[Any, ...], where: Where, depth: int
    ) -> JSON:
        cls = type(value)
        state = objects.take_apart(value, kind)
        self._count(state.fields, where)
        declared = objects.field_hints(cls, given, kind)
        data: dict[str, JSON] = {TAG: kind}
        data["v"] = held = {}
        for name, part in state.fields.items():
            held[name] = self.encode(part, declared.get(name, Any), (where, name), depth + 2)
        absent = [name for name in objects.field_names(cls, kind) if name not in state.fields]
        if absent:
            data["unset"] = absent
        if kind == "model":
            data |= self._model_rest(cls, state, where, depth)
        return data

    def _model_rest(self, cls: type, state: objects.State, where: Where, depth: int) -> dict[str, JSON]:
        data: dict[str, JSON] = {}
        declared = objects.private_hints(cls) if state.extra is not None or state.private is not None else {}
        if state.chosen != state.fields.keys():
            data["set"] = self.encode(sorted(state.chosen), Any, (where, "model_fields_set"), depth + 1)
        if state.extra is not None:
            data["extra"] = self._dict(
                state.extra, hints.bare(declared.get(objects.EXTRA, Any)), where, depth + 1
            )
        if state.private is not None:
            data["private"] = {
                name: self.encode(part, declared.get(name, Any), (where, name), depth + 2)
                for name, part in state.private.items()
            }
        return data


def _enum(value: Any) -> JSON:
    cls = type(value)
    if cls.__members__.get(value._name_) is value:
        return {TAG: "enum", "v": value._name_}
    if issubclass(cls, Flag):
        return {TAG: "flag", "v": number(value._value_)}
    raise objects.Undeclared("name", f"it is no member of {cls.__name__}")


def _why_not(cls: type, kind: objects.Kind | None, declared: Any) -> str:
    name = cls.__name__
    base = objects.native_base(cls)
    if kind is None:
        return f"a {cls.__module__}.{cls.__qualname__} has no lossless form; " + _advice(cls, base)
    if kind == "of":
        assert base is not None
        native, named = _plain_name(base), hints.label(declared)
        return (
            f"{name} is a subclass of {native}, and the declared type {named} does not name it here; "
            f"convert it with {native}(...) or declare {name}"
        )
    if declared is Any:
        return (
            f"no declared type names the class {name}; annotate the step's function with its result type, "
            f"for example -> {name}"
        )
    return f"the declared type {hints.label(declared)} does not name the class {name} here"


def _plain_name(base: type) -> str:
    return "dict" if issubclass(base, dict) else base.__name__


def _advice(cls: type, base: type | None) -> str:
    if issubclass(cls, BaseException):
        return "raise it, or return its message"
    if cls in _ADVICE:
        return _ADVICE[cls]
    if base is not None:
        return f"convert it with {_plain_name(base)}(...)"
    return "return plain data, a dataclass or a pydantic model"
