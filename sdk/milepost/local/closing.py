"""End a run from outside, and let its name say how it ended."""

from __future__ import annotations

import contextlib

from milepost.api.resource import Phase
from milepost.checkpoint.runs import HeadSeen, Runs, Stale
from milepost.local.beginning import head_of

__all__ = ["end_run", "note_outcome"]


def end_run(runs: Runs, head: HeadSeen, *, phase: Phase, reason: str, message: str) -> HeadSeen:
    """End a run, unless it has ended by itself meanwhile, and return its head as it is then.

    Raises RunDeleted, Missing where it is gone, and what `Runs` raises but Stale.
    """
    while not head.summary.phase.terminal:
        try:
            return runs.end(head, phase=phase, reason=reason, message=message)
        except Stale:
            head = head_of(runs, head.at.head.namespace, head.summary.run_id)
    return head


def note_outcome(runs: Runs, head: HeadSeen) -> None:
    """Let the name say how its run ended; whoever changes the name meanwhile knows better."""
    said = head.at.head
    known = runs.look_up(said.namespace, said.name)
    if known is not None and known.record.run_id == said.run_id:
        with contextlib.suppress(Stale):
            runs.note_outcome(said.namespace, known, said.phase.value)
