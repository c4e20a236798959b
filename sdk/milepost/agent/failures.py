"""Errors as data: what the log keeps of what the author's code raised.

An error is only asked for its class, its message with its notes, and what led to it, and none of that is
trusted: a message may be huge, asking for it may raise, and what led to an error may lead back to it.
Nothing here raises, and nothing is ever made again from what is kept: an error's own constructor, whatever
it wants, is not called when a run resumes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from milepost.checkpoint.records import ErrorData

__all__ = ["error_data", "leaves", "message_of", "qualified"]

MAX_MESSAGE: Final = 2000
MAX_LINK: Final = 500
"""Characters that are kept of the message of an error that led to another one."""

MAX_CHAIN: Final = 8
MAX_KIND: Final = 300
MAX_NOTES: Final = 10
MAX_LEAVES: Final = 1000

# As BaseException itself has them: a class may have something else under these names.
_CAUSE: Final[Any] = vars(BaseException)["__cause__"]
_CONTEXT: Final[Any] = vars(BaseException)["__context__"]
_SUPPRESSED: Final[Any] = vars(BaseException)["__suppress_context__"]
_GROUPED: Final[Any] = vars(BaseExceptionGroup)["exceptions"]


def error_data(error: BaseException) -> ErrorData:
    """Return the error as it is recorded. Its chain is what it was raised from, and what a group holds."""
    chain = [
        f"{qualified(inner)}: {message_of(inner, MAX_LINK)}" for inner in islice(_behind(error), MAX_CHAIN)
    ]
    return ErrorData(kind=qualified(error), message=message_of(error), chain=tuple(chain))


def qualified(error: BaseException) -> str:
    """Return the error's class as a step's failure names it: `package.module.QualName`."""
    return f"{type(error).__module__}.{type(error).__qualname__}"[:MAX_KIND]


def message_of(error: BaseException, limit: int = MAX_MESSAGE) -> str:
    """Return the error's message and its notes, each note on a line, cut to `limit` characters and more."""
    text = "\n".join([_cut(_message(error), limit), *(_cut(note, limit) for note in _notes(error))])
    return text if len(text) <= limit else text[:limit] + " ..."


def leaves(error: BaseException) -> list[BaseException]:
    """Return what a group holds, groups in it opened too; any other error as the only one.

    Each error once, and the first MAX_LEAVES at most.
    """
    found: dict[int, BaseException] = {}
    seen: set[int] = set()
    todo = [error]
    while todo and len(found) < MAX_LEAVES:
        inner = todo.pop()
        if id(inner) in seen:
            continue
        seen.add(id(inner))
        if isinstance(inner, BaseExceptionGroup):
            todo += reversed(_GROUPED.__get__(inner))
        else:
            found[id(inner)] = inner
    return list(found.values())


def _behind(error: BaseException) -> Iterator[BaseException]:
    """Yield what led to an error, each once: nearer ones first."""
    seen = {id(error)}
    todo = deque(_led_to(error))
    while todo:
        inner = todo.popleft()
        if id(inner) not in seen:
            seen.add(id(inner))
            yield inner
            todo += _led_to(inner)


def _led_to(error: BaseException) -> list[BaseException]:
    held = leaves(error) if isinstance(error, BaseExceptionGroup) else []
    inner = _CAUSE.__get__(error) or (None if _SUPPRESSED.__get__(error) else _CONTEXT.__get__(error))
    return held if inner is None else [*held, inner]


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except KeyboardInterrupt:
        raise
    except BaseException as unprintable:  # noqa: BLE001  (the author's `__str__`; the error itself still counts)
        return f"(its message cannot be printed: {type(unprintable).__name__})"


def _notes(error: BaseException) -> list[str]:
    # What `add_note` keeps is a list in the instance's own dictionary, which anybody may change.
    notes = vars(error).get("__notes__")
    return [note for note in notes[:MAX_NOTES] if isinstance(note, str)] if type(notes) is list else []


def _cut(text: str, limit: int) -> str:
    # By str's own method: a subclass may have another idea of its length, or of a slice.
    return str.__getitem__(text, slice(limit + 1))
