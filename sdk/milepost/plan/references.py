"""What stands, as an argument of a step, for results that are known only once the plan runs.

A step's own handle stands for its result. `some_of` stands for the results that are there, by step, where a
step can do with fewer than all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any, Generic, TypeVar

from typing_extensions import override

from milepost import Misuse

__all__ = ["Planned", "Ref", "Some", "hidden_in", "name_of", "some_of"]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Ref(ABC, Generic[T_co]):
    """Something that depends on the results of steps, which it names in order.

    All of `needs` are there when it is asked for its value, and so many at least of each group of `choices`.
    """

    needs: tuple[str, ...] = ()
    choices: tuple[tuple[tuple[str, ...], int], ...] = ()
    plans: tuple[object, ...] = ()

    @abstractmethod
    def value(self, results: Mapping[str, Any]) -> T_co:
        """Return the value, a copy that its user may change."""


class Planned(Ref[T_co]):
    """A step of a plan. As an argument of another step it stands for its result. Made by `Plan.step`."""

    def __init__(self, name: str, plan: object) -> None:
        self.name = name
        self.needs = (name,)
        self.plans = (plan,)

    @override
    def value(self, results: Mapping[str, Any]) -> T_co:
        """Return the step's result, a copy."""
        # Two steps are given this result: what one does to it must not reach the other, on a resume neither.
        found: T_co = deepcopy(results[self.name])
        return found

    @override
    def __repr__(self) -> str:
        return f"<step {self.name} of a plan>"


class Some(Ref[dict[str, T]]):
    """Stands for the results that are there, by the names of their steps. Made by `some_of`."""

    def __init__(self, steps: tuple[Planned[T] | str, ...], at_least: int) -> None:
        self.steps = tuple(map(name_of, steps))
        self.choices = ((self.steps, at_least),)
        self.plans = tuple(plan for step in steps if isinstance(step, Planned) for plan in step.plans)

    @override
    def value(self, results: Mapping[str, Any]) -> dict[str, T]:
        """Return the results that are there, by the names of their steps, as copies."""
        return {name: deepcopy(results[name]) for name in self.steps if name in results}


def some_of(*steps: Planned[T] | str, at_least: int = 1) -> Some[T]:
    """Return what stands, as an argument, for the results of those steps that are done: a dict by name.

    The step that takes it runs once all of them have ended, if at least so many are done; that others are
    missing is recorded, and stands in the plan's result. Raises Misuse where that could never be.
    """
    if not 0 <= at_least <= len(steps):
        raise Misuse(f"at least {at_least} of {len(steps)} steps can never be done")
    return Some(steps, at_least)


def hidden_in(argument: object, *, down_to: int = 10) -> Ref[Any] | None:
    """Return what stands for a result somewhere inside of plain containers, where nothing takes its place."""
    if not down_to:
        return None
    if isinstance(argument, Mapping):
        inner: Iterable[object] = (*argument.keys(), *argument.values())
    elif isinstance(argument, list | tuple | set | frozenset):
        inner = argument
    else:
        return None
    for each in inner:
        found = each if isinstance(each, Ref) else hidden_in(each, down_to=down_to - 1)
        if found is not None:
            return found
    return None


def name_of(step: Planned[Any] | str) -> str:
    """Return the name of a step that may be given by its name."""
    return step.name if isinstance(step, Planned) else step
