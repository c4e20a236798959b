from __future__ import annotations

import collections
import enum
from dataclasses import dataclass, field
from functools import cached_property
from typing import (
    Annotated,
    Any,
    Final,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,
    Optional,
    Protocol,
    Self,
    TypedDict,
    TypeVar,
    Union,
)

import pydantic
import pytest
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, RootModel, computed_field, field_validator
from typing_extensions import override

from milepost.checkpoint.codec import DecodeError, decode, dumps, encode, first_difference, loads, store
from milepost.errors import NotStorable

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Note(BaseModel):
    title: str
    pages: int = 1


class Memo(BaseModel):
    title: str
    pages: int = 1


class LongNote(Note):
    pass


class Strict(BaseModel):
    """Its validator would change what it is given."""

    model_config = ConfigDict(frozen=True)
    text: str

    @field_validator("text")
    @classmethod
    def louder(cls, value: str) -> str:
        return value + "!"


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    a: int


class OpenToNotes(BaseModel):
    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Note]


class Secretive(BaseModel):
    a: int
    _count: int = 0
    _notes: list[Note] = PrivateAttr(default_factory=list)


class Computing(BaseModel):
    a: int

    @computed_field  # type: ignore[prop-decorator]  # as pydantic's own documentation writes it
    @property
    def double(self) -> int:
        return 2 * self.a

    @cached_property
    def triple(self) -> int:
        return 3 * self.a


class Deceitful(BaseModel):
    a: float

    @override
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]  # it cannot be hashed


class Names(RootModel[list[str]]):
    pass


class Box(BaseModel, Generic[T]):
    item: T


class Aliased(BaseModel):
    a: int = Field(alias="A", default=0)
    shape: Annotated[Note | Memo, Field(union_mode="left_to_right")]
    tree: list[Aliased] = []


class Colour(enum.Enum):
    RED = 1
    ROT = 1  # noqa: PIE796 - another name for a member
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1


class Word(enum.StrEnum):
    YES = "yes"


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


@dataclass
class Point:
    x: float
    y: float = 0.0
    tags: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Frozen:
    when: Colour
    inner: tuple[Point, ...] = ()
    computed: int = field(init=False, default=7)


@dataclass
class Busy:
    """It would count what rebuilds it."""

    a: int
    later: int = field(init=False)
    runs: int = 0

    def __post_init__(self) -> None:
        self.runs += 1


@dataclass
class Tree(Generic[T]):
    value: T
    children: list[Tree[T]] = field(default_factory=list)
    by_name: dict[str, T] = field(default_factory=dict)


@dataclass
class NoteTree(Tree[Note]):
    extra: Memo | None = None


class Pair(NamedTuple):
    note: Note
    n: int = 1


Loose = collections.namedtuple("Loose", "a b")  # noqa: PYI024 - both kinds exist


class Movie(TypedDict):
    name: str
    note: NotRequired[Note]


class MyStr(str):
    __slots__ = ()


class Loud(str):
    __slots__ = ()

    def __new__(cls, value: str) -> Self:
        return super().__new__(cls, value.upper())

    @override
    def __str__(self) -> str:
        return "not this"


class Notes(list[Note]):
    pass


class Ledger(dict[str, Point]):
    pass


@pydantic.dataclasses.dataclass
class Checked:
    a: int
    note: Note


UserId = NewType("UserId", MyStr)
Alias = list[Optional[Note]]  # noqa: UP045 - both spellings exist


def a_constructed_note() -> Note:
    return Note.model_construct(pages="three")  # type: ignore[arg-type, call-arg]  # what a model allows, and must come back


def a_note_of_other_types() -> Note:
    return Note.model_construct(title=b"x", pages=True)  # type: ignore[arg-type]  # as above


def a_moved_dict() -> collections.OrderedDict[str, int]:
    value = collections.OrderedDict(b=1, a=2)
    value.move_to_end("b")
    return value


def a_busy() -> Busy:
    value = Busy(1)
    value.runs = 5
    return value


def a_secretive() -> Secretive:
    value = Secretive(a=1)
    value._count = 3
    value._notes.append(Note(title="x"))
    return value


