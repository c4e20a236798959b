"""The same agent with `milepost.llm.LLMAgent`, which has the loop, its prompt and its limits ready-made.

It works with any model of Pydantic AI's: HELPDESK_MODEL names one, such as `openai:gpt-5`. Without it a
model answers that is scripted, so that the example runs without an account.
"""

import os

from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from milepost.llm import Limits, LLMAgent

from .tools import search, send_mail


async def scripted(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    """Search, send what was found, be done: which of them is told by what has been returned so far."""
    returned = [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
    if not returned:
        wanted = ToolCallPart("search", {"query": "eviction"}, "call-1")
    elif len(returned) == 1:
        mail = {"to": "ann@example.com", "body": returned[0].content}
        wanted = ToolCallPart("send_mail", mail, "call-2")
    else:
        wanted = ToolCallPart("done", {"summary": f"Ann's question: {returned[1].content}"}, "call-3")
    return ModelResponse([wanted])


helpdesk = LLMAgent(
    os.environ.get("HELPDESK_MODEL") or FunctionModel(scripted, model_name="scripted"),
    tools=[search, send_mail],
    instructions="You answer questions from the notes, by mail, in one or two sentences.",
    limits=Limits(steps=10),
)

answer = helpdesk.as_agent(name="helpdesk", version="1")
