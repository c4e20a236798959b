"""Agents: an async function of a run and the manifest's inputs, with a version."""

from __future__ import annotations

import inspect
import json
import typing
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from pydantic import PydanticSchemaGenerationError, TypeAdapter, ValidationError

from milepost.agent.run import Run
from milepost.agent.tools import Tool
from milepost.errors import CannotStart

__all__ = ["Agent", "agent"]

P = ParamSpec("P")
T = TypeVar("T")


class Agent(Generic[P, T]):
    """An agent. Made by `agent`; started by the executor, never called by hand."""

    def __init__(
        self,
        fn: Callable[Concatenate[Run, P], Awaitable[T]],
        *,
        version: str,
        name: str | None,
        tools: Sequence[Tool[..., Any]],
    ) -> None:
        if not inspect.iscoroutinefunction(fn):
            raise TypeError(f"an agent is an async function; {fn!r} is not")
        self.fn = fn
        self.name = name or fn.__name__
        self.version = version
        self.tools = tuple(tools)
        self.__doc__ = fn.__doc__

    def arguments(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Return the keyword arguments that the manifest's inputs stand for, each of its declared type.

        Raises CannotStart, naming the input, where they do not fit the function.
        """
        parameters = list(inspect.signature(self.fn).parameters.values())[1:]
        takes_any = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters)
        known = {p.name: p for p in parameters if p.kind is not inspect.Parameter.VAR_KEYWORD}
        unknown = sorted(set(inputs) - set(known))
        if unknown and not takes_any:
            raise CannotStart("InputsInvalid", f"spec.inputs.{unknown[0]}: {self._takes(known)}")
        missing = [n for n, p in known.items() if p.default is inspect.Parameter.empty and n not in inputs]
        if missing:
            raise CannotStart("InputsInvalid", f"spec.inputs.{missing[0]} is missing: {self._takes(known)}")
        hints = typing.get_type_hints(self.fn)
        return {name: _validated(name, value, hints.get(name, Any)) for name, value in inputs.items()}

    def _takes(self, known: dict[str, inspect.Parameter]) -> str:
        listed = ", ".join(known) or "no inputs"
        return f"agent {self.name} takes {listed}"


def _validated(name: str, value: Any, declared: Any) -> Any:
    try:
        adapter = TypeAdapter(declared)
    except PydanticSchemaGenerationError:
        return value
    try:
        return adapter.validate_json(json.dumps(value), strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        where = "".join(f".{part}" for part in ("spec.inputs", name, *first["loc"]))[1:]
        raise CannotStart("InputsInvalid", f"{where}: {first['msg']}, not {first['input']!r}") from error


def agent(
    *, version: str, name: str | None = None, tools: Sequence[Tool[..., Any]] = ()
) -> Callable[[Callable[Concatenate[Run, P], Awaitable[T]]], Agent[P, T]]:
    """Declare an async function of a `Run` and keyword inputs as an agent.

    `version` is the author's: change it when a run that is under way should not simply go on with the new
    code. Raises TypeError where the function is not async.
    """
    return lambda fn: Agent(fn, version=version, name=name, tools=tools)
