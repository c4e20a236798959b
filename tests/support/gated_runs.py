"""Runs of the gated agents, brought to their gates by real executors, and the command line on their store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from typer.testing import CliRunner, Result

from milepost.checkpoint.history import HeadAt, read_head
from milepost.cli.app import app
from milepost.local.questions import Question, read_questions
from milepost.local.runner import Outcome, run_here
from tests.support.local_runs import Desk, a_manifest

__all__ = ["bring", "command", "errors_of", "questions"]


def bring(desk: Desk, agent: str, *, environ: Mapping[str, str] | None = None, **spec: Any) -> Outcome:
    """Bring the run as far as it goes without an answer: to its end, a halt, or where it waits."""

    def leave(_: float) -> None:
        raise KeyboardInterrupt

    here = desk.here()
    here = replace(here, pause=leave, user="ann", environ={**here.environ, **(environ or {})})
    return run_here(a_manifest(f"gated:{agent}", name=agent, **spec), here)


def command(desk: Desk, *arguments: str) -> Result:
    """Call the command line, as whoever is logged in."""
    return CliRunner().invoke(app, [*arguments, "--store", desk.store.uri])


def errors_of(result: Result) -> str:
    """Return what was said, after a command that could not do what it was asked."""
    assert (result.exit_code != 0, result.stdout) == (True, "")
    return result.stderr


def questions(desk: Desk, outcome: Outcome) -> list[Question]:
    """Return the gates that are open."""
    seen = read_head(desk.store, desk.keys(outcome))
    assert isinstance(seen, HeadAt)
    return read_questions(desk.store, seen.head)[1]
