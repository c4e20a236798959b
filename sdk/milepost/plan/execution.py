"""Carrying out a plan: starting what is ready, taking note of what has ended, until nothing is left to do.

On a resume what is recorded is taken up before anything new is started or decided. So whatever was decided
by what had failed so far is decided in the same way, though recorded failures come at once then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

from milepost import Denied, Misuse, Run, StepFailed
from milepost.plan.errors import PlanDeadlocked
from milepost.plan.result import Failure
from milepost.plan.schedule import Schedule, Status
from milepost.plan.steps import PlanStep

__all__ = ["Execution", "Outcomes"]


@dataclass
class Outcomes:
    """What has become of a plan's steps so far."""

    results: dict[str, Any] = field(default_factory=dict)
    failed: dict[str, Failure] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    gaps: dict[str, list[str]] = field(default_factory=dict)

    def statuses(self) -> dict[str, Status]:
        """Return how each step that has ended did."""
        return {
            **dict.fromkeys(self.results, Status.DONE),
            **dict.fromkeys(self.failed, Status.FAILED),
            **dict.fromkeys(self.skipped, Status.SKIPPED),
        }


class Execution:
    """One execution of a plan. With `stop_early` nothing is started any more once the plan has failed."""

    def __init__(
        self,
        run: Run,
        plan: str,
        steps: Mapping[str, PlanStep],
        schedule: Schedule,
        outcomes: Outcomes,
        *,
        parallel: int,
        stop_early: bool,
    ) -> None:
        self._run = run
        self._plan = plan
        self._steps = steps
        self._schedule = schedule
        self._outcomes = outcomes
        self._parallel = parallel
        self._stop_early = stop_early
        self._ahead = {name for name in schedule.waiting() if run.recorded(name, key=steps[name].key)}
        self._tasks: dict[asyncio.Task[Any], str] = {}
        self._skipping: set[asyncio.Task[None]] = set()
        self._fatal: Exception | None = None

    async def drive(self) -> None:
        """Return once nothing is left that can run, and what did not run is recorded as skipped.

        Raises what no step should raise: that of the code around them, once those under way have ended.
        """
        try:
            while self._start():
                await self._some_end()
            if self._fatal is not None:
                raise self._fatal
            broken = self._schedule.broken() if self._stop_early else None
            if broken is not None:
                self._skip(self._schedule.skip_the_rest(f"the plan ended: {broken} failed"))
            while self._skipping:
                await self._some_end()
            if self._fatal is not None:
                raise self._fatal
        except asyncio.CancelledError:
            await self._stop()
            raise
        if stuck := self._schedule.waiting():
            raise PlanDeadlocked(self._plan, cycle=stuck, stuck=stuck)

    def _start(self) -> bool:
        """Start what may start; tell whether anything is under way."""
        self._skip(self._schedule.skip_hopeless())
        for name in self._startable()[: max(0, self._parallel - len(self._tasks))]:
            self._schedule.start(name)
            self._tasks[asyncio.create_task(self._step(name), name=f"{self._plan}: {name}")] = name
        return bool(self._tasks)

    def _startable(self) -> list[str]:
        if self._fatal is not None:
            return []
        ready = self._schedule.ready
        recorded = [name for name in ready if name in self._ahead]
        if recorded or any(name in self._ahead for name in self._tasks.values()):
            return recorded
        if self._stop_early and self._schedule.broken() is not None:
            return []
        return ready

    async def _some_end(self) -> None:
        """Return once something under way has ended, and note how."""
        ended, _ = await asyncio.wait([*self._tasks, *self._skipping], return_when=asyncio.FIRST_COMPLETED)
        for task in ended:
            self._skipping.discard(task)
            name = self._tasks.pop(task, None)
            try:
                result = task.result()
            except (StepFailed, Denied) as error:
                if name is None:
                    raise
                self._outcomes.failed[name] = _failure(error)
                self._schedule.end(name, Status.FAILED)
            except Exception as error:  # noqa: BLE001  (raised in the end, once the others have ended)
                if isinstance(error, Misuse) and "started twice" in str(error):
                    error.add_note("two plans in one branch of a run need different names: Plan('...')")
                self._fatal = self._fatal or error
            else:
                if name is not None:
                    self._outcomes.results[name] = result
                    self._schedule.end(name, Status.DONE)

    async def _step(self, name: str) -> Any:
        step = self._steps[name]
        results = self._outcomes.results
        missing = step.missing(results)
        fn, args = step.call(results)
        if not missing:
            return await self._made(step, fn, args)
        self._outcomes.gaps[name] = missing
        there: dict[str, bool | None] = {each: each in results or None for each in step.dependencies}
        async with self._run.phase(name, inputs=there, at_least=len(there) - len(missing)):
            return await self._made(step, fn, args)

    def _made(self, step: PlanStep, fn: Any, args: tuple[Any, ...]) -> Coroutine[Any, Any, Any]:
        return self._run.step(step.name, fn, *args, key=step.key, **step.options)

    def _skip(self, names: list[str]) -> None:
        for name in names:
            why = self._schedule.reasons[name]
            self._outcomes.skipped[name] = why
            skipping = self._run.skip(name, why, key=self._steps[name].key)
            self._skipping.add(asyncio.create_task(skipping, name=f"{self._plan}: skip {name}"))

    async def _stop(self) -> None:
        """Return once all that is under way was cancelled, and is on record as such."""
        left = {*self._tasks, *self._skipping}
        for task in left:
            task.cancel()
        while left:
            try:
                _, left = await asyncio.wait(left)
            except asyncio.CancelledError:
                continue


def _failure(error: StepFailed | Denied) -> Failure:
    if isinstance(error, StepFailed):
        return Failure(error.kind, error.message, error.attempts)
    kind = type(error)
    return Failure(f"{kind.__module__}.{kind.__qualname__}", str(error), 0)
