"""`milepost needs`: which open runs still need a tool, so that it must not leave the image yet."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Annotated

import typer
from rich.text import Text

from milepost.api.names import StoreKeys
from milepost.checkpoint.fold import State
from milepost.checkpoint.head import Head
from milepost.checkpoint.history import HeadAt, consistently, load
from milepost.checkpoint.runs import Runs
from milepost.cli import show, stores
from milepost.cli.failing import FAILED, errors_console, fail
from milepost.cli.listing import Listed, listed_runs
from milepost.cli.options import AsJson, StoreOption
from milepost.cli.visible import visible
from milepost.errors import Damaged, FormatTooNew, MilepostError, RunDeleted

__all__ = ["needs"]


@dataclass(frozen=True)
class Need:
    """An open run, and why it needs the tool; `problem` is why nobody can tell."""

    namespace: str
    name: str
    run_id: str
    status: str
    version: str = ""
    why: str = ""
    problem: str = ""


def needs(
    tool: Annotated[str, typer.Argument(metavar="TOOL", help="The tool's name.")],
    version: Annotated[str, typer.Option(help="Only this version of it.")] = "",
    store: StoreOption = stores.DEFAULT,
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", help="Only the runs of this namespace.")
    ] = "",
    as_json: AsJson = False,  # noqa: FBT002  (a flag)
) -> None:
    """List the open runs that still need a tool, so that an image without it would halt them.

    A run needs the tools that its agent declared when the run began, or when another environment was
    accepted, and those that its open steps have called. The log of each open run is read whole. Exits with 0
    where no run needs it, and with 1 where one does, or where one cannot be read.
    """
    errors = errors_console()
    try:
        runs = stores.opened(store)
        found = [each for row in listed_runs(runs, namespace) for each in _needs(runs, row, tool, version)]
    except MilepostError as error:
        fail(errors, error)
    if as_json:
        typer.echo(json.dumps([asdict(each) for each in found], indent=2, ensure_ascii=False))
    elif found:
        table = show.new_table("namespace", "name", "status", "version", "why")
        for each in found:
            cells = (each.namespace, each.name or each.run_id, each.status, each.version)
            table.add_row(
                *cells, Text(visible(each.problem or each.why), style="red" if each.problem else "")
            )
        show.print_table(table)
    else:
        of = f" in version {version}" if version else ""
        told = f"no open run in {runs.store.uri} needs {tool}{of}"
        errors.print(visible(told), markup=False, soft_wrap=True)
    if found:
        raise typer.Exit(FAILED)


def _needs(runs: Runs, row: Listed, tool: str, version: str) -> Iterator[Need]:
    if row.problem:
        yield Need(row.namespace, row.name, row.run_id, row.status, problem=row.problem)
        return

    def read(at: HeadAt) -> tuple[Head, State] | None:
        return None if at.head.phase.terminal else (at.head, load(runs.store, at.head))

    try:
        found = consistently(runs.store, StoreKeys(row.namespace, row.run_id), read)
    except (Damaged, FormatTooNew) as error:
        yield Need(row.namespace, row.name, row.run_id, row.status, problem=str(error))
        return
    except RunDeleted:
        return
    if found is None:
        return
    head, state = found
    for needed, why in dict.fromkeys(_reasons(state, tool)):
        if version in ("", needed):
            yield Need(row.namespace, row.name, row.run_id, head.phase.value, needed, why)


def _reasons(state: State, tool: str) -> Iterator[tuple[str, str]]:
    """Yield the version that the run needs, and why."""
    declared = (state.environment or {}).get(f"tool {tool}")
    if declared is not None:
        yield declared, "its agent declares it"
    for step, calls in state.calls.items():
        for call in calls.values():
            if call.tool == tool:
                yield call.version, f"step {step} has called it, and is open"
    for step, intents in state.intents.items():
        for intent in intents.values():
            if intent.tool == tool:
                yield intent.version, f"step {step} has begun a call whose outcome is not known"