STORED: dict[str, tuple[Any, Any]] = {
    "model": (Note(title="a"), Note),
    "model with all fields set": (Note(title="a", pages=1), Note),
    "model with natives of other types": (a_note_of_other_types(), Note),
    "constructed model without a field": (a_constructed_note(), Note),
    "model whose validator changes its input": (Strict(text="a"), Strict),
    "model with extra fields": (Open.model_validate({"a": 1, "b": {"$mp": 1}, "$mp": (1,)}), Open),
    "model with extra fields of a class": (OpenToNotes.model_validate({"b": Note(title="a")}), OpenToNotes),
    "model with private attributes": (a_secretive(), Secretive),
    "model with computed fields": (Computing(a=1), Computing),
    "model that equals everything": (Deceitful(a=-0.0), Deceitful),
    "root model": (Names(["a"]), Names),
    "generic model": (Box[Note](item=Note(title="a")), Box[Note]),
    "generic model of any": (Box(item=1), Box),
    "model in models": (
        Aliased(A=1, shape=Memo(title="m"), tree=[Aliased(shape=Note(title="n"))]),
        Aliased,
    ),
    "list of models": ([Note(title="a"), Note(title="b")], list[Note]),
    "dict of models": ({"a": Note(title="a")}, dict[str, Note]),
    "optional model": (Note(title="a"), Note | None),
    "optional model, none": (None, Optional[Note]),  # noqa: UP045 - both spellings exist
    "union": (Memo(title="a"), Note | Memo),
    "old union": (Memo(title="a"), Union[Note, Memo, None]),  # noqa: UP007 - both spellings exist
    "nested union": ([Memo(title="a"), None, 1, "x"], list[Note | Memo | int | str | None]),
    "union of lists": ([Memo(title="a")], list[Note] | list[Memo]),
    "union with natives": ({"a": [1]}, Note | dict[str, list[int]]),
    "annotated": ([Note(title="a")], Annotated[list[Annotated[Note, "x"]], "y"]),
    "new type": (MyStr("a"), UserId),
    "alias": ([Note(title="a"), None], Alias),
    "literal": ("a", Literal["a", "b"]),
    "literal of members": (Colour.BLUE, Literal[Colour.BLUE, Level.LOW]),
    "final": (Note(title="a"), Final[Note]),
    "enum": (Colour.RED, Colour),
    "another name for a member": (Colour.ROT, Colour),
    "int enum": (Level.LOW, Level),
    "str enum": ([Word.YES, "yes"], list[Word]),
    "flags": ([Rights.READ, Rights.READ | Rights.WRITE, Rights(0)], list[Rights]),
    "enum as key": ({Colour.RED: Level.LOW}, dict[Colour, Level]),
    "dataclass": (Point(1.0, tags=["a"]), Point),
    "dataclass with ints for floats": (Point(1, y=True), Point),
    "frozen dataclass": (Frozen(when=Colour.RED, inner=(Point(1.0),)), Frozen),
    "dataclass with a post init": (a_busy(), Busy),
    "generic dataclass": (Tree(Note(title="a"), [Tree(Note(title="b"))], {"c": Note(title="c")}), Tree[Note]),
    "generic dataclass by its alias": (Tree[int](1), Tree[int]),
    "heir of a generic": (NoteTree(Note(title="a"), extra=Memo(title="m")), NoteTree),
    "pydantic dataclass": (Checked(1, Note(title="a")), Checked),
    "named tuple": (Pair(Note(title="a")), Pair),
    "old named tuple": (Loose(1, (2,)), Loose),
    "typed dict": ({"name": "a", "note": Note(title="a")}, Movie),
    "subclass of str": ([MyStr("a"), "b"], list[MyStr]),
    "subclass that changes its input": (Loud("a"), Loud),
    "subclass of list": (Notes([Note(title="a")]), Notes),
    "subclass of dict": (Ledger(a=Point(1.0)), Ledger),
    "ordered dict": (collections.OrderedDict(b=1, a=2), collections.OrderedDict),
    "ordered dict in another order": (a_moved_dict(), collections.OrderedDict),
    "ordered dict of models": (
        collections.OrderedDict(b=Note(title="a")),
        collections.OrderedDict[str, Note],
    ),
    "counter": (collections.Counter("aab"), collections.Counter),
    "set of frozen models": ({Strict(text="a"), Strict(text="b")}, set[Strict]),
    "tuple": ((1, Note(title="a")), tuple[int, Note]),
    "long tuple": ((Note(title="a"), Note(title="b")), tuple[Note, ...]),
    "abstract": ([Note(title="a")], collections.abc.Sequence[Note]),
    "abstract mapping": ({"a": Note(title="a")}, collections.abc.Mapping[str, Note]),
    "not what is declared": ({"title": (1,)}, Note),
}


