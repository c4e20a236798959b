"""Every type at every place where a value can stand."""

from __future__ import annotations

import datetime as dt
import enum
import math
import uuid
from collections.abc import Callable
from dataclasses import KW_ONLY, InitVar, dataclass, field
from decimal import Decimal
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, Optional, Self, TypeVar, Union, cast
from zoneinfo import ZoneInfo

import pytest
import typing_extensions as te
from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    HttpUrl,
    PrivateAttr,
    RootModel,
    SecretStr,
    Tag,
    field_validator,
    model_validator,
)
from pydantic_core import TzInfo

from milepost.checkpoint.codec import decode, dumps, first_difference, loads, store
from milepost.errors import NotStorable

T = TypeVar("T")


class Note(BaseModel):
    model_config = ConfigDict(frozen=True)
    title: str = "a"


class Colour(enum.Enum):
    RED = 1


class Level(enum.IntEnum):
    LOW = 1


class Word(enum.StrEnum):
    YES = "yes"


class Rights(enum.IntFlag):
    READ = 1
    WRITE = 2


class Kept(enum.Flag, boundary=enum.KEEP):
    READ = 1


@dataclass(frozen=True)
class Point:
    x: float = 0.0


class Pair(NamedTuple):
    one: int = 1


class MyStr(str):
    __slots__ = ()


class MyInt(int):
    pass


class MyFloat(float):
    pass


class MyBytes(bytes):
    pass


class MyTuple(tuple[int, ...]):
    __slots__ = ()


Id = NewType("Id", int)
PARIS = ZoneInfo("Europe/Paris")

EACH: dict[str, tuple[Any, Any]] = {
    "none": (None, None),
    "bool": (True, bool),
    "int": (1, int),
    "integer of 10,000 digits": (10**9_999 + 1, int),
    "negative integer of 10,000 digits": (-(10**9_999) - 1, int),
    "float": (0.1, float),
    "negative zero": (-0.0, float),
    "subnormal": (5e-324, float),
    "nan": (math.nan, float),
    "infinity": (-math.inf, float),
    "complex": (complex(-0.0, math.nan), complex),
    "text": ("a", str),
    "lone surrogate": ("a\ud800b", str),
    "text that is our tag": ("$mp", str),
    "bytes": (b"\x00\xff", bytes),
    "decimal": (Decimal("-0.00"), Decimal),
    "decimal of 10,000 digits": (Decimal(f"1.{'0' * 9_999}"), Decimal),
    "decimal nan with a payload": (Decimal("NaN123"), Decimal),
    "uuid": (uuid.UUID(int=1), uuid.UUID),
    "date": (dt.date(9999, 12, 31), dt.date),
    "time": (dt.time(1, 2, 3, 4, fold=1, tzinfo=PARIS), dt.time),
    "time with an offset": (dt.time(1, tzinfo=dt.timezone(dt.timedelta(seconds=-1))), dt.time),
    "timedelta": (dt.timedelta.min, dt.timedelta),
    "naive datetime": (dt.datetime.min, dt.datetime),  # noqa: DTZ901 - naive values are values too
    "datetime in a zone": (dt.datetime(2026, 10, 25, 2, 30, 0, 1, tzinfo=PARIS, fold=1), dt.datetime),
    "datetime that its zone skips": (dt.datetime(2026, 3, 29, 2, 30, tzinfo=PARIS), dt.datetime),
    "datetime with a fine offset": (
        dt.datetime(2026, 1, 1, tzinfo=dt.timezone(dt.timedelta(microseconds=1))),
        dt.datetime,
    ),
    "datetime that pydantic parsed": (dt.datetime(2026, 1, 1, tzinfo=TzInfo(7_200)), dt.datetime),
    "datetime that pydantic parsed in UTC": (dt.datetime(2026, 1, 1, tzinfo=TzInfo(0)), dt.datetime),
    "datetime that pydantic parsed in the west": (dt.datetime(2026, 1, 1, tzinfo=TzInfo(-1)), dt.datetime),
    "tuple": ((1, (2,)), tuple[int, tuple[int]]),
    "frozenset": (frozenset({1, (2,)}), frozenset[Any]),
    "enum": (Colour.RED, Colour),
    "int enum": (Level.LOW, Level),
    "str enum": (Word.YES, Word),
    "flag": (Rights.READ | Rights.WRITE, Rights),
    "no flag": (Rights(0), Rights),
    "flag with bits of no name": (Rights(64), Rights),
    "inverted flag": (~Rights.READ, Rights),
    "kept bits": (Kept(8), Kept),
    "model": (Note(title="b"), Note),
    "dataclass": (Point(1), Point),
    "named tuple": (Pair(2), Pair),
    "subclass of str": (MyStr("a"), MyStr),
    "subclass of int": (MyInt(10**5_000), MyInt),
    "subclass of float": (MyFloat("nan"), MyFloat),
    "subclass of bytes": (MyBytes(b"a"), MyBytes),
    "subclass of tuple": (MyTuple((1, 2)), MyTuple),
    "new type": (Id(1), Id),
}


