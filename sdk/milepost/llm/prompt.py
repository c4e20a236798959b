"""What the model is told with each request.

The beginning - instructions, goal, context, earlier turns - stays the same from request to request, which
providers bill at a lower price; what changes each time - the completed steps, the last result - stands at
the end. All of it is made from what is recorded, so that nothing of it has to be recorded itself.
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from milepost import Fact
from milepost.llm.history import Past, Turn, cut

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelRequestPart, ModelResponse

__all__ = ["Opening", "line_of", "messages", "rendered"]

MAX_LINE: Final = 200
"""Characters of a completed step's line."""

MAX_LINES: Final = 100
"""Completed steps that have a line each; those before are counted."""

MAX_LAST: Final = 4000
"""Characters of the last result that are repeated at the end; the whole stands in the turn before."""

RULES: Final = """\
You work towards a goal in single steps, each of which is one call of a tool.

- In each answer, choose the one next step and make exactly one tool call. Further calls in the same answer \
are not carried out.
- This run may have been paused or restarted at any moment, also since your last answer. The list of \
completed steps is the source of truth: what stands there has happened, whoever asked for it. Never do a \
completed step again.
- A step that failed, or that a person refused, is listed as such. Decide what to do instead.
- When the goal is reached, say that you are DONE: call the tool `done` with a summary of what was achieved, \
or, where no output is asked for, answer with the word DONE, a colon, and the summary."""


@dataclasses.dataclass(frozen=True)
class Opening:
    """What stands at the beginning of each request."""

    instructions: str
    goal: str
    context: str
    facts: Sequence[Fact]

    def text(self) -> str:
        """Return what the model is told of its task."""
        parts = [f"Goal:\n{self.goal}"]
        if self.context:
            parts.append(f"Context:\n{self.context}")
        if self.facts:
            lines = "\n".join(f"- {_fact(fact)}" for fact in self.facts)
            parts.append(
                "An earlier execution of this run was given up, and these of its steps were completed. They "
                f"have happened, and are not to be done again without need:\n{lines}"
            )
        return "\n\n".join(parts)


def messages(opening: Opening, past: Past) -> list[ModelMessage]:
    """Return the messages of the next request."""
    from pydantic_ai.messages import ModelRequest, SystemPromptPart, UserPromptPart  # noqa: PLC0415  (slow)

    rules = f"{RULES}\n\n{opening.instructions}" if opening.instructions else RULES
    parts: list[ModelRequestPart] = [SystemPromptPart(rules), UserPromptPart(opening.text())]
    made: list[ModelMessage] = []
    note = past.note()
    if note and not past.first:
        parts.append(UserPromptPart(note))
    for index, turn in enumerate([*past.first, *past.last], start=1):
        made += [ModelRequest(parts), _response(turn)]
        parts = [_told(turn)]
        if note and index == len(past.first):
            parts.append(UserPromptPart(note))
    parts.append(UserPromptPart(_standing(past.turns)))
    return [*made, ModelRequest(parts)]


def _response(turn: Turn) -> ModelResponse:
    """Return the model's own answer, as far as a request can carry it."""
    from pydantic_ai.messages import (  # noqa: PLC0415  (slow to import)
        ModelResponse,
        ModelResponsePart,
        TextPart,
        ThinkingPart,
        ToolCallPart,
    )

    answer = turn.answer
    parts: list[ModelResponsePart] = [
        ThinkingPart(
            part["text"],
            id=part.get("part"),
            signature=part.get("signature"),
            provider_name=part.get("provider"),
            provider_details=part.get("details"),
        )
        for part in answer.thinking
    ]
    if answer.text:
        parts.append(TextPart(answer.text))
    if answer.calls and turn.kind != "unusable":
        asked = answer.calls[0]
        parts.append(
            ToolCallPart(
                asked.tool,
                asked.arguments,
                asked.id,
                id=asked.sent_by.get("part"),
                provider_name=asked.sent_by.get("provider"),
                provider_details=asked.sent_by.get("details"),
            )
        )
    elif answer.calls:
        # Providers refuse a call that names no tool of theirs, or whose arguments are no object.
        asked = answer.calls[0]
        sent = asked.raw if asked.arguments is None else json.dumps(asked.arguments, ensure_ascii=False)
        parts.append(TextPart(f"(asked for {asked.tool} with {cut(sent, MAX_LAST)})"))
    elif not answer.text:
        parts.append(TextPart("(an empty answer)"))
    return ModelResponse(parts, model_name=answer.model or None, provider_name=answer.provider or None)


def _told(turn: Turn) -> ModelRequestPart:
    from pydantic_ai.messages import ToolReturnPart, UserPromptPart  # noqa: PLC0415  (slow to import)

    if turn.kind == "unusable":
        return UserPromptPart(turn.result)
    asked = turn.answer.calls[0]
    return ToolReturnPart(asked.tool, turn.result, asked.id)


def _standing(turns: Sequence[Turn]) -> str:
    """Return where the run stands, and what is wanted now."""
    steps = [turn for turn in turns if turn.kind != "unusable"]
    before = steps[:-MAX_LINES]
    counts = Counter(turn.answer.calls[0].tool for turn in before)
    counted = ", ".join(f"{number} x {name}" for name, number in sorted(counts.items()))
    lines = [f"(before these: {counted})"] if before else []
    lines += [f"{number}. {turn.line}" for number, turn in enumerate(steps[-MAX_LINES:], len(before) + 1)]
    done = "\n".join(lines) or "none yet"
    last = cut(turns[-1].result, MAX_LAST) if turns else "none yet"
    return (
        f"Completed steps ({len(steps)}):\n{done}\n\nLast result:\n{last}\n\n"
        "Make the one tool call for the next step, or say that you are DONE, with a summary, if the goal is "
        "reached."
    )


def line_of(tool: str, arguments: Any, kind: str, result: str) -> str:
    """Return a step's line: what was called, and what came of it."""
    sent = _short(json.dumps(arguments, ensure_ascii=False), MAX_LINE // 2)
    said = "" if kind == "completed" else f"{kind}: "
    return f"{tool}({sent}) -> {said}{_short(result, MAX_LINE // 2)}"


def _fact(fact: Fact) -> str:
    return f"{fact.step}: {_short(fact.summary or rendered(fact.result), MAX_LINE)}"


def _short(text: str, most: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[:most]} ..."


def rendered(value: Any) -> str:
    """Return a value as a model reads it: text as it is, all else as JSON, the same each time."""
    text = value if isinstance(value, str) else json.dumps(_plain(value), ensure_ascii=False)
    # Half of a surrogate pair cannot be sent to anybody.
    return text.encode("utf-8", "backslashreplace").decode()


def _plain(value: Any) -> Any:
    match value:
        case None | bool() | int() | float() | str():
            return value
        case BaseModel():
            return _plain(dict(value))
        case Mapping():
            return {key if isinstance(key, str) else str(key): _plain(each) for key, each in value.items()}
        case set() | frozenset():
            # Their order is another one in each process.
            return sorted((_plain(each) for each in value), key=repr)
        case list() | tuple():
            return [_plain(each) for each in value]
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return {each.name: _plain(getattr(value, each.name)) for each in dataclasses.fields(value)}
        case _:
            return to_jsonable_python(value, bytes_mode="base64", fallback=repr)
