"""The commands that answer a run: `approve`, `deny`, `signal` and `decide`. Each writes one object, once.

What is asked is read first and what is said is checked against it, so that nothing is written that cannot
stand. No command starts anything: a runner or an operator that looks after the run goes on by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Final

import typer
from rich.console import Console

from milepost.api.resource import Phase
from milepost.checkpoint.gates import AnswerType, GateType
from milepost.checkpoint.runs import HeadSeen, Runs, require_head
from milepost.cli import stores
from milepost.cli.failing import errors_console, fail
from milepost.cli.options import Namespace, Reason, RunName, StoreOption
from milepost.cli.visible import visible
from milepost.errors import InvalidRun, MilepostError
from milepost.local.answering import OPTIONS, Said, Sent, answer, choose, decide, refuse_ended, send, who
from milepost.local.closing import end_run, note_outcome
from milepost.local.fitting import answer_in

__all__ = ["approve", "decide_run", "deny", "signal"]

_CANCEL: Final = "cancel"
_GOES_ON: Final = "a runner that waits for it goes on by itself, and else `milepost run` does"

GateName = Annotated[
    str,
    typer.Argument(metavar="GATE", help="The gate: its name, NAME=KEY where it has a key, or its id."),
]


def approve(
    run: RunName,
    gate: GateName,
    text: Annotated[
        str | None,
        typer.Option("--answer", metavar="JSON", help="The answer, where the gate asks for one."),
    ] = None,
    reason: Reason = "",
    store: StoreOption = stores.DEFAULT,
    namespace: Namespace = "",
) -> None:
    """Approve what a run asks for; `milepost gates` shows what that is.

    An answer is JSON and has to fit the gate's schema; text may be given without its quotes. The first
    answer stands, whoever gives it.
    """
    with _ready(store, namespace, run) as (errors, runs, known):
        question = choose(runs, known.head, gate, GateType.APPROVAL)
        given = answer_in(question.gate.answer_schema, text, "--answer")
        answer(runs, known.head, question, Said(AnswerType.APPROVE, reason, given), who())
        _tell(errors, f"{known.name}: {question.label} is approved; {_GOES_ON}")


def deny(
    run: RunName,
    gate: GateName,
    reason: Reason = "",
    store: StoreOption = stores.DEFAULT,
    namespace: Namespace = "",
) -> None:
    """Deny what a run asks for. Its agent learns by whom and why, and decides what to do without it."""
    with _ready(store, namespace, run) as (errors, runs, known):
        question = choose(runs, known.head, gate, GateType.APPROVAL)
        answer(runs, known.head, question, Said(AnswerType.DENY, reason), who())
        _tell(errors, f"{known.name}: {question.label} is denied; {_GOES_ON}")


def signal(
    run: RunName,
    event: Annotated[str, typer.Argument(metavar="EVENT", help="The event's name.")],
    key: Annotated[
        str | None, typer.Option("--key", metavar="KEY", help="Which of the events of this name.")
    ] = None,
    data: Annotated[str | None, typer.Option("--data", metavar="JSON", help="What comes with it.")] = None,
    store: StoreOption = stores.DEFAULT,
    namespace: Namespace = "",
) -> None:
    """Send a run an event. One that comes before the run waits for it is kept, and so is each further one.

    Data is JSON; where the run waits for the event it has to fit what is waited for.
    """
    with _ready(store, namespace, run) as (errors, runs, known):
        sent = send(runs, known.head, event, key, data, who())
        what = event if key is None else f"{event}={key}"
        kept = _GOES_ON if sent.awaited else _kept(sent)
        _tell(errors, f"{known.name}: event {what} is sent; {kept}")


def _kept(sent: Sent) -> str:
    others = f"; the run waits for {', '.join(sent.events)}" if sent.events else ""
    return f"nothing waits for it yet, so it is kept, as number {sent.number} of its name{others}"


def decide_run(
    run: RunName,
    decision: Annotated[str, typer.Argument(metavar="DECISION", help=" | ".join([*OPTIONS, _CANCEL]) + ".")],
    result: Annotated[
        str | None,
        typer.Option("--result", metavar="JSON", help="With done: what the call returned, or would have."),
    ] = None,
    reason: Reason = "",
    store: StoreOption = stores.DEFAULT,
    namespace: Namespace = "",
) -> None:
    """Decide how a run goes on that has halted; `milepost gates` shows why it did and what can be decided.

    `accept` goes on as things are now, `revalidate` checks what is recorded once more, and
    `restart-with-context` begins anew with what is recorded as given facts. `done` and `not-done` say
    whether a call happened whose outcome nobody knows. `cancel` ends a run in any state, for good.
    """
    with _ready(store, namespace, run) as (errors, runs, known):
        if decision == _CANCEL:
            _end(runs, known, reason)
            _tell(errors, f"{known.name}: ended as {Phase.CANCELLED}")
        elif decision in OPTIONS:
            decide(runs, known.head, decision, result, reason, who())
            _tell(errors, f"{known.name}: {decision} is decided; `milepost run` goes on with it")
        else:
            raise InvalidRun("DECISION", f"{decision!r} is none of {', '.join([*OPTIONS, _CANCEL])}")


def _end(runs: Runs, known: stores.Known, reason: str) -> None:
    refuse_ended(known.head)
    seen = require_head(runs.observe(known.head.keys), known.head.keys)
    assert isinstance(seen, HeadSeen), "Unchanged answers only who names an ETag"
    by = f"ended by {who()}"
    told = f"{by}: {reason}" if reason else by
    note_outcome(runs, end_run(runs, seen, phase=Phase.CANCELLED, reason="Cancelled", message=told))


@contextmanager
def _ready(store: str, namespace: str, run: str) -> Iterator[tuple[Console, Runs, stores.Known]]:
    """Give what a command works with, and end it with a message where it cannot do what it was asked."""
    errors = errors_console()
    try:
        runs = stores.opened(store)
        yield errors, runs, stores.find(runs, namespace, run, given_as="RUN")
    except MilepostError as error:
        fail(errors, error)


def _tell(errors: Console, text: str) -> None:
    errors.print(visible(text), markup=False, soft_wrap=True)