class Holder(BaseModel):
    model_config = ConfigDict(extra="allow", arbitrary_types_allowed=True)
    __pydantic_extra__: dict[str, Any]
    body: Any = None


# As values: what they are given is known at run time only.
LIST, TUPLE, DICT, SET, FROZENSET, UNION, OPTIONAL, ANNOTATED = (
    cast("Any", it) for it in (list, tuple, dict, set, frozenset, Union, Optional, Annotated)
)


def holder_of(value: Any, declared: Any) -> tuple[Any, Any]:
    notes = {"body": declared, "_seen": declared, "__pydantic_extra__": DICT[str, declared]}
    cls: Any = type("Typed", (Holder,), {"__annotations__": notes, "__module__": __name__})
    made = cls.model_construct(body=value, more=value)
    made._seen = value
    return made, cls


def carrier_of(value: Any, declared: Any) -> tuple[Any, Any]:
    held = {"__annotations__": {"body": declared}, "body": value, "__module__": __name__}
    cls: Any = dataclass(type("Typed", (), held))
    return cls(), cls


PLACES: dict[str, Callable[[Any, Any], tuple[Any, Any]]] = {
    "alone": lambda value, declared: (value, declared),
    "list": lambda value, declared: ([value, [value]], LIST[declared | LIST[declared]]),
    "tuple": lambda value, declared: ((value, value), TUPLE[declared, ...]),
    "one of a tuple": lambda value, declared: ((1, value), TUPLE[int, declared]),
    "dict": lambda value, declared: ({"a": {"$mp": value}}, DICT[str, DICT[str, declared]]),
    "key": lambda value, declared: ({value: 1}, DICT[declared, int]),
    "part of a key": lambda value, declared: ({(1, value): 1}, DICT[TUPLE[int, declared], int]),
    "set": lambda value, declared: ({value}, SET[declared]),
    "frozenset": lambda value, declared: (frozenset({value, "x"}), FROZENSET[declared | str]),
    "optional": lambda value, declared: (value, OPTIONAL[declared]),
    "union": lambda value, declared: (value, UNION[list[int], declared, dict[str, int]]),
    "annotated": lambda value, declared: ([value], ANNOTATED[LIST[ANNOTATED[declared, "x"]], "y"]),
    "model": holder_of,
    "dataclass, as its default": carrier_of,
}


@pytest.mark.req("S1")
@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES.keys())
@pytest.mark.parametrize(("value", "declared"), EACH.values(), ids=EACH.keys())
def test_each_type_comes_back_from_each_place(
    value: Any, declared: Any, place: Callable[[Any, Any], tuple[Any, Any]]
) -> None:
    whole, kind = place(value, type(None) if declared is None else declared)

    data, copy = store(whole, kind)

    assert first_difference(whole, copy) is None
    assert first_difference(whole, decode(loads(dumps(data)), kind)) is None


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"


