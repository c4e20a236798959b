from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from milepost.agent.failures import (
    MAX_CHAIN,
    MAX_KIND,
    MAX_LEAVES,
    MAX_LINK,
    MAX_MESSAGE,
    error_data,
    leaves,
    message_of,
    qualified,
)
from milepost.checkpoint import records
from milepost.checkpoint.records import ErrorData, StepFailure, StepPlace, parse_event

HERE = __name__
Error = TypeVar("Error", bound=BaseException)


class OddlyMade(Exception):
    """Cannot be made again from its message, as most serializers would try."""

    def __init__(self, code: int, *, detail: str) -> None:
        super().__init__(f"code {code}")
        self.code = code
        self.detail = detail


class Leaving(Exception):
    @override
    def __str__(self) -> str:
        raise SystemExit(3)


class Endless(Exception):
    @override
    def __str__(self) -> str:
        return str(self)


class NoText(Exception):
    @override
    def __str__(self) -> str:
        return 5  # type: ignore[return-value]  # what is tested  # noqa: PLE0307


class Interrupted(Exception):
    @override
    def __str__(self) -> str:
        raise KeyboardInterrupt


class Sly(str):
    """Says that it is short, and cannot be cut."""

    __slots__ = ()

    @override
    def __len__(self) -> int:
        return 0

    @override
    def __getitem__(self, key: Any) -> str:
        raise ValueError


class SlyText(Exception):
    @override
    def __str__(self) -> str:
        return Sly("x" * 10**7)


class Hiding(Exception):
    @property
    @override
    def __cause__(self) -> Any:  # type: ignore[override]  # what is tested
        raise LookupError


class Hollow(ExceptionGroup[Exception]):
    @property
    @override
    def exceptions(self) -> Any:
        raise LookupError


def raised(error: Error, *, of: BaseException | None = None) -> Error:
    """Return an error as if it had been raised from another one."""
    error.__cause__ = of
    return error


def in_a_circle() -> BaseException:
    one, two = ValueError("one"), KeyError("two")
    one.__cause__, two.__cause__ = two, one
    return one


def in_a_long_line() -> BaseException:
    error: BaseException = ValueError("0")
    for number in range(1, 100_000):
        error = raised(ValueError(str(number)), of=error)
    return error


def nested(levels: int) -> BaseException:
    group: ExceptionGroup[Exception] = ExceptionGroup("deepest", [ValueError("leaf")])
    for _ in range(levels):
        group = ExceptionGroup("outer", [group])
    return group


def doubled(levels: int) -> BaseException:
    group: ExceptionGroup[Exception] = ExceptionGroup("deepest", [ValueError("leaf")])
    for _ in range(levels):
        group = ExceptionGroup("outer", [group, group])
    return group


def noted(*notes: Any) -> BaseException:
    error = ValueError("message")
    error.__notes__ = list(notes)
    return error


def with_notes_of(held: Any) -> BaseException:
    error = ValueError("message")
    error.__notes__ = held
    return error


def of_a_class(name: str, module: Any) -> BaseException:
    error: BaseException = type(name, (Exception,), {"__module__": module})()
    return error


def suppressed() -> BaseException:
    error = ValueError("told")
    error.__context__, error.__suppress_context__ = KeyError("not told"), True
    return error


def in_context() -> BaseException:
    error = ValueError("told")
    error.__context__ = KeyError("told too")
    return error


