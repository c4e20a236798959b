"""The guards of plans: what becomes of one depends on what failed and never on when."""

from __future__ import annotations

from typing import Final

from tools.mutants.guard import Guard

__all__ = ["PLAN_GUARDS"]

_SDK: Final = "sdk/milepost/plan"
_DATA: Final = f"{_SDK}/data.py"
_EXECUTION: Final = f"{_SDK}/execution.py"
_PLAN: Final = f"{_SDK}/plan.py"
_T: Final = "tests/sdk/plan"
_RUNNING: Final = f"{_T}/test_running.py"

PLAN_GUARDS: Final = (
    Guard(
        "a plan takes up what is recorded first",
        "a failure that comes at once on a resume keeps from running what was done before it",
        _EXECUTION,
        "if run.recorded(name, key=steps[name].key)",
        "if False",
        _RUNNING,
    ),
    Guard(
        "a failed plan starts nothing more",
        "steps with effects run for a plan that is lost",
        _EXECUTION,
        "if self._stop_early and self._schedule.broken() is not None:",
        "if False:",
        _RUNNING,
    ),
    Guard(
        "a plan is checked before anything of it runs",
        "half of a plan runs before it is found that the rest never can",
        _PLAN,
        "order = check(self.name, self._steps, self._outcomes.results)",
        "order = list(self._steps)",
        f"{_T}/test_checks.py",
    ),
    Guard(
        "each step has its own copy of a result",
        "what a step does to its argument reaches others, in an order that a resume does not have",
        f"{_SDK}/references.py",
        "found: T_co = deepcopy(results[self.name])",
        "found: T_co = results[self.name]",
        _RUNNING,
    ),
    Guard(
        "a step waits until all it depends on has ended",
        "a step that can do with less is given what was quicker this time",
        f"{_SDK}/schedule.py",
        "                if self._open[dependent] == 0:",
        "                if self._open[dependent] == 0 or self._steps[dependent].choices:",
        f"{_RUNNING} {_T}/test_random_plans.py",
    ),
    Guard(
        "a step of a replaced plan has another key",
        "it is given what is recorded of the one that it replaces",
        _PLAN,
        'return f"{self.name}.{self._replans}" if self._replans else self.name',
        "return self.name",
        f"{_T}/test_replanning.py",
    ),
    Guard(
        "a change of plan is a step",
        "it is counted again by each process that comes to it",
        _PLAN,
        'await run.step("replan", _agreed, self.graph, key=self._key)',
        "pass",
        f"{_T}/test_replanning.py",
    ),
    Guard(
        "a cancelled plan waits for its steps",
        "they go on, and are not on record as cancelled, when the agent's code has gone on",
        _EXECUTION,
        "            await self._stop()\n",
        "            pass\n",
        _RUNNING,
    ),
    Guard(
        "a model's arguments are held to its tool",
        "a plan fails in the middle for what could be seen before it began",
        _DATA,
        'self._hold_to(f"{path}.arguments", tool, template)',
        "pass",
        f"{_T}/test_data.py",
    ),
)
