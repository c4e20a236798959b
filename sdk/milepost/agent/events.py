"""Which event a gate waits for: events of one name and key are consumed one after the other, each once.

Whoever sends an event knows neither how far the run is nor its branches. So each goes under the number that
is free next, and one name and key is waited for in one branch only, by one gate at a time: then the order in
which the code comes for them is the order of its own lines.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from milepost.agent.branch import Branch
from milepost.checkpoint.gates import event_gate_id
from milepost.checkpoint.records import StepPlace
from milepost.errors import Misuse

__all__ = ["Coming", "Events", "named"]


class Events:
    """Which events a run's code has come for so far. One name and key is waited for in one branch."""

    def __init__(self) -> None:
        self._coming: dict[tuple[str, str | None], Coming] = {}

    def of(self, place: StepPlace, branch: Branch) -> Coming:
        """Return the events of a gate's name and key. Raises Misuse where another branch waits for them."""
        found = self._coming.setdefault((place.name, place.key), Coming(place.name, place.key, branch.path))
        if found.branch != branch.path:
            here, there = (
                f"branch {path}" if path else "the agent's own line" for path in (branch.path, found.branch)
            )
            raise Misuse(
                f"event {named(place)} is waited for in {here} and in {there}, so that which one it is for "
                "would depend on timing; give each its own key"
            )
        return found


@dataclass
class Coming:
    """The events of one name and key. Those below `number` have been consumed, or left out."""

    name: str
    key: str | None
    branch: str
    number: int = 1
    _at: str = field(default="", init=False)

    @contextmanager
    def waiting(self, place: StepPlace) -> Iterator[Iterator[str]]:
        """Yield the ids under which the next event may come. Raises Misuse where it is waited for already."""
        if self._at:
            raise Misuse(
                f"gate {place.id} waits for event {named(place)} while gate {self._at} does, so that which "
                "one it is for would depend on timing; wait for one after the other, or give each its own key"
            )
        self._at = place.id
        try:
            yield self._ids()
        finally:
            self._at = ""

    def _ids(self) -> Iterator[str]:
        while True:
            yield event_gate_id(self.name, self.key, self.number)
            self.number += 1


def named(place: StepPlace) -> str:
    """Return what people call a gate: its name, and its key if it has one."""
    return place.name if place.key is None else f"{place.name}={place.key}"
