"""Whether a call that the code makes is on record, so that its result is given back and nothing is called.

A record stands for the tool, the version and the arguments that it names. Where the code makes another call
in its place nothing is guessed: the author's mistake is refused, and all else halts the run.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from milepost.agent.asking import ask
from milepost.agent.calls import Call
from milepost.agent.journal import Journal
from milepost.agent.tools import Tool
from milepost.checkpoint.gates import AnswerType
from milepost.checkpoint.records import Intended, ToolCalled
from milepost.errors import Misuse

__all__ = ["call_named", "ended_call", "recorded_call"]


def call_named(recorded: Intended | ToolCalled) -> str:
    """Return how messages name a call."""
    return f"call {recorded.call} of step {recorded.step}, tool {recorded.tool} with key {recorded.key},"


def ended_call(
    journal: Journal, asked: ToolCalled, call: Call, began: datetime, **outcome: Any
) -> ToolCalled:
    """Return the record of a call that has ended now, with what its tool has said of it and its `outcome`."""
    changes = {
        "external_id": call.external_id,
        "evidence": call.evidence,
        "started_at": began.isoformat(),
        "duration_s": (journal.clock() - began).total_seconds(),
    }
    return asked.model_copy(update=changes | outcome)


async def recorded_call(journal: Journal, asked: ToolCalled, tool: Tool[..., object]) -> ToolCalled | None:
    """Return the record of this very call where it is known to have happened; else None.

    `asked` is what its record would be. Raises Misuse where its key stands for other arguments. Halts the run
    where what is recorded in its place is another tool's, or cannot be taken back.
    """
    if asked.effect == "irreversible" and asked.key in journal.state.once:
        return await _made_once(journal, asked, tool)
    known = journal.state.calls.get(asked.step, {}).get(asked.call) if asked.call else None
    if not tool.has_effect:
        return known if known is not None and known.error is None and _same(known, asked) else None
    intent = journal.state.intents.get(asked.step, {}).get(asked.call)
    recorded = intent or known
    if recorded is not None:
        await _check_tool(journal, recorded, tool)
    if known is None or intent is not None:
        return None
    if known.arguments != asked.arguments:
        raise Misuse(
            f"call {known.call} of step {known.step} was {known.tool} with other arguments when it was "
            f"recorded; the key {known.key} stands for those and cannot be used for {tool.name} again"
        )
    return known if known.error is None else None


def _same(known: ToolCalled, asked: ToolCalled) -> bool:
    return (known.tool, known.version, known.arguments) == (asked.tool, asked.version, asked.arguments)


async def _made_once(journal: Journal, asked: ToolCalled, tool: Tool[..., object]) -> ToolCalled:
    """Return the record of an irreversible call, whatever has become of its step since."""
    once = await journal.called(journal.state.once[asked.key], asked.key)
    await _check_tool(journal, once, tool)
    if once.arguments != asked.arguments:
        await ask(
            journal,
            "EffectDiffers",
            f"{call_named(once)} cannot be taken back and is made once, and today's code makes it with other "
            "arguments; accept that what was done stands for it, or give its step another name or key",
            place=asked.step,
            about={
                "step": asked.step,
                "call": asked.call,
                "key": once.key,
                "recorded": once.arguments,
                "now": asked.arguments,
            },
            options=(AnswerType.ACCEPT,),
        )
    return once


async def _check_tool(journal: Journal, recorded: Intended | ToolCalled, tool: Tool[..., object]) -> None:
    """Return if a call was recorded for this tool, or a person accepts that it was."""
    if recorded.tool != tool.name:
        await journal.halt(
            "ToolChanged",
            f"{call_named(recorded)} is recorded, and today's code calls tool {tool.name} in its place; the "
            f"run needs tool {recorded.tool} as long as it is under way",
        )
    accepted = (journal.state.environment or {}).get(f"tool {tool.name}", recorded.version)
    if tool.version not in (recorded.version, accepted):
        await ask(
            journal,
            "ToolChanged",
            f"{call_named(recorded)} is recorded for version {recorded.version} of the tool, and today's "
            f"code has version {tool.version}",
            place=recorded.step,
            about={
                "step": recorded.step,
                "call": recorded.call,
                "tool": tool.name,
                "recorded": recorded.version,
                "now": tool.version,
            },
            options=(AnswerType.ACCEPT,),
        )
