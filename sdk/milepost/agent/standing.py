"""Whether what is recorded of a step still stands: in its order, with its inputs, by the author's own check.

A record is withdrawn by a record, and never silently: because the author's `valid` says no in a resume that
revalidates, or because a step before it in the agent's code was withdrawn after it. What an irreversible
tool did stands for ever.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Final

from milepost.agent.asking import ask
from milepost.agent.branch import Branch
from milepost.agent.failures import message_of, qualified
from milepost.agent.journal import Journal
from milepost.api.names import step_component
from milepost.checkpoint import codec
from milepost.checkpoint.gates import AnswerType
from milepost.checkpoint.records import Input, StepCompleted, StepPlace, Usage, Withdrawn

__all__ = ["adopt", "check_end", "check_order", "standing"]

MAX_SHOWN: Final = 300
"""Characters of an input that a diff shows."""

_CAUSES: Final = (
    "the usual causes are the time, chance, the environment, a file or a service read outside of a step; "
    "what the code branches on has to go through run.now(), run.random() or a step"
)


async def check_order(
    journal: Journal, branch: Branch, place: StepPlace, recorded: StepCompleted | None
) -> None:
    """Return if the code comes to this step where the log has it. Else halt, or note it of other code.

    A step that is not recorded must not stand where another one is recorded.
    """
    if branch.stale_before or place.after is None:
        return
    if recorded is not None:
        before = recorded.step.after
        if before is None or before == place.after:
            return
        was = f"followed {_named(before)} when it was recorded"
        what = f"step {place.id} follows {_named(place.after)} now, and {was}"
    else:
        other = journal.recorded_after(place.branch, place.after)
        if not other or other == place.id:
            return
        here = _named(place.after)
        what = f"after {here} the code comes to step {place.id}, and the log has step {other} there"
    await _diverged(journal, place.id, what)


async def check_end(journal: Journal, branch: Branch) -> None:
    """Return if a branch's code ends where the log has it end, as far as that goes. Else as `check_order`."""
    other = journal.recorded_after(branch.path, branch.last)
    if branch.stale_before or not other or branch.has_come_to(other):
        return
    what = f"after {_named(branch.last)} the code comes to its end, and the log has step {other} there"
    await _diverged(journal, other, what)


async def _diverged(journal: Journal, place: str, what: str) -> None:
    if not journal.rules.same_code:
        journal.note("Diverged", f"{what}; the code is another one than the one that recorded it")
        return
    message = f"{what}, by the same code: {_CAUSES}"
    await _ask(journal, "Diverged", message, place, {"what": what})


def _named(step: str) -> str:
    return f"step {step}" if step else "the beginning"


async def standing(
    journal: Journal,
    branch: Branch,
    recorded: StepCompleted,
    place: StepPlace,
    *,
    inputs: Callable[[], tuple[Input, ...]],
    read: Callable[[], Awaitable[Any]],
    valid: Callable[[Any], Awaitable[bool]] | None,
    stale_before: int,
    once: bool,
) -> StepCompleted | None:
    """Return the record if it stands; None once it was withdrawn. Halts where a person has to decide.

    Before record `stale_before` a step was withdrawn on which this one may rest. `once`: what the step did
    can neither be repeated nor taken back.
    """
    seq = journal.state.completed[place.id].seq
    if seq < stale_before:
        if once:
            await _check_inputs(journal, recorded, inputs())
            return recorded
        # With other inputs it is another effect, for which the keys of the last one cannot be used.
        anew = _digests(recorded.inputs) != _digests(inputs())
        await _withdraw(journal, place.id, "a step before it was withdrawn after it", anew=anew)
        return None
    await check_order(journal, branch, place, recorded)
    await _check_inputs(journal, recorded, inputs())
    if valid is None or seq >= journal.state.revalidate or branch.path in journal.checked:
        return recorded
    why = await _fault(journal, read, valid)
    if not why:
        return recorded
    if once:
        message = f"step {place.id} cannot be taken back, and {why}"
        # Not the check's own words: an error's may be others each time.
        about: codec.JSON = {"step": place.id, "result": recorded.result_digest}
        await ask(journal, "NotValid", message, place=place.id, about=about, options=(AnswerType.ACCEPT,))
        return recorded
    await _withdraw(journal, place.id, why, anew=True)
    return None


