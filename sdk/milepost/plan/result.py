"""What became of a plan: a plain value, which a step can return and an agent, too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from milepost.plan.references import Planned

__all__ = ["Failure", "PlanResult"]

T = TypeVar("T")


@dataclass(frozen=True)
class Failure:
    """Why a step failed: the last error's `package.module.QualName`, its message, and how many tries."""

    kind: str
    message: str
    attempts: int


@dataclass(frozen=True)
class PlanResult:
    """What became of each step of a plan, by name.

    `skipped` says why a step did not run, and `gaps` which steps' results were missing to one that did.
    `replans` counts how often the plan was replaced. It can be stored where all of the results can be without
    their types being declared.
    """

    results: Mapping[str, Any] = field(default_factory=dict)
    failed: Mapping[str, Failure] = field(default_factory=dict)
    skipped: Mapping[str, str] = field(default_factory=dict)
    gaps: Mapping[str, list[str]] = field(default_factory=dict)
    replans: int = 0

    def __getitem__(self, step: Planned[T]) -> T:
        """Return the step's result, of its type. Raises KeyError, saying why there is none."""
        name = step.name
        if name in self.results:
            found: T = self.results[name]
            return found
        if name in self.failed:
            raise KeyError(f"step {name} has no result: it failed with {self.failed[name].message}")
        why = self.skipped.get(name, "it has not run")
        raise KeyError(f"step {name} has no result: {why}")

    @property
    def complete(self) -> bool:
        """Whether every step is done, and none with less than it asked for."""
        return not (self.failed or self.skipped or self.gaps)
