"""Plans: steps that depend on each other, run as soon as they can be, side by side if asked.

A plan is built in code, or comes as data. It is an ordinary user of `Run`: each of its steps is a step of the
run, recorded under the step's name with the plan's name as its key, so that neither the order in which steps
end nor their number is part of what is recorded.

The surprising thing: a failed step is judged once everything that the log has is taken up, and a step once
all of its dependencies have ended. What becomes of a plan depends on what failed and never on when.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal, TypeAlias, TypedDict, TypeVar, Unpack, overload

from milepost import Misuse, Retry, Run, Tool
from milepost.plan import data as plan_data
from milepost.plan.checks import check, listed
from milepost.plan.errors import PlanFailed, PlanInvalid
from milepost.plan.execution import Execution, Outcomes
from milepost.plan.references import Planned, Ref, hidden_in, name_of
from milepost.plan.result import PlanResult
from milepost.plan.schedule import Schedule
from milepost.plan.steps import PlanStep
from milepost.plan.words import instructions

__all__ = ["OnFailure", "Plan", "StepOptions"]

A1 = TypeVar("A1")
A2 = TypeVar("A2")
A3 = TypeVar("A3")
A4 = TypeVar("A4")
T = TypeVar("T")

OnFailure: TypeAlias = Literal["fail", "continue"]


class StepOptions(TypedDict, total=False):
    """What a step of a plan takes beside its arguments.

    `after` are steps, or their names, that must be done before, and whose results are not asked for. All else
    is as in `Run.step`.
    """

    after: Sequence[Planned[Any] | str]
    attempts: int
    retry: Retry
    timeout: float | timedelta
    requires: Callable[[], Awaitable[object]]
    valid: Callable[[Any], Awaitable[bool]]
    summary: str | Callable[[Any], str]
    granularity: Literal["tool-call", "step"]
    meta: Mapping[str, Any]


class Plan:
    """Steps with dependencies. `on_failure`: "fail" ends the plan with the first failure, "continue" goes on.

    Two plans in one branch of a run need different names.
    """

    def __init__(
        self,
        name: str = "plan",
        *,
        on_failure: OnFailure = "fail",
        tools: Mapping[str, Tool[..., Any]] | None = None,
    ) -> None:
        if not isinstance(name, str) or not name:
            raise Misuse(f"a plan needs a name, which is a string, not {name!r}")
        _, dot, last = name.rpartition(".")
        if dot and last.isdecimal():
            raise Misuse(f"plan {name} ends with a number after a dot, as the keys of replaced plans do")
        if on_failure not in ("fail", "continue"):
            raise Misuse(f"plan {name}: on_failure is 'fail' or 'continue', not {on_failure!r}")
        if wrong := [each for each in (tools or {}).values() if not isinstance(each, Tool)]:
            raise Misuse(
                f"plan {name}: what a plan from data may use are tools, made by @tool, not {wrong[0]!r}"
            )
        self.name = name
        self.on_failure: OnFailure = on_failure
        self.tools = dict(tools or {})
        self._steps: dict[str, PlanStep] = {}
        self._outcomes = Outcomes()
        self._replans = 0
        self._replanned = False
        self._running = False

    @classmethod
    def from_json(
        cls,
        data: object,
        *,
        tools: Mapping[str, Tool[..., Any]],
        name: str = "plan",
        on_failure: OnFailure = "fail",
    ) -> Plan:
        """Return the plan that data describes, as a model writes it: see docs/plans.md for its form.

        `tools` are those that it may use, by the names that it uses for them. Raises PlanInvalid, which names
        everything that is wrong, where it is, and what is allowed there.
        """
        plan = cls(name, on_failure=on_failure, tools=tools)
        plan._add(data)
        return plan

    @staticmethod
    def instructions(tools: Mapping[str, Tool[..., Any]]) -> str:
        """Return what a model has to be told to write a plan of these tools; for a prompt.

        Raises TypeError where a tool's arguments cannot be given by name.
        """
        return instructions(tools)

    # mypy cannot tell a coroutine function from one that returns its coroutine as a result, so the first of
    # each pair stands for both kinds of async function, and the second for plain ones.
    @overload
    def step(
        self, name: str, fn: Callable[[], Awaitable[T]], /, **options: Unpack[StepOptions]
    ) -> Planned[T]: ...
    @overload
    def step(self, name: str, fn: Callable[[], T], /, **options: Unpack[StepOptions]) -> Planned[T]: ...
    @overload
    def step(
        self,
        name: str,
        fn: Callable[[A1], Awaitable[T]],
        a1: A1 | Ref[A1],
        /,
        **options: Unpack[StepOptions],
    ) -> Planned[T]: ...
    @overload
    def step(
        self, name: str, fn: Callable[[A1], T], a1: A1 | Ref[A1], /, **options: Unpack[StepOptions]
    ) -> Planned[T]: ...
    @overload
    def step(
        self,
        name: str,
        fn: Callable[[A1, A2], Awaitable[T]],
        a1: A1 | Ref[A1],
        a2: A2 | Ref[A2],
        /,
        **options: Unpack[StepOptions],
    ) -> Planned[T]: ...
    @overload
    def step(
        self,
        name: str,
        fn: Callable[[A1, A2], T],
        a1: A1 | Ref[A1],
        a2: A2 | Ref[A2],
        /,
        **options: Unpack[StepOptions],
    ) -> Planned[T]: ...
    @overload
    def step(
        self,
        name: str,
        fn: Callable[[A1, A2, A3], Awaitable[T]],
        a1: A1 | Ref[A1],
        a2: A2 | Ref[A2],
        a3: A3 | Ref[A3],
        /,
        **options: Unpack[StepOptions],
    ) -> Planned[T]: ...
    @overload
    def step(
        self,
        name: str,
        fn: Callable[[A1, A2, A3], T],
        a1: A1 | Ref[A1],
        a2: A2 | Ref[A2],
        a3: A3 | Ref[A3],
        /,
        **options: Unpack[StepOptions],
    ) -> Planned[T]: ...
    @overload
    def step(
        self,
        name: str,
        fn: Callable[..., Awaitable[T]],
        a1: Any,
        a2: Any,
        a3: Any,
        a4: Any,
        /,
        *more: Any,
        **options: Unpack[StepOptions],
    ) -> Planned[T]: ...
    @overload
    def step(
        self,
        name: str,
        fn: Callable[..., T],
        a1: Any,
        a2: Any,
        a3: Any,
        a4: Any,
        /,
        *more: Any,
        **options: Unpack[StepOptions],
    ) -> Planned[T]: ...
    def step(
        self, name: str, fn: Callable[..., Any], /, *args: Any, **options: Unpack[StepOptions]
    ) -> Planned[Any]:
        """Add the step `name`: `fn(*args)`, where a step of this plan among `args` stands for its result.

        `some_of(...)` stands for the results that are there, where fewer than all will do. Up to three
        arguments are checked by a type checker. Raises Misuse where the call makes no sense, PlanInvalid
        where there is a step of this name already.
        """
        self._check_idle("cannot be changed")
        if not isinstance(name, str) or not name:
            raise Misuse(f"a step of plan {self.name} needs a name, which is a string, not {name!r}")
        if name in self._steps:
            raise PlanInvalid(self.name, [f"two of its steps have the name {name}"])
        if not callable(fn):
            raise Misuse(f"step {name} of plan {self.name} needs a function and its arguments, not {fn!r}")
        after = options.get("after", ())
        if isinstance(after, str | Planned):
            raise Misuse(f"step {name} of plan {self.name}: after is a list of steps, not {after!r}")
        if strange := sorted(options.keys() - StepOptions.__optional_keys__):
            raise Misuse(
                f"step {name} of plan {self.name} cannot have {strange[0]}=; there are "
                f"{listed(sorted(StepOptions.__optional_keys__))}, and its key is the plan's name"
            )
        if hidden := next(filter(None, map(hidden_in, args)), None):
            raise Misuse(
                f"step {name} of plan {self.name} is given {hidden!r} inside of another argument, where it "
                "does not stand for a result; give it as an argument of its own, or several by some_of(...)"
            )
        given = [each for each in (*args, *after) if isinstance(each, Ref)]
        for other in (plan for ref in given for plan in ref.plans if plan is not self):
            assert isinstance(other, Plan)
            raise Misuse(f"step {name} of plan {self.name} is given a step of another plan, {other.name}")
        kept = {option: value for option, value in options.items() if option != "after"}
        step = PlanStep(name, self._key, fn, args, tuple(map(name_of, after)), kept)
        self._steps[name] = step
        return Planned(name, self)

    def done(self, name: str, result: T, /) -> Planned[T]:
        """Add a step that is done already, with its result: by an earlier run, for instance."""
        planned: Planned[T] = self.step(name, lambda: result)
        self._outcomes.results[name] = result
        return planned

    def __len__(self) -> int:
        return len(self._steps)

    def __getitem__(self, name: str) -> Planned[Any]:
        """Return what stands for the step of this name. Raises KeyError."""
        if name not in self._steps:
            raise KeyError(f"{name} is no step of plan {self.name}; its steps are {listed(self._steps)}")
        return Planned(name, self)

    @property
    def graph(self) -> dict[str, list[str]]:
        """Each step by name, and which steps it depends on."""
        return {name: list(step.dependencies) for name, step in self._steps.items()}

    @property
    def result(self) -> PlanResult:
        """What became of its steps so far. In the order of the plan, whatever ended first."""
        made = self._outcomes

        def ordered(found: Mapping[str, T]) -> dict[str, T]:
            return {name: found[name] for name in self._steps if name in found}

        return PlanResult(
            ordered(made.results),
            ordered(made.failed),
            ordered(made.skipped),
            ordered(made.gaps),
            self._replans,
        )

    def check(self) -> None:
        """Find out whether the plan can be run.

        Raises PlanInvalid where a step depends on what is no step, PlanDeadlocked where steps wait for each
        other.
        """
        check(self.name, self._steps, self._outcomes.results)

    async def run(self, run: Run, /, *, parallel: int = 1) -> PlanResult:
        """Run all that has not run yet, at most `parallel` steps at once, and return what became of it.

        Raises PlanInvalid and PlanDeadlocked before anything runs, PlanFailed where a step failed that the
        plan cannot do without, and Misuse.
        """
        self._check_idle("is run already")
        if not isinstance(parallel, int) or parallel < 1:
            raise Misuse(f"plan {self.name} with parallel={parallel!r} would run nothing")
        order = check(self.name, self._steps, self._outcomes.results)
        self._running = True
        try:
            await self._announce(run)
            schedule = Schedule(self._steps, order, self._outcomes.statuses())
            stop_early = self.on_failure == "fail"
            execution = Execution(
                run,
                self.name,
                self._steps,
                schedule,
                self._outcomes,
                parallel=parallel,
                stop_early=stop_early,
            )
            await execution.drive()
        finally:
            self._running = False
        broken = schedule.broken()
        if stop_early and broken is not None:
            raise PlanFailed(self.name, broken, self._outcomes.failed[broken], self.result)
        return self.result

    def replan(self, data: object | None = None) -> None:
        """Drop every step that is not done, and count that. Steps that are done stay, with their results.

        New steps are added with `step`, or are those that `data` describes, and may have the names of dropped
        ones. Raises PlanInvalid, and leaves the plan as it was, where the data is wrong; and Misuse while the
        plan runs: it is replaced between two calls of `run`.
        """
        self._check_idle("cannot be replaced")
        before = self._steps, self._outcomes, self._replans, self._replanned
        done = self._outcomes.results
        self._steps = {name: step for name, step in self._steps.items() if name in done}
        gaps = {name: gap for name, gap in self._outcomes.gaps.items() if name in done}
        self._outcomes = Outcomes(results=done, gaps=gaps)
        self._replans += not self._replanned
        self._replanned = True
        try:
            if data is not None:
                self._add(data)
        except PlanInvalid:
            self._steps, self._outcomes, self._replans, self._replanned = before
            raise

    @property
    def _key(self) -> str:
        return f"{self.name}.{self._replans}" if self._replans else self.name

    def _add(self, data: object) -> None:
        read = plan_data.read(self.name, data, self.tools, self._steps, self._outcomes.results, self._key)
        steps = {**self._steps, **read.steps}
        check(self.name, steps, {**self._outcomes.results, **read.results})
        self._steps = steps
        self._outcomes.results.update(read.results)

    def _check_idle(self, what: str) -> None:
        if self._running:
            raise Misuse(f"plan {self.name} {what}: it is running; wait until `run` has returned")

    async def _announce(self, run: Run) -> None:
        """Say what the plan is. A new one is a step, so that it is counted once, and the same on a resume."""
        run.tasks(self.graph, replanned=self._replanned)
        if self._replanned:
            await run.step("replan", _agreed, self.graph, key=self._key)
            self._replanned = False


def _agreed(graph: dict[str, list[str]]) -> int:
    """Take up the new plan."""
    return len(graph)
