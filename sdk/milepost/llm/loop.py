"""The loop of one LLMAgent in one run: think, act, and so on until the model is done or a limit is reached.

Thinking and acting are steps of their own, so a model's answer is paid for once and a tool's effect has the
key, the approval and the record that any step has. Everything that decides what comes next is recorded, or
made from what is: the loop runs again on a resume and comes to the same place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from milepost import (
    AgentError,
    ArgumentsInvalid,
    Bound,
    Denied,
    Expired,
    Retry,
    Run,
    StepFailed,
    Tool,
    record_usage,
)
from milepost.llm.answers import Answer, Asked, recorded
from milepost.llm.asking import Patience, secrets_of
from milepost.llm.history import History, Past, Turn, TurnKind, cut
from milepost.llm.limits import LimitReached, Limits, OnLimit, Reached, Spent
from milepost.llm.outcome import DONE, Finish, LLMResult, Unusable, finish_of
from milepost.llm.prices import Used, used_by, used_in_vain
from milepost.llm.prompt import Opening, line_of, messages, rendered

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelResponse
    from pydantic_ai.models import Model, ModelRequestParameters
    from pydantic_ai.settings import ModelSettings

__all__ = ["Job", "Loop", "NoUsableAnswer"]

UNUSABLE_IN_A_ROW: Final = 3
"""Answers without a step, one after the other, with which a model has shown that it will not get there."""

MAX_SUMMARY: Final = 300
"""Characters of what the model says that stand beside its step for people."""


class NoUsableAnswer(AgentError):
    """The model's answers, several in a row, named no step that could be carried out."""


@dataclass(frozen=True)
class Job:
    """What an LLMAgent is made of. `model` loads the model, the first time that it is asked for."""

    name: str
    model: Callable[[], Model]
    settings: ModelSettings | None
    tools: dict[str, Tool[..., Any]]
    finish: Finish
    instructions: str
    limits: Limits
    on_limit: OnLimit
    history: History
    patience: float
    retry: Retry | None


