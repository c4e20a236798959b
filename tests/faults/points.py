"""Which executors are killed where: every request of a clean run, before it is sent on and after it applied.

Plain data. A point says what befalls each attempt of one run; what is not named is left alone. Its command
line repeats exactly that one.
"""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from typing_extensions import override

__all__ = ["Blow", "How", "Line", "Point", "Requests", "When", "every_point", "slice_of"]

RESUMING: Final = 12
"""Requests of a second attempt that are points too: its reads, its claim, its loads and its first commits."""


SECOND_BLOWS: Final = 5
"""How many of them follow each blow to a first attempt, where every point is asked for."""


class Line(StrEnum):
    """Where a request goes."""

    STORE = "store"
    RECEIVER = "receiver"


class When(StrEnum):
    """Whether it falls before the request is forwarded, or after it was applied and before it is answered."""

    BEFORE = "before"
    AFTER = "after"


class How(StrEnum):
    """Whether the process is killed, or stopped until the run has ended without it."""

    KILL = "kill"
    PAUSE = "pause"


@dataclass(frozen=True)
class Blow:
    """What befalls an attempt at its `index`-th request on a line, counted from 1."""

    index: int
    when: When
    line: Line = Line.STORE
    how: How = How.KILL

    @override
    def __str__(self) -> str:
        return f"{self.how} {self.when} {self.line} request {self.index}"


@dataclass(frozen=True)
class Point:
    """One run of an agent, and the blows to its attempts, the first one's first."""

    agent: str
    blows: tuple[Blow, ...]
    store: str = "seaweedfs"

    @override
    def __str__(self) -> str:
        return f"{self.agent} on {self.store}: {', then '.join(map(str, self.blows)) or 'undisturbed'}"

    def command(self, seed: int) -> str:
        """Return the command that repeats it."""
        words = ["python", "-m", "tests.faults", "--seed", str(seed), "--agent", self.agent]
        words += ["--store", self.store]
        for blow in self.blows:
            words += ["--point", str(blow.index), "--when", blow.when]
            words += ["--line", blow.line, "--how", blow.how]
        return shlex.join(words)


@dataclass(frozen=True)
class Requests:
    """How many requests a clean run of an agent makes on each line."""

    store: int
    receiver: int

    def blows(self, how: How = How.KILL) -> Iterator[Blow]:
        """Yield every blow that can befall a run's first attempt."""
        for line, count in ((Line.STORE, self.store), (Line.RECEIVER, self.receiver)):
            for index, when in itertools.product(range(1, count + 1), When):
                yield Blow(index, when, line, how)


def every_point(clean: Mapping[str, Requests], stores: Sequence[str]) -> Iterator[Point]:
    """Yield each blow and each pause alone, and each blow followed by several to the next attempt.

    That is on the first of the stores; on the others, the slice.
    """
    store, *others = stores
    for agent, requests in clean.items():
        for blow in (*requests.blows(), *requests.blows(How.PAUSE)):
            yield Point(agent, (blow,), store)
        # Which of the next attempt's requests follow takes turns, so that all meet all before long.
        turns = itertools.cycle(itertools.product(range(1, RESUMING + 1), When))
        for blow in requests.blows():
            for index, when in itertools.islice(turns, SECOND_BLOWS):
                yield Point(agent, (blow, Blow(index, when)), store)
    for other in others:
        yield from slice_of(clean, other)


def slice_of(clean: Mapping[str, Requests], store: str) -> Iterator[Point]:
    """Yield each blow alone, and of each agent some pauses and some blows to a second attempt."""
    for agent, requests in clean.items():
        for blow in requests.blows():
            yield Point(agent, (blow,), store)
        for blow in _spread(list(requests.blows(How.PAUSE)), 8):
            yield Point(agent, (blow,), store)
        # Where the first one dies decides what the second one has to load.
        late = _spread(list(requests.blows()), 4)[-1]
        for index, when in itertools.product(range(1, RESUMING // 2 + 1), When):
            yield Point(agent, (late, Blow(index, when)), store)


def _spread(blows: list[Blow], count: int) -> list[Blow]:
    """Return so many of the blows, from all over the run, its last not among them."""
    return [blows[len(blows) * (number + 1) // (count + 1)] for number in range(count)]
