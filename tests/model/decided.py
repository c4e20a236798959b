"""What must hold of decisions and of effects that follow from them, read off a run's log, inbox and receiver.

Each decision that is recorded is the answer that lies in the inbox, each gate is decided once, and what the
agent returns is what it was told. An effect is repeated under a new key only where a record says that what
was done stands no more; an irreversible one only where a person has said that it did not happen.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from milepost.api.resource import Phase
from milepost.checkpoint.gates import AnswerType, Decided, GateOpened
from milepost.checkpoint.head import Head
from milepost.checkpoint.records import Event, Finished, Resumed, StepCompleted, Withdrawn
from tests.model.agents import APPROVAL

if TYPE_CHECKING:
    from tests.model.world import Applied

__all__ = ["BESIDE", "found_wrong", "labelled"]

BESIDE = "a step before it was withdrawn after it"
"""Why a step is withdrawn that nothing is wrong with."""

_ABOUT_CALLS = frozenset({AnswerType.DONE, AnswerType.NOT_DONE})


def labelled(step: str, generations: Mapping[str, int]) -> str:
    """Return the name of a step with its generation, as its keys have it."""
    return f"{step}~{generations[step]}" if generations.get(step) else step


def found_wrong(
    events: Sequence[Event],
    head: Head,
    answers: Mapping[str, bytes],
    effects: Sequence[Applied],
    made: Sequence[str],
) -> str:
    """Return what does not hold, or nothing. `answers` is the inbox, `made` are irreversible calls."""
    checks = (
        _decided_as_answered(events, head, answers),
        _facts_once(events),
        _anew_where_said(events, head, effects),
        _made_once(events, head, made),
        _approved_first(events, head, made),
        _told(events),
    )
    return next((wrong for check in checks for wrong in check), "")


def _decided_as_answered(events: Sequence[Event], head: Head, answers: Mapping[str, bytes]) -> Iterator[str]:
    for decided in _once(events, Decided):
        yield f"I9: gate {decided} is decided twice"
    for event in events:
        if not isinstance(event, Decided):
            continue
        body = answers.get(head.keys.answer(event.gate))
        if body is None:
            yield f"I9: gate {event.place} is decided, and nobody has answered"
            continue
        given = json.loads(body)
        said = None if event.answer is None else event.answer.inline
        if (given["type"], given["by"], given["answer"]) != (event.type, event.by, said):
            yield f"I9: gate {event.place} is decided by {event.by}, {event.type}, and the inbox has {given}"


def _facts_once(events: Sequence[Event]) -> Iterator[str]:
    for fact in _once(events, StepCompleted):
        yield f"D6: fact {fact} is adopted twice"


def _once(events: Sequence[Event], kind: type[Decided | StepCompleted]) -> Iterator[str]:
    """Yield the gates that are decided, or the facts that are adopted, twice in one execution."""
    seen: set[str] = set()
    for event in events:
        if isinstance(event, Resumed) and event.strategy == "RestartWithContext":
            seen.clear()
        if not isinstance(event, kind):
            continue
        name = event.gate if isinstance(event, Decided) else event.adopted
        if name and name in seen:
            yield name
        seen.add(name)


def _anew_where_said(events: Sequence[Event], head: Head, effects: Sequence[Applied]) -> Iterator[str]:
    """A generation in a key is one that the log has: by withdrawals, and by beginnings anew."""
    generations: Counter[str] = Counter()
    completed: set[str] = set()
    for event in events:
        match event:
            case StepCompleted(step=place):
                completed.add(place.id)
            case Withdrawn(step=step_id, anew=anew):
                completed.discard(step_id)
                generations[step_id] += anew
            case Resumed(strategy="RestartWithContext"):
                generations.update(completed)
                completed.clear()
            case _:
                pass
    for effect in effects:
        step, _, generation = effect.step.partition("~")
        if effect.key.startswith(head.key_root) and int(generation or 0) > generations[step]:
            yield f"D5: step {step} was done under a new key, and no record says that it is to be"
    yield from _again_for_nothing(events, effects)


def _again_for_nothing(events: Sequence[Event], effects: Sequence[Applied]) -> Iterator[str]:
    """What stands after a step that was withdrawn is done again only where its arguments are others."""
    checked = {event.step for event in events if isinstance(event, Withdrawn) and event.reason != BESIDE}
    done: Counter[tuple[str, str]] = Counter()
    for effect in effects:
        step = effect.step.partition("~")[0]
        done[step, effect.arguments] += step not in checked
    yield from (
        f"D5: step {step} was done again, and nothing of it had changed"
        for (step, _), times in done.items()
        if times > 1
    )


def _made_once(events: Sequence[Event], head: Head, made: Sequence[str]) -> Iterator[str]:
    again = Counter(
        event.place for event in events if isinstance(event, Decided) and event.type is AnswerType.NOT_DONE
    )
    ours = (key.partition("/")[2].partition("~")[0] for key in made if key.startswith(head.key_root))
    for step, times in Counter(ours).items():
        if times > 1 + again[step]:
            yield f"E3: the irreversible call of step {step} was made {times} times"


def _approved_first(events: Sequence[Event], head: Head, made: Sequence[str]) -> Iterator[str]:
    approved = {
        event.gate for event in events if isinstance(event, Decided) and event.type is AnswerType.APPROVE
    }
    if f"{head.key_root}/{APPROVAL}" in made and not approved:
        yield f"I9: the call of step {APPROVAL} was made, and nobody has approved it"


def _told(events: Sequence[Event]) -> Iterator[str]:
    """The agent returns what it was told at its gates, in order."""
    last = events[-1]
    if not isinstance(last, Finished) or last.phase is not Phase.SUCCEEDED:
        return
    began = 0
    for place, event in enumerate(events):
        if isinstance(event, Resumed) and event.strategy == "RestartWithContext":
            began = place
    told = [
        event.answer.inline if event.type is AnswerType.EVENT and event.answer else f"{event.type} {event.by}"
        for event in events[began:]
        if isinstance(event, Decided) and event.type not in (*_ABOUT_CALLS, AnswerType.DUE)
    ]
    result = last.result.inline if last.result else None
    if result is None:
        # It returns nothing, whatever it was told.
        return
    waited = told or any(isinstance(event, GateOpened) for event in events[began:])
    if waited and result != told:
        yield f"I9: the agent returned {result}, and was told {told}"