async def _fault(
    journal: Journal, read: Callable[[], Awaitable[Any]], valid: Callable[[Any], Awaitable[bool]]
) -> str:
    """Return why the author's check does not accept the recorded result; empty where it does."""
    result = await read()
    try:
        with journal.under_way():
            said: object = valid(result)
            # A plain function says it at once. That it is not async would be a no, and undo what stands.
            holds = await said if inspect.isawaitable(said) else said
            return "" if holds else "its recorded result is not valid any more"
    except Exception as error:  # noqa: BLE001  (the author's check; that it cannot say yes is a no)
        return f"checking its recorded result raised {qualified(error)}: {message_of(error)}"


async def _withdraw(journal: Journal, step: str, reason: str, *, anew: bool) -> None:
    await journal.may_go_on()
    await journal.commit(Withdrawn(step=step, reason=reason, anew=anew))


async def _check_inputs(journal: Journal, recorded: StepCompleted, today: tuple[Input, ...]) -> None:
    before, now = _digests(recorded.inputs), _digests(today)
    if before == now:
        return
    step = recorded.step.id
    diff = _diff(recorded.inputs, today)
    message = f"step {step} has other inputs than those that its result is recorded for: {diff}"
    # Not today's inputs, which may be others each time: what is decided is whether the record stands.
    await _ask(journal, "InputsChanged", message, step, {"step": step, "recorded": before})


async def _ask(journal: Journal, reason: str, message: str, place: str, about: codec.JSON) -> None:
    """Return if what is recorded is accepted as it is; else the run halts, or begins anew."""
    options = [AnswerType.ACCEPT, *([AnswerType.RESTART_WITH_CONTEXT] if journal.may_restart else [])]
    decided = await ask(journal, reason, message, place=place, about=about, options=options)
    if decided.type is AnswerType.RESTART_WITH_CONTEXT:
        await journal.restart(decided.gate)


def _digests(inputs: tuple[Input, ...]) -> list[str]:
    return [each.digest for each in inputs]


def _diff(before: tuple[Input, ...], now: tuple[Input, ...]) -> str:
    """Return what is different, for people: argument by argument, as JSON."""
    said = (
        [] if len(before) == len(now) else [f"{len(before)} arguments were recorded and there are {len(now)}"]
    )
    for number, (old, new) in enumerate(zip(before, now, strict=False), start=1):
        if old.digest != new.digest:
            said.append(f"argument {number} was {_shown(old, new)} and is {_shown(new, old)}")
    return "; ".join(said)


def _shown(value: Input, other: Input) -> str:
    if value.inline is None:
        made = f" the result of step {value.result_of}," if value.result_of else ""
        return f"a large value,{made} digest {value.digest[:12]}"
    text = codec.dumps(value.inline.inline).decode("utf-8", "replace")
    if len(text) <= MAX_SHOWN:
        return text
    # Of a long text the part around the first difference.
    beside = codec.dumps(other.inline.inline).decode("utf-8", "replace") if other.inline else ""
    same = next((i for i, (a, b) in enumerate(zip(text, beside, strict=False)) if a != b), 0)
    start = max(0, same - MAX_SHOWN // 3)
    return f"{'... ' if start else ''}{text[start : start + MAX_SHOWN]} ..."


async def adopt(journal: Journal, place: StepPlace, inputs: tuple[Input, ...]) -> StepCompleted | None:
    """Return this step's new record if a step of the execution before a restart is the same; else None.

    The same: of the same name and key, with the same inputs, and taken by no other step yet.
    """
    for fact in journal.facts_like(step_component(place.name, key=place.key)):
        recorded = await journal.fact(fact)
        if _digests(recorded.inputs) != _digests(inputs):
            continue
        if not journal.take_fact(fact):
            continue
        # What it used up is counted with the step that was executed.
        adopted = recorded.model_copy(update={"step": place, "adopted": fact, "usage": Usage()})
        await journal.may_start()
        await journal.commit(adopted)
        return adopted
    return None
