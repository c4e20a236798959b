"""Tools: what has effects outside the run, and says which kind.

`none` may be called at any time. `repeatable` may be called again after a crash. `keyed` takes an
idempotency key, the same on every retry, so that its receiver applies it once. `verified` can be asked
afterwards whether it happened, and `irreversible` cannot: of these two it is on record that a call is about
to be made, before it is. A tool with an effect works only inside a step, where it has a place and so a key.

A tool may be a plain function, which runs in a thread. Called it is a coroutine all the same.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property, partial, reduce
from typing import (
    Any,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    TypeAlias,
    TypeVar,
    get_args,
    overload,
)

from pydantic import TypeAdapter

from milepost.agent.arguments import adapter_of, schema_of, validated
from milepost.agent.calls import Call, Outcome, Try
from milepost.agent.threads import called
from milepost.checkpoint import codec
from milepost.checkpoint.records import Usage
from milepost.errors import Misuse

__all__ = ["Bound", "Effect", "Tool", "ToolCaller", "bound_tool", "current_caller", "tool"]

P = ParamSpec("P")
T = TypeVar("T")

Effect: TypeAlias = Literal["none", "repeatable", "keyed", "verified", "irreversible"]


class ToolCaller(Protocol):
    """The step in which tools are called."""

    def call(
        self, tool: Tool[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Coroutine[Any, Any, T]:
        """Take the call's number at once; the coroutine makes the call and records it."""
        ...

    def use(self, used: Usage) -> None:
        """Count what a model used up."""
        ...

    def seen(self) -> Try:
        """Return which try this is, and what those before it have called."""
        ...


current_caller: ContextVar[ToolCaller | None] = ContextVar("milepost_caller", default=None)


