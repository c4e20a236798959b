"""The commands: where arguments become calls, and errors become messages and exit codes.

Exit codes: 0, the run succeeded or the question was answered; 1, anything else; 2, the call or the
manifest is wrong; 130, interrupted.
"""

from __future__ import annotations

import json
import os
import platform
import shlex
import sys
import time
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Final

import typer

from milepost.api.resource import Phase
from milepost.cli import show, stores
from milepost.cli.answers import approve, decide_run, deny, signal
from milepost.cli.failing import FAILED, errors_console, fail
from milepost.cli.gates import gates
from milepost.cli.listing import listed_runs
from milepost.cli.log import read_rows
from milepost.cli.needs import needs
from milepost.cli.new import new
from milepost.cli.options import AsJson, Namespace, StoreOption
from milepost.cli.progress import Progress
from milepost.cli.prompt import Prompt, at_terminal
from milepost.cli.store import app as store_app
from milepost.errors import MilepostError
from milepost.local.answering import who
from milepost.local.manifest import load_manifest
from milepost.local.owner import data_folder
from milepost.local.runner import Here, run_here

__all__ = ["app"]

_INTERRUPTED: Final = 130

app = typer.Typer(
    name="milepost",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _say_version(wanted: bool) -> None:  # noqa: FBT001  (as typer calls it)
    if wanted:
        typer.echo(f"milepost {version('milepost')}")
        raise typer.Exit


@app.callback()
def _milepost(
    version: Annotated[  # noqa: FBT002  (a flag)
        bool,
        typer.Option("--version", callback=_say_version, is_eager=True, help="Say the version and exit."),
    ] = False,
) -> None:
    """Long agent runs that survive the loss of their process."""


app.command("new", short_help="Write a project with a working agent.")(new)


@app.command()
def run(
    file: Annotated[Path, typer.Argument(help="A manifest with an AgentRun.")],
    store: StoreOption = stores.DEFAULT,
    namespace: Annotated[
        str,
        typer.Option(
            "--namespace", "-n", help="Namespace of a manifest that gives none; default where neither does."
        ),
    ] = "",
    name: Annotated[str, typer.Option(help="Which AgentRun, where the file holds several.")] = "",
    recover_from: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ID",
            help="Take the store over from this owner, which must be at work no more. May be repeated.",
        ),
    ] = None,
) -> None:
    """Run a manifest here, and go on where it was left.

    No cluster is needed; the agent's package is imported from the current folder. Each step is recorded in
    the store as it ends; a process that is killed is started again and goes on with the next step, and so
    does this command when it is called again. A run that has ended is reported, and nothing is run. The
    result goes to standard output, all else to standard error.

    Exits with 0 where the run has succeeded, with 1 where it has not, or not yet, with 2 where the manifest
    or the call is wrong, and with 130 where it was interrupted.
    """
    errors = errors_console()
    progress = Progress(errors, Path.cwd())
    interactive = at_terminal()
    try:
        manifest = load_manifest(file, namespace=namespace, name=name)
        here = Here(
            store=stores.store_url(store, Path.cwd()),
            folder=Path.cwd(),
            data=data_folder(os.environ),
            environ=os.environ,
            clock=stores.now,
            entropy=os.urandom,
            pause=time.sleep,  # noqa: TID251  (a pause between attempts waits for nothing but time)
            say=progress.say,
            on_line=progress.line,
            node=platform.node(),
            recover_from=tuple(recover_from or ()),
            options=stores.options_for(store, manifest.namespace),
            user=who(),
            ask=progress.asking(Prompt(errors, sys.stdin.fileno())) if interactive else None,
            on_standing=progress.standing,
            errors_as_lines=errors.is_terminal,
        )
        with progress:
            outcome = run_here(manifest, here)
    except MilepostError as error:
        fail(errors, error)
    except KeyboardInterrupt:
        progress.say(f"interrupted; `{_again(file, store, namespace, name)}` goes on")
        raise typer.Exit(_INTERRUPTED) from None
    if outcome.interrupted:
        steps = "1 step is" if outcome.steps == 1 else f"{outcome.steps} steps are"
        progress.say(
            f"interrupted; {steps} recorded, and `{_again(file, store, namespace, name)}` goes on from there"
        )
    else:
        errors.print(show.end_of(outcome), soft_wrap=True)
    for line in outcome.ways:
        progress.say(line)
    if outcome.phase is Phase.FAILED:
        progress.say("it has failed for good; another value of spec.rerun in the manifest begins it anew")
    if outcome.interrupted:
        raise typer.Exit(_INTERRUPTED)
    if outcome.phase is not Phase.SUCCEEDED:
        raise typer.Exit(FAILED)
    typer.echo(json.dumps(outcome.result, indent=2, ensure_ascii=False))


