"""What a test says at the gates that its agent comes to, in place of people, systems and the time.

Time passes when nothing else happens: the clock is moved to the next timer once everybody has answered. A
question that the test has no answer for is an error and never a wait.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final, TypeAlias

from pydantic_core import to_jsonable_python

from milepost.api.resource import Phase
from milepost.checkpoint import codec, inbox
from milepost.checkpoint.gates import AnswerType, GateType
from milepost.checkpoint.head import Head
from milepost.checkpoint.sending import Patience
from milepost.checkpoint.store import Store
from milepost.local.questions import Question, label_of, read_questions
from milepost.testing.clock import Clock

__all__ = ["Answers", "Approve", "Asked", "Decide", "Deny", "Expire", "Unanswered", "answer_open_gates"]

NOBODY: Final = "test"
"""Who gives the answers that do not say who."""


@dataclass(frozen=True)
class Approve:
    """Yes. `answer` is of the type that the approval asks for."""

    answer: Any = None
    by: str = NOBODY
    reason: str = ""


@dataclass(frozen=True)
class Deny:
    """No: the agent's `run.approval` raises Denied."""

    reason: str = ""
    by: str = NOBODY


@dataclass(frozen=True)
class Expire:
    """Nobody answers until it is too late: the clock moves on to then, and the gate raises Expired."""


@dataclass(frozen=True)
class Decide:
    """What a person decides of a run that has halted.

    `option` is one of `accept`, `revalidate`, `restart-with-context`, `done` and `not-done`, as for
    `milepost decide`. `result` is what a call that is `done` has returned.
    """

    option: str
    result: Any = None
    by: str = NOBODY


@dataclass(frozen=True)
class Asked:
    """A gate that the agent has come to, as a test's own function is asked about it.

    `kind` is `approval`, `event` or `halt`; of a halt `name` is its reason, such as OutcomeUnknown, and
    `options` what can be decided. `request` is what people are shown, as JSON. `place` is where in the
    agent's code, `world` the folder that stands for the outside world.
    """

    kind: str
    name: str
    key: str | None
    place: str
    request: Any
    message: str
    options: tuple[str, ...]
    world: Path


Answers: TypeAlias = Mapping[str, Any] | Callable[[Asked], Any]
"""Answers by the gate's name, its `name=key` or its place; or a function that is asked.

An answer is Approve, Deny, Expire or Decide; anything else approves with that answer, or is the event's data.
"""


class Unanswered(Exception):
    """A gate is open that the test has no answer for, or one that it was not made for."""


_OPTIONS: Final = {
    "accept": AnswerType.ACCEPT,
    "revalidate": AnswerType.REVALIDATE,
    "restart-with-context": AnswerType.RESTART_WITH_CONTEXT,
    "done": AnswerType.DONE,
    "not-done": AnswerType.NOT_DONE,
}


def answer_open_gates(
    store: Store, head: Head, answers: Answers | None, clock: Clock, patience: Patience, world: Path
) -> list[str]:
    """Answer all gates that the run waits at; where only time can open them, let it pass until the next one.

    Return their labels. Raises Unanswered where there is a gate without an answer, or no gate at all.
    """
    _, questions = read_questions(store, head)
    given: list[inbox.Answer] = []
    timed: list[tuple[datetime, Question]] = []
    labels: list[str] = []
    for question in questions:
        if question.answer is not None:
            labels.append(question.label)
            continue
        gate = question.gate
        answer = None if gate.type is GateType.SLEEP else _answer_to(question, answers, head, world)
        if gate.type is GateType.SLEEP or isinstance(answer, Expire):
            if not gate.until:
                raise Unanswered(f"gate {question.label} never expires, and its answer is Expire()")
            timed.append((datetime.fromisoformat(gate.until), question))
            continue
        labels.append(question.label)
        given.append(_said(question, answer, clock))
    if not labels and timed:
        when = min(until for until, _ in timed)
        clock.advance_to(when)
        due = [question for until, question in timed if until <= clock()]
        given = [_timely(question, clock) for question in due]
        labels = [question.label for question in due]
    for each in given:
        inbox.give(store, head.keys, each, patience)
    if not labels:
        halted = f"it halted as {head.reason}: {head.message}"
        raise Unanswered(halted if head.phase is Phase.HALTED else "it waits, and there is no gate")
    return labels


def _answer_to(question: Question, answers: Answers | None, head: Head, world: Path) -> Any:
    gate = question.gate
    asked = Asked(
        gate.type.value.lower(),
        gate.name,
        gate.key,
        gate.place,
        question.request,
        head.message if gate.type is GateType.HALT else "",
        tuple(word for word, type_ in _OPTIONS.items() if type_ in gate.options),
        world,
    )
    if callable(answers):
        return answers(asked)
    for name in (gate.place, label_of(gate.name, gate.key), gate.name):
        if answers is not None and name in answers:
            return answers[name]
    if gate.type is GateType.HALT:
        decisions = " or ".join(f"Decide({option!r})" for option in asked.options)
        raise Unanswered(
            f"it halted as {gate.name}: {head.message}; where that is as it should be, let the test "
            f"decide it: answers={{{gate.name!r}: {decisions}}}"
        )
    raise Unanswered(f"nobody answers {asked.kind} {question.label}: give answers={{{gate.name!r}: ...}}")


def _said(question: Question, answer: Any, clock: Clock) -> inbox.Answer:
    gate, at = question.gate, clock().isoformat()
    match gate.type, answer:
        case GateType.APPROVAL, Deny():
            type_, by, reason, data = AnswerType.DENY, answer.by, answer.reason, None
        case GateType.APPROVAL, Approve():
            type_, by, reason, data = AnswerType.APPROVE, answer.by, answer.reason, answer.answer
        case GateType.HALT, Decide() if answer.option in _OPTIONS:
            type_, by, reason, data = _OPTIONS[answer.option], answer.by, "", answer.result
        case (_, Deny() | Approve() | Decide()) | (GateType.HALT, _):
            raise Unanswered(f"{answer!r} is no answer to {gate.type.value.lower()} {question.label}")
        case GateType.EVENT, _:
            type_, by, reason, data = AnswerType.EVENT, NOBODY, "", answer
        case _:
            type_, by, reason, data = AnswerType.APPROVE, NOBODY, "", answer
    if gate.type is GateType.HALT:
        encoded = None if data is None else codec.encode(data, type(data), path=f"result at {question.label}")
    else:
        # As whoever answers writes it: JSON as everybody does.
        encoded = to_jsonable_python(data)
    return inbox.Answer(gate.id, type_, by, at, reason, encoded, gate.request_digest)


def _timely(question: Question, clock: Clock) -> inbox.Answer:
    gate = question.gate
    type_ = AnswerType.DUE if gate.type is GateType.SLEEP else AnswerType.EXPIRED
    return inbox.Answer(gate.id, type_, "", clock().isoformat(), request_digest=gate.request_digest)
