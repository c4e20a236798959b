"""What the log holds ahead of the agent's code, while the code runs once more up to where it had come.

Made once, of the state that was loaded: what is recorded after that is never ahead. Code that is another one
may never come to what is recorded. So nothing is ahead of a branch any more once a step of it has ended anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from milepost.checkpoint.fold import State

__all__ = ["Ahead"]


class Ahead:
    """The recorded steps that the code has not come to yet."""

    def __init__(self, state: State) -> None:
        self._left: Counter[str] = Counter()
        self._waiting: set[str] = set()
        self._next: dict[tuple[str, str], str] = {}
        ended = [failures[-1].step for failures in state.failed.values() if failures[-1].final]
        afters = {step: place.after for step, place in state.completed.items()}
        for step, after in (afters | {place.id: place.after for place in ended}).items():
            self._waiting.add(step)
            self._left.update(_branches_of(step))
            if after is not None:
                self._next[step.rpartition("/")[0], after] = step
        self._open: set[str] = set()
        at_gates = (gate.place for gate in state.gates.values())
        for place in (*state.failed, *state.calls, *state.intents, *at_gates):
            self._open.update((place, *_branches_of(place)))

    def has(self, path: str) -> bool:
        """Tell whether the log has anything of a step or gate that is to come, or of a branch."""
        return path in self._waiting or path in self._left or path in self._open

    def in_branch(self, path: str) -> bool:
        """Tell whether recorded steps of this branch, or of those forked from it, are still to come."""
        return self._left[path] > 0

    def after(self, branch: str, step: str) -> str:
        """Return the step without a key that the code started after this one; empty where none is known."""
        return self._next.get((branch, step), "")

    def pass_by(self, branch: str) -> None:
        """Note that a step of the branch has ended that was not recorded."""
        if branch in self._left:
            self._left[branch] = 0

    def reach(self, step: str) -> None:
        """Note that the code has come to a step."""
        if step in self._waiting:
            self._waiting.discard(step)
            self._left.subtract(_branches_of(step))


def _branches_of(step: str) -> Iterator[str]:
    path = step.rpartition("/")[0]
    while path:
        yield path
        path = path.rpartition("/")[0]
    yield ""
