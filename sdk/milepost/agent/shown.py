"""What people are shown at a gate, as it is recorded: exactly that, since a decision is one about its digest.

A request is never read back into classes, so it may hold models wherever a value of their own type can say
what they are: by themselves, or as the parts of lists, sets, tuples and dicts.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final, Union

from milepost.agent.tools import Bound, Tool
from milepost.checkpoint import codec
from milepost.errors import Misuse, NotStorable

__all__ = ["shown", "shown_call"]

_NATIVE: Final = (type(None), bool, int, float, str, bytes)


def shown(request: Any, path: str) -> codec.JSON:
    """Return a request as JSON. Raises NotStorable where it has no lossless form."""
    return codec.encode(request, _own_type(request), path=path)


def shown_call(fn: Callable[..., Any], arguments: tuple[Any, ...]) -> codec.JSON:
    """Return the call of a tool that a step is about to make: its name, version and arguments by name.

    Defaults are among them, where they have a form, since they are passed as well. Raises NotStorable, and
    Misuse where the call cannot be made.
    """
    tool, args, named = _call_of(fn, arguments)
    try:
        bound = inspect.signature(tool.fn).bind(*([None] if tool.takes_call else []), *args, **named)
    except TypeError as error:
        raise Misuse(f"tool {tool.name} cannot be called like this: {error}") from error
    given = set(bound.arguments)
    bound.apply_defaults()
    passed = dict(list(bound.arguments.items())[tool.takes_call :])
    encoded: dict[str, codec.JSON] = {}
    for name, value in passed.items():
        if name in given:
            encoded |= tool.encoded({name: value})
        else:
            with suppress(NotStorable):
                encoded |= tool.encoded({name: value})
    return {"tool": tool.name, "version": tool.version, "arguments": encoded}


def _call_of(
    fn: Callable[..., Any], arguments: tuple[Any, ...]
) -> tuple[Tool[..., Any], tuple[Any, ...], dict[str, Any]]:
    if isinstance(fn, Bound):
        return fn.tool, arguments, fn.arguments
    if isinstance(fn, partial):
        tool, args, named = _call_of(fn.func, (*fn.args, *arguments))
        return tool, args, {**named, **fn.keywords}
    assert isinstance(fn, Tool), "only a tool asks for an approval"
    return fn, arguments, {}


def _own_type(value: Any) -> Any:
    """Return the type to encode a value under, given nothing but the value."""
    kind = type(value)
    if kind in _NATIVE:
        return Any
    if kind is dict:
        return dict[Any, _type_of_all(value.values())]  # type: ignore[misc]  # made at run time
    if kind in (list, set, frozenset):
        return kind[_type_of_all(value)]
    if kind is tuple:
        return tuple[tuple(map(_own_type, value))]  # type: ignore[misc]  # made at run time
    return kind


def _type_of_all(parts: Any) -> Any:
    kinds = list(dict.fromkeys(_own_type(part) for part in parts if part is not None))
    return Union[tuple(kinds)] if kinds else Any  # noqa: UP007  (made from a tuple)
