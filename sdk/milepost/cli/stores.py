"""Which store a command is about, and what a run's name finds in it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from milepost.api.names import StoreKeys, name_at
from milepost.api.summary import NameState
from milepost.checkpoint.head import Head
from milepost.checkpoint.history import HeadAt, read_head
from milepost.checkpoint.opening import open_store
from milepost.checkpoint.runs import Runs
from milepost.errors import InvalidRun, Missing

__all__ = ["DEFAULT", "Known", "find", "now", "opened", "options_for", "store_url"]

DEFAULT: Final = "file:.milepost"


@dataclass(frozen=True)
class Known:
    """A name in a store, and the head of the run that it stands for."""

    namespace: str
    name: str
    head: Head


def now() -> datetime:
    """Return the time of day."""
    return datetime.now(UTC)  # noqa: TID251  (the command line is a shell: it holds the clock)


def opened(url: str, credentials: Path | None = None, *, given_as: str = "--store") -> Runs:
    """Return the runs of the store that a command names, a path being taken from the current folder.

    `given_as` is the argument or option to blame for what is no store. Raises InvalidRun, StoreRefused.
    """
    return Runs(open_store(store_url(url, Path.cwd(), given_as=given_as), credentials), now, os.urandom)


def store_url(text: str, folder: Path, *, given_as: str = "--store") -> str:
    """Return the store's URL, with the path of a `file:` store taken from `folder`. Raises InvalidRun."""
    if text.startswith("s3://"):
        return text
    if text.startswith("file:") and text != "file:":
        path = Path(
            text.removeprefix("file://") if text.startswith("file:///") else text.removeprefix("file:")
        )
        return f"file:{(folder / path.expanduser()).resolve()}"
    raise InvalidRun(
        given_as, f"{text!r} must be file:PATH, or s3://BUCKET/PREFIX?endpoint=URL&region=REGION"
    )


def options_for(store: str, namespace: str) -> str:
    """Return the options with which a command in the same folder finds the same store and namespace."""
    given = [] if store == DEFAULT else ["--store", store]
    return shlex.join([*given, *([] if namespace in ("", "default") else ["--namespace", namespace])])


def _known_runs(runs: Runs, namespace: str) -> Iterator[Known]:
    """Yield the names of one namespace, or of all where it is empty, in order.

    Raises InvalidRun for what is no namespace, Missing where a name leads to no head, what reading raises.
    """
    prefix = f"{StoreKeys(namespace).namespace}/names/" if namespace else ""
    for at in sorted(filter(None, (name_at(listed.key) for listed in runs.store.list(prefix)))):
        known = _known(runs, *at)
        if isinstance(known, Known):
            yield known


def find(runs: Runs, namespace: str, name: str, *, given_as: str = "NAME") -> Known:
    """Return the run of this name; with an empty one, the only run there is.

    `given_as` is the argument to blame. Raises InvalidRun, Missing.
    """
    if name:
        known = _known(runs, namespace or "default", name)
        if isinstance(known, str):
            raise InvalidRun(given_as, known)
        if known is None:
            raise InvalidRun(given_as, f"{runs.store.uri} has no run {namespace or 'default'}/{name}")
        return known
    found = list(_known_runs(runs, namespace))
    if len(found) != 1:
        names = ", ".join(f"{each.namespace}/{each.name}" for each in found)
        raise InvalidRun(
            given_as, f"choose one of {names}" if names else f"there is no run in {runs.store.uri}"
        )
    return found[0]


def _known(runs: Runs, namespace: str, name: str) -> Known | str | None:
    """Return the run of this name; None if it has none; in words, what is left of one that has expired."""
    record = runs.look_up(namespace, name)
    if record is None:
        return None
    keys = StoreKeys(namespace, record.record.run_id)
    head = read_head(runs.store, keys)
    if not isinstance(head, HeadAt) and record.record.state is NameState.EXPIRED:
        ended = record.record.outcome
        return f"run {namespace}/{name} ended as {ended}, and its checkpoints have expired"
    if not isinstance(head, HeadAt):
        raise Missing(keys.head, "a name leads to it, and it is gone")
    return Known(namespace, name, head.head)