SEEN: dict[str, tuple[Callable[[], BaseException], ErrorData]] = {
    "plain": (lambda: ValueError("a", 1), ErrorData(kind="builtins.ValueError", message="('a', 1)")),
    "without a message": (ValueError, ErrorData(kind="builtins.ValueError", message="")),
    "made with keywords": (
        lambda: OddlyMade(3, detail="x"),
        ErrorData(kind=f"{HERE}.OddlyMade", message="code 3"),
    ),
    "message that leaves the process": (
        Leaving,
        ErrorData(kind=f"{HERE}.Leaving", message="(its message cannot be printed: SystemExit)"),
    ),
    "message that never ends": (
        Endless,
        ErrorData(kind=f"{HERE}.Endless", message="(its message cannot be printed: RecursionError)"),
    ),
    "message that is no text": (
        NoText,
        ErrorData(kind=f"{HERE}.NoText", message="(its message cannot be printed: TypeError)"),
    ),
    "message of ten megabytes": (
        lambda: ValueError("x" * 10**7),
        ErrorData(kind="builtins.ValueError", message="x" * MAX_MESSAGE + " ..."),
    ),
    "message that lies about its length": (
        SlyText,
        ErrorData(kind=f"{HERE}.SlyText", message="x" * MAX_MESSAGE + " ..."),
    ),
    "lone surrogates": (
        lambda: raised(ValueError("a\ud800b"), of=KeyError("\udfff")),
        ErrorData(
            kind="builtins.ValueError",
            message="a\\ud800b",
            chain=("builtins.KeyError: '\\udfff'",),
        ),
    ),
    "notes": (
        lambda: noted("look here", "and there"),
        ErrorData(kind="builtins.ValueError", message="message\nlook here\nand there"),
    ),
    "notes that are no text": (
        lambda: noted("a", 5, None, "b"),
        ErrorData(kind="builtins.ValueError", message="message\na\nb"),
    ),
    "notes that are no list": (
        lambda: with_notes_of(5),
        ErrorData(kind="builtins.ValueError", message="message"),
    ),
    "notes of ten megabytes": (
        lambda: noted(*["x" * 10**7] * 1_000),
        ErrorData(
            kind="builtins.ValueError", message="message\n" + "x" * (MAX_MESSAGE - len("message\n")) + " ..."
        ),
    ),
    "cause": (
        lambda: raised(ValueError("a"), of=raised(KeyError("b"), of=OSError("x" * 10**6))),
        ErrorData(
            kind="builtins.ValueError",
            message="a",
            chain=("builtins.KeyError: 'b'", "builtins.OSError: " + "x" * MAX_LINK + " ..."),
        ),
    ),
    "context": (
        in_context,
        ErrorData(kind="builtins.ValueError", message="told", chain=("builtins.KeyError: 'told too'",)),
    ),
    "suppressed context": (suppressed, ErrorData(kind="builtins.ValueError", message="told")),
    "cause that leads back": (
        in_a_circle,
        ErrorData(kind="builtins.ValueError", message="one", chain=("builtins.KeyError: 'two'",)),
    ),
    "cause that is hidden": (Hiding, ErrorData(kind=f"{HERE}.Hiding", message="")),
    "long line of causes": (
        in_a_long_line,
        ErrorData(
            kind="builtins.ValueError",
            message="99999",
            chain=tuple(f"builtins.ValueError: {number}" for number in range(99_998, 99_998 - MAX_CHAIN, -1)),
        ),
    ),
    "group": (
        lambda: ExceptionGroup("g", [ValueError("a"), raised(KeyError("b"), of=OSError("c"))]),
        ErrorData(
            kind="builtins.ExceptionGroup",
            message="g (2 sub-exceptions)",
            chain=("builtins.ValueError: a", "builtins.KeyError: 'b'", "builtins.OSError: c"),
        ),
    ),
    "group of what ends a process": (
        lambda: BaseExceptionGroup("g", [KeyboardInterrupt(), SystemExit(2)]),
        ErrorData(
            kind="builtins.BaseExceptionGroup",
            message="g (2 sub-exceptions)",
            chain=("builtins.KeyboardInterrupt: ", "builtins.SystemExit: 2"),
        ),
    ),
    "caused by a group": (
        lambda: raised(ValueError("a"), of=ExceptionGroup("g", [KeyError("b")])),
        ErrorData(
            kind="builtins.ValueError",
            message="a",
            chain=("builtins.ExceptionGroup: g (1 sub-exception)", "builtins.KeyError: 'b'"),
        ),
    ),
    "groups of groups": (
        lambda: nested(5_000),
        ErrorData(
            kind="builtins.ExceptionGroup",
            message="outer (1 sub-exception)",
            chain=("builtins.ValueError: leaf",),
        ),
    ),
    "groups that share groups": (
        lambda: doubled(60),
        ErrorData(
            kind="builtins.ExceptionGroup",
            message="outer (2 sub-exceptions)",
            chain=("builtins.ValueError: leaf",),
        ),
    ),
    "group that hides what it holds": (
        lambda: Hollow("g", [ValueError("a")]),
        ErrorData(kind=f"{HERE}.Hollow", message="g (1 sub-exception)", chain=("builtins.ValueError: a",)),
    ),
    "class of a long name": (
        lambda: of_a_class("E", "m" * 10**6),
        ErrorData(kind="m" * MAX_KIND, message=""),
    ),
    "class of an odd module": (lambda: of_a_class("E", "\ud800"), ErrorData(kind="\\ud800.E", message="")),
    "class of no module": (lambda: of_a_class("E", None), ErrorData(kind="None.E", message="")),
}


