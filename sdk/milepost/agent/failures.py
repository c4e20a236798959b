"""Errors as data: what the log keeps of what the author's code raised.

An error is only asked for its class, its message and what led to it, and none of that is trusted: a message
may be huge, and asking for it may raise.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from milepost.checkpoint.records import ErrorData

__all__ = ["error_data", "leaves", "message_of", "qualified"]

MAX_MESSAGE: Final = 2000
MAX_LINK: Final = 500
"""Characters that are kept of the message of an error that led to another one."""

MAX_CHAIN: Final = 8


def error_data(error: BaseException) -> ErrorData:
    """Return the error as it is recorded. Its chain is what it was raised from, or what a group holds."""
    chain = []
    for inner, _ in zip(_behind(error), range(MAX_CHAIN), strict=False):
        chain.append(f"{qualified(inner)}: {message_of(inner, MAX_LINK)}")
    return ErrorData(kind=qualified(error), message=message_of(error), chain=tuple(chain))


def qualified(error: BaseException) -> str:
    """Return the error's class as a step's failure names it: `package.module.QualName`."""
    return f"{type(error).__module__}.{type(error).__qualname__}"


def message_of(error: BaseException, limit: int = MAX_MESSAGE) -> str:
    """Return the error's message, cut to `limit` characters and more."""
    try:
        text = str(error)
    except Exception as unprintable:  # noqa: BLE001  (the author's `__str__`; the error itself still counts)
        return f"(its message cannot be printed: {type(unprintable).__name__})"
    return text if len(text) <= limit else text[:limit] + " ..."


def leaves(error: BaseException) -> list[BaseException]:
    """Return what a group holds, groups in it opened too; any other error as the only one."""
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    return [leaf for inner in error.exceptions for leaf in leaves(inner)]


def _behind(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        yield from leaves(error)
    inner: BaseException | None = error
    while inner is not None:
        inner = inner.__cause__ or (None if inner.__suppress_context__ else inner.__context__)
        if inner is not None:
            yield inner
