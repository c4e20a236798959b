"""How a command ends that could not do what it was asked: a line on standard error, and an exit code."""

from __future__ import annotations

from typing import Final, NoReturn

import typer
from rich.console import Console

from milepost.checkpoint import owner
from milepost.cli.visible import visible
from milepost.errors import Damaged, InvalidRun, MilepostError

__all__ = ["FAILED", "WRONG", "errors_console", "fail"]

FAILED: Final = 1
WRONG: Final = 2
"""The call or the manifest is wrong."""

_DAMAGED: Final = (
    "`milepost store verify` says what can be trusted, and `milepost store repair` goes on from what is left"
)


def errors_console() -> Console:
    """Return where everything goes that is not the answer: standard error."""
    return Console(stderr=True, highlight=False)


def fail(errors: Console, error: MilepostError) -> NoReturn:
    """Say what went wrong, and end the command."""
    wrong_call = isinstance(error, InvalidRun)
    who = "milepost" if wrong_call else type(error).__name__
    errors.print(visible(f"{who}: {error}"), style="bold red", markup=False, soft_wrap=True)
    # Of what no run's history names a repair knows nothing.
    if isinstance(error, Damaged) and error.key != owner.KEY:
        errors.print(_DAMAGED, soft_wrap=True)
    raise typer.Exit(WRONG if wrong_call else FAILED) from error
