"""Questions that halt a run until a person has decided: each has a gate, and each decision is a record.

Whoever meets the same condition once more, in the next process, asks the same again and is given the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

from milepost.agent.journal import Journal
from milepost.checkpoint import codec, inbox
from milepost.checkpoint.gates import AnswerType, Decided, Gate, GateType
from milepost.errors import Corrupt

__all__ = ["ask", "is_decided"]


async def is_decided(journal: Journal, place: str, about: codec.JSON, options: Sequence[AnswerType]) -> bool:
    """Tell whether a person has decided about this, so that `ask` returns."""
    gate, answer, _ = await _said(journal, place, codec.digest(about), options)
    return answer is not None or gate in journal.state.decisions


async def ask(
    journal: Journal,
    reason: str,
    message: str,
    *,
    place: str,
    about: codec.JSON,
    options: Sequence[AnswerType],
    answer_schema: Any = None,
) -> Decided:
    """Return what a person has decided about this; while nobody has, halt the run and do not return.

    `about` is what is in question: a decision about anything else is none about this. Where the answer is
    more than its type, `answer_schema` is what it has to fit.
    """
    digest = codec.digest(about)
    gate, answer, unusable = await _said(journal, place, digest, options)
    if gate in journal.state.decisions:
        return await journal.decision(gate)
    if answer is None:
        message = f"{message}. {unusable}" if unusable else message
        asked = Gate(
            id=gate,
            type=GateType.HALT,
            place=place,
            name=reason,
            request=await journal.keep(about),
            request_digest=digest,
            answer_schema=answer_schema,
            since=journal.clock().isoformat(),
            options=tuple(options),
        )
        await journal.halt(reason, message, asked)
    decided = await journal.decided(answer, place)
    await journal.commit(decided)
    return decided


async def _said(
    journal: Journal, place: str, digest: str, options: Sequence[AnswerType]
) -> tuple[str, inbox.Answer | None, str]:
    """Return the gate at which this is asked, its answer if there is one, and why an earlier one is none.

    What lies in an inbox stays there. So after an answer that cannot be used the same is asked under another
    id; else whoever looks for answers would find that one again and again.
    """
    unusable = ""
    for number in count(1):
        gate = journal.gate_id(GateType.HALT, place, digest if number == 1 else f"{digest}/{number}")
        if gate in journal.state.decisions:
            return gate, None, ""
        answer = await journal.answer(gate)
        if answer is None:
            return gate, None, unusable
        if isinstance(answer, inbox.Answer) and answer.type in options:
            return gate, answer, ""
        unusable = (
            f"What was answered is there and cannot be read: {answer}"
            if isinstance(answer, Corrupt)
            else f"{answer.type} was answered, which is none of {', '.join(options)}"
        )
    raise AssertionError("numbers do not run out")
