"""`milepost store gc`: what of a store nothing needs any more, and its deletion.

The operator does the same every few minutes. This does it for a store that no operator looks after, and shows
what it would do. It asks no cluster, so it never deletes a run because its AgentRun is gone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Annotated

import typer
from rich.text import Text

from milepost.api.names import StoreKeys
from milepost.checkpoint.deletion import Carried, Finding, Sweeper
from milepost.checkpoint.sweep import Cause, Prune, Remove, Trouble
from milepost.cli import show, stores
from milepost.cli.failing import errors_console, fail
from milepost.cli.options import AsJson, CredentialsFolder, StoreUrl
from milepost.errors import InvalidRun, MilepostError

__all__ = ["gc"]


@dataclass(frozen=True)
class Row:
    """One object, or one run with all its objects; `left` says why it stays although it was to go."""

    key: str
    name: str
    why: str
    objects: int
    bytes: int
    age_s: float
    goes: bool = True
    left: str = ""


def gc(
    url: StoreUrl,
    namespace: Annotated[str, typer.Option(help="Only what is this namespace's.")] = "",
    dry_run: Annotated[  # noqa: FBT002  (a flag)
        bool, typer.Option("--dry-run", help="Say what would go, and delete nothing.")
    ] = False,
    apply: Annotated[bool, typer.Option("--apply", help="Delete it.")] = False,  # noqa: FBT002  (a flag)
    orphans: Annotated[  # noqa: FBT002  (a flag)
        bool,
        typer.Option("--orphans", help="Also objects, a day old and more, of runs without a head or a name."),
    ] = False,
    forget_names: Annotated[  # noqa: FBT002  (a flag)
        bool,
        typer.Option(
            "--forget-names",
            help="Also let names start anew whose run's checkpoints have expired: the same manifest, applied "
            "again, then runs again.",
        ),
    ] = False,
    credentials: CredentialsFolder = None,
    as_json: AsJson = False,  # noqa: FBT002  (a flag)
) -> None:
    """Delete from a store what nothing needs any more.

    That is: segments that were merged into others, older bases, runs whose retention has passed, and what
    deletions and starts left behind that were cut off. Live runs go on beside it. What cannot be read is left
    alone and said. Give one of --dry-run and --apply; both write and remove one small object to learn the
    store's time.
    """
    errors = errors_console()
    try:
        if dry_run == apply:
            raise InvalidRun("--dry-run", "give either --dry-run or --apply")
        runs = stores.opened(url, credentials, given_as="URL")
        chosen = (StoreKeys(namespace).namespace,) if namespace else ()
        sweeper = Sweeper(runs)
        rows = [
            row
            for finding in list(sweeper.look(chosen))
            for row in _rows(sweeper, finding, apply=apply, orphans=orphans)
        ]
        if forget_names:
            rows += list(_names(sweeper, chosen, apply=apply))
    except MilepostError as error:
        fail(errors, error)
    going = [row for row in rows if row.goes]
    objects, size = sum(row.objects for row in going), sum(row.bytes for row in going)
    if as_json:
        said = {"store": runs.store.uri, "applied": apply, "objects": objects, "bytes": size}
        typer.echo(json.dumps({**said, "rows": [asdict(row) for row in rows]}, indent=2))
    elif rows:
        _print(rows)
    done = "deleted" if apply else "to be deleted"
    counted = show.counted(objects, "object")
    errors.print(f"{counted}, {show.size(size)} {done} in {runs.store.uri}", soft_wrap=True)


def _rows(sweeper: Sweeper, finding: Finding, *, apply: bool, orphans: bool) -> Iterator[Row]:
    now = finding.sight.now if finding.sight else 0.0
    name, key = finding.name, finding.key
    newest = max((each.modified for each in finding.objects), default=now)
    match finding.verdict:
        case Trouble(why=why):
            yield Row(key, name, why, 0, 0, 0.0, goes=False, left="left alone")
        case Prune(objects=objects):
            done = sweeper.carry_out(finding) if apply else Carried()
            for each in objects:
                kept = each.object.key in done.stayed
                yield Row(
                    each.object.key,
                    name,
                    each.why,
                    1,
                    each.object.size,
                    now - each.object.modified,
                    goes=not kept,
                    left=done.left if kept else "",
                )
        case Remove(cause=Cause.ORPHANED, why=why) if not orphans:
            size = sum(each.size for each in finding.objects)
            left = "give --orphans to delete it"
            yield Row(key, name, why, len(finding.objects), size, now - newest, goes=False, left=left)
        case Remove(why=why):
            count, size, left = len(finding.objects), sum(each.size for each in finding.objects), ""
            if apply:
                carried = sweeper.carry_out(finding, orphans=orphans)
                count, size, left = carried.objects, carried.size, carried.left
            yield Row(key, name, why, count, size, now - newest, goes=not left, left=left)


def _names(sweeper: Sweeper, namespaces: tuple[str, ...], *, apply: bool) -> Iterator[Row]:
    why = "its run's checkpoints have expired; the name starts anew"
    for namespace, name, age in list(sweeper.expired_names(namespaces)):
        left = sweeper.forget(namespace, name) if apply else ""
        key = StoreKeys(namespace).name(name)
        yield Row(key, name, why, 0, 0, age, goes=not left, left=left)


def _print(rows: list[Row]) -> None:
    table = show.new_table("object or run", "name", "why", "objects", "size", "age")
    for row in rows:
        why = Text(f"{row.why}; {row.left}" if row.left else row.why, style="" if row.goes else "yellow")
        table.add_row(row.key, row.name, why, str(row.objects), show.size(row.bytes), show.age(row.age_s))
    show.print_table(table)
