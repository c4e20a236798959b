"""`milepost gates`: what a run waits for, with exactly what is asked."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import typer

from milepost.checkpoint.gates import GateType
from milepost.cli import stores
from milepost.cli.failing import errors_console, fail
from milepost.cli.options import AsJson, Namespace, RunName, StoreOption
from milepost.cli.visible import indented, visible
from milepost.errors import MilepostError
from milepost.local.answering import described, when
from milepost.local.questions import Question, read_questions
from milepost.local.ways import Commands, ways_on

__all__ = ["gates", "in_full"]


def gates(
    run: RunName,
    store: StoreOption = stores.DEFAULT,
    namespace: Namespace = "",
    as_json: AsJson = False,  # noqa: FBT002  (a flag)
) -> None:
    """Show what a run waits for: the whole request, what an answer has to look like, and how to give it.

    A run that has halted where somebody can decide is shown with why it did. Times are UTC.
    """
    errors = errors_console()
    try:
        runs = stores.opened(store)
        known = stores.find(runs, namespace, run, given_as="RUN")
        head, questions = read_questions(runs.store, known.head)
    except MilepostError as error:
        fail(errors, error)
    if as_json:
        typer.echo(json.dumps([_data(each) for each in questions], indent=2))
        return
    if not questions:
        why = ": ".join(filter(None, [head.reason, head.message]))
        told = f"{run} waits for nothing; it is {head.phase}" + (f" ({why})" if why else "")
        errors.print(visible(told), markup=False, soft_wrap=True)
        return
    commands = Commands(run, stores.options_for(store, namespace))
    for each in questions:
        message = f"{head.reason}: {head.message}" if each.gate.type is GateType.HALT else ""
        typer.echo("\n".join(in_full(each, commands, message=message)) + "\n")


def in_full(question: Question, commands: Commands, *, message: str = "") -> list[str]:
    """Return all there is to know of a gate, as lines."""
    gate = question.gate
    kind = "" if gate.type is GateType.SLEEP else f"{gate.type.value.lower()} "
    lines = [visible(f"{kind}{question.label}  (id {gate.id}, since {when(gate.since)})")]
    if message:
        lines += [f"  {line}" for line in visible(message).splitlines()]
    if gate.request is not None:
        lines += ["request:", *indented(question.request)]
    if gate.answer_schema is not None:
        lines += ["answer, as JSON Schema:", *indented(gate.answer_schema)]
    if question.answer is not None:
        return [*lines, visible(f"{described(question.answer)}; the run's next executor goes on with it")]
    return [*lines, *map(visible, ways_on(question, commands))]


def _data(question: Question) -> dict[str, Any]:
    gate = question.gate
    return {
        "id": gate.id,
        "type": gate.type,
        "name": gate.name,
        "key": gate.key,
        "label": question.label,
        "place": gate.place,
        "since": gate.since,
        "until": gate.until,
        "request": question.request,
        "request_digest": gate.request_digest,
        "answer_schema": gate.answer_schema,
        "options": list(gate.options),
        "answer": asdict(question.answer) if question.answer else None,
    }
