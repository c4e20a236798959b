"""Agents: an async function of a run and the manifest's inputs, with a version."""

from __future__ import annotations

import inspect
import json
import typing
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Concatenate, Final, Generic, ParamSpec, TypeVar

from pydantic import PydanticUndefinedAnnotation, PydanticUserError, TypeAdapter, ValidationError

from milepost.agent.run import Run
from milepost.agent.steps import Retry
from milepost.agent.tools import Tool
from milepost.errors import CannotStart, Misuse

__all__ = ["Agent", "agent"]

P = ParamSpec("P")
T = TypeVar("T")

MEMORY_EVERY: Final = 10
"""Steps between two copies of the agent's memory, where the author does not say."""

MAX_SHOWN: Final = 200
"""Characters of a wrong input that a message quotes."""

_BY_NAME: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class Agent(Generic[P, T]):
    """An agent. Made by `agent`; started by the executor, never called by hand."""

    def __init__(
        self,
        fn: Callable[Concatenate[Run, P], Awaitable[T]],
        *,
        version: str,
        name: str | None = None,
        resumes: Sequence[str] = (),
        tools: Sequence[Tool[..., Any]] = (),
        environment: Mapping[str, str] | None = None,
        retry: Retry | None = None,
        memory_every: int = MEMORY_EVERY,
    ) -> None:
        if not inspect.iscoroutinefunction(fn):
            raise TypeError(f"an agent is an async function; {fn!r} is not")
        if not isinstance(version, str) or not version:
            raise ValueError(f"agent {fn.__qualname__} needs a version, such as '1', and not {version!r}")
        if isinstance(resumes, str):
            raise TypeError(f"what agent {fn.__qualname__} resumes is a list of versions, not {resumes!r}")
        if not inspect.signature(fn).parameters:
            raise TypeError(f"agent {fn.__qualname__} has no parameter for its Run, which is given first")
        if retry is not None and not isinstance(retry, Retry):
            raise TypeError(f"agent {fn.__qualname__} cannot have retry={retry!r}; it is a Retry(...)")
        if not isinstance(memory_every, int) or memory_every < 1:
            raise ValueError(f"agent {fn.__qualname__} cannot copy its memory each {memory_every!r} steps")
        self.fn = fn
        self.name = name or fn.__name__
        self.version = version
        self.resumes = tuple(resumes)
        self.tools = tuple(tools)
        self.environment = {str(key): str(value) for key, value in (environment or {}).items()}
        self.retry = retry or Retry()
        self.memory_every = memory_every
        self.__doc__ = fn.__doc__

    if not typing.TYPE_CHECKING:  # for which an agent is nothing that can be called

        def __call__(self, *_: object, **__: object) -> typing.NoReturn:
            """Raise Misuse: without an executor there is no log that the agent could go on from."""
            raise Misuse(
                f"agent {self.name} is started with a manifest, by `milepost run run.yaml`; in a test use "
                f"milepost.testing.simulate({self.fn.__name__}, {{...}})"
            )

    def arguments(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Return the keyword arguments that the manifest's inputs stand for, each of its declared type.

        Raises CannotStart, naming the input, where they do not fit the function.
        """
        parameters = list(inspect.signature(self.fn).parameters.values())[1:]
        known = {p.name: p for p in parameters if p.kind in _BY_NAME}
        takes_any = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters)
        unknown = sorted(set(inputs) - set(known))
        if unknown and not takes_any:
            raise CannotStart("InputsInvalid", f"spec.inputs.{unknown[0]} is not known: {self._takes(known)}")
        missing = [n for n, p in known.items() if p.default is inspect.Parameter.empty and n not in inputs]
        if missing:
            raise CannotStart("InputsInvalid", f"spec.inputs.{missing[0]} is missing: {self._takes(known)}")
        hints = self._hints()
        return {name: _validated(name, value, hints.get(name, Any)) for name, value in inputs.items()}

    def _takes(self, known: dict[str, inspect.Parameter]) -> str:
        listed = ", ".join(known) or "no inputs"
        return f"agent {self.name} takes {listed}"

    def _hints(self) -> dict[str, Any]:
        try:
            return typing.get_type_hints(self.fn, include_extras=True)
        except Exception as error:
            raise CannotStart(
                "EntrypointNotAgent",
                f"spec.agent.entrypoint: the annotations of {self.fn.__qualname__} cannot be read: "
                f"{type(error).__name__}: {error}; import what they name where it exists at run time",
            ) from error


def _validated(name: str, value: Any, declared: Any) -> Any:
    try:
        adapter = TypeAdapter(declared)
    except (PydanticUserError, PydanticUndefinedAnnotation):
        # No class that pydantic can build: the author takes the JSON as it is.
        return value
    try:
        return adapter.validate_json(json.dumps(value), strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in ("spec.inputs", name, *first["loc"]))
        found = repr(first["input"])
        shown = found if len(found) <= MAX_SHOWN else found[:MAX_SHOWN] + " ..."
        raise CannotStart("InputsInvalid", f"{where}: {first['msg']}, not {shown}") from error


def agent(
    *,
    version: str,
    name: str | None = None,
    resumes: Sequence[str] = (),
    tools: Sequence[Tool[..., Any]] = (),
    environment: Mapping[str, str] | None = None,
    retry: Retry | None = None,
    memory_every: int = MEMORY_EVERY,
) -> Callable[[Callable[Concatenate[Run, P], Awaitable[T]]], Agent[P, T]]:
    """Declare an async function of a `Run` and keyword inputs as an agent.

    `version` is the author's: change it when a run that is under way should not simply go on with the new
    code; `resumes` names the older versions that this one goes on from all the same. `tools` are those that
    runs depend on, and `environment` what else does, by name, a model's for instance: a resume that finds
    another one halts and asks. `retry` is the policy of steps that have none of their own. The agent's memory
    is copied to the store each `memory_every` steps.

    Raises TypeError where an argument is of another type, and ValueError where there is no version, or two
    tools have one name.
    """
    if strange := [each for each in tools if not isinstance(each, Tool)]:
        raise TypeError(f"the tools of an agent are made by @tool, which {strange[0]!r} is not")
    if environment is not None and not isinstance(environment, Mapping):
        raise TypeError(f"an agent's environment is a mapping of values by their names, not {environment!r}")
    if twice := sorted(name for name, count in Counter(each.name for each in tools).items() if count > 1):
        raise ValueError(f"two tools are named {twice[0]!r}, by which records tell them apart")
    return lambda fn: Agent(
        fn,
        version=version,
        name=name,
        resumes=resumes,
        tools=tools,
        environment=environment,
        retry=retry,
        memory_every=memory_every,
    )
