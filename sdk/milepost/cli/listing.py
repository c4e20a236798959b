"""The runs of a store, from the store alone, newest first: the rows of `milepost list`.

It costs a listing of everything below the prefix, and one GET for each run down to the last that is shown:
the newest heads are known from the listing's dates. Of several heads of one name the newest is the name's
run, with two exceptions, for which the name is read too: a run that nobody has claimed yet may never have
been named, and one that was ended for its successor may have been ended last, or in the same second. What
cannot be read is a row that says so, and no reason to leave out the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from milepost.api.names import StoreKeys, name_at, run_at
from milepost.api.resource import Phase
from milepost.api.summary import NameState
from milepost.checkpoint.head import Head
from milepost.checkpoint.history import HeadAt, read_head
from milepost.checkpoint.runs import REPAIRED, SUPERSEDED, Runs
from milepost.errors import Damaged, FormatTooNew
from milepost.local.ways import summary_of

__all__ = ["Listed", "listed_runs"]

_REPLACED: Final = (SUPERSEDED, REPAIRED)
_NO_HEAD: Final = "it has no head; `milepost store gc --dry-run` says what it is"


@dataclass(frozen=True)
class Listed:
    """One run. `problem` says why no more is known of it; `named` is whether its name leads to it.

    `group` is the phase that it has reached; `waits_for` is empty while it does not wait.
    """

    namespace: str
    name: str
    run_id: str
    status: str
    steps: int = 0
    steps_total: int | None = None
    attempt: int = 0
    updated: str = ""
    goal: str = ""
    named: bool = True
    problem: str = ""
    failed: int = 0
    skipped: int = 0
    group: str = ""
    tokens: int = 0
    cost_usd: float = 0.0
    waits_for: tuple[str, ...] = ()


@dataclass
class _Seen:
    """What the listing shows: names, and of each run when its head, or else anything of it, was written."""

    names: set[tuple[str, str]] = field(default_factory=set)
    heads: dict[tuple[str, str], float] = field(default_factory=dict)
    others: dict[tuple[str, str], float] = field(default_factory=dict)


def listed_runs(
    runs: Runs, namespace: str = "", *, limit: int = 0, everything: bool = False
) -> Iterator[Listed]:
    """Yield the newest runs, at most `limit` where that is not 0; with `everything` also those of no name.

    With `everything` and without a limit the names come last whose run has expired, or is lost without a
    trace. Raises InvalidRun for what is no namespace, StoreUnavailable, StoreRefused.
    """
    seen = _listed(runs, namespace)
    dates = {**seen.others, **seen.heads}
    taken: set[tuple[str, str]] = set()
    count = 0
    for at in sorted(dates, key=lambda each: dates[each], reverse=True):
        if limit and count == limit:
            return
        row = _row(runs, StoreKeys(*at), seen, taken)
        if row is not None and (row.named or everything):
            count += 1
            yield row
    if everything and not limit:
        for where, name in sorted(seen.names - taken):
            row = _name_alone(runs, where, name)
            if row is not None:
                yield row


def _listed(runs: Runs, namespace: str) -> _Seen:
    seen = _Seen()
    prefix = f"{StoreKeys(namespace).namespace}/" if namespace else ""
    for each in runs.store.list(prefix):
        if (named := name_at(each.key)) is not None:
            seen.names.add(named)
        elif (at := run_at(each.key)) is not None:
            dates = seen.heads if each.key == StoreKeys(*at).head else seen.others
            dates[at] = max(each.modified, dates.get(at, 0.0))
    return seen


def _row(runs: Runs, keys: StoreKeys, seen: _Seen, taken: set[tuple[str, str]]) -> Listed | None:
    try:
        found = read_head(runs.store, keys)
    except (Damaged, FormatTooNew) as error:
        return Listed(keys.namespace, "", keys.run_id, type(error).__name__, problem=str(error))
    if not isinstance(found, HeadAt):
        if (keys.namespace, keys.run_id) in seen.heads:
            return None
        return Listed(keys.namespace, "", keys.run_id, "Missing", problem=_NO_HEAD)
    head = found.head
    at = (keys.namespace, head.name)
    named = at in seen.names and at not in taken and not head.deleting and _leads_to(runs, head)
    if named:
        taken.add(at)
    return Listed(
        keys.namespace,
        head.name,
        keys.run_id,
        head.phase.value,
        head.totals.steps_done,
        head.totals.steps_total,
        head.attempt,
        _updated(head),
        head.goal,
        named,
        failed=head.totals.steps_failed,
        skipped=head.totals.steps_skipped,
        group=head.totals.group,
        tokens=head.totals.tokens,
        cost_usd=head.totals.cost_nano_usd / 1e9,
        waits_for=summary_of(head.gates) if head.phase is Phase.WAITING else (),
    )


def _leads_to(runs: Runs, head: Head) -> bool:
    """Tell whether the head's name leads to it; a head that was claimed had a name that did."""
    if head.epoch > 0 and head.reason not in _REPLACED:
        return True
    try:
        name = runs.look_up(head.namespace, head.name)
    except (Damaged, FormatTooNew):
        return False
    return name is not None and name.record.run_id == head.run_id


def _name_alone(runs: Runs, namespace: str, name: str) -> Listed | None:
    try:
        seen = runs.look_up(namespace, name)
    except (Damaged, FormatTooNew) as error:
        return Listed(namespace, name, "", type(error).__name__, problem=str(error))
    if seen is None:
        return None
    record = seen.record
    if record.state is NameState.EXPIRED:
        problem = "its checkpoints have expired"
        return Listed(namespace, name, record.run_id, record.outcome, problem=problem)
    return Listed(namespace, name, record.run_id, "Missing", problem="its head is gone or cannot be read")


def _updated(head: Head) -> str:
    """Return when the newest record was written, by its writer's clock. Heads of format 1 do not say it."""
    return head.updated or (head.records()[-1][0].at if head.tail else "")
