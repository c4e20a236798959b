"""How a run that waits or has halted goes on, as commands that can be pasted into a shell."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from milepost.checkpoint.gates import GateAt, GateType
from milepost.local.answering import OPTIONS, when
from milepost.local.questions import Question, labels

__all__ = ["Commands", "summary_of", "ways_on"]

_MEANING: Final = {
    "accept": "goes on all the same, as the message says",
    "revalidate": "goes on, and checks once more what is recorded",
    "restart-with-context": "begins anew, with what is recorded as given facts",
    "done": "says that it did happen; --result JSON says what came of it",
    "not-done": "says that it did not happen, so that it is done now",
    "cancel": "ends the run",
}


@dataclass(frozen=True)
class Commands:
    """How to answer from another terminal: the run's name, and the options that find its store."""

    run: str
    options: str = ""

    def __call__(self, command: str, *arguments: str) -> str:
        """Return a command."""
        return f"{shlex.join(['milepost', command, self.run, *arguments])} {self.options}".rstrip()


def summary_of(gates: Iterable[GateAt]) -> tuple[str, ...]:
    """Return what a run waits for, in a few words each."""
    known = tuple(gates)
    names = labels(known)
    return tuple(_summary(each.type, names[each.id], each.until) for each in known)


def ways_on(question: Question, commands: Commands) -> tuple[str, ...]:
    """Return what is waited for and until when, and which commands give the answer, a line each."""
    gate = question.gate
    what = f"waits for {_summary(gate.type, question.label, gate.until)}"
    match gate.type:
        case GateType.SLEEP:
            return (what,)
        case GateType.EVENT:
            key = () if gate.key is None else ("--key", gate.key)
            data = "" if gate.answer_schema in (None, {"type": "null"}) else " --data JSON"
            return (what, f"  {commands('signal', gate.name, *key)}{data}")
        case GateType.APPROVAL:
            more = " --answer JSON" if question.needs_answer else ""
            return (
                what,
                f"  {commands('gates')}    shows what is asked",
                f"  {commands('approve', question.label)}{more}",
                f"  {commands('deny', question.label)}",
            )
        case GateType.HALT:
            words = [*(word for word, type_ in OPTIONS.items() if type_ in gate.options), "cancel"]
            ways = {commands("decide", word): _MEANING[word] for word in words}
            wide = max(map(len, ways))
            told = (f"  {command:<{wide}}  {meaning}" for command, meaning in ways.items())
            return ("somebody has to decide how it goes on:", *told)


def _summary(type_: GateType, label: str, until: str) -> str:
    if type_ is GateType.SLEEP:
        return when(until) or label
    end = f" until {when(until)}" if until else ""
    return f"{type_.value.lower()} {label}{end}"
