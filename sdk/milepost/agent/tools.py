"""Tools: what has effects outside the run, and says which kind.

`none` may be called at any time. `repeatable` may be called again after a crash. `keyed` takes an
idempotency key, the same on every retry, so that its receiver applies it once. A tool with an effect works
only inside a step, where it has a place and so a key.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import (
    Any,
    Concatenate,
    Final,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    TypeAlias,
    TypeVar,
    overload,
)

from milepost.checkpoint import codec
from milepost.errors import Misuse, NotStorable

__all__ = ["Bound", "Call", "Effect", "Tool", "ToolCaller", "bound_tool", "current_caller", "tool"]

P = ParamSpec("P")
T = TypeVar("T")

Effect: TypeAlias = Literal["none", "repeatable", "keyed", "verified", "irreversible"]

MAX_EVIDENCE: Final = 16 * 1024
"""Bytes of evidence that the record of one call carries."""


@dataclass
class Call:
    """What a tool can know of its call; the first parameter of a tool that asks for it.

    `key` is at most 64 ASCII characters and the same on every retry. `attempt` counts the tries of the
    step, from 1, across pods.
    """

    key: str
    attempt: int
    _evidence: dict[str, Any] = field(default_factory=dict, repr=False)
    _external_id: str | None = field(default=None, repr=False)

    def record(self, *, external_id: str | None = None, **evidence: Any) -> None:
        """Keep with the call what the other side calls it, and what proves it, 16 KiB of it at most.

        Raises NotStorable where a value has no lossless form without its type being declared.
        """
        if external_id is not None:
            if not isinstance(external_id, str):
                raise Misuse(f"an external id is a string, not {external_id!r}")
            self._external_id = external_id
        # Encoded here, where the author's line is at fault, and not once the call is being recorded.
        encoded = {name: codec.encode(value, path=f"evidence {name}") for name, value in evidence.items()}
        together = {**self._evidence, **encoded}
        if (size := len(codec.dumps(together))) > MAX_EVIDENCE:
            raise NotStorable("evidence", f"its {size} bytes are more than {MAX_EVIDENCE}; record its digest")
        self._evidence = together

    @property
    def external_id(self) -> str | None:
        """What the other side calls it, as recorded so far."""
        return self._external_id

    @property
    def evidence(self) -> dict[str, Any]:
        """What was recorded so far, as JSON."""
        return dict(self._evidence)


class ToolCaller(Protocol):
    """The step in which tools are called."""

    def call(
        self, tool: Tool[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Coroutine[Any, Any, T]:
        """Take the call's number at once; the coroutine makes the call and records it."""
        ...


current_caller: ContextVar[ToolCaller | None] = ContextVar("milepost_caller", default=None)


class Tool(Generic[P, T]):
    """A function with a declared effect. Made by `tool`."""

    def __init__(self, fn: Callable[..., Awaitable[T]], effect: Effect, version: str) -> None:
        if not inspect.iscoroutinefunction(fn):
            raise TypeError(f"a tool is an async function; {fn!r} is not")
        self.fn = fn
        self.name = fn.__name__
        self.effect: Effect = effect
        self.version = version
        self.requires_approval = False
        self.takes_call = _takes_call(fn)
        if effect == "keyed" and not self.takes_call:
            raise TypeError(
                f"{fn.__qualname__} is keyed, so its first parameter must be a Call, whose key it passes on"
            )
        self.__doc__ = fn.__doc__

    @property
    def has_effect(self) -> bool:
        """Whether the world outside may change by a call."""
        return self.effect != "none"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]:
        """Call the tool. Raises Misuse where it has an effect and is called outside a step."""
        caller = current_caller.get()
        if caller is not None:
            return caller.call(self, args, kwargs)
        if self.has_effect:
            raise Misuse(
                f"tool {self.name} has an effect, so it can be called only inside a step: "
                f'await run.step("{self.name}", {self.name}, ...)'
            )
        return self.invoke(Call(key="", attempt=1), args, kwargs)

    async def invoke(self, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> T:
        """Run the function itself."""
        return await (self.fn(call, *args, **kwargs) if self.takes_call else self.fn(*args, **kwargs))


@dataclass(frozen=True)
class Bound(Generic[T]):
    """A tool with its arguments, by name: a function without arguments, whose inputs these are."""

    tool: Tool[..., T]
    arguments: dict[str, Any]

    def __call__(self) -> Coroutine[Any, Any, T]:
        """Call the tool. Raises as calling the tool does."""
        return self.tool(**self.arguments)

    def encoded(self) -> codec.JSON:
        """Return the arguments as they are recorded."""
        return {name: codec.encode(value, type(value), path=name) for name, value in self.arguments.items()}


def bound_tool(fn: object) -> Tool[..., Any] | None:
    """Return the tool that a bound or partial one calls; None for any other function."""
    inner = fn.tool if isinstance(fn, Bound) else fn.func if isinstance(fn, partial) else None
    return inner if isinstance(inner, Tool) else None


def _takes_call(fn: Callable[..., Any]) -> bool:
    first = next(iter(inspect.signature(fn).parameters.values()), None)
    if first is None:
        return False
    return first.annotation is Call or (
        isinstance(first.annotation, str) and first.annotation.rpartition(".")[2] == "Call"
    )


class _KeyedDecorator(Protocol):
    def __call__(self, fn: Callable[Concatenate[Call, P], Awaitable[T]], /) -> Tool[P, T]: ...


class _ToolDecorator(Protocol):
    @overload
    def __call__(self, fn: Callable[Concatenate[Call, P], Awaitable[T]], /) -> Tool[P, T]: ...
    @overload
    def __call__(self, fn: Callable[P, Awaitable[T]], /) -> Tool[P, T]: ...


@overload
def tool(*, effect: Literal["keyed"], version: str = ...) -> _KeyedDecorator: ...
@overload
def tool(*, effect: Literal["none", "repeatable"], version: str = ...) -> _ToolDecorator: ...
def tool(*, effect: Effect, version: str = "1") -> Any:
    """Declare an async function as a tool, with its effect.

    Raises TypeError where the function is not async, or is keyed and takes no Call.
    """
    return lambda fn: Tool(fn, effect, version)
