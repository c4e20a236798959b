"""LLMAgents whose models are scripted, and whose tools act on the ledger of the test.

ADDING_ENDS says where the process kills itself, the first time that it comes there; ADDING_FOLDER where the
ledger is, outside of a test that kills everywhere; ADDING_MODEL what the model is called.
"""

import os
import signal
from pathlib import Path

from pydantic_ai.exceptions import ModelHTTPError, ModelRateLimitError
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from milepost import Call, tool
from milepost.llm import LLMAgent
from milepost.testing import Ledger
from milepost.testing.ledger import FOLDER

STEPS = 5


def _folder() -> str:
    return os.environ.get(FOLDER) or os.environ["ADDING_FOLDER"]


def _here(place: str) -> None:
    if os.environ.get("ADDING_ENDS") != place:
        return
    try:
        Path(_folder(), "ended-once").touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def _scripted(*calls: tuple[str, int]) -> FunctionModel:
    """Ask for the calls in order, by what the request says is completed: a process knows no more."""

    async def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        done = sum(isinstance(message, ModelResponse) for message in messages)
        _here(f"after-record-{done}")
        if done == len(calls):
            return ModelResponse([TextPart(f"DONE: {_last_result(messages)}")])
        tool, number = calls[done]
        return ModelResponse([ToolCallPart(tool, {"number": number}, f"call-{done + 1}")])

    return FunctionModel(answer, model_name=os.environ.get("ADDING_MODEL", "scripted"))


def _last_result(messages: list[ModelMessage]) -> str:
    returned = [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
    return str(returned[-1].content)


@tool(effect="keyed")
async def add(call: Call, number: int) -> int:
    """Add a number."""
    Ledger.in_folder(_folder()).apply(call.key, number)
    _here(f"before-record-{number}")
    return number * 2


@tool(effect="keyed", requires_approval=True)
async def send(call: Call, number: int) -> str:
    """Send a number."""
    Ledger.in_folder(_folder()).apply(call.key, {"sent": number})
    return f"sent {number}"


adding = LLMAgent(_scripted(*[("add", number) for number in range(1, STEPS + 1)]), tools=[add]).as_agent(
    name="adding", version="1"
)

asking = LLMAgent(_scripted(("add", 1), ("send", 2), ("send", 3)), tools=[add, send]).as_agent(
    name="asking", version="1"
)


async def _busy(_: list[ModelMessage], __: AgentInfo) -> ModelResponse:
    raise ModelHTTPError.for_category(
        ModelRateLimitError, status_code=429, model_name="scripted", retry_after=300
    )


limited = LLMAgent(FunctionModel(_busy, model_name="scripted"), tools=[add]).as_agent(
    name="limited", version="1"
)
