"""Whether a plan can be run at all, found out before anything of it is."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from milepost.plan.errors import PlanDeadlocked, PlanInvalid
from milepost.plan.steps import PlanStep

__all__ = ["check", "listed"]

_MOST_LISTED: Final = 20
"""Names that a message lists."""


def check(plan: str, steps: Mapping[str, PlanStep], done: Collection[str]) -> list[str]:
    """Return the names of the steps so that each follows what it depends on.

    Raises PlanInvalid where a dependency is no step of the plan, PlanDeadlocked where steps wait for each
    other. What is `done` may have depended on steps that are no more.
    """
    problems = [
        f"step {step.name} depends on {name}, which is no step of it; its steps are {listed(steps)}"
        for step in steps.values()
        if step.name not in done
        for name in step.dependencies
        if name not in steps
    ]
    if problems:
        raise PlanInvalid(plan, problems)
    return _in_order(plan, steps)


def listed(names: Collection[str]) -> str:
    """Return names as a message lists them."""
    shown = list(names)[:_MOST_LISTED]
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    return (", ".join(shown) or "none") + more


def _in_order(plan: str, steps: Mapping[str, PlanStep]) -> list[str]:
    waits_for = {name: [each for each in step.dependencies if each in steps] for name, step in steps.items()}
    left = {name: len(each) for name, each in waits_for.items()}
    dependents: dict[str, list[str]] = {name: [] for name in steps}
    for name, each in waits_for.items():
        for other in each:
            dependents[other].append(name)
    order = [name for name, count in left.items() if count == 0]
    for name in order:
        for dependent in dependents[name]:
            left[dependent] -= 1
            if left[dependent] == 0:
                order.append(dependent)
    if len(order) < len(steps):
        stuck = [name for name in steps if left[name]]
        raise PlanDeadlocked(plan, cycle=_cycle(waits_for, stuck), stuck=stuck)
    return order


def _cycle(waits_for: Mapping[str, list[str]], stuck: list[str]) -> list[str]:
    """Return steps of which each waits for the next one, and the last for the first."""
    among = set(stuck)
    path = [stuck[0]]
    while True:
        following = next(name for name in waits_for[path[-1]] if name in among)
        if following in path:
            return path[path.index(following) :]
        path.append(following)
