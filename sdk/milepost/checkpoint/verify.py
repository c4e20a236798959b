"""Verify the runs of a store, each as its name leads to it, and also those that no name leads to.

It changes nothing, and reports what it finds run by run, so that one that is damaged hides no other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from milepost.api.names import StoreKeys, name_at, run_at
from milepost.api.summary import NameState
from milepost.checkpoint.archive import Archive
from milepost.checkpoint.history import consistently
from milepost.checkpoint.records import Repaired
from milepost.checkpoint.runs import REPAIRED, SUPERSEDED, NameSeen, Runs
from milepost.checkpoint.survey import Problem, Survey, survey
from milepost.errors import Damaged, FormatTooNew, InvalidRun

__all__ = ["Verified", "verify_all", "verify_name", "verify_run"]


@dataclass(frozen=True)
class Verified:
    """What was found of one run. `name` is empty where none leads to it; `left` None where nothing was read.

    `about_name` are the problems of the name's record itself. `saved_as` is the run that a damaged one was
    repaired to, and that its name leads to. Of a run that is being deleted nothing is missing, however little
    is there.
    """

    namespace: str
    name: str
    run_id: str
    left: Survey | None
    about_name: tuple[Problem, ...] = ()
    saved_as: str = ""

    @property
    def problems(self) -> tuple[Problem, ...]:
        """All that was found, harmless or not."""
        if self.deleting:
            return ()
        return (*self.about_name, *(self.left.problems if self.left else ()))

    @property
    def damage(self) -> tuple[Problem, ...]:
        """What is wrong: the problems but for bases that readers pass over."""
        return tuple(problem for problem in self.problems if not problem.harmless)

    @property
    def to_repair(self) -> bool:
        """Whether anything is damaged that was not saved yet."""
        return bool(self.damage) and not self.saved_as

    @property
    def deleting(self) -> bool:
        """Whether the run's objects are being deleted."""
        return self.left is not None and self.left.head is not None and self.left.head.head.deleting

    def as_json(self) -> dict[str, Any]:
        """Return this as data for scripts. `steps` holds what can still be told of each completed step."""
        left = self.left
        return {
            "namespace": self.namespace,
            "name": self.name,
            "run_id": self.run_id,
            "sound": not self.damage,
            "saved_as": self.saved_as,
            "deleting": self.deleting,
            "problems": [
                {
                    "object": each.key,
                    "kind": each.kind,
                    "what": each.what,
                    "steps": list(each.steps),
                    "harmless": each.harmless,
                }
                for each in self.problems
            ],
            "last_record": left.last if left else 0,
            "trusted_to": left.trusted if left else 0,
            "readable": [list(span) for span in left.readable] if left else [],
            "lost": [list(span) for span in left.lost] if left else [],
            "may_repeat": list(left.repeats) if left else [],
            "may_repeat_unnamed": left.unnamed if left else 0,
            "steps": [
                {
                    "id": step.id,
                    "record": step.seq,
                    "kept": step.kept,
                    "description": step.description,
                    "summary": step.summary,
                }
                for step in (left.steps if left else ())
            ],
            "orphans": list(left.orphans) if left else [],
        }


def verify_name(runs: Runs, namespace: str, name: str) -> Verified:
    """Verify the run that a name leads to. Raises InvalidRun where there is no such name."""
    key = StoreKeys(namespace).name(name)
    try:
        seen = runs.look_up(namespace, name)
    except (Damaged, FormatTooNew) as error:
        what = str(error).removeprefix(f"{key}: ")
        return Verified(namespace, name, "", None, (Problem(key, type(error).__name__, what),))
    if seen is None:
        raise InvalidRun("NAMESPACE/NAME", f"{runs.store.uri} has no run {namespace}/{name}")
    return _named(runs, namespace, seen)


def verify_run(runs: Runs, namespace: str, run_id: str) -> Verified:
    """Verify a run by its id, whatever name leads to it. Raises InvalidRun where nothing of it is there."""
    left = survey(runs.store, StoreKeys(namespace, run_id))
    if not left.last and left.head is None and not left.orphans and not _exists(runs, left.keys):
        raise InvalidRun("--run", f"{runs.store.uri} has nothing of run {namespace}/{run_id}")
    found = Verified(namespace, _name_in(left), run_id, left)
    return replace(found, saved_as=_saved_as(runs, found)) if found.damage else found


