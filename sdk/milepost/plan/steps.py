"""The steps of a plan as data: what each depends on, and the call that it makes once that is there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from milepost.plan.references import Ref

__all__ = ["PlanStep", "unique"]


@dataclass(frozen=True)
class PlanStep:
    """One step. `key` is what it is recorded under beside its name; `after` are steps to be done before."""

    name: str
    key: str
    fn: Callable[..., Any]
    args: tuple[Any, ...] = ()
    after: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def refs(self) -> tuple[Ref[Any], ...]:
        """Those of its arguments that depend on other steps."""
        return tuple(each for each in self.args if isinstance(each, Ref))

    @property
    def needs(self) -> tuple[str, ...]:
        """The steps that it cannot do without."""
        return unique([*(name for ref in self.refs for name in ref.needs), *self.after])

    @property
    def choices(self) -> tuple[tuple[tuple[str, ...], int], ...]:
        """Groups of steps of which it needs so many at least."""
        return tuple(choice for ref in self.refs for choice in ref.choices)

    @property
    def dependencies(self) -> tuple[str, ...]:
        """All steps that must have ended before it starts."""
        return unique([*self.needs, *(name for names, _ in self.choices for name in names)])

    def call(self, results: Mapping[str, Any]) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """Return the function and the arguments with which it is run."""
        return self.fn, tuple(each.value(results) if isinstance(each, Ref) else each for each in self.args)

    def missing(self, results: Mapping[str, Any]) -> list[str]:
        """Return the steps without whose results it runs."""
        return [name for name in self.dependencies if name not in results]


def unique(names: list[str]) -> tuple[str, ...]:
    """Return the names in order, each once."""
    return tuple(dict.fromkeys(names))
