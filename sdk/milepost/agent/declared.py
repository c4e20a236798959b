"""The types that functions declare, looked up once, and arguments as JSON under them."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any, Final
from weakref import WeakKeyDictionary

from milepost.agent.tools import Tool
from milepost.checkpoint import codec

__all__ = ["declared_parameters", "declared_result", "encoded", "encoded_arguments"]

# Looking them up costs more than the rest of a small step. Only of plain functions: another callable may be
# made anew for each call, or change.
_results: Final[WeakKeyDictionary[FunctionType, Any]] = WeakKeyDictionary()
_parameters: Final[WeakKeyDictionary[FunctionType, dict[int, tuple[Any, ...]]]] = WeakKeyDictionary()


def declared_result(fn: Callable[..., Any]) -> Any:
    """Return the type that a function declares for its result, or `Any`."""
    if not isinstance(fn, FunctionType):
        return codec.declared_result(fn)
    if fn not in _results:
        _results[fn] = codec.declared_result(fn)
    return _results[fn]


def declared_parameters(fn: Callable[..., Any], count: int) -> tuple[Any, ...]:
    """Return the types that a function declares for its first `count` arguments, `Any` where it does not."""
    if not isinstance(fn, FunctionType):
        return codec.declared_parameters(fn, count)
    known = _parameters.setdefault(fn, {})
    if count not in known:
        known[count] = codec.declared_parameters(fn, count)
    return known[count]


def encoded(value: Any, declared: Any, *, path: str) -> codec.JSON:
    """Return an argument's JSON. Where no type is declared for it, its own is taken."""
    return codec.encode(value, type(value) if declared is Any else declared, path=path)


def encoded_arguments(
    tool: Tool[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[list[codec.JSON], dict[str, codec.JSON]]:
    """Return the arguments' JSON, those by place and those by name."""
    declared = declared_parameters(tool.fn, len(args) + tool.takes_call)[tool.takes_call :]
    positional = [
        encoded(value, kind, path=f"argument {index} of tool {tool.name}")
        for index, (value, kind) in enumerate(zip(args, declared, strict=True), start=1)
    ]
    return positional, tool.encoded(kwargs)
