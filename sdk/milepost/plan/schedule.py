"""Which step of a plan may start, which never will, and whether the plan has failed.

What it says depends on how steps have ended and never on when: a step is judged once all that it depends on
has ended. There is no I/O here: names in, names out.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Mapping, Sequence
from enum import Enum

from milepost.plan.steps import PlanStep

__all__ = ["Schedule", "Status"]


class Status(Enum):
    """How a step has ended."""

    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"


class Schedule:
    """The state of a plan. `ended` says how, `reasons` why one was skipped.

    `order` names the steps so that each follows its dependencies.
    """

    def __init__(
        self, steps: Mapping[str, PlanStep], order: Sequence[str], ended: Mapping[str, Status]
    ) -> None:
        self.ended = dict(ended)
        self.reasons: dict[str, str] = {}
        self._steps = steps
        self._order = order
        self._at = {name: number for number, name in enumerate(steps)}
        self._ready: list[int] = []
        self._names = list(steps)
        self._hopeless: list[str] = []
        self._dependents: dict[str, list[str]] = {name: [] for name in steps}
        self._open: dict[str, int] = {}
        for name, step in steps.items():
            for other in step.dependencies:
                if other in self._dependents:
                    self._dependents[other].append(name)
            if name not in ended:
                self._open[name] = sum(other not in ended for other in step.dependencies)
        self._spared = self._which_are_spared()
        for name, count in self._open.items():
            if count == 0:
                self._judge(name)

    @property
    def ready(self) -> list[str]:
        """The steps that may start, in the order of the plan."""
        return [self._names[number] for number in self._ready]

    def start(self, name: str) -> None:
        """Note that a step is ready no more."""
        self._ready.remove(self._at[name])
        del self._open[name]

    def end(self, name: str, how: Status) -> None:
        """Note how a step has ended."""
        self.ended[name] = how
        for dependent in self._dependents[name]:
            if dependent in self._open:
                self._open[dependent] -= 1
                if self._open[dependent] == 0:
                    self._judge(dependent)

    def skip_hopeless(self) -> list[str]:
        """Skip what can never start, now that all it depends on has ended, and return what these are."""
        skipped = []
        while self._hopeless:
            name = self._hopeless.pop(0)
            self._skip(name, self._why_hopeless(name))
            skipped.append(name)
        return skipped

    def skip_the_rest(self, why: str) -> list[str]:
        """Skip all that has not started, and return which steps these are."""
        skipped = self.skip_hopeless()
        for name in self._order:
            if name in self._open:
                self._skip(name, why)
                skipped.append(name)
        self._ready.clear()
        self._hopeless.clear()
        return skipped

    def waiting(self) -> list[str]:
        """Return the steps that have not started."""
        return list(self._open)

    def broken(self) -> str | None:
        """Return the first step in the order of the plan that it cannot do without and that failed.

        A failure that every step behind it can do without breaks no plan; that one of those was skipped does,
        and then the first that failed at all is returned. None where the plan is whole.
        """
        failed = [name for name in self._names if self.ended.get(name) is Status.FAILED]
        fatal = [name for name in failed if not self._spared[name]]
        if fatal:
            return fatal[0]
        lost = any(how is Status.SKIPPED and not self._spared[name] for name, how in self.ended.items())
        return failed[0] if lost and failed else None

    def _judge(self, name: str) -> None:
        step = self._steps[name]
        if all(self._is_done(other) for other in step.needs) and all(
            sum(map(self._is_done, names)) >= at_least for names, at_least in step.choices
        ):
            insort(self._ready, self._at[name])
        else:
            self._hopeless.append(name)

    def _is_done(self, name: str) -> bool:
        return self.ended.get(name) is Status.DONE

    def _skip(self, name: str, why: str) -> None:
        del self._open[name]
        self.reasons[name] = why
        self.end(name, Status.SKIPPED)

    def _why_hopeless(self, name: str) -> str:
        step = self._steps[name]
        lost = [other for other in step.dependencies if not self._is_done(other)]
        roots = [root for other in lost for root in self._roots(other)]
        needed = [other for other in step.needs if not self._is_done(other)]
        if needed:
            said = f"it needs {', '.join(needed)}"
        else:
            names, at_least = next(
                (names, at_least)
                for names, at_least in step.choices
                if sum(map(self._is_done, names)) < at_least
            )
            done = sum(map(self._is_done, names))
            said = f"it needs at least {at_least} of {', '.join(names)}, and has {done}"
        return f"{said}: {', '.join(dict.fromkeys(roots))} failed"

    def _roots(self, name: str) -> list[str]:
        """Return the failures for which a step has no result."""
        found: list[str] = []
        todo, seen = [name], set()
        while todo:
            each = todo.pop(0)
            if each in seen:
                continue
            seen.add(each)
            if self.ended.get(each) is Status.FAILED:
                found.append(each)
            elif self.ended.get(each) is Status.SKIPPED:
                todo += self._steps[each].dependencies
        return found

    def _which_are_spared(self) -> dict[str, bool]:
        """Return of each step whether the plan can do without it: all behind it can, or is spared too."""
        spared: dict[str, bool] = {}
        for name in reversed(self._order):
            dependents = self._dependents[name]
            spared[name] = bool(dependents) and all(
                name not in self._steps[other].needs or spared.get(other, False) for other in dependents
            )
        return spared