@pytest.mark.req("S1")
@pytest.mark.parametrize(("make", "data"), SEEN.values(), ids=SEEN.keys())
def test_an_error_is_kept_as_data(make: Callable[[], BaseException], data: ErrorData) -> None:
    assert error_data(make()) == data


@pytest.mark.req("S1")
@pytest.mark.parametrize("make", [make for make, _ in SEEN.values()], ids=SEEN.keys())
def test_what_is_kept_of_an_error_can_be_read(make: Callable[[], BaseException]) -> None:
    failure = StepFailure(
        step=StepPlace(id="s", name="s", ordinal=1),
        attempt=1,
        final=True,
        error=error_data(make()),
        started_at="",
        ended_at="",
    )

    assert parse_event(records.dump_event(failure)) == failure


def test_an_interrupt_is_no_matter_of_the_message() -> None:
    with pytest.raises(KeyboardInterrupt):
        message_of(Interrupted())


def test_the_leaves_of_a_group_are_few_and_in_order() -> None:
    many = ExceptionGroup(
        "g", [ExceptionGroup("h", [ValueError("a"), ValueError("b")]), *map(KeyError, range(10**5))]
    )

    found = leaves(many)

    assert [str(each) for each in found[:3]] == ["a", "b", "0"]
    assert len(found) == MAX_LEAVES


def test_an_error_that_is_no_group_is_its_own_leaf() -> None:
    error = ValueError("a")

    assert leaves(error) == [error]


def test_a_class_is_named_as_a_failed_step_names_it() -> None:
    assert qualified(OddlyMade(1, detail="")) == f"{HERE}.OddlyMade"


any_text = st.text(st.characters(exclude_categories=()), max_size=5)


@st.composite
def errors(draw: st.DrawFn) -> Exception:
    """Return an error that groups, and was raised from, any of those made before it."""
    made: list[Exception] = [ValueError(draw(any_text))]
    for _ in range(draw(st.integers(0, 6))):
        numbers = st.integers(0, len(made) - 1)
        held = [made[number] for number in draw(st.lists(numbers, min_size=1, max_size=3))]
        group = ExceptionGroup(draw(any_text), held)
        group.__cause__ = made[draw(numbers)]
        group.add_note(draw(any_text))
        made.append(group)
    return made[-1]


@pytest.mark.req("S1")
@given(errors())
def test_whatever_is_raised_is_kept_within_bounds(error: BaseException) -> None:
    data = error_data(error)

    text = "".join((data.kind, data.message, *data.chain))
    assert text.encode().decode() == text
    assert len(data.chain) <= MAX_CHAIN
    assert sys.getsizeof(text) < 100_000