@dataclass
class Loop:
    """One call of `LLMAgent.run`."""

    run: Run
    job: Job
    goal: str
    context: str
    spent: Spent
    past: Past
    opening: Opening
    unusable: int = 0
    unpriced: set[str] = field(default_factory=set)

    async def result(self) -> LLMResult[Any]:
        """Work until there is a result. Raises StepFailed, NoUsableAnswer and LimitReached."""
        while True:
            reached = await self._reached()
            if reached is not None:
                return self._stopped(reached)
            answer = await self._think()
            end = await self._act(answer)
            if end is not None:
                return end

    async def _think(self) -> Answer:
        """Return the model's next answer, from the log or from the model."""
        if (gone := self.past.shorten()) > 0:
            self.run.log.info(
                "history-shortened",
                extra={"turns": gone, "left_out": self.past.left_out, "agent": self.job.name},
            )
        # The past is no input: what it is made of is recorded once, and its digest stands for it.
        inputs = (
            {"after": self.past.digest} if self.past.digest else {"goal": self.goal, "context": self.context}
        )
        data = await self.run.step("think", self._ask, inputs=inputs, retry=self.job.retry, summary=_said)
        answer = Answer.read(data)
        self.spent.think(answer)
        return answer

    async def _ask(self) -> dict[str, Any]:
        """Ask the model for the next step."""
        from pydantic_ai.direct import model_request  # noqa: PLC0415  (slow to import)

        model = self.job.model()
        asked = messages(self.opening, self.past)
        parameters = self._parameters()

        async def request() -> ModelResponse:
            try:
                return await model_request(
                    model, asked, model_settings=self.job.settings, model_request_parameters=parameters
                )
            except Exception as error:
                self._count(used_in_vain(error))
                raise

        patience = Patience(
            self.job.patience, seed=f"{self.run.id}/{len(self.past.turns)}", say=self.run.log.warning
        )
        response = await patience.ask(request, secrets_of(model))
        used = used_by(response)
        self._count(used)
        return recorded(response, used)

    def _count(self, used: Sequence[Used]) -> None:
        """Record what requests have used up, whatever becomes of the step."""
        for each in used:
            if each.cost is None and each.model not in self.unpriced:
                self.unpriced.add(each.model)
                self.run.log.warning("price-unknown", extra={"model": each.model, "counted_as": 0})
            record_usage(
                input_tokens=each.input_tokens,
                output_tokens=each.output_tokens,
                cost_usd=Decimal(each.cost or 0) / 10**9,
                model=each.model,
            )

    def _parameters(self) -> ModelRequestParameters:
        from pydantic_ai.models import ModelRequestParameters  # noqa: PLC0415  (slow to import)
        from pydantic_ai.tools import ToolDefinition  # noqa: PLC0415  (slow to import)

        tools = [
            ToolDefinition(name=name, parameters_json_schema=tool.schema(), description=tool.description)
            for name, tool in self.job.tools.items()
            if not tool.deprecated
        ]
        finish = self.job.finish
        tools.append(
            ToolDefinition(name=DONE, parameters_json_schema=finish.schema, description=finish.description)
        )
        return ModelRequestParameters(function_tools=tools)

    async def _act(self, answer: Answer) -> LLMResult[Any] | None:
        """Do what the answer asks for; a result where it says that the goal is reached."""
        try:
            end = finish_of(answer, self.job.finish)
            if end is not None:
                return self._result(*end)
            asked = answer.calls[0]
            bound = self._bound(asked)
        except Unusable as why:
            self._unusable(answer, str(why))
            return None
        self.unusable = 0
        kind, result = await self._step(asked.tool, bound)
        self.spent.steps += 1
        self._add(answer, asked, kind, result)
        return None

    def _bound(self, asked: Asked) -> Bound[Any]:
        tool = self.job.tools.get(asked.tool)
        if tool is None:
            known = ", ".join([*self.job.tools, DONE])
            raise Unusable(f"There is no tool {asked.tool!r}. Call one of: {known}.")
        if asked.arguments is None:
            raise Unusable(f"The arguments of {asked.tool} have to be a JSON object. Make the call again.")
        try:
            return tool.from_json(asked.arguments)
        except ArgumentsInvalid as error:
            raise Unusable(
                f"{error}. Nothing was done; make the call again with arguments that fit."
            ) from error

    async def _step(self, name: str, bound: Bound[Any]) -> tuple[TurnKind, str]:
        """Return what came of a tool's call, as text for the model."""
        try:
            return "completed", rendered(await self.run.step(name, bound))
        except StepFailed as error:
            return "failed", f"error: {error.kind}: {error.message} (tried {error.attempts} times)"
        except Expired:
            return "refused", "the user refused: nobody answered in time"
        except Denied as no:
            return "refused", f"the user refused: {no.decision.reason or 'no reason was given'}"

    def _add(self, answer: Answer, asked: Asked, kind: TurnKind, result: str) -> None:
        shown = cut(result, self.job.history.max_result)
        if len(answer.calls) > 1:
            shown += (
                f"\n\n(You asked for {len(answer.calls)} calls at once. Only the first was carried out, this "
                "one; ask for one in each answer.)"
            )
        line = line_of(asked.tool, asked.arguments, kind, result)
        self.past.add(Turn(answer, kind, shown, line), result)
        self.run.memory[self.job.name] = {
            "steps": self.spent.steps,
            "tokens": self.spent.tokens,
            "cost_nano_usd": self.spent.cost,
            "last": line,
        }

    def _unusable(self, answer: Answer, why: str) -> None:
        self.unusable += 1
        self.run.log.warning("answer-unusable", extra={"why": why, "in_a_row": self.unusable})
        if self.unusable >= UNUSABLE_IN_A_ROW:
            raise NoUsableAnswer(
                f"{self.unusable} answers of {answer.model} in a row named no step that can be made; "
                f"the last: {why}"
            )
        # Only that it was unusable goes into the digest: another version may say why in other words.
        self.past.add(Turn(answer, "unusable", why), "unusable")

    async def _reached(self) -> Reached | None:
        """Return the limit that ends the work here, if one does. Raises LimitReached."""
        while True:
            reached = self.spent.reached(self.job.limits, self.run.now())
            if reached is None or self.job.on_limit == "stop":
                return reached
            if self.job.on_limit == "fail":
                raise LimitReached(reached.reason, str(reached))
            try:
                await self.run.approval("raise-limit", request=self._request(reached))
            except Denied:
                return reached
            self.spent.grant(reached)

    def _request(self, reached: Reached) -> dict[str, Any]:
        first = self.job.limits.numbers()[reached.name]
        assert first is not None, "a limit that is reached is a number"
        return {
            "agent": self.job.name,
            "reason": reached.reason,
            "limit": reached.name,
            "reached": reached.limit,
            "raise_to": reached.limit + first,
            "steps": self.spent.steps,
            "tokens": self.spent.tokens,
            "cost_usd": self.spent.cost / 1e9,
        }

    def _stopped(self, reached: Reached) -> LLMResult[Any]:
        self.run.log.warning("limit-reached", extra={"reason": reached.reason, "agent": self.job.name})
        done = [turn.line for turn in self.past.turns if turn.kind != "unusable"]
        said = f"Stopped before the goal was reached: {reached}."
        if done:
            said += f" {len(done)} steps were made; the last: {done[-1]}"
        return self._result(said, None, reached.reason)

    def _result(self, summary: str, output: Any, stopped: str = "Done") -> LLMResult[Any]:
        return LLMResult(
            summary=summary,
            output=output,
            steps=self.spent.steps,
            tokens=self.spent.tokens,
            cost_usd=self.spent.cost / 1e9,
            stopped=stopped,
        )


def _said(data: dict[str, Any]) -> str:
    """Return what the model answered, for people."""
    calls: Sequence[dict[str, Any]] = data["calls"]
    said = calls[0]["tool"] if calls else ""
    text = " ".join(str(data["text"]).split())
    said = f"{said}: {text}" if said and text else said or text
    return said if len(said) <= MAX_SUMMARY else said[:MAX_SUMMARY] + " ..."
