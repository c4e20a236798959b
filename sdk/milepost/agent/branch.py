"""Where in the agent's code a step stands: branches, and the numbers that are taken in them.

A step's place is made when `run.step` is called, not when it is awaited, so the numbers depend on the order
of the author's calls and never on timing. Numbers are counted per branch of `run.parallel`: branches cannot
see each other's order. No place is taken twice: the second would be given the first one's result.

A branch also knows how far its code has come in the log: the time of the last record that it consumed, and
whether what is recorded ahead of it was withdrawn.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final
from weakref import WeakKeyDictionary

from milepost.api.names import branch_component, gate_component, step_component, step_id
from milepost.checkpoint.records import StepPlace
from milepost.errors import KeyNeeded, Misuse

__all__ = ["Branch", "current_branch", "current_group", "in_step"]

# No step has this name.
_PARALLEL: Final = ""

_BEGINNING: Final = datetime.min.replace(tzinfo=UTC)

in_step: ContextVar[str] = ContextVar("milepost_in_step", default="")
"""The id of the step whose function is running; empty in the agent's own code."""

current_group: ContextVar[str] = ContextVar("milepost_group", default="")
"""The phase that steps are started in; empty outside of any."""


@dataclass
class Branch:
    """One line of the agent's code. The agent's own is the one with the empty path.

    `now` is the time of the last record that its code has consumed. Steps that were recorded before record
    `stale_before` do not stand any more: one before them in the code was withdrawn then. `main` is the task
    that runs the branch.
    """

    path: str = ""
    now: datetime = _BEGINNING
    stale_before: int = 0
    main: asyncio.Task[Any] | None = None
    _numbers: dict[str, int] = field(default_factory=dict)
    _askers: dict[str, asyncio.Task[Any] | None] = field(default_factory=dict)
    _taken: set[str] = field(default_factory=set)
    _draws: Counter[str] = field(default_factory=Counter)
    _parallels: int = 0
    _ordinal: int = 0
    # The step without a key that `main` started last, and that each other task did.
    _line: str = ""
    _lines: WeakKeyDictionary[asyncio.Task[Any], str] = field(default_factory=WeakKeyDictionary)

    def place(self, name: str, key: str | int | None) -> StepPlace:
        """Take the place of the next step of this name.

        Raises KeyNeeded where two tasks that run at once ask for numbers of one name, and Misuse where the
        key was given to a step of this name before.
        """
        number = self._number(name, name) if key is None else 1
        place_id = self._take(step_component(name, key=key, number=number), "step")
        self._ordinal += 1
        return StepPlace(
            id=place_id,
            branch=self.path,
            name=name,
            key=None if key is None else str(key),
            number=number,
            ordinal=self._ordinal,
            after=self._follow(place_id) if key is None else None,
            group=current_group.get(),
        )

    @property
    def last(self) -> str:
        """The step without a key that the branch's own code started last; empty if it started none."""
        return self._line

    def has_come_to(self, step: str) -> bool:
        """Tell whether this step of the branch was started."""
        return step in self._taken

    def gate(self, name: str, key: str | int | None, *, again: bool = False) -> StepPlace:
        """Take the place of the next gate of this name. Raises as `place` does.

        With `again` a key may be given more than once; then it is numbered, too.
        """
        if not isinstance(name, str) or not name:
            raise Misuse(f"a gate needs a name, which is a string, not {name!r}")
        if key is not None and not isinstance(key, str | int):
            raise Misuse(f"the key of gate {name!r} must be a string or a number, not {key!r}")
        numbered = key is None or again
        number = 1
        if numbered:
            message = (
                f"gate {name!r} is come to a second time while the first is still waited for in the same "
                'branch; give each its own key, as in run.approval("...", ..., key=...), or use run.parallel'
            )
            number = self._number(f"@{step_component(name, key=key)}", name, message)
        component = step_component(name, key=key, number=number)
        if key is not None and number > 1:
            component = f"{component}#{number}"
        place_id = self._take(gate_component(component), "gate")
        return StepPlace(
            id=place_id,
            branch=self.path,
            name=name,
            key=None if key is None else str(key),
            number=number,
            ordinal=self._ordinal,
        )

    def fork(self, keys: Sequence[object]) -> list[Branch]:
        """Return a branch for each key of the next `parallel` in this one.

        Raises Misuse where keys cannot tell branches apart on a resume, and where two tasks that run at once
        ask, since the number of each `parallel` would depend on timing.
        """
        names = [_stable(key) for key in keys]
        if twice := sorted(name for name, count in Counter(names).items() if count > 1):
            raise Misuse(f"two branches of a parallel have the key {twice[0]!r}; give each its own")
        if not self._in_order(_PARALLEL):
            raise Misuse(
                "run.parallel is called by two tasks that run at once in one branch, so that a resume could "
                "not tell them apart; call one run.parallel with all of the branches"
            )
        self._parallels += 1
        paths = [step_id(self.path, branch_component(self._parallels, name)) for name in names]
        return [Branch(path, self.now, self.stale_before) for path in paths]

    def join(self, branches: Sequence[Branch]) -> None:
        """Go on after branches that were forked from this one have ended."""
        for each in branches:
            self.now = max(self.now, each.now)
            self.stale_before = max(self.stale_before, each.stale_before)

    def consumed(self, at: str) -> None:
        """Note that the code has been given what a record of this time (ISO 8601) holds."""
        self.now = max(self.now, datetime.fromisoformat(at))

    def draw(self, name: str) -> int:
        """Return how often a random stream of this name was asked for in this branch, this time included."""
        self._draws[name] += 1
        return self._draws[name]

    def group_number(self, name: str) -> int:
        """Take the number of the next phase of this name. Raises KeyNeeded as `place` does."""
        return self._number(f"#{name}", name)

    def _number(self, counted: str, name: str, message: str = "") -> int:
        if not self._in_order(counted):
            raise KeyNeeded(name, message)
        self._numbers[counted] = self._numbers.get(counted, 0) + 1
        return self._numbers[counted]

    def _take(self, component: str, what: str) -> str:
        place_id = step_id(self.path, component)
        if place_id in self._taken:
            raise Misuse(
                f"{what} {place_id} is started twice; a key stands for one {what} of its branch, so the "
                "second would be given the result of the first: give each its own key"
            )
        self._taken.add(place_id)
        return place_id

    def _follow(self, place_id: str) -> str | None:
        """Return the step that the running task started before this one; None where nothing is known."""
        task = asyncio.current_task()
        if task is None:
            return None
        before: str | None
        if task is self.main:
            before, self._line = self._line, place_id
        else:
            before = self._lines.get(task)
            self._lines[task] = place_id
        return before

    def _in_order(self, name: str) -> bool:
        """Tell whether the running task is the only one that can ask for this name's next number."""
        task = asyncio.current_task()
        before = self._askers.setdefault(name, task)
        if before is not task:
            if before is not None and not before.done():
                return False
            self._askers[name] = task
        return True


def _stable(key: object) -> str:
    kind = type(key)
    if kind.__str__ is object.__str__ and kind.__repr__ is object.__repr__:
        raise Misuse(
            f"a branch's key is a {kind.__qualname__}, which has another name in each process; use a string"
        )
    return str(key)


current_branch: ContextVar[Branch] = ContextVar("milepost_branch")
