"""Answer what a run waits for: check who may be meant, what may be said, and write it once.

Everything is checked before anything is written, since what is in the inbox stays there. It refuses a gate
that is not open, an answer that the gate does not take, and a second answer; the one surprise is that a first
answer may come from anywhere at any moment, so that only the write itself tells whose it was.
"""

from __future__ import annotations

import getpass
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from milepost.checkpoint import inbox
from milepost.checkpoint.archive import Archive
from milepost.checkpoint.gates import AnswerType, Decided, Gate, GateAt, GateOpened, GateType, event_gate_id
from milepost.checkpoint.head import Head
from milepost.checkpoint.history import read_records
from milepost.checkpoint.inbox import Answer
from milepost.checkpoint.records import Halted
from milepost.checkpoint.runs import Runs
from milepost.checkpoint.sending import Patience
from milepost.errors import InvalidRun, MilepostError
from milepost.local.fitting import answer_in, plain
from milepost.local.questions import ANSWERED, Question, label_of, read_questions

__all__ = [
    "OPTIONS",
    "Answered",
    "Said",
    "Sent",
    "answer",
    "choose",
    "decide",
    "described",
    "give",
    "refuse_ended",
    "send",
    "when",
    "who",
]

OPTIONS: Final = {
    "accept": AnswerType.ACCEPT,
    "revalidate": AnswerType.REVALIDATE,
    "restart-with-context": AnswerType.RESTART_WITH_CONTEXT,
    "done": AnswerType.DONE,
    "not-done": AnswerType.NOT_DONE,
}
"""What a person can decide of a run that has halted, by the word on the command line."""

_USES: Final = {
    GateType.APPROVAL: "`milepost approve` and `milepost deny` answer it",
    GateType.EVENT: "`milepost signal` sends it",
    GateType.SLEEP: "it opens by itself",
    GateType.HALT: "`milepost decide` answers it",
}

_MOST_SHOWN: Final = 8


class Answered(MilepostError):
    """Somebody has answered already, and the first answer stands."""


@dataclass(frozen=True)
class Said:
    """What a person says at a gate. `answer` is JSON; `given` is whether there is one."""

    type: AnswerType
    reason: str = ""
    answer: Any = None


