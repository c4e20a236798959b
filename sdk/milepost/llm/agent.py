"""LLMAgent: what an author sets up once and runs in as many runs as there are."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Generic

from pydantic import TypeAdapter
from typing_extensions import TypeVar

from milepost import Agent, Misuse, Retry, Run, Tool, agent
from milepost.llm.history import History, Past
from milepost.llm.limits import Limits, OnLimit, Spent
from milepost.llm.loop import Job, Loop
from milepost.llm.outcome import DONE, Finish, LLMResult
from milepost.llm.prompt import Opening, rendered

if TYPE_CHECKING:
    from pydantic_ai.models import Model
    from pydantic_ai.settings import ModelSettings

__all__ = ["LLMAgent", "LLMResult"]

T = TypeVar("T", default=None)

RATE_LIMIT_PATIENCE: Final = 600.0


class LLMAgent(Generic[T]):
    """A model with tools that works towards a goal, one durable step at a time.

    `model` is any model of Pydantic AI's, or its name, as in `openai:gpt-5`; `settings` go with each request.
    `tools` are what it may call. `output` is the type of what it has to bring in the end; without one it
    brings a summary. When one of the `limits` is reached it stops with what there is, asks a person for as
    much again (`on_limit="ask"`), or fails (`"fail"`). A provider that is overloaded or limits the rate is
    waited for up to `rate_limit_patience`, seconds or a timedelta, with each request; what else goes
    wrong with one is tried again as `retry` says, or else as with any step.

    `name` tells several in one run apart, in the memory of the run and in what people are asked.

    Raises ValueError where two tools have one name, or one is called `done`, and TypeError where an argument
    of one cannot be given by name. A deprecated tool is not offered to the model any more.
    """

    def __init__(
        self,
        model: Model | str,
        *,
        tools: Sequence[Tool[..., Any]] = (),
        instructions: str = "",
        limits: Limits | None = None,
        on_limit: OnLimit = "stop",
        history: History | None = None,
        output: type[T] | None = None,
        settings: ModelSettings | None = None,
        rate_limit_patience: float | timedelta = RATE_LIMIT_PATIENCE,
        retry: Retry | None = None,
        name: str = "llm",
    ) -> None:
        counts = Counter(tool.name for tool in tools)
        if twice := [tool for tool, count in counts.items() if count > 1]:
            raise ValueError(f"two tools are named {twice[0]!r}, by which the model tells them apart")
        if DONE in counts:
            raise ValueError(f"a tool cannot be named {DONE!r}: by that the model says that it is done")
        for each in tools:
            each.schema()
        self.name = name
        self.tools = tuple(tools)
        self.instructions = instructions
        self.limits = limits or Limits()
        self.on_limit: OnLimit = on_limit
        self.history = history or History()
        self.output = output
        self.settings = settings
        self.rate_limit_patience = (
            rate_limit_patience.total_seconds()
            if isinstance(rate_limit_patience, timedelta)
            else rate_limit_patience
        )
        self.retry = retry
        self._model = model

    @property
    def model_name(self) -> str:
        """The model's name, as a resume compares it."""
        return (
            self._model if isinstance(self._model, str) else f"{self._model.system}:{self._model.model_name}"
        )

    @property
    def environment(self) -> dict[str, str]:
        """What an agent around it should declare, `@agent(environment=...)`, so that a resume compares it."""
        return {"model": self.model_name}

    async def run(self, run: Run, goal: str | None = None, *, context: Any = None) -> LLMResult[T]:
        """Work towards the goal, or else the run's, and return what came of it.

        `context` is what the model has to know for it: text, or whatever is storable. Neither is recorded
        here; they are compared on a resume.

        Raises StepFailed where the model could not be asked, NoUsableAnswer where it names no step,
        LimitReached where it was told to fail then, and Misuse where there is no goal.
        """
        wanted = goal or run.goal
        if not wanted:
            raise Misuse("there is no goal: give LLMAgent.run one, or the run's manifest a spec.goal")
        job = self._job
        told = "" if context is None else rendered(context)
        facts = [fact for fact in await run.facts() if fact.name in job.tools]
        opening = Opening(job.instructions, wanted, told, facts)
        loop = Loop(run, job, wanted, told, Spent(run.now()), Past(job.history), opening)
        return await loop.result()

    def as_agent(self, *, name: str, version: str, resumes: Sequence[str] = ()) -> Agent[..., dict[str, Any]]:
        """Return an agent whose goal is the run's and whose context are the run's inputs, by name.

        Its result is what an LLMResult holds, as JSON. It counts as the code of the module that calls this.
        """

        async def work(run: Run, **inputs: Any) -> dict[str, Any]:
            found = await self.run(run, context=inputs or None)
            kind: Any = self.output
            output = (
                None if found.output is None else TypeAdapter(kind).dump_python(found.output, mode="json")
            )
            return {**vars(found), "output": output}

        # Whose code the agent is: a change of it is told by the digest of this module's package.
        work.__module__ = sys._getframe(1).f_globals["__name__"]  # noqa: SLF001  (its one official use)
        work.__doc__ = self.instructions or f"Work towards the run's goal with {self.model_name}."
        declared = agent(
            name=name, version=version, resumes=resumes, tools=self.tools, environment=self.environment
        )
        return declared(work)

    def _loaded(self) -> Model:
        # Only a request needs the model: a resume that finds all answers recorded needs no key for it.
        return self._client

    @cached_property
    def _client(self) -> Model:
        from pydantic_ai.models import infer_model  # noqa: PLC0415  (slow to import)

        return infer_model(self._model)

    @cached_property
    def _job(self) -> Job:
        return Job(
            name=self.name,
            model=self._loaded,
            settings=self.settings,
            tools={tool.name: tool for tool in self.tools},
            finish=Finish(self.output),
            instructions=self.instructions,
            limits=self.limits,
            on_limit=self.on_limit,
            history=self.history,
            patience=self.rate_limit_patience,
            retry=self.retry,
        )