@pytest.mark.req("S1")
@pytest.mark.parametrize(("value", "declared"), STORED.values(), ids=STORED.keys())
def test_an_instance_comes_back_where_its_class_is_declared(value: Any, declared: Any) -> None:
    data, copy = store(value, declared)

    assert first_difference(value, copy) is None
    assert first_difference(value, decode(loads(dumps(data)), declared)) is None


@pytest.mark.req("S1")
@pytest.mark.parametrize(("value", "declared"), STORED.values(), ids=STORED.keys())
def test_no_stored_value_names_a_module(value: Any, declared: Any) -> None:
    stored = dumps(encode(value, declared))

    assert type(value).__module__.encode() not in stored.replace(b"builtins", b"")
    assert b"test_codec" not in stored


class Shape(Protocol[T_co]):
    def area(self) -> T_co: ...


@dataclass
class Failure(Exception):
    code: int


class Doubled:
    """An attribute that changes what it is given."""

    def __set__(self, owner: Any, value: int) -> None:
        owner.__dict__["amount"] = 2 * value


@dataclass
class Invoice:
    amount: int


Invoice.amount = Doubled()  # type: ignore[assignment]  # as a descriptor is put there


class WithLock(BaseModel):
    a: int
    _lock: Any = PrivateAttr(default_factory=object)


class Slotted(Point):
    __slots__ = ("more",)


@dataclass
class Outer:
    items: list[Any]
    inner: Point | None = None


def with_attribute(value: Any, name: str) -> Any:
    object.__setattr__(value, name, 1)
    return value


REFUSED: dict[str, tuple[Any, Any, str, str]] = {
    "model in any": (
        [Note(title="a")],
        Any,
        "result[0]",
        "annotate the step's function with its result type",
    ),
    "model in a list of any": (
        {"a": [Note(title="a")]},
        dict[str, Any],
        "result.a[0]",
        "for example -> Note",
    ),
    "model in a dataclass's any": (Outer([1, Note(title="a")]), Outer, "result.items[1]", "Note"),
    "subclass of the declared": (LongNote(title="a"), Note, "result", "does not name the class LongNote"),
    "another model": ([Note(title="a")], list[Memo], "result[0]", "the declared type Memo"),
    "unparametrised generic": (Box(item=1), Box[int], "result", "does not name the class Box"),
    "other generic": (Tree(Note(title="a")), Tree[Memo], "result.value", "does not name"),
    "enum in any": ([Colour.RED], list[Any], "result[0]", "no declared type names the class Colour"),
    "subclass in any": ([MyStr("a")], list[str], "result[0]", "convert it with str(...) or declare MyStr"),
    "model under a protocol": (
        [Note(title="a")],
        Shape[int],
        "result[0]",
        "no declared type names the class Note",
    ),
    "attribute": (with_attribute(Point(1.0), "odd"), Point, "result.odd", "does not declare"),
    "attribute of a model": (with_attribute(Note(title="a"), "odd"), Note, "result.odd", "does not declare"),
    "attribute of a subclass": (with_attribute(Notes(), "odd"), Notes, "result.odd", "does not declare"),
    "private attribute": (WithLock(a=1), WithLock, "result._lock", "no lossless form"),
    "default dict": (collections.defaultdict(list), collections.defaultdict, "result", "no lossless form"),
    "union without the class": (
        Point(1.0),
        Note | Memo,
        "result",
        "Note | Memo does not name the class Point",
    ),
    "inside a union": (
        [Note(title="a"), 1, {2}, object()],
        list[Note] | list[Memo],
        "result[3]",
        "no lossless",
    ),
    "exception": ([Failure(1)], list[Failure], "result[0]", "raise it, or return its message"),
    "attribute that changes its value": (
        Invoice(1),
        Invoice,
        "result.amount",
        "it would not come back as it is",
    ),
    "set part": ({1: {"x": Frozen(when=Colour.RED)}}, dict[int, dict[str, Any]], "result[1].x", "Frozen"),
}


