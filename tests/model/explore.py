"""Walk all states that a model can reach, breadth first, and stop at the first that is wrong.

States are hashable values; one that was reached before is not walked from again, however it was reached. As
the search is breadth first, the way to what is wrong is a shortest one. It knows nothing of runs or stores.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["Exploration", "TooMany", "explore"]

S = TypeVar("S", bound=Hashable)


class TooMany(Exception):
    """The model has more states than its bound was thought to give: the bound is to be set lower."""


@dataclass(frozen=True)
class Exploration(Generic[S]):
    """What was walked. `trace` are the moves, in words, that lead to what is `wrong`; both may be empty.

    `ends` counts the states from which there is no further move.
    """

    states: int
    transitions: int
    depth: int
    ends: int
    wrong: str = ""
    trace: tuple[str, ...] = ()


def explore(
    initial: S,
    moves: Callable[[S], Iterable[tuple[str, S]]],
    wrong: Callable[[S], str],
    *,
    most: int,
) -> Exploration[S]:
    """Return what was found among all states that the moves lead to. Raises TooMany beyond `most` states."""
    came_from: dict[S, tuple[S, str] | None] = {initial: None}
    transitions = ends = depth = 0
    found = wrong(initial)
    layer = [] if found else [initial]
    bad = initial
    while layer:
        following: list[S] = []
        for state in layer:
            before = transitions
            for words, after in moves(state):
                transitions += 1
                if after in came_from:
                    continue
                came_from[after] = (state, words)
                if found := wrong(after):
                    bad = after
                    break
                following.append(after)
            if found:
                break
            ends += transitions == before
        if len(came_from) > most:
            raise TooMany(f"{len(came_from)} states, at depth {depth + 1}")
        depth += bool(following) or bool(found)
        layer = [] if found else following
    trace = _way_to(bad, came_from) if found else ()
    return Exploration(len(came_from), transitions, depth, ends, found, trace)


def _way_to(state: S, came_from: dict[S, tuple[S, str] | None]) -> tuple[str, ...]:
    words: list[str] = []
    while (step := came_from[state]) is not None:
        state, said = step
        words.append(said)
    return tuple(reversed(words))
