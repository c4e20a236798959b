"""Models that answer from a script, in the process of the test and behind an HTTP server on loopback."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage

from milepost.testing.loopback import Loopback, Raw, Wire

__all__ = ["OpenAIServer", "Script", "call", "calls", "refusal", "say", "text_of", "tool_call"]

Answer: TypeAlias = ModelResponse | BaseException


def call(tool: str, /, **arguments: Any) -> ModelResponse:
    """An answer that asks for one call."""
    return ModelResponse([ToolCallPart(tool, arguments, f"call-{tool}")])


def calls(*parts: tuple[str, dict[str, Any] | str]) -> ModelResponse:
    """An answer that asks for several calls; arguments that are text are sent as they are."""
    return ModelResponse(
        [ToolCallPart(tool, sent, f"call-{number}") for number, (tool, sent) in enumerate(parts)]
    )


def say(text: str, *, tokens: tuple[int, int] = (0, 0)) -> ModelResponse:
    """An answer that is text."""
    return ModelResponse(
        [TextPart(text)], usage=RequestUsage(input_tokens=tokens[0], output_tokens=tokens[1])
    )


@dataclass
class Script:
    """A model that gives its answers in order, an error by raising it.

    `requests` are what it was asked, `tools` what it was shown with the last one.
    """

    answers: Sequence[Answer]
    requests: list[list[ModelMessage]] = field(default_factory=list)
    tools: list[dict[str, Any]] = field(default_factory=list)

    def model(self, name: str = "scripted") -> FunctionModel:
        return FunctionModel(self._answer, model_name=name)

    async def _answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.tools = [{"name": t.name, "schema": t.parameters_json_schema} for t in info.function_tools]
        self.requests.append(list(messages))
        answer = self.answers[len(self.requests) - 1]
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def prompt(self, number: int = -1) -> str:
        """All the text of one request, in order."""
        return text_of(self.requests[number])


def text_of(messages: Sequence[ModelMessage]) -> str:
    """Return all that a request says, in order."""
    found = []
    for message in messages:
        for part in message.parts:
            match part:
                case SystemPromptPart(content=content) | UserPromptPart(content=str(content)):
                    found.append(content)
                case ToolReturnPart(tool_name=name, content=content):
                    found.append(f"<{name} returned> {content}")
                case ToolCallPart(tool_name=name, args=args):
                    found.append(f"<called {name}> {json.dumps(args)}")
                case TextPart(content=content) if isinstance(message, ModelResponse):
                    found.append(f"<said> {content}")
                case _:
                    raise AssertionError(part)
        assert isinstance(message, ModelRequest | ModelResponse)
    return "\n".join(found)


Reply: TypeAlias = Wire | dict[str, Any] | None


@dataclass
class OpenAIServer:
    """Speaks the protocol of OpenAI's chat completions. Each request takes the next reply.

    A reply is a message of the assistant's, an answer as it goes over the wire, or None: the connection is
    closed. `asked` are the bodies of the requests, `keys` what stood in their Authorization header.
    """

    replies: Sequence[Reply]
    model: str = "gpt-4o-mini"
    asked: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    _numbers: Any = field(default_factory=itertools.count)

    def serving(self) -> Loopback:
        """Return the server; entered, it has an `endpoint`, below which is `/v1`."""
        return Loopback(self._serve)

    def _serve(self, raw: Raw) -> Wire | None:
        assert (raw.method, raw.path) == ("POST", "/v1/chat/completions")
        self.asked.append(json.loads(raw.body))
        self.keys.append(raw.headers.get("authorization", raw.headers.get("Authorization", "")))
        reply = self.replies[next(self._numbers)]
        if isinstance(reply, Wire | None):
            return reply
        usage = {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100}
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": None, **reply},
            "finish_reason": "tool_calls" if "tool_calls" in reply else "stop",
        }
        body = {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1_700_000_000,
            "model": self.model,
            "choices": [choice],
            "usage": usage,
        }
        return Wire(200, {"Content-Type": "application/json"}, json.dumps(body).encode())


def tool_call(tool: str, arguments: str, number: int = 1) -> dict[str, Any]:
    """A reply that asks for a call, its arguments as they go over the wire."""
    function = {"name": tool, "arguments": arguments}
    return {"tool_calls": [{"id": f"call_{number}", "type": "function", "function": function}]}


def refusal(status: int, message: str, **headers: str) -> Wire:
    """A reply that is an error, as OpenAI words it."""
    body = {"error": {"message": message, "type": "some_error", "code": None}}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Wire(status, {"Content-Type": "application/json", **named}, json.dumps(body).encode())