class Owner(BaseModel):
    pet: Annotated[Annotated[Cat, Tag("cat")] | Annotated[Dog, Tag("dog")], Discriminator("kind")]
    pets: list[Annotated[Cat | Dog, Field(discriminator="kind")]] = []
    friend: Self | None = None
    url: HttpUrl | None = None
    secret: SecretStr | None = None
    born: dt.datetime | None = None


class Twin(BaseModel):
    model_config = ConfigDict(frozen=True)
    title: str = "a"


class Loud(BaseModel):
    text: str
    _seen: list[str] = PrivateAttr(default_factory=list)

    @field_validator("text")
    @classmethod
    def louder(cls, value: str) -> str:
        return value.upper()

    @model_validator(mode="after")
    def count(self) -> Self:
        self._seen.append(self.text)
        return self


class Forest(RootModel[dict[str, list["Forest"]]]):
    pass


class Box(BaseModel, Generic[T]):
    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, T]
    item: T
    _seen: T | None = None


class SubBox(Box[T], Generic[T]):
    pass


@dataclass
class Family:
    parent: Self | None = None
    children: list[Self] = field(default_factory=list)
    named: "dict[str, Annotated[Self, 'x']]" = field(default_factory=dict)  # noqa: UP037 - both spellings exist


@dataclass
class Heir(Family):
    pass


@dataclass(slots=True, weakref_slot=True)
class Base:
    a: int
    seed: InitVar[int] = 5
    _: KW_ONLY
    hidden: list[int] = field(default_factory=list, repr=False, compare=False)

    def __post_init__(self, seed: int) -> None:
        self.a += seed


@dataclass(slots=True)
class Derived(Base):
    note: Note = field(default_factory=Note)


class Mixed(te.TypedDict):
    note: Note
    more: te.NotRequired[list[Note]]


class Wide(te.TypedDict, Generic[T]):
    item: T


class Cell(NamedTuple, Generic[T]):
    item: T


Notes = te.TypeAliasType("Notes", "list[Note] | None")
Tree = te.TypeAliasType("Tree", "list['Tree'] | Note")
ByName = te.TypeAliasType("ByName", dict[str, T], type_params=(T,))
Either = TypeVar("Either", Note, Twin)
Bounded = TypeVar("Bounded", bound=Note)


def a_box(cls: Any) -> Any:
    box = cls(item=Note(), more=Note(title="m"))
    box._seen = Note(title="s")
    return box


SHAPES: dict[str, tuple[Any, Any]] = {
    "discriminated union": (Owner(pet=Dog(), pets=[Cat(), Dog()], friend=Owner(pet=Cat())), Owner),
    "model with a time out of JSON": (
        Owner.model_validate_json('{"pet": {"kind": "cat"}, "born": "2026-01-01T00:00:00.000001+02:00"}'),
        Owner,
    ),
    "model whose validators change things": (Loud(text="a"), Loud),
    "root model of itself": (Forest({"a": [Forest({"b": []})]}), Forest),
    "generic model": (a_box(Box[Note]), Box[Note]),
    "heir of a generic model": (a_box(SubBox[Note]), SubBox[Note]),
    "first twin": (Note(), Note | Twin),
    "second twin": (Twin(), Note | Twin),
    "set of twins": ({Note(), Twin()}, set[Note | Twin]),
    "twins as keys": ({Note(): Twin(), Twin(): Note()}, dict[Note | Twin, Twin | Note]),
    "dataclass of itself": (
        Family(Family(), [Family(children=[Family()])], {"a": Family()}),
        Family,
    ),
    "heir of a dataclass of itself": (Heir(Heir(), [Heir()]), Heir),
    "slots, init variables, keywords": (Derived(1, seed=2, hidden=[1], note=Note(title="b")), Derived),
    "typed dict of typing_extensions": ({"note": Note(), "more": [Note()]}, Mixed),
    "generic typed dict": ({"item": Note()}, Wide[Note]),
    "generic named tuple": (Cell(Note()), Cell[Note]),
    "alias": ([Note()], Notes),
    "alias of itself": ([[Note()], [[Note()]], Note()], Tree),
    "generic alias": ({"a": Note()}, ByName[Note]),
    "type variable of two": ([Note(), Twin()], list[Either]),  # type: ignore[valid-type]  # what a generic function declares
    "type variable with a bound": (Note(), Bounded),
}


