"""Bases: the state folded up to a record, stored so that a resume need not fold everything again.

A base says of each completed step where it is recorded, and holds no result. It is a cache: whoever finds
one damaged takes the one before, or folds from record 1, and comes to the same state. It also tells which
steps there were where the records themselves are lost. Nothing here does I/O.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ConfigDict, TypeAdapter

from milepost.api.names import StoreKeys
from milepost.api.resource import Phase
from milepost.checkpoint.fold import Place, State, parse_totals
from milepost.checkpoint.formats import NEWEST, Kind, write_json
from milepost.checkpoint.gates import parse_gate
from milepost.checkpoint.records import (
    Finished,
    Halted,
    Started,
    dump_event,
    parse_event,
)
from milepost.checkpoint.sealed import Segment, header_of
from milepost.errors import Corrupt

__all__ = ["KEPT", "Base", "base_due", "base_key", "make_base", "parse_base"]

KEPT: Final = 3
"""Bases that a head names: where the newest is damaged, one of the two before it serves."""

_LEAST: Final = 256 * 1024
_RATIO: Final = 4
"""A base is due once so many times its own size was sealed after it. So what is written for bases stays in
proportion to the records, at most half of it, and a resume folds a bounded part of the history anew."""


_LATER: Final[Mapping[str, TypeAdapter[Any]]] = {
    name: TypeAdapter(kind, config=ConfigDict(strict=True))
    for name, kind in (
        ("once", dict[str, int]),
        ("failed_at", dict[str, int]),
        ("skipped", dict[str, str]),
        ("decisions", dict[str, int]),
        ("generations", dict[str, int]),
        ("withdrawn", dict[str, int]),
        ("executions", int),
        ("plans", int),
        ("halted_at", str),
        ("revalidate", int),
        ("environment", dict[str, str]),
        ("memory", int),
        ("memory_at_restart", int),
        ("degraded", dict[str, list[str]]),
        ("began_with", str),
        ("code", str),
        ("revalidated", list[str]),
        ("proved_ends", list[int]),
        ("closed_groups", list[str]),
        ("adopted", list[str]),
        ("codes", list[str]),
    )
}
"""What of a state a base holds only where there is something to hold."""


@dataclass(frozen=True)
class Base:
    """A base as the head names it. `digest` is the SHA-256 of the whole object, `size` its bytes."""

    epoch: int
    seq: int
    nonce: str
    size: int
    digest: str


def base_key(keys: StoreKeys, named: Base) -> str:
    """Return the key of a run's base."""
    return keys.base(named.epoch, named.seq, named.nonce)


def base_due(segments: Sequence[Segment], bases: Sequence[Base], *, ending: bool) -> bool:
    """Tell whether a base is worth writing: enough was sealed since the last, or, at the end, anything."""
    newest = bases[-1] if bases else None
    after = newest.seq if newest else 0
    unread = sum(_share_after(segment, after) for segment in segments)
    if ending:
        return unread > 0
    return unread >= max(_LEAST, _RATIO * newest.size if newest else 0)


def _share_after(segment: Segment, seq: int) -> float:
    """Return how many of a segment's bytes belong to records after `seq`, as if all were of one size."""
    records = segment.last - segment.first + 1
    return segment.size * max(0, min(records, segment.last - seq)) / records


def make_base(state: State, keys: StoreKeys, nonce: str) -> tuple[Base, bytes]:
    """Return the base of a state that has begun."""
    assert state.started is not None, "record 1 is `started`"
    data = {
        "format": NEWEST[Kind.BASE],
        "run_id": keys.run_id,
        "epoch": state.epoch,
        "seq": state.seq,
        "nonce": nonce,
        "chain": state.digest,
        "phase": state.phase,
        "totals": {**vars(state.totals), "ends": dict(state.totals.ends)},
        "started": dump_event(state.started),
        "completed": [[step, *place] for step, place in state.completed.items()],
        "open": [
            *(dump_event(failure) for failures in state.failed.values() for failure in failures),
            *(dump_event(call) for calls in state.calls.values() for call in calls.values()),
            # After the calls: one that was made before says nothing of what is intended now.
            *(dump_event(intent) for intents in state.intents.values() for intent in intents.values()),
        ],
        **{name: _plain(value) for name in _LATER if (value := getattr(state, name))},
        "gates": [gate._asdict() for gate in state.gates.values()],
        "facts": [[step, *place] for step, place in state.facts.items()],
        "outcome": dump_event(state.outcome) if state.outcome else None,
    }
    body = write_json(data)
    named = Base(state.epoch, state.seq, nonce, len(body), hashlib.sha256(body).hexdigest())
    return named, body


def _completed(step: Any, seq: Any, digest: Any, after: Any = None) -> tuple[str, Place]:
    if not (isinstance(step, str) and isinstance(seq, int) and isinstance(digest, str)):
        raise TypeError("a completed step is not a name, a record and a digest")
    if not isinstance(after, str | None):
        raise TypeError("a completed step does not name the one before it")
    return step, Place(seq, digest, after)


def _plain(value: Any) -> Any:
    return sorted(value) if isinstance(value, set) else value


def _later(data: Mapping[str, Any], state: State) -> None:
    """Set what a base holds only where there is something to hold. Raises KeyError, TypeError, ValueError."""
    for name, kind in _LATER.items():
        if name in data:
            value = kind.validate_python(data[name])
            setattr(state, name, set(value) if isinstance(getattr(state, name), set) else value)
    state.gates = {gate.id: gate for gate in map(parse_gate, data.get("gates", ()))}
    state.facts = dict(_completed(*fact) for fact in data.get("facts", ()))


def parse_base(body: bytes, named: Base, keys: StoreKeys) -> State:
    """Return the state in a base. Raises Corrupt if it is not the one named, FormatTooNew."""
    key = base_key(keys, named)
    if hashlib.sha256(body).hexdigest() != named.digest:
        raise Corrupt(key, "it does not match the digest in the head")
    data = header_of(body, Kind.BASE, key)
    if (data.get("run_id"), data.get("seq"), data.get("epoch")) != (keys.run_id, named.seq, named.epoch):
        raise Corrupt(key, f"it is the base of record {data.get('seq')} of run {data.get('run_id')}")
    try:
        started, outcome = parse_event(data["started"]), data["outcome"] and parse_event(data["outcome"])
        if not isinstance(started, Started) or not isinstance(data["chain"], str):
            raise TypeError("it does not say how the run began, or where its records end")  # noqa: TRY301  (one reaction to every wrong shape)
        state = State(
            seq=named.seq,
            epoch=named.epoch,
            digest=data["chain"],
            phase=Phase(data["phase"]),
            totals=parse_totals(data["totals"]),
            started=started,
            outcome=outcome if isinstance(outcome, Finished | Halted) else None,
        )
        for completed in data["completed"]:
            state.complete(*_completed(*completed))
        for event in map(parse_event, data["open"]):
            state.leave_open(event)
        _later(data, state)
    except (KeyError, TypeError, ValueError) as error:
        raise Corrupt(key, f"the base has a wrong shape: {error}") from error
    return state
