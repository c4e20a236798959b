"""Plans: steps with dependencies, on the public API of Milepost alone.

    plan = Plan()
    page = plan.step("fetch", fetch, url)
    table = plan.step("parse", parse, page)
    result = await plan.run(run, parallel=4)

Nothing else of Milepost imports this package.
"""

from milepost.plan.errors import PlanDeadlocked, PlanFailed, PlanInvalid
from milepost.plan.plan import Plan, StepOptions
from milepost.plan.references import Planned, Some, some_of
from milepost.plan.result import Failure, PlanResult

__all__ = [
    "Failure",
    "Plan",
    "PlanDeadlocked",
    "PlanFailed",
    "PlanInvalid",
    "PlanResult",
    "Planned",
    "Some",
    "StepOptions",
    "some_of",
]
