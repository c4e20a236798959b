"""What happens while a run waits at its gates: nothing runs, and this is its clock and its postman.

Timers that are over are answered by this machine's clock. Approvals are asked at the prompt, where somebody
sits at it. Everything else comes into the run's inbox from outside, and is looked for there. The run goes on
once a gate has its answer; whether that answer is any good is for the run's next executor to see.

The surprise: somebody else may answer at any moment, also what is being asked at this prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from milepost.checkpoint import inbox
from milepost.checkpoint.gates import GateType, due
from milepost.checkpoint.inbox import Answer
from milepost.checkpoint.runs import HeadSeen, Runs
from milepost.checkpoint.store import Unchanged
from milepost.errors import StoreUnavailable
from milepost.local.answering import Said, described, give
from milepost.local.questions import Question, read_questions
from milepost.local.ways import Commands, ways_on

__all__ = ["Ask", "Waiting"]

_LOOK_EVERY: Final = 1.0
"""Seconds between two looks into the inbox."""

_AFTER_TROUBLE: Final = 5.0


Ask: TypeAlias = Callable[[Question, Callable[[], str]], Said | None]
"""Asks the person here, and returns what they said; None where they said nothing, or did not get to.

The second argument is called about once a second while they think. What it returns is why there is nothing to
answer any more; it is empty while there is.
"""


@dataclass
class Waiting:
    """One time that a run waits. `ask` asks the person here; None: there is nobody. `by` is their name."""

    runs: Runs
    head: HeadSeen
    commands: Commands
    by: str
    say: Callable[[str], None]
    pause: Callable[[float], None]
    ask: Ask | None = None
    _answers: dict[str, Answer] = field(default_factory=dict)
    _now: HeadSeen | None = None
    _troubled: bool = False

    def until_answered(self) -> HeadSeen | None:
        """Return the head once one of its gates has an answer, or the head that has taken its place.

        None where the run is gone. Raises Corrupt, Missing, FormatTooNew, StoreRefused.
        """
        self._now = self.head
        questions = self._questions()
        self._answers = {each.gate.id: each.answer for each in questions if each.answer}
        if self._answers or not questions:
            return self.head
        to_ask = [each for each in questions if self.ask and each.gate.type is GateType.APPROVAL]
        self._say_ways(each for each in questions if each not in to_ask)
        while True:
            for line in self._look(questions):
                self.say(line)
            to_ask = [each for each in to_ask if each.gate.id not in self._answers]
            # What is left of the approvals is asked again when the run waits again.
            if self._now is not self.head or self._beside(questions) or (self._answers and not to_ask):
                return self._now
            if to_ask:
                self._ask(to_ask.pop(0), questions)
            else:
                self.pause(_LOOK_EVERY)

    def _beside(self, questions: Iterable[Question]) -> bool:
        """Tell whether something else than approvals has come, with which the run can go on by itself."""
        others = (each for each in questions if each.gate.type is not GateType.APPROVAL)
        return any(each.gate.id in self._answers for each in others)

    def _questions(self) -> list[Question]:
        while True:
            try:
                return read_questions(self.runs.store, self.head.at.head)[1]
            except StoreUnavailable as error:
                self._tell(error)
                self.pause(_AFTER_TROUBLE)

    def _look(self, questions: Iterable[Question]) -> list[str]:
        """Answer what the clock can answer, and return what is new since the last look."""
        news = []
        try:
            keys = self.head.at.head.keys
            # By one listing, however many questions there are.
            there = {listed.key for listed in self.runs.store.list(keys.inbox)}
            for each in questions:
                if each.gate.id in self._answers:
                    continue
                found = self._answer_to(each, there=keys.answer(each.gate.id) in there)
                if found is None:
                    continue
                self._answers[each.gate.id] = found
                news.append(f"{each.label} is {described(found)}")
            seen = self.runs.observe(self.head.at.head.keys, unless_etag=self.head.etag)
            if not isinstance(seen, Unchanged):
                self._now = seen
                news.append("the run has changed elsewhere")
            self._troubled = False
        except StoreUnavailable as error:
            self._tell(error)
        return news

    def _answer_to(self, question: Question, *, there: bool) -> Answer | None:
        if told := due(question.gate, self.runs.clock()):
            return give(self.runs, self.head.at.head, question, Said(told), by="")[0]
        return inbox.read(self.runs.store, self.head.at.head.keys, question.gate.id) if there else None

    def _ask(self, question: Question, questions: Iterable[Question]) -> None:
        assert self.ask is not None, "there is somebody to ask where there is something to ask"
        said = self.ask(question, lambda: "; ".join(self._look(questions)))
        if said is None:
            if question.gate.id not in self._answers and self._now is self.head:
                self._say_ways([question])
            return
        stands, ours = give(self.runs, self.head.at.head, question, said, self.by)
        self._answers[question.gate.id] = stands
        if not ours:
            self.say(f"{question.label} has its answer: {described(stands)}")

    def _say_ways(self, questions: Iterable[Question]) -> None:
        for each in questions:
            for line in ways_on(each, self.commands):
                self.say(line)

    def _tell(self, error: StoreUnavailable) -> None:
        if not self._troubled:
            self.say(f"{error}; still looking")
        self._troubled = True
