"""`milepost store check`: put a store through the probe, and say in one sentence what follows."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Final

import typer
from rich.table import Table
from rich.text import Text

from milepost.checkpoint.probe import THOROUGH, Outcome, Report, probe
from milepost.checkpoint.sending import Patience
from milepost.cli import show, stores
from milepost.cli.failing import FAILED, errors_console, fail
from milepost.cli.options import AsJson, CredentialsFolder, StoreUrl
from milepost.errors import MilepostError

__all__ = ["check"]

_STYLES: Final[Mapping[Outcome, str]] = {
    Outcome.PASSED: "green",
    Outcome.FAILED: "bold red",
    Outcome.NOT_APPLICABLE: "yellow",
}


def check(
    url: StoreUrl,
    credentials: CredentialsFolder = None,
    as_json: AsJson = False,  # noqa: FBT002  (a flag)
) -> None:
    """Find out whether a store can be trusted with runs.

    32 writers at once create one object, and replace one; exactly one of them may win, each time. Then
    single promises, and how long requests take. It writes below PREFIX/_probe/ only, and removes that again.
    It takes seconds, on some servers a minute. The exit code is 1 where the store must not be used.
    """
    errors = errors_console()
    try:
        opened = stores.opened(url, credentials, given_as="URL").store
        errors.print(f"checking {opened.uri} with {THOROUGH.writers} writers ...", soft_wrap=True)
        report = probe(opened, patience=Patience(os.urandom))
    except MilepostError as error:
        fail(errors, error)
    if as_json:
        typer.echo(json.dumps(report.as_json(), indent=2))
    else:
        show.print_table(_table(report))
    errors.print(_verdict(report), soft_wrap=True)
    if report.unsafe:
        raise typer.Exit(FAILED)


def _table(report: Report) -> Table:
    table = show.new_table("check", "outcome", "what was seen")
    for each in report.checks:
        table.add_row(
            each.name, Text(each.outcome, style=_STYLES[each.outcome]), _seen(each.detail, each.figures)
        )
    return table


def _seen(detail: str, figures: Mapping[str, float]) -> str:
    measured = ", ".join(f"{name} {value:g}" for name, value in figures.items())
    return f"{detail} ({measured})" if measured else detail


def _verdict(report: Report) -> Text:
    if not report.unsafe:
        return Text(f"{report.store} kept every promise that it was asked for", style="bold green")
    failed = ", ".join(each.name for each in report.unsafe)
    return Text(
        f"do not use {report.store}: {failed} failed, so two executors could both write one run; "
        "use another server, or a newer version of this one",
        style="bold red",
    )
