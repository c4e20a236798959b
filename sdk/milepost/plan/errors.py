"""Errors of plans: made wrongly, deadlocked, failed."""

from __future__ import annotations

from collections.abc import Sequence

from milepost import AgentError, StepFailed
from milepost.plan.result import Failure, PlanResult

__all__ = ["PlanDeadlocked", "PlanFailed", "PlanInvalid"]


class PlanInvalid(AgentError):
    """A plan cannot be run as it is, and nothing of it was.

    `problems` are all that is wrong, each with its place. The message is fit to be handed back to a model.
    """

    def __init__(self, plan: str, problems: Sequence[str]) -> None:
        super().__init__(f"plan {plan} cannot be run: {'; '.join(problems)}")
        self.plan = plan
        self.problems = tuple(problems)


class PlanDeadlocked(PlanInvalid):
    """Some steps of a plan can never become ready, since they wait for each other.

    `cycle` are those that do, each waiting for the next one and the last for the first; `stuck` are all that
    can never become ready.
    """

    def __init__(self, plan: str, *, cycle: Sequence[str], stuck: Sequence[str]) -> None:
        around = " -> ".join([*cycle, cycle[0]])
        behind = [name for name in stuck if name not in cycle]
        more = f"; {', '.join(behind)} can never become ready either" if behind else ""
        super().__init__(plan, [f"its steps wait for each other: {around}{more}"])
        self.cycle = tuple(cycle)
        self.stuck = tuple(stuck)


class PlanFailed(StepFailed):
    """A step failed that the plan cannot do without. `result` says what became of all of them.

    It names the first such step in the order of the plan. It is raised once those under way have ended.
    """

    def __init__(self, plan: str, step: str, failure: Failure, result: PlanResult) -> None:
        super().__init__(step, failure.kind, failure.message, failure.attempts)
        skipped = f"; {len(result.skipped)} more did not run" if result.skipped else ""
        self.args = (f"plan {plan}: {self}{skipped}",)
        self.plan = plan
        self.result = result
