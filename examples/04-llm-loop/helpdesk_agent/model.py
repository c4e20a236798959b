"""A model that answers by rules, and stands for any provider: replace `ask` by a request to yours.

A real one is asked in the same place and in the same way. That it may answer otherwise the next time does no
harm, since each of its answers is recorded before anything is done by it.
"""

from typing import Any, Literal

from pydantic import BaseModel


class Message(BaseModel):
    """One message of the conversation."""

    role: Literal["user", "model", "tool", "error", "refused"]
    text: str


class Act(BaseModel):
    """What the model wants done next: a tool with its arguments, or `done` with a summary."""

    tool: str
    arguments: dict[str, Any]


class Reply(BaseModel):
    """What a provider sends back: the act, and what it cost."""

    act: Act
    model: str = "scripted"
    input_tokens: int
    output_tokens: int


async def ask(messages: list[Message]) -> Reply:
    """Return the model's next act: search, send what was found, change it where it was refused, be done."""
    act = _next(messages)
    words = [len(message.text.split()) for message in messages]
    return Reply(act=act, input_tokens=sum(words), output_tokens=len(act.model_dump_json().split()))


def _next(messages: list[Message]) -> Act:
    who = messages[0].text.rpartition("Question of ")[2]
    asked_by, _, question = who.partition(": ")
    last = messages[-1]
    refusals = sum(message.role == "refused" for message in messages)
    if last.role == "user":
        return Act(tool="search", arguments={"query": question})
    if last.role == "refused" and refusals > 1:
        return Act(
            tool="done", arguments={"summary": f"{asked_by} was not told, since each mail was refused"}
        )
    if last.role == "refused":
        return Act(tool="send_mail", arguments={"to": asked_by, "body": f"{_found(messages)} ({last.text})"})
    if last.role == "tool" and last.text.startswith("sent"):
        return Act(tool="done", arguments={"summary": f"{asked_by} was told"})
    if last.role == "tool":
        return Act(tool="send_mail", arguments={"to": asked_by, "body": _found(messages)})
    return Act(tool="done", arguments={"summary": f"it went wrong: {last.text}"})


def _found(messages: list[Message]) -> str:
    return next(message.text for message in messages if message.role == "tool")
