"""`milepost store verify` and `repair`: what is damaged, and how to go on from what is left."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.text import Text

from milepost.api.names import StoreKeys
from milepost.api.summary import NameRecord, NameState
from milepost.checkpoint.damage import listed, repair_command, repeats, trusted
from milepost.checkpoint.owner import check_owner
from milepost.checkpoint.repair import Rescue, carry_out, plan_repair
from milepost.checkpoint.runs import NameSeen, Runs
from milepost.checkpoint.sending import Patience
from milepost.checkpoint.store import Found
from milepost.checkpoint.survey import Survey
from milepost.checkpoint.verify import Verified, verify_all, verify_name, verify_run
from milepost.cli import show, stores
from milepost.cli.failing import FAILED, errors_console, fail
from milepost.cli.options import CredentialsFolder, StoreUrl
from milepost.errors import Damaged, FormatTooNew, InvalidRun, MilepostError

__all__ = ["repair", "verify"]

_SHOWN: Final = 20

Which = Annotated[str, typer.Argument(metavar="NAMESPACE/NAME", help="The run, by its name.")]
ById = Annotated[str, typer.Option("--run", metavar="NAMESPACE/RUNID", help="The run, by its id.")]
OrJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


def verify(
    url: StoreUrl,
    which: Which = "",
    run: ById = "",
    credentials: CredentialsFolder = None,
    as_json: OrJson = False,  # noqa: FBT002  (a flag)
) -> None:
    """Read everything of a run, or of all runs, and say what of it can be trusted.

    Every object is read and held against its digest, every record against the one before it, every base
    against the records, every name against its run. Nothing is changed. The exit code is 1 where anything is
    damaged that no repair has saved; a lost base is no damage, since it is a cache. With --json each
    completed step comes with the author's summary of it, so that a run that cannot be repaired can be begun
    anew with what is known.
    """
    errors = errors_console()
    looked = newer = 0
    damaged: list[str] = []
    try:
        runs = stores.opened(url, credentials, given_as="URL")
        ownerless = "" if which or run else _ownerless(runs)
        shown = []
        for each in _chosen(runs, which, run):
            looked += 1
            newer += _is_newer(each)
            if each.to_repair and not _is_newer(each):
                damaged.append(_command(each, url, credentials))
            if as_json:
                shown.append(each.as_json())
            else:
                _print(each)
    except MilepostError as error:
        fail(errors, error)
    if as_json:
        typer.echo(json.dumps(shown, indent=2))
    if not looked:
        errors.print(f"there is no run in {runs.store.uri}", soft_wrap=True)
    unreadable = f"{newer} written by a newer Milepost, which alone can read them" if newer else ""
    closed = [*filter(None, [unreadable, ownerless])]
    for said in closed:
        errors.print(Text(said, style="bold red"), soft_wrap=True)
    if damaged:
        _recommend(errors, damaged, whole=not which)
    if closed or damaged:
        raise typer.Exit(FAILED)


def repair(
    url: StoreUrl,
    which: Which = "",
    run: ById = "",
    apply: Annotated[  # noqa: FBT002  (a flag)
        bool, typer.Option("--apply/--dry-run", help="Do it, or only say what would be done.")
    ] = False,
    nobody_writes: Annotated[  # noqa: FBT002  (a flag)
        bool,
        typer.Option(
            "--nobody-writes",
            help="You have made sure that no executor of the run lives. Needed where its head is lost.",
        ),
    ] = False,
    as_it_is: Annotated[  # noqa: FBT002  (a flag)
        bool,
        typer.Option(
            "--as-it-is",
            help="Also where nothing is damaged, to go on from an older state that the store went back to.",
        ),
    ] = False,
    credentials: CredentialsFolder = None,
    as_json: OrJson = False,  # noqa: FBT002  (a flag)
) -> None:
    """Make a sound run of what is left of a damaged one.

    The new run has an id of its own, the same name, and the same key root: what has to run again does so
    under the same idempotency keys. The damaged run is claimed first, so that nobody goes on with it, and
    its objects are kept. Without --apply nothing is written.
    """
    errors = errors_console()
    try:
        runs = stores.opened(url, credentials, given_as="URL")
        name, found, left = _one(runs, which, run)
        if (why := _needless(found, left)) and not as_it_is:
            errors.print(f"run {found.run_id}: {why}", soft_wrap=True)
            if as_json:
                typer.echo(json.dumps(_as_json(left, name), indent=2))
            return
        rescue = plan_repair(left, at=stores.now(), entropy=os.urandom)
        if apply:
            patience = Patience(os.urandom)
            carry_out(runs, rescue, name, nobody_writes=nobody_writes, patience=patience)
    except MilepostError as error:
        fail(errors, error)
    if as_json:
        typer.echo(json.dumps(_as_json(left, name, rescue.head.run_id if apply else ""), indent=2))
    else:
        _tell(rescue, name, applied=apply)


def _chosen(runs: Runs, which: str, run: str) -> Iterable[Verified]:
    if which and run:
        raise InvalidRun("--run", "give a name or an id, not both")
    if run:
        return [verify_run(runs, *_two(run, "--run"))]
    if which:
        return [verify_name(runs, *_two(which, "NAMESPACE/NAME"))]
    return verify_all(runs)


def _ownerless(runs: Runs) -> str:
    """Return why nobody may work in the store, if it cannot be read whose it is."""
    try:
        check_owner(runs.store)
    except (Damaged, FormatTooNew) as error:
        return str(error)
    return ""


def _needless(found: Verified, left: Survey) -> str:
    """Return why a repair would gain nothing; empty where it would."""
    if found.saved_as:
        return f"it was saved as run {found.saved_as} already, and nothing was done"
    if left.damage:
        return ""
    if left.problems:
        return "only bases are damaged, which are a cache: nothing is lost, and nothing has to be repaired"
    return "nothing is damaged, and nothing was done"


def _one(runs: Runs, which: str, run: str) -> tuple[NameSeen | None, Verified, Survey]:
    """Return the run that is to be repaired, with the name that leads to it, if one does."""
    if not which and not run:
        raise InvalidRun("NAMESPACE/NAME", "which run? `milepost store verify` finds those that are damaged")
    (found,) = _chosen(runs, which, run)
    if found.left is None:
        problem = found.problems[0].what if found.problems else "its checkpoints are gone"
        raise InvalidRun(
            "NAMESPACE/NAME",
            f"{found.namespace}/{found.name}: {problem}; give the run's id with --run; "
            "`milepost store verify` tells it",
        )
    return _leading_to(runs, found), found, found.left


def _leading_to(runs: Runs, found: Verified) -> NameSeen | None:
    """Return the name that leads to the run.

    One that is damaged is made anew as the run's head has it, and so is one that is gone, since a name is
    never taken away. None where another run has the name, or no head says which name it was.
    """
    assert found.left is not None, "who calls this has looked"
    if not found.name:
        return None
    try:
        seen = runs.read_name(found.namespace, found.name)
    except Damaged:
        raw = runs.store.get(StoreKeys(found.namespace).name(found.name))
        return _as_in_head(found.left, raw.etag if isinstance(raw, Found) else "")
    if seen is None:
        return _as_in_head(found.left, "")
    leads = seen.record.state is not NameState.FREE and seen.record.run_id == found.run_id
    return seen if leads else None


def _as_in_head(left: Survey, etag: str) -> NameSeen | None:
    """Return the record that the name would have, to replace the one of this ETag, or none."""
    if left.head is None:
        return None
    head = left.head.head
    record = NameRecord(
        head.name,
        head.run_id,
        head.resource_uid,
        head.spec_digest,
        cluster=head.cluster,
        deletion_policy=head.deletion_policy,
        retention_s=head.retention_s,
    )
    return NameSeen(record, etag)


def _two(text: str, field: str) -> tuple[str, str]:
    namespace, slash, rest = text.partition("/")
    if not slash or not namespace or not rest:
        raise InvalidRun(field, f"{text!r} must be two parts with a slash between them")
    return namespace, rest


def _command(found: Verified, url: str, credentials: Path | None) -> str:
    """Return the command that goes on from what is left of the run; empty where there is none."""
    if found.left is None:
        return ""
    head = found.left.head.head if found.left.head else None
    if not found.left.damage and head is not None and head.name != found.name:
        return ""  # the name is wrong, and of the run that it should lead to nothing is known here
    command = repair_command(found.left.keys, url, name="")
    if not found.left.damage:
        command += " --as-it-is"
    if credentials is not None:
        command += f" --credentials {shlex.quote(str(credentials))}"
    return f"{command} --dry-run"


def _recommend(errors: Console, damaged: list[str], *, whole: bool) -> None:
    """Say how many are damaged, and with which commands it goes on."""
    commands = [command for command in damaged if command]
    how = "no command goes on from what is left"
    if commands:
        how = "to go on from what is left:"
    elif not whole:
        how = "`milepost store verify` of the whole store may find the run, and a command to go on with it"
    errors.print(Text(f"{len(damaged)} damaged; {how}", style="bold red"), soft_wrap=True)
    for command in commands[:_SHOWN]:
        errors.print(Text(f"  {command}"), soft_wrap=True)
    if len(commands) > _SHOWN:
        errors.print(f"  and {show.counted(len(commands) - _SHOWN, 'other')}", soft_wrap=True)


def _print(found: Verified) -> None:
    """Print a line about one run, and what is wrong with it."""
    out = Console(highlight=False)
    named = f"{found.namespace}/{found.name or '(no name)'} {found.run_id}".rstrip()
    told, style = _state(found)
    out.print(Text(f"{named}: {told}", style=style), soft_wrap=True)
    if found.saved_as:
        return
    for problem in found.problems:
        whose = f" (steps {listed(problem.steps, _SHOWN)})" if problem.steps else ""
        note = "; nothing is lost: a base is a cache, and a run that goes on writes it anew"
        note = note if problem.harmless else ""
        out.print(Text(f"  {problem.kind} {problem.key}: {problem.what}{whose}{note}"), soft_wrap=True)
    if found.damage and found.left is not None and not _is_newer(found):
        for line in (*trusted(found.left), *repeats(found.left, _SHOWN)):
            out.print(Text(f"  {line}"), soft_wrap=True)


def _state(found: Verified) -> tuple[str, str]:
    """Return in words how the run is, and the style to print it in."""
    left = found.left
    if found.deleting:
        return "is being deleted", ""
    if found.saved_as:
        return f"damaged, and saved as run {found.saved_as}", ""
    if found.damage:
        return "cannot be read" if _is_newer(found) else "damaged", "bold red"
    if left is None:
        return "its checkpoints have expired", ""
    records, steps = show.counted(left.last, "record"), show.counted(len(left.steps), "step")
    return f"sound, {records}, {steps}", ""


def _is_newer(found: Verified) -> bool:
    """Tell whether nothing is wrong with the run but that this version is too old for it."""
    return found.to_repair and all(each.kind == FormatTooNew.__name__ for each in found.damage)


def _as_json(left: Survey, name: NameSeen | None, new_run_id: str = "") -> dict[str, object]:
    verified = Verified(left.keys.namespace, name.record.name if name else "", left.keys.run_id, left)
    return {**verified.as_json(), "applied": bool(new_run_id), "new_run_id": new_run_id}


def _tell(rescue: Rescue, name: NameSeen | None, *, applied: bool) -> None:
    out = Console(highlight=False)
    left, head = rescue.survey, rescue.head
    for line in (*trusted(left), *repeats(left, _SHOWN)):
        out.print(Text(line), soft_wrap=True)
    kept = f"{head.totals.steps_done} steps are kept"
    if not applied:
        how = "--apply" if left.head is not None else "--apply --nobody-writes"
        out.print(Text(f"{kept}; nothing was written, {how} does it"), soft_wrap=True)
        return
    run = f"{left.keys.namespace}/{name.record.name}" if name else "no name leads to it; it"
    out.print(
        Text(f"{kept}; {run} is now run {head.run_id}, with the keys of {head.key_root}"), soft_wrap=True
    )
