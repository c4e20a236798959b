"""Where in the agent's code a step stands: branches, and the numbers that are taken in them.

A step's place is made when `run.step` is called, not when it is awaited, so the numbers depend on the order
of the author's calls and never on timing. Numbers are counted per branch of `run.parallel`: branches cannot
see each other's order. No place is taken twice: the second would be given the first one's result.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

from milepost.api.names import branch_component, step_component, step_id
from milepost.checkpoint.records import StepPlace
from milepost.errors import KeyNeeded, Misuse

__all__ = ["Branch", "current_branch"]

# No step has this name.
_PARALLEL: Final = ""


@dataclass
class Branch:
    """One line of the agent's code. The agent's own is the one with the empty path."""

    path: str = ""
    _numbers: dict[str, int] = field(default_factory=dict)
    _askers: dict[str, asyncio.Task[Any] | None] = field(default_factory=dict)
    _taken: set[str] = field(default_factory=set)
    _parallels: int = 0
    _ordinal: int = 0

    def place(self, name: str, key: str | int | None) -> StepPlace:
        """Take the place of the next step of this name.

        Raises KeyNeeded where two tasks that run at once ask for numbers of one name, and Misuse where the
        key was given to a step of this name before.
        """
        number = 1
        if key is None:
            if not self._in_order(name):
                raise KeyNeeded(name)
            number = self._numbers.get(name, 0) + 1
            self._numbers[name] = number
        place_id = step_id(self.path, step_component(name, key=key, number=number))
        if place_id in self._taken:
            raise Misuse(
                f"step {place_id} is started twice; a key stands for one step of its branch, so the second "
                "would be given the result of the first: give each its own key"
            )
        self._taken.add(place_id)
        self._ordinal += 1
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
        return [Branch(step_id(self.path, branch_component(self._parallels, name))) for name in names]

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
