"""Plans that come as data: what a model writes is held to the tools that it may use, and every fault named.

The form is small on purpose. A text that is `$name`, whole, stands for the result of that step, wherever it
is in the arguments; `{"$some": [names], "at_least": n}` for those that are there; a text that begins with `$`
is written with `$$`. There is no other expression, so nothing in the data can compute or look anything up.

The surprising thing: arguments that are results can only be held to the tool once these are there. A result
that does not fit fails the step that was to take it, without another attempt.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NoReturn

from pydantic_core import PydanticSerializationError, to_jsonable_python
from typing_extensions import override

from milepost import ArgumentsInvalid, Permanent, Tool
from milepost.plan.checks import listed
from milepost.plan.errors import PlanInvalid
from milepost.plan.references import Planned, Ref, Some
from milepost.plan.steps import PlanStep, unique

__all__ = ["Read", "read"]

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}")
_FIELDS: Final = ("name", "tool", "arguments", "after", "done", "result")
_MOST_PROBLEMS: Final = 20

_UNREADABLE: Final = Some[Any]((), 0)
"""Stands where a reference is at fault, which is said once and not again as an argument that does not fit."""


@dataclass
class Read:
    """What data describes: steps, and the results of those that are done already."""

    steps: dict[str, PlanStep] = field(default_factory=dict)
    results: dict[str, Any] = field(default_factory=dict)


def read(
    plan: str,
    data: object,
    tools: Mapping[str, Tool[..., Any]],
    known: Mapping[str, PlanStep],
    done: Mapping[str, Any],
    key: str,
) -> Read:
    """Return the steps that data describes, beside those that are `known`.

    Raises PlanInvalid, naming every fault. Whether the steps make a plan is for `check` to find out.
    """
    reader = _Reader(plan, tools, known, done, key)
    reader.read(data)
    if reader.problems:
        raise PlanInvalid(plan, reader.problems[:_MOST_PROBLEMS])
    return reader.found


class _Reader:
    def __init__(
        self,
        plan: str,
        tools: Mapping[str, Tool[..., Any]],
        known: Mapping[str, PlanStep],
        done: Mapping[str, Any],
        key: str,
    ) -> None:
        self.found = Read()
        self.problems: list[str] = []
        self._plan = plan
        self._tools = tools
        self._known = known
        self._done = done
        self._key = key
        self._names: dict[str, str] = {}

    def read(self, data: object) -> None:
        if isinstance(data, str):
            try:
                data = json.loads(data)
            except ValueError as error:
                return self._fault("", f"it is not JSON: {error}")
        if isinstance(data, Mapping) and set(data) == {"steps"}:
            data = data["steps"]
        if not isinstance(data, list):
            return self._fault("", 'a plan is {"steps": [...]}, and nothing beside')
        numbered = [(f"steps[{number}]", each) for number, each in enumerate(data)]
        named = [(path, each, name) for path, each in numbered if (name := self._name(path, each))]
        for path, each, name in named:
            self._step(path, each, name)
        return None

    def _fault(self, path: str, why: str) -> None:
        self.problems.append(f"{path}: {why}" if path else why)

    def _name(self, path: str, each: object) -> str:
        """Return the step's name; empty where it has none that can be used."""
        if not isinstance(each, Mapping):
            self._fault(path, f"a step is an object with {', '.join(_FIELDS[:4])}, not {_shown(each)}")
            return ""
        name = each.get("name")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            self._fault(
                f"{path}.name",
                f"a name is 1 to 63 letters, digits, - and _, and begins with a letter, not {_shown(name)}",
            )
            return ""
        if name in self._names:
            self._fault(f"{path}.name", f"{self._names[name]} has the name {name}, too; names are unique")
            return ""
        self._names[name] = path
        return name

    def _step(self, path: str, each: Mapping[str, Any], name: str) -> None:
        for unknown in (each_field for each_field in each if each_field not in _FIELDS):
            self._fault(f"{path}.{unknown}", f"is not known; a step has {', '.join(_FIELDS)}")
        if each.get("done") is True:
            return self._finished(path, each, name)
        if each.get("done", False) is not False:
            self._fault(f"{path}.done", f"is true or false, not {_shown(each['done'])}")
        if "result" in each:
            self._fault(f"{path}.result", "only a step that is done has a result")
        if name in self._known:
            return self._fault(
                f"{path}.name", f"{name} is done already; leave it out, or refer to it as ${name}"
            )
        tool = self._tools.get(each["tool"]) if isinstance(each.get("tool"), str) else None
        if tool is None:
            self._fault(
                f"{path}.tool",
                f"there is no tool {_shown(each.get('tool'))}; there are {listed(self._tools)}",
            )
        arguments = each.get("arguments", {})
        if not isinstance(arguments, Mapping):
            return self._fault(f"{path}.arguments", f"is an object, not {_shown(arguments)}")
        template = {
            argument: self._template(f"{path}.arguments.{argument}", value)
            for argument, value in arguments.items()
        }
        after = self._after(f"{path}.after", each.get("after", []))
        if tool is not None:
            self._hold_to(f"{path}.arguments", tool, template)
            self.found.steps[name] = _ToolStep(name, self._key, tool, (_Template(template),), after)
        return None

    def _finished(self, path: str, each: Mapping[str, Any], name: str) -> None:
        if name in self._known:
            if name not in self._done:
                self._fault(f"{path}.done", f"{name} is a step of the plan that is not done")
        elif "result" not in each:
            self._fault(path, "a step that is done needs its result")
        else:
            self.found.steps[name] = PlanStep(name, self._key, partial(_is_done, name))
            self.found.results[name] = each["result"]

    def _after(self, path: str, given: object) -> tuple[str, ...]:
        if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
            self._fault(path, f"is a list of names of steps, not {_shown(given)}")
            return ()
        return tuple(name for number, name in enumerate(given) if self._is_step(f"{path}[{number}]", name))

    def _is_step(self, path: str, name: str) -> bool:
        there = unique([*self._known, *self._names])
        if name in there:
            return True
        self._fault(path, f"there is no step {_shown(name)}; there are {listed(there)}")
        return False

    def _template(self, path: str, value: object) -> Any:
        """Return the value with what stands for results in the places of the texts that say so."""
        match value:
            case str() if value.startswith("$$"):
                return value[1:]
            case str() if value.startswith("$"):
                return self._reference(path, value)
            case Mapping() if "$some" in value:
                return self._some(path, value)
            case Mapping():
                return {name: self._template(f"{path}.{name}", each) for name, each in value.items()}
            case list():
                return [self._template(f"{path}[{number}]", each) for number, each in enumerate(value)]
            case _:
                return value

    def _reference(self, path: str, value: str) -> Any:
        name = value.removeprefix("$")
        if _NAME.fullmatch(name):
            self._is_step(path, name)
            return Planned[Any](name, None)
        self._fault(
            path,
            f"{_shown(value)} is not $ and the name of a step; a text begins with $ as $$",
        )
        return _UNREADABLE

    def _some(self, path: str, value: Mapping[Any, Any]) -> Any:
        names, at_least = value["$some"], value.get("at_least", 1)
        if not set(value) <= {"$some", "at_least"}:
            self._fault(path, '{"$some": [names], "at_least": number} has nothing beside')
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            self._fault(f"{path}.$some", f"is a list of names of steps, not {_shown(names)}")
        elif type(at_least) is not int or not 0 <= at_least <= len(names):
            self._fault(f"{path}.at_least", f"is a number from 0 to {len(names)}, not {_shown(at_least)}")
        else:
            for number, name in enumerate(names):
                self._is_step(f"{path}.$some[{number}]", name)
            return Some[Any](tuple(names), at_least)
        return _UNREADABLE

    def _hold_to(self, path: str, tool: Tool[..., Any], template: Mapping[str, Any]) -> None:
        """Note which arguments are missing, not known, or of another type, as far as that can be told now."""
        later = {name for name, value in template.items() if _refs(value)}
        try:
            tool.from_json({name: None if name in later else value for name, value in template.items()})
        except ArgumentsInvalid as error:
            takes = ", ".join(tool.schema().get("properties", {})) or "nothing"
            for where, why in error.faults:
                if where.partition(".")[0] not in later or why == "is not known":
                    allowed = f"; tool {tool.name} takes {takes}" if why.startswith("is ") else ""
                    self._fault(f"{path}.{where}" if where else path, f"{why}{allowed}")


