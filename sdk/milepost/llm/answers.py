"""A model's answer as plain JSON, as the `think` steps record it.

Pydantic AI's own form of messages changes with its versions, and a run may outlive several. So only what the
next request needs is kept, in a form of our own with a number: an answer in a newer form is refused, never
guessed at. Nothing here does I/O.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from milepost import Misuse
from milepost.llm.prices import Used

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelResponse

__all__ = ["FORMAT", "Answer", "Asked", "recorded"]

FORMAT: Final = 1


@dataclass(frozen=True)
class Asked:
    """A tool call that the model asked for. `arguments` is None where `raw`, what it sent, is no object."""

    id: str
    tool: str
    arguments: dict[str, Any] | None
    raw: str = ""
    sent_by: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """What a model answered. `thinking` is what its provider wants to have back; `cost` is in 10^-9 USD."""

    model: str
    provider: str
    text: str
    calls: tuple[Asked, ...]
    thinking: tuple[Mapping[str, Any], ...]
    input_tokens: int
    output_tokens: int
    cost: int
    digest: str

    @property
    def tokens(self) -> int:
        """Tokens of the request and of the answer."""
        return self.input_tokens + self.output_tokens

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> Answer:
        """Return the answer that a step has recorded. Raises Misuse where a newer Milepost recorded it."""
        if data.get("format") != FORMAT:
            raise Misuse(
                f"a model's answer is recorded in format {data.get('format')}, and this version of Milepost "
                f"reads format {FORMAT}; go on with the version that recorded it, or a newer one"
            )
        usage = data["usage"]
        return cls(
            model=data["model"],
            provider=data["provider"],
            text=data["text"],
            calls=tuple(_asked(call) for call in data["calls"]),
            thinking=tuple(data["thinking"]),
            input_tokens=usage["input_tokens"],
            output_tokens=usage["output_tokens"],
            cost=usage["cost_nano_usd"],
            digest=hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest(),
        )


def recorded(response: ModelResponse, used: Sequence[Used]) -> dict[str, Any]:
    """Return a response of Pydantic AI's in the form that is recorded, with what was used up for it."""
    from pydantic_ai.messages import TextPart, ThinkingPart, ToolCallPart  # noqa: PLC0415  (slow to import)

    return {
        "format": FORMAT,
        "model": response.model_name or "",
        "provider": response.provider_name or "",
        "text": "\n".join(part.content for part in response.parts if isinstance(part, TextPart)),
        "calls": [
            {
                "id": part.tool_call_id,
                "tool": part.tool_name,
                "arguments": _arguments(part.args),
                **_provider_of(part),
            }
            for part in response.parts
            if isinstance(part, ToolCallPart)
        ],
        "thinking": [
            {"text": part.content, "signature": part.signature, **_provider_of(part)}
            for part in response.parts
            if isinstance(part, ThinkingPart)
        ],
        "usage": {
            "input_tokens": sum(each.input_tokens for each in used),
            "output_tokens": sum(each.output_tokens for each in used),
            "cost_nano_usd": sum(each.cost or 0 for each in used),
        },
        "finish": response.finish_reason or "",
    }


def _provider_of(part: Any) -> dict[str, Any]:
    known = {"part": part.id, "provider": part.provider_name, "details": part.provider_details}
    return {name: value for name, value in known.items() if value is not None}


def _arguments(sent: str | Mapping[str, Any] | None) -> Any:
    """Return the arguments as an object, or the text that was sent where it is none."""
    if not isinstance(sent, str):
        return dict(sent or {})
    try:
        parsed = json.loads(sent or "{}")
    except (ValueError, RecursionError):
        return sent
    return parsed if isinstance(parsed, dict) else sent


def _asked(call: Mapping[str, Any]) -> Asked:
    arguments = call["arguments"]
    parsed = isinstance(arguments, dict)
    return Asked(
        id=call["id"],
        tool=call["tool"],
        arguments=arguments if parsed else None,
        raw="" if parsed else arguments,
        sent_by={name: call[name] for name in ("part", "provider", "details") if name in call},
    )
