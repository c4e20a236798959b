"""An agent with a language model, as a loop that is written by hand on `run.step`.

To think is a step, and to act is another: an answer of the model's is paid for once, and an act has the key,
the record and, where its tool asks for it, the approval that any step has. The conversation is made of what
the steps returned, so a process that takes over has the same one, without asking the model again.
"""

import json

from milepost import ArgumentsInvalid, Denied, Run, StepFailed, agent, record_usage

from .model import Act, Message, ask
from .tools import TOOLS

TURNS = 20


async def think(messages: list[Message]) -> Act:
    """Ask the model what to do next."""
    reply = await ask(messages)
    record_usage(input_tokens=reply.input_tokens, output_tokens=reply.output_tokens, model=reply.model)
    return reply.act


@agent(version="1", tools=list(TOOLS.values()))
async def answer(run: Run, question: str, asked_by: str) -> str:
    """Answer a question from the notes, by mail, and return what was done."""
    messages = [Message(role="user", text=f"{run.goal}\nQuestion of {asked_by}: {question}")]
    for _ in range(TURNS):
        act = await run.step("think", think, messages, summary=lambda act: act.tool)
        if act.tool == "done":
            return str(act.arguments["summary"])
        messages += [Message(role="model", text=act.model_dump_json()), await carry_out(run, act)]
    return f"gave up after {TURNS} turns"


async def carry_out(run: Run, act: Act) -> Message:
    """Do what the model wants, and say what came of it: a refusal or an error is an answer, too."""
    if act.tool not in TOOLS:
        return Message(role="error", text=f"there is no tool {act.tool}; there are {', '.join(TOOLS)}")
    try:
        call = TOOLS[act.tool].from_json(act.arguments)
        result = await run.step(act.tool, call)
    except ArgumentsInvalid as error:
        return Message(role="error", text=str(error))
    except Denied as no:
        return Message(role="refused", text=no.decision.reason)
    except StepFailed as error:
        return Message(role="error", text=f"{error.kind}: {error.message}")
    return Message(role="tool", text=result if isinstance(result, str) else json.dumps(result))
