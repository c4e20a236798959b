"""An LLMAgent whose model is scripted, and whose tool acts on the ledger of the test.

ADDING_ENDS says where the process kills itself, the first time that it comes there; ADDING_FOLDER where the
ledger is, outside of a test that kills everywhere.
"""

import os
import signal
from pathlib import Path

from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
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


def _answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    """Ask for numbers in order, by what the request says is completed; a process of its own knows no more."""
    done = sum(isinstance(message, ModelResponse) for message in messages)
    _here(f"after-record-{done}")
    if done == STEPS:
        return ModelResponse([TextPart("DONE: all numbers are added.")])
    return ModelResponse([ToolCallPart("add", {"number": done + 1}, f"call-{done + 1}")])


@tool(effect="keyed")
async def add(call: Call, number: int) -> int:
    """Add a number."""
    Ledger.in_folder(_folder()).apply(call.key, number)
    _here(f"before-record-{number}")
    return number * 2


adding = LLMAgent(FunctionModel(_answer, model_name="scripted"), tools=[add]).as_agent(
    name="adding", version="1"
)