class Tool(Generic[P, T]):
    """A function with a declared effect. Made by `tool`."""

    def __init__(
        self,
        fn: Callable[..., Awaitable[T]] | Callable[..., T],
        effect: Effect,
        version: str,
        *,
        requires_approval: bool = False,
        deprecated: bool = False,
        verify: Callable[..., Awaitable[Outcome[T]] | Outcome[T]] | None = None,
        settles_within: float | timedelta | None = None,
    ) -> None:
        if not inspect.isroutine(fn) or inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
            raise TypeError(f"a tool is a function, async or plain, that returns its result; {fn!r} is not")
        if effect not in get_args(Effect):
            there_are = ", ".join(get_args(Effect))
            raise TypeError(f"{fn.__qualname__} cannot have the effect {effect!r}; there are {there_are}")
        if not isinstance(version, str) or not version:
            raise TypeError(f"{fn.__qualname__} needs a version, such as '1', and not {version!r}")
        self.fn = fn
        self.name = fn.__name__
        self.effect: Effect = effect
        self.version = version
        self.requires_approval = requires_approval
        self.deprecated = deprecated
        self.verify = verify
        self.settles_within = _seconds(settles_within)
        self.takes_call = _takes_call(fn)
        if effect in ("keyed", "verified") and not self.takes_call:
            raise TypeError(
                f"{fn.__qualname__} is {effect}, so its first parameter must be a Call, which has its key"
            )
        if effect == "verified":
            _check_verify(fn, verify, self.settles_within if settles_within is not None else None)
        elif verify is not None or settles_within is not None:
            raise TypeError(
                f"{fn.__qualname__} is {effect}; only a verified tool has verify and settles_within"
            )
        self.__doc__ = fn.__doc__

    @property
    def description(self) -> str:
        """What the tool says of itself: its docstring."""
        return inspect.cleandoc(self.fn.__doc__ or "")

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the tool's arguments by name, without the Call.

        Raises TypeError where one of them cannot be given by name, and pydantic's errors where the type of
        one has no schema.
        """
        return schema_of(self._adapter)

    def from_json(self, arguments: Mapping[str, Any]) -> Bound[T]:
        """Return the tool with arguments that a model gave, each made the type that is declared for it.

        Raises ArgumentsInvalid, which names every fault, and TypeError as `schema` does.
        """
        return Bound(self, validated(self._adapter, self.name, arguments))

    @cached_property
    def _adapter(self) -> TypeAdapter[dict[str, Any]]:
        return adapter_of(self.fn, skip=int(self.takes_call))

    def encoded(self, arguments: Mapping[str, Any]) -> dict[str, codec.JSON]:
        """Return arguments that are given by name as they are recorded. Raises NotStorable."""
        declared = codec.declared_by_name(self.fn) if arguments else {}
        return {
            name: codec.encode(
                value,
                type(value) if declared.get(name, Any) is Any else declared[name],
                path=f"argument {name} of tool {self.name}",
            )
            for name, value in arguments.items()
        }

    @property
    def has_intent(self) -> bool:
        """Whether it is recorded that a call is about to be made, since it must not be repeated blindly."""
        return self.effect in ("verified", "irreversible")

    @property
    def has_effect(self) -> bool:
        """Whether the world outside may change by a call."""
        return self.effect != "none"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]:
        """Call the tool.

        Raises Misuse where it has an effect and is called outside a step, and where it needs an approval and
        is not itself the function of a step.
        """
        caller = current_caller.get()
        if self.requires_approval:
            raise Misuse(
                f"tool {self.name} requires an approval of exactly the call that is made, so it has to be a "
                f'step itself: await run.step("{self.name}", {self.name}, ...)'
            )
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
        result: T = await called(self.fn, (call, *args) if self.takes_call else args, kwargs)
        return result

    async def ask(self, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
        """Return what `verify` says of a call; whether that is an Outcome is for the caller to see."""
        assert self.verify is not None, "only verified tools are asked"
        return await called(self.verify, (call, *args), kwargs)


@dataclass(frozen=True)
class Bound(Generic[T]):
    """A tool with its arguments, by name: a function without arguments, whose inputs these are."""

    tool: Tool[..., T]
    arguments: dict[str, Any]

    def __call__(self) -> Coroutine[Any, Any, T]:
        """Call the tool. Raises as calling the tool does."""
        return self.tool(**self.arguments)

    def encoded(self) -> codec.JSON:
        """Return the arguments as they are recorded. Raises NotStorable."""
        return dict(self.tool.encoded(self.arguments))


def bound_tool(fn: object) -> Tool[..., Any] | None:
    """Return the tool that a bound or partial one calls; None for any other function."""
    inner = fn.tool if isinstance(fn, Bound) else fn.func if isinstance(fn, partial) else None
    return inner if isinstance(inner, Tool) else None


def _takes_call(fn: Callable[..., Any]) -> bool:
    first = next(iter(inspect.signature(fn).parameters.values()), None)
    if first is None:
        return False
    if isinstance(first.annotation, str):
        # Annotations may be texts; this one by itself, since others may name what only type checkers see.
        name, *inner = first.annotation.split(".")
        found = getattr(fn, "__globals__", {}).get(name)
        found = reduce(lambda held, part: getattr(held, part, None), inner, found)
        return found is Call or (found is None and (inner or [name])[-1] == "Call")
    return first.annotation is Call


def _seconds(value: float | timedelta | None) -> float:
    return value.total_seconds() if isinstance(value, timedelta) else value or 0.0


def _check_verify(
    fn: Callable[..., Any], verify: Callable[..., Any] | None, settles_within: float | timedelta | None
) -> None:
    """Raise TypeError where a verified tool cannot be asked what became of a call."""
    given: object = settles_within
    if verify is None or not isinstance(given, int | float | timedelta) or not _seconds(given) >= 0:
        raise TypeError(
            f"{fn.__qualname__} is verified, so it needs verify, which says whether a call happened, and "
            "settles_within, the seconds after which that can be seen"
        )
    if not inspect.isroutine(verify) or not _takes_call(verify):
        raise TypeError(
            f"{verify!r} verifies {fn.__qualname__}, so it has to be a function that takes a Call first"
        )
    mine, its = (_after_call(each) for each in (fn, verify))
    if mine != its:
        raise TypeError(
            f"{verify.__qualname__} is asked with the arguments of {fn.__qualname__}, so it has to take the "
            f"same parameters: ({', '.join(map(str, mine))}), not ({', '.join(map(str, its))})"
        )


def _after_call(fn: Callable[..., Any]) -> list[inspect.Parameter]:
    parameters = list(inspect.signature(fn).parameters.values())[1:]
    # Types are for the type checker: one may be written in another way.
    return [each.replace(annotation=inspect.Parameter.empty) for each in parameters]


class _KeyedDecorator(Protocol):
    @overload
    def __call__(self, fn: Callable[Concatenate[Call, P], Awaitable[T]], /) -> Tool[P, T]: ...
    @overload
    def __call__(self, fn: Callable[Concatenate[Call, P], T], /) -> Tool[P, T]: ...


class _VerifiedDecorator(Protocol[P, T]):
    def __call__(self, fn: Callable[Concatenate[Call, P], Awaitable[T] | T], /) -> Tool[P, T]: ...


class _ToolDecorator(Protocol):
    @overload
    def __call__(self, fn: Callable[Concatenate[Call, P], Awaitable[T]], /) -> Tool[P, T]: ...
    @overload
    def __call__(self, fn: Callable[P, Awaitable[T]], /) -> Tool[P, T]: ...
    @overload
    def __call__(self, fn: Callable[Concatenate[Call, P], T], /) -> Tool[P, T]: ...
    @overload
    def __call__(self, fn: Callable[P, T], /) -> Tool[P, T]: ...


@overload
def tool(
    *,
    effect: Literal["keyed"],
    version: str = ...,
    requires_approval: bool = ...,
    deprecated: bool = ...,
) -> _KeyedDecorator: ...
@overload
def tool(
    *,
    effect: Literal["verified"],
    verify: Callable[Concatenate[Call, P], Awaitable[Outcome[T]] | Outcome[T]],
    settles_within: float | timedelta,
    version: str = ...,
    requires_approval: bool = ...,
    deprecated: bool = ...,
) -> _VerifiedDecorator[P, T]: ...
@overload
def tool(
    *,
    effect: Literal["none", "repeatable", "irreversible"],
    version: str = ...,
    requires_approval: bool = ...,
    deprecated: bool = ...,
) -> _ToolDecorator: ...
def tool(
    *,
    effect: Effect,
    version: str = "1",
    requires_approval: bool = False,
    deprecated: bool = False,
    verify: Callable[..., Awaitable[Outcome[Any]] | Outcome[Any]] | None = None,
    settles_within: float | timedelta | None = None,
) -> Any:
    """Declare a function as a tool, with its effect. A plain one runs in a thread, and so does its `verify`.

    `keyed` and `verified` tools take a Call first, all others may. `verify` has the tool's own parameters and
    says whether a call of which nothing is known any more has happened: it returns Happened, NotHappened or
    Unknown. It is asked once that call's process has certainly ended and `settles_within` seconds have passed
    since, by when the effect must be there to be seen if it ever will.

    What a verified or an irreversible tool raises leaves open whether its effect is there, unless it is
    NotApplied: then the one is asked, and for the other the run halts until a person says.

    A tool that `requires_approval` can only be a step itself: a person is asked before its first try, and is
    shown the arguments. A `deprecated` tool stays for runs that still need it. Change `version` where a
    recorded call would not be the same call any more.

    Raises TypeError where there is no such effect, and where what is declared is no function, or lacks what
    its effect needs.
    """
    return lambda fn: Tool(
        fn,
        effect,
        version,
        requires_approval=requires_approval,
        deprecated=deprecated,
        verify=verify,
        settles_within=settles_within,
    )
