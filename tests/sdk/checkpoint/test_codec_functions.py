from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Optional, TypeVar

import pytest

from milepost.checkpoint.codec import declared_parameters, declared_result, store

if TYPE_CHECKING:
    from somewhere_else import Unknown  # type: ignore[import-not-found]  # a name that only type checkers see

T = TypeVar("T")


@dataclass
class Note:
    title: str
    parent: Optional[Note] = None  # noqa: UP045 - both spellings exist


class Box(Generic[T]):
    def method(self, one: Note, two: int = 0) -> list[Note]:
        raise NotImplementedError

    @classmethod
    def made(cls, one: Note) -> Note:
        raise NotImplementedError

    @staticmethod
    def static(one: Note) -> Note:
        raise NotImplementedError

    async def __call__(self, one: Note) -> Note | None:
        raise NotImplementedError


def plain(one: Note, /, two: list[Note], *rest: int, three: str = "") -> Note:
    raise NotImplementedError


async def waiting(one: Note) -> Note:
    raise NotImplementedError


def awaitable(one: Note) -> Awaitable[Note]:
    raise NotImplementedError


def coroutine(one: Note) -> Coroutine[Any, Any, Note]:
    raise NotImplementedError


def silent(one, two=1):  # type: ignore[no-untyped-def]  # what is tested  # noqa: ANN001, ANN201
    raise NotImplementedError


def half_known(one: Unknown, two: Note) -> Note:
    raise NotImplementedError


def unknown(one: Note) -> list[Unknown]:
    raise NotImplementedError


def nothing() -> None:
    raise NotImplementedError


def wrapped(fn: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    return wrapper


@pytest.mark.parametrize(
    ("fn", "result", "parameters"),
    [
        (plain, Note, (Note, list[Note])),
        (waiting, Note, (Note,)),
        (awaitable, Note, (Note,)),
        (coroutine, Note, (Note,)),
        (silent, Any, (Any, Any)),
        (half_known, Note, (Any, Note)),
        (unknown, Any, (Note,)),
        (nothing, type(None), ()),
        (lambda one: one, Any, (Any,)),
        (Box().method, list[Note], (Note, int)),
        (Box.made, Note, (Note,)),
        (Box.static, Note, (Note,)),
        (Box(), Note | None, (Note,)),
        (Note, Note, (str, Note | None)),
        (functools.partial(plain, Note("a")), Note, (list[Note],)),
        (functools.partial(functools.partial(Box().method, Note("a")), 2), list[Note], ()),
        (wrapped(wrapped(plain)), Note, (Note, list[Note])),
        (len, Any, (Any,)),
        (dict.fromkeys, Any, (Any, Any)),
        (int, int, ()),
    ],
)
def test_the_declared_types_of_a_function(
    fn: Callable[..., Any], result: Any, parameters: tuple[Any, ...]
) -> None:
    assert (declared_result(fn), declared_parameters(fn)) == (result, parameters)


def test_as_many_parameters_are_declared_as_asked_for() -> None:
    assert declared_parameters(plain, 1) == (Note,)
    assert declared_parameters(plain, 4) == (Note, list[Note], int, int)
    assert declared_parameters(nothing, 2) == (Any, Any)
    assert declared_parameters(int, 1) == (Any,)


def test_a_class_from_around_a_nested_function_is_found() -> None:
    @dataclass
    class Local:
        inner: Local | None = None

    def step() -> list[Local]:
        return [Local(Local())]

    assert store(step(), declared_result(step))[1] == [Local(Local())]
