"""Facts: what an earlier execution of a run had recorded before the run was restarted with context."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from milepost.agent.journal import Journal
from milepost.checkpoint import codec
from milepost.checkpoint.records import StepCompleted

__all__ = ["Fact", "read_facts"]


@dataclass(frozen=True)
class Fact:
    """A step that was completed: its id, name and key, its author's words on it, and its result.

    The result is read without its declared type: models and dataclasses come as a dict of their fields.
    """

    step: str
    name: str
    key: str | None
    description: str
    summary: str
    result: Any


async def read_facts(journal: Journal) -> list[Fact]:
    """Return the facts in the order in which they were recorded."""
    places = sorted(journal.state.facts.items(), key=lambda item: (item[1].seq, item[0]))
    return [await _fact(journal, await journal.fact(step)) for step, _ in places]


async def _fact(journal: Journal, recorded: StepCompleted) -> Fact:
    step = recorded.step
    path = f"result of step {step.id}"
    result = codec.undeclared(await journal.raw(recorded.result, path=path), path=path)
    return Fact(step.id, step.name, step.key, recorded.description, recorded.summary, result)