@pytest.mark.req("S1")
@pytest.mark.parametrize(("value", "declared", "path", "why"), REFUSED.values(), ids=REFUSED.keys())
def test_an_instance_is_refused_where_it_would_change(value: Any, declared: Any, path: str, why: str) -> None:
    with pytest.raises(NotStorable) as refused:
        store(value, declared)

    assert refused.value.path == path
    assert why in str(refused.value)


def test_an_attribute_in_a_slot_is_refused() -> None:
    value = Slotted(1.0)
    value.more = 1  # type: ignore[attr-defined]  # mypy does not see the slot

    with pytest.raises(NotStorable, match=r"^result\.more "):
        store(value, Slotted)


class Left(TypedDict):
    under: Left | Right | Note


class Right(TypedDict):
    under: Left | Right | Memo


def test_arms_of_arms_are_refused_in_bounded_time() -> None:
    value: Any = Point(1.0)
    for _ in range(60):
        value = {"under": value}

    with pytest.raises(NotStorable, match="fits in too many ways"):
        store(value, Left | Right)


def test_a_computed_value_is_computed_again() -> None:
    value = Computing(a=2)
    assert value.triple == 6

    copy = store(value, Computing)[1]

    assert (copy.triple, "triple" in encode(value, Computing)["v"]) == (6, False)


def test_rebuilding_runs_none_of_the_authors_code() -> None:
    value = a_busy()

    copy = store(value, Busy)[1]

    assert (copy.runs, hasattr(copy, "later")) == (5, False)


def test_an_ordered_dict_keeps_its_own_order() -> None:
    assert list(store(a_moved_dict(), collections.OrderedDict)[1]) == ["a", "b"]


def test_an_arm_is_found_again_when_the_union_lists_it_elsewhere() -> None:
    data = encode([Memo(title="a")], list[Note | Memo])

    assert decode(data, list[Memo | Note | Point]) == [Memo(title="a")]


def test_an_arm_that_is_gone_is_refused() -> None:
    data = encode([Memo(title="a")], list[Note | Memo])

    with pytest.raises(DecodeError, match=r"^value\[0\] cannot be read: .* has no arm 'Memo' at 1"):
        decode(data, list[Note | Point])


def test_twins_with_one_name_are_told_apart_by_their_position() -> None:
    other = type(
        "Note", (BaseModel,), {"__annotations__": {"title": str, "pages": int}, "__module__": __name__}
    )
    twins = Note | other

    data, copy = store(other(title="a", pages=1), twins)

    assert type(copy) is other
    with pytest.raises(DecodeError, match="has no arm 'Note' at 7"):
        decode(data | {"i": 7}, twins)


def test_a_new_field_takes_its_default() -> None:
    data = encode(Note(title="a"), Note)
    del data["v"]["pages"]

    copy = decode(data, Note)

    assert (copy, copy.model_fields_set) == (Note(title="a"), {"title"})


def test_a_new_field_without_default_is_refused() -> None:
    data = encode(Note(title="a"), Note)
    del data["v"]["title"]

    with pytest.raises(DecodeError, match=r"^value\.title cannot be read: it is not stored"):
        decode(data, Note)


def test_a_field_that_is_gone_is_refused() -> None:
    data = encode(Note(title="a"), Note)
    data["v"]["author"] = "b"

    with pytest.raises(DecodeError, match=r"^value\.author cannot be read: Note has no such field"):
        decode(data, Note)


def test_fields_that_differ_are_found_whatever_the_class_says_of_equality() -> None:
    assert first_difference(Deceitful(a=1.0), Deceitful(a=2.0)) == ("value.a", "its value changed")


def test_what_was_set_is_part_of_a_model() -> None:
    found = first_difference(Note(title="a"), Note(title="a", pages=1))

    assert found == ("value.model_fields_set", "it changed")


@pytest.mark.parametrize(
    ("one", "other", "path"),
    [
        (Colour.RED, Colour.BLUE, "value"),
        (MyStr("a"), MyStr("b"), "value"),
        (a_secretive(), Secretive(a=1), "value._notes"),
        (Open(a=1, b=1), Open(a=1, b=True), "value.b"),
        (Note(title="a"), Memo(title="a"), "value"),
    ],
)
def test_instances_that_hold_other_things_differ(one: Any, other: Any, path: str) -> None:
    found = first_difference(one, other)

    assert found is not None
    assert found[0] == path
