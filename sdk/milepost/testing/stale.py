"""Overtake an agent everywhere: what a worker can still do that was taken for dead, and is not.

A node goes silent, its pod is taken for lost, another one finishes the run, and then the first one wakes up
in the midst of what it was doing. Milepost refuses its next commit and ends it, so that nothing of it is ever
recorded. What it can still do is what it does before that commit: one step in each branch. Whether that does
harm is up to the agent's tools, and this is the test of it.
"""

from __future__ import annotations

import os
import signal
import tempfile
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from milepost.agent.agents import Agent
from milepost.api.exits import Exit
from milepost.checkpoint.gates import Waiting
from milepost.checkpoint.records import Halted, PreviousEnd
from milepost.local.process import Exited
from milepost.testing.answers import Answers
from milepost.testing.crashes import (
    chosen,
    each_of,
    every_point,
    listed,
    most_at_once,
    named,
    spec_of,
    steady,
)
from milepost.testing.ledger import Ledger, Received
from milepost.testing.outcome import Ran, differences, records_of
from milepost.testing.points import How, Point, When
from milepost.testing.trial import Case, Failed, Trial, entrypoint_of

__all__ = ["Overtaken", "StaleReport", "overtake_everywhere"]

_LOOK: Final = 0.005
"""Seconds between two looks for a process that is to stop."""

_LONGER: Final = 10
"""How much longer a process may take that stands still while others go on."""

_CAUSES: Final = (
    "a worker that was overtaken finishes the step that it is in before it is refused: give what its tools "
    "do a key that the receiver knows, or let the receiver refuse what comes late"
)


@dataclass(frozen=True)
class Overtaken:
    """One worker that was overtaken: stopped before or after which record, and what that record says.

    `exit_code` is how it ended once it was let go, 81 for one that was refused. `reached` are the calls that
    the Ledger has had of it after that, applied or not. Where there was no such record `said` is None.
    """

    record: int
    when: str
    said: str | None
    exit_code: int
    reached: tuple[Received, ...]


@dataclass(frozen=True)
class StaleReport:
    """What was tried: the run that nothing happened to, and every worker that was overtaken."""

    undisturbed: Ran
    overtaken: tuple[Overtaken, ...]


def overtake_everywhere(
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
) -> StaleReport:
    """Stop the agent's process before and after each commit, let another one finish, and let it go on.

    The arguments are those of `crash_everywhere`. What came of the run, and what is done outside once the
    stopped process has ended too, is held against a run that nothing happened to.

    Raises AssertionError where these differ, where a run does not come to its end, and where the stopped
    process is not refused; ValueError for an agent that cannot be imported.
    """
    case = Case(
        spec_of(entrypoint_of(agent), inputs, goal, spec), answers, effects, timeout, environment or {}
    )
    workers = at_once or most_at_once()
    with tempfile.TemporaryDirectory(prefix="milepost-stale-", ignore_cleanup_errors=True) as folder:
        undisturbed = steady(case, Path(folder), workers)
        # After the last record there is nothing left that another one could take over.
        points = chosen(every_point(undisturbed)[:-1], max_points)

        def overtake(number: int, point: Point) -> Overtaken:
            trial = Trial(case, Path(folder) / f"stale-{number}", seed=number + 2, point=point)
            try:
                return _overtake(trial, point, undisturbed)
            except Failed as error:
                where = named(point, trial.struck, "stopped")
                raise AssertionError(f"{where}, and overtaken, the run does not end well: {error}") from None

        return StaleReport(undisturbed, tuple(each_of(points, workers, overtake)))


def _overtake(trial: Trial, point: Point, undisturbed: Ran) -> Overtaken:
    ledger = Ledger.in_folder(trial.world)
    with ThreadPoolExecutor(1) as pool, ExitStack() as stack:
        pid, ending = _stopped(trial, stack, pool)
        ran = trial.to_its_end()
        before, received = trial.head, len(ledger.received())
        if pid:
            os.kill(pid, signal.SIGCONT)
        exited = ending.result()
    where = named(point, trial.struck, "stopped")
    if found := differences(undisturbed, ran):
        raise AssertionError(f"{where}, and overtaken, the agent comes to something else:{listed(found)}")
    if trial.head != before:
        raise AssertionError(f"{where}, and overtaken, the stale worker has written to the run's log")
    if pid and exited.code != Exit.FENCED and not _had_nothing_left(trial, point, exited):
        raise AssertionError(
            f"{where}, and overtaken, the stale worker was not refused: it ended with exit code {exited.code}"
            f" {exited.reason}: {exited.message}"
        )
    after = replace(ran, effects=trial.case.effects_in(trial.world))
    if found := differences(undisturbed, after):
        raise AssertionError(f"{where}, and overtaken, the stale worker does harm:{listed(found)}\n{_CAUSES}")
    reached = tuple(ledger.received()[received:])
    return Overtaken(point.record, point.when.value, trial.struck, exited.code, reached)


def _stopped(trial: Trial, stack: ExitStack, pool: ThreadPoolExecutor) -> tuple[int, Future[Exited]]:
    """Bring the run to where one of its processes stands still at the point.

    Return its number, and its end once that comes; 0 where the run has ended without coming there.
    """
    previous: PreviousEnd | None = None
    while True:
        executor, lines = stack.enter_context(trial.executor(previous, how=How.STOP))
        ending = pool.submit(trial.ended, executor, lines, within=trial.case.timeout * _LONGER)
        while trial.struck is None and not ending.done():
            threading.Event().wait(_LOOK)
        if trial.struck is not None:
            return executor.pid, ending
        previous = trial.after(ending.result(), lines, struck=False)
        if trial.head.phase.terminal:
            return 0, ending


def _had_nothing_left(trial: Trial, point: Point, exited: Exited) -> bool:
    """Tell whether the process had nothing to do any more: the run was over before it began, or it waited."""
    last = records_of(trial.store, trial.head)[point.record - 1].events[-1]
    stays = point.when is When.AFTER and isinstance(last, Waiting | Halted)
    return stays or (exited.code, exited.reason) == (Exit.COMMITTED, "AlreadyEnded")