def who() -> str:
    """Return the login name of whoever sits here."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "somebody without a login name"


def when(iso: str) -> str:
    """Return a recorded time for people, in UTC as all that is shown."""
    return f"{datetime.fromisoformat(iso):%Y-%m-%d %H:%M:%S} UTC" if iso else ""


def described(given: Answer | Decided) -> str:
    """Return who answered what and when, as the rest of a sentence that begins with the gate."""
    told = ANSWERED[given.type] + (f" by {given.by}" if given.by else "") + f" at {when(given.at)}"
    return f"{told}: {given.reason}" if given.reason else told


def refuse_ended(head: Head) -> None:
    """Raise InvalidRun where the run has ended, so that nothing that is said can reach it."""
    if head.phase.terminal:
        raise InvalidRun("RUN", f"{head.namespace}/{head.name} ended as {head.phase}, and takes no answers")


def choose(runs: Runs, head: Head, text: str, wanted: GateType) -> Question:
    """Return the open gate that is meant: by name, name=key, place, id, or what an id begins with.

    Raises InvalidRun, which says what is open, or what fits as well; Answered, where it is open no more
    because it was answered; and what reading raises.
    """
    refuse_ended(head)
    head, questions = read_questions(runs.store, head)
    found = _matching(questions, text)
    if not found:
        _refuse_answered(runs, head, text)
        raise InvalidRun("GATE", f"no open gate is called {text!r}; {_what_is_open(questions, head)}")
    if len(found) > 1:
        names = _listed(f"{each.gate.place} ({each.gate.id})" for each in found)
        raise InvalidRun("GATE", f"{text!r} fits {names}; give one of these places or ids")
    (question,) = found
    if question.gate.type is not wanted:
        raise InvalidRun(
            "GATE",
            f"{question.label} is no {_kind(wanted)} but {_kind(question.gate.type)}: {_uses(question.gate)}",
        )
    return question


def give(runs: Runs, head: Head, question: Question, said: Said, by: str) -> tuple[Answer, bool]:
    """Put what was said into the inbox. Return the answer that stands, and whether it is this one."""
    gate = question.gate
    at = runs.clock().isoformat()
    given = Answer(gate.id, said.type, by, at, said.reason, said.answer, gate.request_digest)
    stands = inbox.give(runs.store, head.keys, given, Patience(runs.entropy, deadline=runs.deadline))
    return stands, stands is given


def answer(runs: Runs, head: Head, question: Question, said: Said, by: str) -> None:
    """Put what was said into the inbox. Raises Answered, naming who was first, where somebody was."""
    stands, ours = give(runs, head, question, said, by)
    if not ours:
        raise Answered(f"gate {question.label} has its answer, and nothing was changed: {described(stands)}")


@dataclass(frozen=True)
class Sent:
    """An event that was sent: its number among those of its name and key, and what the run waits for.

    `awaited`: a gate was open for it. `events` are the events that the run waits for, by their labels.
    """

    number: int
    awaited: bool
    events: tuple[str, ...]


def send(runs: Runs, head: Head, name: str, key: str | None, data: str | None, by: str) -> Sent:
    """Send an event. `data` is a text with JSON, or with what else fits the gate that waits for it.

    Raises InvalidRun where it does not fit, or where the run has ended.
    """
    refuse_ended(head)
    _, questions = read_questions(runs.store, head)
    waiting = {each.gate.id: each.gate for each in questions}
    target = waiting.get(_next_event(runs, head, name, key))
    if target is not None:
        content = answer_in(target.answer_schema, data, "--data")
    else:
        content = None if data is None else plain(None, data, "--data")
    event = Answer("", AnswerType.EVENT, by, runs.clock().isoformat(), answer=content)
    patience = Patience(runs.entropy, deadline=runs.deadline)
    try:
        number = inbox.send_event(runs.store, head.keys, name, key, event, patience)
    except ValueError as error:
        raise InvalidRun("EVENT", str(error)) from error
    events = tuple(each.label for each in questions if each.gate.type is GateType.EVENT and not each.answer)
    return Sent(number, event_gate_id(name, key, number) in waiting, events)


def _next_event(runs: Runs, head: Head, name: str, key: str | None) -> str:
    """Return the gate that the next event of this name and key will open."""
    number = 1
    while inbox.read(runs.store, head.keys, gate := event_gate_id(name, key, number)) is not None:
        number += 1
    return gate


def decide(runs: Runs, head: Head, option: str, result: str | None, reason: str, by: str) -> Question:
    """Decide how a halted run goes on. Return what was decided about.

    `result` is a text with what came of a call that did happen. Raises InvalidRun, which says what can be
    decided, and Answered.
    """
    refuse_ended(head)
    head, questions = read_questions(runs.store, head)
    question = next((each for each in questions if each.gate.type is GateType.HALT), None)
    if question is None:
        raise InvalidRun("RUN", _no_halt(head, questions))
    type_ = OPTIONS[option]
    if type_ not in question.gate.options:
        offered = ", ".join(
            [*(word for word, each in OPTIONS.items() if each in question.gate.options), "cancel"]
        )
        raise InvalidRun("DECISION", f"{option} is no way out of {head.reason}; there are {offered}")
    content = None
    if type_ is AnswerType.DONE:
        content = _result_in(question, result)
    elif result is not None:
        raise InvalidRun("--result", f"goes with done, not with {option}")
    answer(runs, head, question, Said(type_, reason, content), by)
    return question


def _result_in(question: Question, result: str | None) -> Any:
    schema = question.gate.answer_schema
    if schema is None:
        return None if result is None else plain(None, result, "--result")
    return answer_in(schema, result, "--result")


def _no_halt(head: Head, questions: Sequence[Question]) -> str:
    called = f"{head.namespace}/{head.name}"
    if head.phase == "Halted":
        return (
            f"{called} halted as {head.reason}, which no decision can resolve: {head.message}. Once the "
            "cause is gone `milepost run` goes on; `decide cancel` ends it"
        )
    return f"{called} has not halted; {_what_is_open(questions, head)}"


def _matching(questions: Sequence[Question], text: str) -> list[Question]:
    """Return what is meant by a text: what is called exactly so, or else the ids that begin with it."""
    exact = [
        each
        for each in questions
        if text in (each.label, each.gate.id, each.gate.place, label_of(each.gate.name, each.gate.key))
    ]
    return (
        exact
        or [each for each in questions if text and each.gate.id.startswith(text)]
        or [each for each in questions if each.gate.name == text]
    )


def _refuse_answered(runs: Runs, head: Head, text: str) -> None:
    """Raise Answered where the run has passed a gate of that name, and nothing of it is open."""
    passed: Decided | None = None
    opened: dict[str, GateAt | Gate] = {}
    for _, lines in read_records(runs.store, head, Archive(runs.store, head.keys)):
        for record, _ in lines:
            for event in record.events:
                match event:
                    case GateOpened(gate=gate) | Halted(gate=Gate() as gate):
                        opened[gate.id] = gate
                    case Decided(gate=name) if _is_called(opened.get(name), event, text):
                        passed = event
                    case _:
                        pass
    if passed is not None:
        raise Answered(f"gate {text} is open no more: {described(passed)}")


def _is_called(gate: Gate | GateAt | None, decided: Decided, text: str) -> bool:
    names = {decided.gate, decided.place}
    if gate is not None:
        names |= {gate.name, label_of(gate.name, gate.key)}
    return text in names


def _what_is_open(questions: Sequence[Question], head: Head) -> str:
    if not questions:
        return f"it waits for nothing ({head.phase})"
    return (
        "open "
        + ("is " if len(questions) == 1 else "are ")
        + _listed(f"{each.label} ({_kind(each.gate.type)})" for each in questions)
    )


def _kind(type_: GateType) -> str:
    return type_.value.lower()


def _uses(gate: Gate) -> str:
    return _USES[gate.type]


def _listed(names: Iterable[str]) -> str:
    (*shown,) = names
    more = f" and {len(shown) - _MOST_SHOWN} more" if len(shown) > _MOST_SHOWN else ""
    return ", ".join(shown[:_MOST_SHOWN]) + more
