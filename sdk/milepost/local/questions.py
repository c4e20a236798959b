"""The open gates of a run as questions: what is asked, of whom, until when, and by what name to answer.

Nothing is written here. What a person is shown comes out of the run's own record, whole: nothing of it is
left out or made up, since what was approved is what was shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from milepost.checkpoint import codec, inbox, values
from milepost.checkpoint.archive import Archive
from milepost.checkpoint.gates import AnswerType, Gate, GateAt, GateOpened
from milepost.checkpoint.head import Head
from milepost.checkpoint.history import HeadAt, consistently
from milepost.checkpoint.inbox import Answer
from milepost.checkpoint.records import Halted
from milepost.checkpoint.store import Store
from milepost.errors import Corrupt, Missing

__all__ = ["ANSWERED", "Question", "label_of", "labels", "read_questions"]

ANSWERED: Final = {
    AnswerType.APPROVE: "approved",
    AnswerType.DENY: "denied",
    AnswerType.EVENT: "sent",
    AnswerType.DUE: "due",
    AnswerType.EXPIRED: "expired",
    AnswerType.ACCEPT: "decided: accept",
    AnswerType.REVALIDATE: "decided: revalidate",
    AnswerType.RESTART_WITH_CONTEXT: "decided: restart-with-context",
    AnswerType.DONE: "decided: done",
    AnswerType.NOT_DONE: "decided: not-done",
}
"""What became of a gate, by its answer."""


@dataclass(frozen=True)
class Question:
    """An open gate. `label` names it among the run's open gates; `request` is what is asked, for people.

    `answer` is what lies in the inbox already; the run's next executor takes it from there.
    """

    gate: Gate
    label: str
    request: Any = None
    answer: Answer | None = None

    @property
    def needs_answer(self) -> bool:
        """Whether whoever says yes has to say more than that."""
        return self.gate.answer_schema is not None


def read_questions(store: Store, head: Head) -> tuple[Head, list[Question]]:
    """Return the run's open gates, in the order in which they were opened, with the head that has them.

    Raises Missing, Corrupt, naming the object, FormatTooNew, StoreUnavailable, StoreRefused.
    """

    def read(at: HeadAt) -> tuple[Head, list[Question]]:
        archive = Archive(store, at.head.keys)
        names = labels(at.head.gates)
        return at.head, [_question(store, at.head, archive, each, names[each.id]) for each in at.head.gates]

    found = consistently(store, head.keys, read)
    if found is None:
        raise Missing(head.keys.head, "it was there a moment ago, and is gone")
    return found


def labels(gates: Iterable[GateAt]) -> dict[str, str]:
    """Return by what name each gate is told from the others: `name`, `name=key`, or else its place."""
    known = {gate.id: gate for gate in gates}
    short = {gate.id: label_of(gate.name, gate.key) for gate in known.values()}
    often = Counter(short.values())
    return {name: label if often[label] == 1 else known[name].place for name, label in short.items()}


def label_of(name: str, key: str | None) -> str:
    """Return a gate's name, with its key if it has one."""
    return name if key is None else f"{name}={key}"


def _question(store: Store, head: Head, archive: Archive, at: GateAt, label: str) -> Question:
    gate = _gate(head, archive, at)
    request = None
    if gate.request is not None:
        request = codec.plain(values.read(store, head.keys, gate.request, of=f"request of gate {label}"))
    return Question(gate, label, request, inbox.read(store, head.keys, gate.id))


def _gate(head: Head, archive: Archive, at: GateAt) -> Gate:
    for event in archive.record(head, at.seq).events:
        match event:
            case GateOpened(gate=gate) | Halted(gate=Gate() as gate) if gate.id == at.id:
                return gate
            case _:
                pass
    raise Corrupt(head.keys.head, f"record {at.seq} does not open gate {at.id}, as the head says")
