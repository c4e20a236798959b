"""Crash an agent everywhere: kill its process before and after each commit, and see that nothing changes.

Each crash is a run of its own: a process that is killed there by SIGKILL, and a fresh one that goes on to
the end. What came of it is held against a run that nothing happened to. Two of those are made first, since
an agent that comes to something else each time cannot be compared with itself.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from milepost.agent.agents import Agent
from milepost.api.resource import RunSpec
from milepost.testing.answers import Answers
from milepost.testing.outcome import Ran, differences
from milepost.testing.points import Point, When
from milepost.testing.trial import Case, Failed, Trial, entrypoint_of

__all__ = ["Crash", "Report", "crash_everywhere"]

T = TypeVar("T")
R = TypeVar("R")

MOST_AT_ONCE: Final = 4

CAUSES: Final = (
    "usual causes: something kept in a variable by a step that is recorded, so that it does not run again; "
    "an effect that is not keyed, or whose receiver does not know its keys; time, chance, the environment or "
    "the order of a set, used outside of a step; an error that is caught and passed over"
)
_UNSTEADY: Final = (
    "so crashes cannot be told from chance; use run.now() and run.random() in place of clocks and random "
    "numbers, sort what has no order, and let steps that call a model or a service call a stand-in here"
)


@dataclass(frozen=True)
class Crash:
    """One crash: before or after which record, what that record says, and how many processes the run took.

    Where the run came to its end without such a record, as may be where steps that run side by side share
    them, `said` is None and nobody was killed.
    """

    record: int
    when: str
    said: str | None
    attempts: int


@dataclass(frozen=True)
class Report:
    """What was tried: the run that nothing happened to, and every crash. All of them came to the same."""

    undisturbed: Ran
    crashes: tuple[Crash, ...]


def crash_everywhere(
    agent: Agent[..., Any] | str,
    inputs: Mapping[str, Any] | None = None,
    *,
    answers: Answers | None = None,
    effects: Callable[[Path], Any] | None = None,
    goal: str = "",
    spec: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    max_points: int | None = None,
    timeout: float = 60.0,
    at_once: int | None = None,
) -> Report:
    """Kill the agent's process before and after each commit, and compare what comes of it.

    `agent` is an Agent that another process can import, or its `package.module:name`. `answers` are given at
    its gates; timers take no time. `effects` returns what a run has left outside, given the folder whose
    name the agent finds in MILEPOST_TEST_FOLDER, new for each run; without it that is all files in there,
    and what its Ledger has applied. `spec` are further fields of a manifest's spec, and `environment`
    variables for the agent's processes.

    `max_points` are most points to crash at, spread over the run. `timeout` is in seconds, for one process.
    `at_once` runs are made side by side (default: one a core, and four at most); 1 where the agent needs
    something of the machine for itself.

    Raises AssertionError where a run does not come to its end, or to something else than undisturbed; and
    ValueError for an agent that cannot be imported.
    """
    case = Case(
        spec_of(entrypoint_of(agent), inputs, goal, spec), answers, effects, timeout, environment or {}
    )
    workers = at_once or most_at_once()
    with tempfile.TemporaryDirectory(prefix="milepost-crashes-", ignore_cleanup_errors=True) as folder:
        undisturbed = steady(case, Path(folder), workers)
        points = chosen(every_point(undisturbed), max_points)

        def crash(number: int, point: Point) -> Crash:
            trial = Trial(case, Path(folder) / f"crash-{number}", seed=number + 2, point=point)
            return _crash(trial, point, undisturbed)

        return Report(undisturbed, tuple(each_of(points, workers, crash)))


def most_at_once() -> int:
    """Return how many runs are made side by side where the author does not say."""
    return min(MOST_AT_ONCE, os.cpu_count() or 1)


def spec_of(
    entrypoint: str, inputs: Mapping[str, Any] | None, goal: str, more: Mapping[str, Any] | None
) -> RunSpec:
    """Return the spec of a manifest for the agent. Raises pydantic's ValidationError, a ValueError."""
    fields = {"goal": goal, "inputs": dict(inputs or {}), **(more or {})}
    return RunSpec.model_validate({"agent": {"image": "none", "entrypoint": entrypoint}, **fields})


def steady(case: Case, folder: Path, workers: int) -> Ran:
    """Return what comes of the agent where nothing happens to it. Raises AssertionError if that varies."""

    def run(number: int, name: str) -> Ran:
        return Trial(case, folder / name, seed=number).to_its_end()

    try:
        first, second = each_of(("first", "second"), workers, run)
    except Failed as error:
        raise AssertionError(
            f"the agent does not come to its end, though nothing happens to it: {error}"
        ) from None
    if first.phase != "Succeeded":
        raise AssertionError(f"the agent fails though nothing happens to it: {first.reason}: {first.message}")
    if found := differences(first, second):
        raise AssertionError(
            f"two runs to which nothing happens come to something else:{listed(found)}\n{_UNSTEADY}"
        )
    return first


def every_point(undisturbed: Ran) -> list[Point]:
    """Return the points before and after each record that executors have written."""
    return [Point(record, when) for record in range(2, len(undisturbed.records) + 1) for when in When]


def chosen(points: Sequence[Point], most: int | None) -> Sequence[Point]:
    """Return so many of the points, spread over all of them."""
    if most is None or most >= len(points):
        return points
    return [points[number * len(points) // most] for number in range(most)]


def each_of(things: Sequence[T], workers: int, do: Callable[[int, T], R]) -> list[R]:
    """Return what was done with each thing, given its number, from 1, in order.

    Raises what the first that fails has raised; no further one is begun then.
    """
    with ThreadPoolExecutor(workers, thread_name_prefix="milepost-testing") as pool:
        doing = [pool.submit(do, number, each) for number, each in enumerate(things, 1)]
        try:
            return [done.result() for done in doing]
        finally:
            pool.shutdown(cancel_futures=True)


def _crash(trial: Trial, point: Point, undisturbed: Ran) -> Crash:
    try:
        ran = trial.to_its_end()
    except Failed as error:
        where = named(point, trial.struck, "killed")
        raise AssertionError(
            f"{where}, the agent does not come to its end any more: {error}\n{CAUSES}"
        ) from None
    if found := differences(undisturbed, ran):
        where = named(point, trial.struck, "killed")
        raise AssertionError(f"{where}, the agent comes to something else:{listed(found)}\n{CAUSES}")
    return Crash(point.record, point.when.value, trial.struck, ran.attempts)


def named(point: Point, said: str | None, how: str) -> str:
    """Return where a process was struck, as the beginning of a sentence."""
    if said is None:
        return "undisturbed, since it came to no such record"
    return f"{how} {point}" + (f" ({said})" if said else "")


def listed(lines: Sequence[str]) -> str:
    """Return lines as they follow a sentence."""
    return "".join(f"\n    {line}" for line in lines)
