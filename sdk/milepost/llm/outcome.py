"""How the work of a model ends: what it has to say when it is done, and what comes of it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Generic

from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypeVar

from milepost.llm.answers import Answer

__all__ = ["DONE", "Finish", "LLMResult", "Unusable", "finish_of"]

T = TypeVar("T", default=None)

DONE: Final = "done"
"""The name of the tool by which a model says that it is done; it is no step."""

_SAYS_DONE: Final = re.compile(r"^\W*DONE\b[\s*_:.-]*", re.MULTILINE)


@dataclass(frozen=True)
class LLMResult(Generic[T]):
    """What came of an LLMAgent's work.

    `stopped` is why it ended: `Done`, or the limit that was reached (`StepCapReached`, `TokenLimitReached`,
    `CostLimitReached`, `TimeLimitReached`). `output` is of the type that was asked for; None where
    none was, or the work was stopped. `cost_usd` is what is known of the cost, in USD.
    """

    summary: str
    output: T | None
    steps: int
    tokens: int
    cost_usd: float
    stopped: str

    @property
    def done(self) -> bool:
        """Whether the model says that the goal is reached."""
        return self.stopped == "Done"


class Unusable(Exception):
    """An answer that names no step, with the words that the model is told then."""


@dataclass(frozen=True)
class Finish:
    """How a model says that it is done. `output` is the type of what it has to bring, None for a summary."""

    output: Any = None

    @cached_property
    def _adapter(self) -> TypeAdapter[Any] | None:
        return None if self.output is None else TypeAdapter(self.output)

    @property
    def description(self) -> str:
        """What the model is told of the tool."""
        return "Say that the goal is reached. Call this once, at the end."

    @cached_property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of what the model has to bring."""
        summary = {"type": "string", "description": "What was achieved, for a person who was not there."}
        properties: dict[str, Any] = {"summary": summary}
        schema: dict[str, Any] = {"type": "object", "properties": properties, "required": ["summary"]}
        if self._adapter is not None:
            output = self._adapter.json_schema()
            if definitions := output.pop("$defs", None):
                schema["$defs"] = definitions
            properties["output"] = output
            schema["required"] = ["summary", "output"]
        return schema | {"additionalProperties": False}

    def validated(self, output: Any) -> Any:
        """Return what the model has brought, of the type that was asked for. Raises Unusable."""
        if self._adapter is None:
            return None
        try:
            return self._adapter.validate_json(json.dumps(output))
        except ValidationError as error:
            faults = "; ".join(
                f"output.{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()
            )
            raise Unusable(
                f"The output does not fit: {faults}. Call {DONE} again with one that fits."
            ) from error


def finish_of(answer: Answer, finish: Finish) -> tuple[str, Any] | None:
    """Return summary and output where the answer says that the goal is reached, None where it names a step.

    Raises Unusable where it does neither.
    """
    if answer.calls:
        asked = answer.calls[0]
        if asked.tool != DONE:
            return None
        if asked.arguments is None or not isinstance(asked.arguments.get("summary"), str):
            raise Unusable(f"{DONE} needs a summary, which is a string. Call it again.")
        return asked.arguments["summary"], finish.validated(asked.arguments.get("output"))
    said = _SAYS_DONE.search(answer.text)
    if said is None:
        raise Unusable(
            "This answer makes no tool call. Make the one call for the next step, or, if the goal is "
            f"reached, call {DONE} with a summary."
        )
    if finish.output is not None:
        raise Unusable(f"An output is asked for: call {DONE} with a summary and the output.")
    return (answer.text[said.end() :] or answer.text[: said.start()]).strip(), None