def _again(file: Path, store: str, namespace: str, name: str) -> str:
    """Return the command that goes on with what was interrupted."""
    given = [*(["--namespace", namespace] if namespace else []), *(["--name", name] if name else [])]
    where = stores.options_for(store, "")
    return " ".join(filter(None, [shlex.join(["milepost", "run", str(file), *given]), where]))


@app.command()
def steps(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The run; may be left out where the store holds one.")
    ] = "",
    store: StoreOption = stores.DEFAULT,
    namespace: Namespace = "",
    as_json: AsJson = False,  # noqa: FBT002  (a flag)
) -> None:
    """Show a run's log as a table of its steps and gates.

    A step is `recorded`, `failed` for good, or `tried`: it failed, and will be tried again. It is
    `unconfirmed` while nobody knows whether a call of it took effect, `withdrawn` where it is executed once
    more, `skipped`, or `adopted` from before the run began anew. A gate is `waiting`, or answered. `attempt`
    is the run's attempt that recorded it, `took` the time of the last try. `note` says what went wrong, who
    decided, or what the author's own summary of the step says; with --json all of it. Times are UTC.
    """
    errors = errors_console()
    try:
        runs = stores.opened(store)
        known = stores.find(runs, namespace, name)
        head, rows = read_rows(runs.store, known.head.keys)
    except MilepostError as error:
        fail(errors, error)
    if as_json:
        typer.echo(json.dumps([asdict(row) for row in rows], indent=2))
        return
    show.print_table(show.steps_table(rows))
    errors.print(
        f"run {known.namespace}/{known.name} ({head.run_id}): {head.phase}, {show.standing_of(head)}",
        markup=False,
        soft_wrap=True,
    )


@app.command("list")
def list_runs(
    store: StoreOption = stores.DEFAULT,
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", help="Only the runs of this namespace.")
    ] = "",
    limit: Annotated[int, typer.Option(min=0, help="The newest so many; 0: all.")] = 50,
    everything: Annotated[  # noqa: FBT002  (a flag)
        bool,
        typer.Option(
            "--all",
            help="Also runs that no name leads to; with --limit 0 also names whose checkpoints have expired.",
        ),
    ] = False,
    as_json: AsJson = False,  # noqa: FBT002  (a flag)
) -> None:
    """List the runs of a store, newest first, from the store alone.

    It costs one request for 1,000 objects in the store, and one for each run down to the last that is shown
    (two where nobody has claimed it yet, or another one took its place). Times are UTC. A run whose head is
    damaged is shown as such.
    """
    errors = errors_console()
    try:
        runs = stores.opened(store)
        rows = list(listed_runs(runs, namespace, limit=limit, everything=everything))
    except MilepostError as error:
        fail(errors, error)
    if as_json:
        typer.echo(json.dumps([asdict(row) for row in rows], indent=2, ensure_ascii=False))
        return
    if not rows:
        errors.print(f"there is no run in {runs.store.uri}", soft_wrap=True)
        return
    show.print_table(show.runs_table(rows, with_ids=everything))
    if limit and len(rows) == limit:
        errors.print(f"the newest {limit}; --limit 0 shows all", soft_wrap=True)


app.command("gates", short_help="Show what a run waits for, and how to answer.")(gates)
app.command("approve")(approve)
app.command("deny")(deny)
app.command("signal")(signal)
app.command("decide", short_help="Decide how a halted run goes on, or end a run.")(decide_run)
app.command("needs", short_help="List the open runs that still need a tool.")(needs)
app.add_typer(store_app, name="store")
