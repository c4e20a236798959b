"""What became of one run of an agent in a test, and how two of them differ, in words for people."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from milepost.checkpoint import codec, values
from milepost.checkpoint.gates import Decided
from milepost.checkpoint.head import Head
from milepost.checkpoint.history import load, read_records
from milepost.checkpoint.records import Finished, Record, StepCompleted, Value
from milepost.checkpoint.store import Store
from milepost.testing.ledger import Ledger
from milepost.testing.points import told

__all__ = ["Passed", "Ran", "came_to", "differences", "left_in", "records_of"]

_MAX_SHOWN: Final = 300
_MOST: Final = 12


@dataclass(frozen=True)
class Passed:
    """How a gate was passed: Approve, Deny, Event, Due, Expired or a decision; by whom, why, the answer."""

    type: str
    by: str
    reason: str
    answer: Any


@dataclass(frozen=True)
class Ran:
    """A run that has ended.

    `phase` is Succeeded, Failed or Cancelled; `reason` and `message` say why. `result` is the agent's,
    `steps` are the completed ones by their ids, each with its result: models and dataclasses are the data
    that they are stored as. `digests` are those of the steps' results, and under the empty name of the
    agent's. `gates` are those that it passed, by their places, each with what was decided. `effects` is what
    it left outside. `tokens` and `cost_usd` are what models used. `records` are its records in a few words,
    the first one's first; `attempts` is how many processes it took, and `log` what it said by `run.log`,
    where that is known.
    """

    phase: str
    reason: str
    message: str
    result: Any
    steps: Mapping[str, Any]
    digests: Mapping[str, str]
    gates: Mapping[str, Passed]
    effects: Any
    tokens: int = 0
    cost_usd: float = 0.0
    records: tuple[str, ...] = ()
    attempts: int = 1
    log: tuple[str, ...] = ()


def records_of(store: Store, head: Head) -> list[Record]:
    """Return a run's records."""
    return [record for _, lines in read_records(store, head) for record, _ in lines]


def came_to(store: Store, head: Head, effects: Any, attempts: int) -> Ran:
    """Return what a run has come to, its history verified as a resume would."""
    standing = load(store, head).completed
    records = records_of(store, head)

    def read(value: Value | None) -> Any:
        encoded = None if value is None else values.read(store, head.keys, value)
        return codec.undeclared(encoded)

    steps: dict[str, Any] = {}
    gates: dict[str, Passed] = {}
    result: Value | None = None
    for event in (event for record in records for event in record.events):
        match event:
            case StepCompleted(step=step) if step.id in standing:
                steps[step.id] = read(event.result)
            case Decided():
                gates[event.place] = Passed(event.type.value, event.by, event.reason, read(event.answer))
            case Finished():
                result = event.result
            case _:
                pass
    encoded = None if result is None else values.read(store, head.keys, result)
    return Ran(
        phase=head.phase.value,
        reason=head.reason,
        message=head.message,
        result=read(result),
        steps=dict(sorted(steps.items())),
        digests={step: place.result_digest for step, place in standing.items()} | {"": codec.digest(encoded)},
        gates=gates,
        effects=effects,
        tokens=head.totals.tokens,
        cost_usd=head.totals.cost_nano_usd / 1e9,
        records=tuple(told(record.events) for record in records),
        attempts=attempts,
    )


def left_in(world: Path) -> dict[str, Any]:
    """Return what the outside world holds: each file by its name, and what the ledger has applied."""
    ledger = Ledger.in_folder(world)
    found: dict[str, Any] = {
        str(file.relative_to(world)): _content(file)
        for file in sorted(world.rglob("*"))
        if file.is_file() and not file.name.startswith(ledger.file.name)
    }
    if ledger.file.exists():
        applied = [(each.key or "", json.dumps(each.what)) for each in ledger.received() if each.applied]
        # In no order: what runs side by side is applied in any.
        found["the ledger"] = [f"{key}: {what}" if key else what for key, what in sorted(applied)]
    return found


def _content(file: Path) -> Any:
    raw = file.read_bytes()
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


def differences(before: Ran, after: Ran) -> list[str]:
    """Return where the second run came to something else than the first, a line each; empty: nowhere."""
    found = []
    if (before.phase, before.reason) != (after.phase, after.reason):
        found.append(_line("the run", _ending(before), _ending(after)))
    if before.phase == after.phase and before.digests[""] != after.digests[""]:
        found.append(_line("its result", before.result, after.result))
    found += _in_mapping(
        "step", before.steps, after.steps, "completed", _other(before.digests, after.digests)
    )
    if isinstance(before.effects, Mapping) and isinstance(after.effects, Mapping):
        other = _other(before.effects, after.effects)
        found += _in_mapping("outside,", before.effects, after.effects, "there", other)
    elif before.effects != after.effects:
        found.append(_line("its effects", before.effects, after.effects))
    return found if len(found) <= _MOST else [*found[:_MOST], f"and {len(found) - _MOST} more"]


def _ending(ran: Ran) -> str:
    said = f" as {ran.reason}" if ran.reason not in ("", "Completed") else ""
    return f"{ran.phase}{said}" + (f" ({ran.message})" if ran.message else "")


def _other(before: Mapping[Any, Any], after: Mapping[Any, Any]) -> set[Any]:
    """Return what is in both, and not the same."""
    return {name for name in before if name in after and before[name] != after[name]}


def _in_mapping(
    what: str, before: Mapping[Any, Any], after: Mapping[Any, Any], there: str, other: set[Any]
) -> Iterator[str]:
    for name in [*before, *(name for name in after if name not in before)]:
        if name not in after:
            yield f"{what} {name} is not {there}"
        elif name not in before:
            yield f"{what} {name} is {there} only now: {_shown(after[name], None)}"
        elif name in other:
            yield _line(f"{what} {name}", before[name], after[name])


def _line(what: str, before: Any, after: Any) -> str:
    return f"{what} was {_shown(before, after)}, and is {_shown(after, before)}"


def _shown(value: Any, other: Any) -> str:
    """Return a value for people, cut; of a long one the part around the first difference."""
    text, beside = _text(value), _text(other)
    if len(text) <= _MAX_SHOWN:
        return text
    same = next((i for i, (a, b) in enumerate(zip(text, beside, strict=False)) if a != b), 0)
    start = max(0, same - _MAX_SHOWN // 3)
    return f"{'... ' if start else ''}{text[start : start + _MAX_SHOWN]} ..."


def _text(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        return repr(value)
