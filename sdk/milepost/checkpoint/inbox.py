"""The inbox of a run: what was said to it from outside, one object an answer, each written once.

The key is the gate's id, so the first answer stands, whoever else answers at the same moment. Executors read
it and never write it. It refuses nothing that the store accepts: whether somebody may answer, and whether an
answer fits, is for its writer to know and for the executor to check.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from milepost.api.names import StoreKeys
from milepost.checkpoint.answers import Done, Lost, Purpose, Write
from milepost.checkpoint.formats import NEWEST, Kind, checked, read_json, upgrade, write_json
from milepost.checkpoint.gates import AnswerType, event_gate_id
from milepost.checkpoint.sending import Patience, persist, send
from milepost.checkpoint.store import Found, Store
from milepost.errors import Corrupt

__all__ = ["Answer", "give", "read", "send_event"]

_MOST_EVENTS: Final = 10_000
"""Events of one name and key that a run can have in its inbox."""


@dataclass(frozen=True)
class Answer:
    """What opens a gate. `answer` is encoded by the codec; `at` is ISO 8601.

    `request_digest` is what its giver was shown; empty where nothing is shown.
    """

    gate: str
    type: AnswerType
    by: str
    at: str
    reason: str = ""
    answer: Any = None
    request_digest: str = ""


def read(store: Store, keys: StoreKeys, gate: str) -> Answer | None:
    """Return what was answered to the gate; None if nothing was yet.

    Raises Corrupt where the object is no answer to this gate, FormatTooNew, StoreUnavailable, StoreRefused.
    """
    key = keys.answer(gate)
    found = store.get(key)
    return _parsed(found, key, gate) if isinstance(found, Found) else None


def give(store: Store, keys: StoreKeys, answer: Answer, patience: Patience) -> Answer:
    """Answer a gate, and return the answer that stands: this one, or the one that was there before.

    Raises Corrupt, StoreUnavailable, StoreRefused, and ValueError where the answer is no JSON.
    """
    key = keys.answer(answer.gate)
    data = {"format": NEWEST[Kind.ANSWER], **asdict(answer)}
    outcome = send(store, Write(Purpose.ANSWER, key, write_json(data)), patience)
    if isinstance(outcome, Lost):
        return _parsed(outcome.found, key, answer.gate)
    assert isinstance(outcome, Done), "there is nothing else that an answer's write can come to"
    return answer


def send_event(
    store: Store, keys: StoreKeys, name: str, key: str | None, event: Answer, patience: Patience
) -> int:
    """Put an event where the next gate of its name and key that has none will find it; return its number.

    The gate need not be open yet. `event.gate` is set here. Raises as `give` does, and ValueError where
    there are too many.
    """
    taken = {listed.key for listed in persist(lambda: list(store.list(keys.inbox)), patience)}
    for number in range(1, _MOST_EVENTS + 1):
        answer = replace(event, gate=event_gate_id(name, key, number))
        if keys.answer(answer.gate) not in taken and give(store, keys, answer, patience) is answer:
            return number
    raise ValueError(f"there are {_MOST_EVENTS} events {name!r} in the inbox")


def _parsed(found: Found, key: str, gate: str) -> Answer:
    try:
        data = upgrade(Kind.ANSWER, read_json(found.body), key)
        answer = checked(Answer, {**data, "type": AnswerType(data["type"])})
    except (KeyError, TypeError, ValueError) as error:
        raise Corrupt(key, f"it is no answer: {error}") from error
    if answer.gate != gate:
        raise Corrupt(key, f"it answers gate {answer.gate}")
    return answer