@dataclass(frozen=True)
class _ToolStep(PlanStep):
    """A step that calls a tool with arguments by name, of which some are results."""

    @override
    def call(self, results: Mapping[str, Any]) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        (template,) = self.args
        assert isinstance(template, _Template), "that is what it is made with"
        assert isinstance(self.fn, Tool), "that is what it is made with"
        try:
            arguments = to_jsonable_python(template.value(results))
            return self.fn.from_json(arguments), ()
        except (ArgumentsInvalid, PydanticSerializationError) as error:
            return _refused, (str(error),)


class _Template(Ref[dict[str, Any]]):
    """Arguments by name, in which results have their places."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self._arguments = arguments
        refs = _refs(arguments)
        self.needs = tuple(name for ref in refs for name in ref.needs)
        self.choices = tuple(choice for ref in refs for choice in ref.choices)

    @override
    def value(self, results: Mapping[str, Any]) -> dict[str, Any]:
        return {name: _filled(value, results) for name, value in self._arguments.items()}


def _refs(value: object) -> list[Ref[Any]]:
    match value:
        case Ref():
            return [value]
        case dict():
            return [ref for each in value.values() for ref in _refs(each)]
        case list():
            return [ref for each in value for ref in _refs(each)]
        case _:
            return []


def _filled(value: object, results: Mapping[str, Any]) -> Any:
    match value:
        case Ref():
            return value.value(results)
        case dict():
            return {name: _filled(each, results) for name, each in value.items()}
        case list():
            return [_filled(each, results) for each in value]
        case _:
            return value


def _refused(why: str) -> NoReturn:
    """Fail, since the results that the step was to take do not fit its tool."""
    raise Permanent(why)


def _is_done(name: str) -> NoReturn:
    raise AssertionError(f"step {name} is done and cannot run")


def _shown(value: object) -> str:
    text = json.dumps(value, default=repr, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:80]} ..."  # noqa: PLR2004  (enough to find it)