def _saved_as(runs: Runs, found: Verified) -> str:
    """Return the run that the name leads to, where its record 1 says that it was repaired from this one."""
    try:
        seen = runs.look_up(found.namespace, found.name) if found.name else None
        if seen is None or seen.record.run_id == found.run_id:
            return ""
        keys = StoreKeys(found.namespace, seen.record.run_id)
        first = consistently(runs.store, keys, lambda at: Archive(runs.store, keys).record(at.head, 1))
    except (Damaged, FormatTooNew):
        return ""  # the other run, or the name, is found to be damaged by itself
    events = first.events if first else ()
    saved = any(isinstance(event, Repaired) and event.run_id == found.run_id for event in events)
    return keys.run_id if saved else ""


def verify_all(runs: Runs, namespace: str = "") -> Iterator[Verified]:
    """Verify every run of a namespace, or of the store: those with names, and then all others."""
    prefix = f"{StoreKeys(namespace).namespace}/" if namespace else ""
    names, ids = set(), set()
    for listed in runs.store.list(prefix):
        if (named := name_at(listed.key)) is not None:
            names.add(named)
        elif (of_run := run_at(listed.key)) is not None:
            ids.add(of_run)
    unread: dict[tuple[str, str], Verified] = {}
    for at in sorted(names):
        try:
            found = verify_name(runs, *at)
        except InvalidRun:
            continue  # it stands for no run any more
        if found.run_id:
            ids.discard((at[0], found.run_id))
            yield found
        else:
            unread[at] = found
    yield from _others(runs, sorted(ids), names, unread)


def _others(
    runs: Runs,
    ids: list[tuple[str, str]],
    names: Collection[tuple[str, str]],
    unread: Mapping[tuple[str, str], Verified],
) -> Iterator[Verified]:
    """Verify the runs that no name led to, and tell of each unread name to which of them it led."""
    of_unread: dict[tuple[str, str], list[Verified]] = {}
    for namespace, run_id in ids:
        try:
            found = verify_run(runs, namespace, run_id)
        except InvalidRun:
            continue  # it was deleted meanwhile, or is no run
        at = (namespace, found.name)
        if at in unread and _had_its_name(found):
            of_unread.setdefault(at, []).append(found)
        else:
            yield found if at in names else _nameless(runs, found)
    for at, about in unread.items():
        of_name = of_unread.get(at, [])
        if len(of_name) == 1:
            yield replace(of_name[0], about_name=about.about_name)
        else:
            # Of several runs nobody knows to which of them the name led.
            yield from (about, *of_name)


def _had_its_name(found: Verified) -> bool:
    """Tell whether the run's name led to it, and was given to no other run since."""
    head = found.left.head.head if found.left and found.left.head else None
    if head is None or head.epoch == 0 or head.deleting:
        return False
    return head.reason not in (SUPERSEDED, REPAIRED)


def _nameless(runs: Runs, found: Verified) -> Verified:
    """Return what was found of a run whose name was not listed, with that as a problem.

    A head is claimed by way of its name, and a name's record stays for ever. It may be younger than the list.
    """
    if not _had_its_name(found) or runs.read_name(found.namespace, found.name) is not None:
        return found
    key = StoreKeys(found.namespace).name(found.name)
    what = "no name leads to this run, though it had one; what is applied under the name begins anew"
    return replace(found, about_name=(Problem(key, "Missing", what),))


def _named(runs: Runs, namespace: str, seen: NameSeen) -> Verified:
    name, run_id = seen.record.name, seen.record.run_id
    if seen.record.state is NameState.EXPIRED:
        return Verified(namespace, name, run_id, None)
    left = survey(runs.store, StoreKeys(namespace, run_id))
    about: tuple[Problem, ...] = ()
    found = left.head.head.name if left.head else left.started.name if left.started else name
    if found != name:
        key = StoreKeys(namespace).name(name)
        about = (Problem(key, "Corrupt", f"it leads to run {run_id}, which was begun as {found}"),)
    return Verified(namespace, name, run_id, left, about)


def _name_in(left: Survey) -> str:
    if left.head is not None:
        return left.head.head.name
    return left.started.name if left.started else ""


def _exists(runs: Runs, keys: StoreKeys) -> bool:
    return next(iter(runs.store.list(keys.run)), None) is not None
