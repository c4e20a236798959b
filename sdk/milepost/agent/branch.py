"""Where in the agent's code a step stands: branches, and the numbers that are taken in them.

A step's place is made when `run.step` is called, not when it is awaited, so the numbers depend on the order
of the author's calls and never on timing. Numbers are counted per branch of `run.parallel`: branches cannot
see each other's order.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from milepost.api.names import branch_component, step_component, step_id
from milepost.checkpoint.records import StepPlace
from milepost.errors import KeyNeeded

__all__ = ["Branch", "current_branch"]


@dataclass
class Branch:
    """One line of the agent's code. The agent's own is the one with the empty path."""

    path: str = ""
    _numbers: dict[str, int] = field(default_factory=dict)
    _askers: dict[str, asyncio.Task[Any] | None] = field(default_factory=dict)
    _parallels: int = 0
    _ordinal: int = 0

    def place(self, name: str, key: str | int | None) -> StepPlace:
        """Take the place of the next step of this name.

        Raises KeyNeeded where two tasks that run at once ask for numbers of one name.
        """
        number = 1
        if key is None:
            self._check_asker(name)
            number = self._numbers.get(name, 0) + 1
            self._numbers[name] = number
        self._ordinal += 1
        return StepPlace(
            id=step_id(self.path, step_component(name, key=key, number=number)),
            branch=self.path,
            name=name,
            key=None if key is None else str(key),
            number=number,
            ordinal=self._ordinal,
        )

    def _check_asker(self, name: str) -> None:
        task = asyncio.current_task()
        before = self._askers.setdefault(name, task)
        if before is task:
            return
        if before is not None and not before.done():
            raise KeyNeeded(name)
        self._askers[name] = task

    def fork(self, keys: list[str | int]) -> list[Branch]:
        """Return a branch for each key of the next `parallel` in this one."""
        self._parallels += 1
        return [Branch(step_id(self.path, branch_component(self._parallels, key))) for key in keys]


current_branch: ContextVar[Branch] = ContextVar("milepost_branch")
