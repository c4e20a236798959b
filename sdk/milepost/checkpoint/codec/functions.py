"""The declared types of a function: of its result, and of its parameters.

Nothing here fails: what cannot be known is `Any`, under which only natives can be stored.
"""

from __future__ import annotations

import collections.abc
import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, get_args, get_origin

from milepost.checkpoint.codec import hints

__all__ = ["declared_by_name", "declared_parameters", "declared_result"]

_AWAITED: Final = (collections.abc.Awaitable, collections.abc.Coroutine)


def declared_result(fn: Callable[..., Any]) -> Any:
    """Return the type that a function declares for its result, or `Any`.

    `fn` may be a function, a method, a partial, a wrapper made with functools.wraps, a class (which declares
    itself) or an object with `__call__`. The result of an awaitable is what awaiting it gives.
    """
    plain, _ = _plain(fn)
    if inspect.isclass(plain):
        return plain
    found = _annotation(plain, "return")
    if get_origin(found) in _AWAITED and not inspect.iscoroutinefunction(plain):
        return get_args(found)[-1]
    return found


def declared_parameters(fn: Callable[..., Any], count: int | None = None) -> tuple[Any, ...]:
    """Return the types that a function declares for its positional parameters, bound ones left out.

    With `count`, the answer has exactly as many: `*args` is repeated, and what is beyond the signature is
    `Any`.
    """
    plain, bound = _plain(fn)
    try:
        parameters = list(inspect.signature(plain).parameters.values())
    except (TypeError, ValueError):  # written in C, without a signature
        return (Any,) * (count or 0)
    named = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    source = plain.__init__ if inspect.isclass(plain) else plain
    found = tuple(_annotation(source, one.name) for one in named[bound:])
    if count is None:
        return found
    rest = next((_annotation(source, one.name) for one in parameters if one.kind is one.VAR_POSITIONAL), Any)
    return (found + (rest,) * count)[:count]


def declared_by_name(fn: Callable[..., Any]) -> dict[str, Any]:
    """Return the type that a plain function declares for each parameter that can be given by its name."""
    parameters = inspect.signature(fn).parameters.values()
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {one.name: _annotation(fn, one.name) for one in parameters if one.kind in by_name}


def _plain(fn: Callable[..., Any]) -> tuple[Any, int]:
    """Return the function under partials, methods and wrappers, and how many of its parameters are taken."""
    found: Any = fn
    bound = 0
    for _ in range(100):
        if isinstance(found, partial):
            found, bound = found.func, bound + len(found.args)
        elif inspect.ismethod(found):
            found, bound = found.__func__, bound + 1
        elif hasattr(found, "__wrapped__"):
            found = found.__wrapped__
        elif not inspect.isroutine(found) and not inspect.isclass(found) and callable(found):
            found = type(found).__call__.__get__(found)
        else:
            break
    return found, bound


def _annotation(fn: Any, name: str) -> Any:
    raw = getattr(fn, "__annotations__", {}).get(name, Any)
    return hints.resolve(raw, getattr(fn, "__globals__", {}), _enclosed(fn))


def _enclosed(fn: Any) -> Mapping[str, Any]:
    """Return the names that a nested function takes from around it: its annotations may use them too."""
    found: dict[str, Any] = {}
    cells = getattr(fn, "__closure__", None) or ()
    names = fn.__code__.co_freevars if cells else ()
    for name, cell in zip(names, cells, strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return found