@pytest.mark.req("S1")
@pytest.mark.parametrize(("value", "declared"), SHAPES.values(), ids=SHAPES.keys())
def test_a_declared_shape_comes_back(value: Any, declared: Any) -> None:
    data, copy = store(value, declared)

    assert first_difference(value, copy) is None
    assert first_difference(value, decode(loads(dumps(data)), declared)) is None


def test_a_validator_does_not_run_again() -> None:
    value = Loud(text="a")

    assert store(value, Loud)[1]._seen == ["A"]


def hacked(name: str, held: Any) -> Note:
    value = Note()
    object.__setattr__(value, name, held)
    return value


def a_zone_of_another_place() -> ZoneInfo:
    class Rules:
        """The zone file of a place where it is always 05:00 east."""

        def __init__(self) -> None:
            header = b"TZif2" + bytes(15)
            block = (0).to_bytes(4) * 4 + (1).to_bytes(4) + (4).to_bytes(4)
            rest = (18_000).to_bytes(4) + b"\x00\x00" + b"ODD\x00"
            self._left = (header + block + rest) * 2 + b"\nODD-5\n"

        def read(self, size: int = -1) -> bytes:
            size = len(self._left) if size < 0 else size
            part, self._left = self._left[:size], self._left[size:]
            return part

        def seek(self, offset: int, whence: int = 0) -> int:
            assert (offset, whence) == (offset, 1)
            self._left = self._left[offset:]
            return 0

        def readline(self) -> bytes:
            line, _, self._left = self._left.partition(b"\n")
            return line + b"\n"

    return ZoneInfo.from_file(Rules(), key="Europe/Paris")


ODD: dict[str, tuple[Callable[[], Any], Any, str, str]] = {
    "names that are no names": (
        lambda: [Note.model_construct({1, "a"})],  # type: ignore[arg-type]  # what is tested
        list[Note],
        "result[0].model_fields_set",
        "it holds what is not a name",
    ),
    "private attributes that are no dict": (
        lambda: hacked("__pydantic_private__", [1]),
        Note,
        "result.__pydantic_private__",
        "it is a list, not a dict",
    ),
    "extra fields that are no dict": (
        lambda: hacked("__pydantic_extra__", [1]),
        Note,
        "result.__pydantic_extra__",
        "it is a list, not a dict",
    ),
    "zone under another's key": (
        lambda: {"when": dt.datetime(2026, 1, 1, tzinfo=a_zone_of_another_place())},
        Any,
        "result.when",
        "it would not come back as it is: its value changed",
    ),
    "url": (
        lambda: Owner(pet=Cat(), url=HttpUrl("http://example.com/")),
        Owner,
        "result.url",
        "no lossless form",
    ),
    "secret": (
        lambda: Owner(pet=Cat(), secret=SecretStr("hunter2")),
        Owner,
        "result.secret",
        "no lossless form",
    ),
}


@pytest.mark.req("S1")
@pytest.mark.parametrize(("make", "declared", "path", "why"), ODD.values(), ids=ODD.keys())
def test_what_would_come_back_changed_is_refused(
    make: Callable[[], Any], declared: Any, path: str, why: str
) -> None:
    with pytest.raises(NotStorable) as refused:
        store(make(), declared)

    assert refused.value.path == path
    assert why in refused.value.why
    assert "hunter2" not in str(refused.value)
