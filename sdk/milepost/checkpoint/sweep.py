"""What may be deleted from a store, and why: a pure judgement of one run after another.

The rule behind all others: an object goes only when no head that can still come will name it. A head that
is about to come replaces the one that stands, and names only objects that this one names and such as hold
newer records. So what the standing head has passed over is useless for good, and what lies beyond it may be
waiting for its head. An older head than the one that stands allows less, never more: it may be stale.

Nothing here deletes: `milepost.checkpoint.deletion` does, and looks at name and head again before. What
cannot be read is left alone and reported. The surprise: a segment that was merged away is kept for a quarter
of an hour, because its run's writer may not have heard yet that the head no longer names it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from milepost.api.names import StoreKeys, numbers_at
from milepost.api.resource import DeletionPolicy
from milepost.api.summary import NameRecord, NameState
from milepost.checkpoint.base import base_key
from milepost.checkpoint.head import Head
from milepost.checkpoint.sealed import segment_key
from milepost.checkpoint.store import Listed

__all__ = [
    "RULES",
    "Ages",
    "Cause",
    "Keep",
    "Living",
    "Prune",
    "Remove",
    "Sight",
    "Trouble",
    "Unreadable",
    "Useless",
    "Verdict",
    "judge",
    "named_blobs",
    "unnamed_blobs",
]

_DAY_S: Final = 24 * 3600
_DIGEST: Final = re.compile(rb"[0-9a-f]{64}")


@dataclass(frozen=True)
class Ages:
    """How old things have to be, in seconds by the store's own dates.

    `passed_over`: what a live run's head no longer names, since the objects that took its place were
    written; a writer is told within a minute, or gives its run up. `never_begun`: a head that no name leads
    to and nobody claimed; its maker names it within seconds. `orphaned`: the newest object of a run without
    a head.
    """

    passed_over: float = 15 * 60.0
    never_begun: float = 3600.0
    orphaned: float = 24 * 3600.0


@dataclass(frozen=True)
class Living:
    """The uids of all resources that exist in a cluster, and which cluster that is."""

    cluster: str
    uids: frozenset[str]


@dataclass(frozen=True)
class Unreadable:
    """A head or a name that is there and cannot be read, and why."""

    why: str


@dataclass(frozen=True)
class Sight:
    """All that was seen of one run. Times are seconds since 1970, all by the store's clock.

    `objects` is everything below the run's prefix and its part of the inbox. `named` is the record with the
    run's id, whatever its state. `doubt` says which name that might lead to it cannot be read. `living` is
    None where nobody can tell which resources exist.
    """

    keys: StoreKeys
    now: float
    objects: tuple[Listed, ...] = ()
    head: Head | Unreadable | None = None
    named: NameRecord | None = None
    doubt: str = ""
    living: Living | None = None
    ages: Ages = Ages()

    def below(self, folder: str) -> Iterable[Listed]:
        """Return the run's objects in one of its folders."""
        prefix = f"{self.keys.run}{folder}/"
        return (each for each in self.objects if each.key.startswith(prefix))

    @property
    def leading(self) -> NameRecord | None:
        """The record that leads to the run, unless it has given the run up."""
        return self.named if self.named is not None and self.named.state is not NameState.FREE else None

    @property
    def head_age(self) -> float | None:
        """Seconds since the head was written; None where the listing does not show it."""
        dates = (each.modified for each in self.objects if each.key == self.keys.head)
        return next((self.now - modified for modified in dates), None)


class Cause(StrEnum):
    """Why a whole run goes."""

    RESOURCE_GONE = "ResourceGone"
    EXPIRED = "Expired"
    NEVER_BEGUN = "NeverBegun"
    INTERRUPTED = "Interrupted"
    LEFT_OVER = "LeftOver"
    ORPHANED = "Orphaned"


@dataclass(frozen=True)
class Keep:
    """Nothing of the run goes."""


@dataclass(frozen=True)
class Trouble:
    """Something is wrong that only a person can judge. Nothing of the run is touched."""

    why: str


@dataclass(frozen=True)
class Useless:
    """One object that goes, and why."""

    object: Listed
    why: str


@dataclass(frozen=True)
class Prune:
    """The run stays, and these objects of it go. `blobs` go as well where no record names them."""

    objects: tuple[Useless, ...]
    blobs: tuple[Listed, ...] = ()


@dataclass(frozen=True)
class Remove:
    """The whole run goes."""

    cause: Cause
    why: str


Verdict: TypeAlias = Keep | Trouble | Prune | Remove


def unreadable(sight: Sight) -> Verdict | None:
    """Leave a run alone whose head cannot be read: it may hold anything."""
    return (
        Trouble(f"the head cannot be read: {sight.head.why}") if isinstance(sight.head, Unreadable) else None
    )


def doubtful(sight: Sight) -> Verdict | None:
    """Leave a run alone as long as a name that may lead to it cannot be read."""
    return Trouble(f"a name that may lead to it cannot be read: {sight.doubt}") if sight.doubt else None


def headless(sight: Sight) -> Verdict | None:
    """Judge objects without a head: damage where a name wants it, else leavings of something.

    A name that has given its run up proves that the head went last, so what is there came after it.
    """
    if sight.head is not None:
        return None
    if sight.named is not None and sight.named.state is NameState.KEPT:
        return Trouble("a name leads to it, and its head is gone; nothing is deleted from what is left")
    if not sight.objects:
        return Keep()
    if sight.named is not None:
        return Remove(Cause.LEFT_OVER, "written after the run was deleted, by a writer that had not noticed")
    if sight.now - max(each.modified for each in sight.objects) < sight.ages.orphaned:
        return Keep()
    return Remove(Cause.ORPHANED, "objects without a head, to which no name leads")


def being_deleted(sight: Sight) -> Verdict | None:
    """Finish a deletion that was begun: it cannot be taken back, every writer is refused already."""
    if not isinstance(sight.head, Head) or not sight.head.deleting:
        return None
    return Remove(Cause.INTERRUPTED, "its deletion was begun and not finished")


def never_begun(sight: Sight) -> Verdict | None:
    """Take away a head whose maker died before a name led to it."""
    if not isinstance(sight.head, Head) or sight.leading is not None or sight.head.epoch > 0:
        return None
    if sight.head_age is None or sight.head_age < sight.ages.never_begun:
        return Keep()
    return Remove(Cause.NEVER_BEGUN, "no name leads to it, and nobody ever claimed it")


def resource_gone(sight: Sight) -> Verdict | None:
    """Let the checkpoints go with their resource, where the policy is Delete and this cluster had it.

    Another cluster's resources are not known to be gone: a lost cluster's runs wait for their manifests.
    """
    if sight.living is None or not isinstance(sight.head, Head):
        return None
    kept = sight.leading or sight.head
    if kept.deletion_policy is not DeletionPolicy.DELETE or kept.cluster != sight.living.cluster:
        return None
    if kept.resource_uid in sight.living.uids:
        return None
    return Remove(Cause.RESOURCE_GONE, "its AgentRun was deleted, and deletionPolicy is Delete")


def expired(sight: Sight) -> Verdict | None:
    """Let a run go whose retention has passed, counted from its end; or whose name says that it has.

    Not before the end was noted for a resource that is there: it has not been told the result yet.
    """
    if not isinstance(sight.head, Head) or not sight.head.phase.terminal:
        return None
    kept = sight.leading or sight.head
    decided = sight.leading is not None and sight.leading.state is NameState.EXPIRED
    if not decided and (_untold(sight) or sight.head_age is None or sight.head_age < kept.retention_s):
        return None
    return Remove(Cause.EXPIRED, f"it ended longer ago than its retention of {_span(kept.retention_s)}")


def _untold(sight: Sight) -> bool:
    name, living = sight.leading, sight.living
    return name is not None and living is not None and not name.outcome and name.resource_uid in living.uids


def ended(sight: Sight) -> Verdict | None:
    """Take from a run that has ended what its head does not name: no other head will come."""
    if not isinstance(sight.head, Head) or not sight.head.phase.terminal:
        return None
    if sight.head_age is None or sight.head_age < sight.ages.passed_over:
        return Keep()
    names = _named_by(sight.head)
    folders = [*sight.below("segments"), *sight.below("bases")]
    why = "the run has ended, and its head does not name it"
    return Prune(
        tuple(Useless(each, why) for each in folders if each.key not in names), tuple(sight.below("blobs"))
    )


def live(sight: Sight) -> Verdict | None:
    """Take from a live run what its head has passed over, and never a blob."""
    if not isinstance(sight.head, Head):
        return None
    return Prune((*_merged_away(sight, sight.head), *_older_bases(sight, sight.head)))


Rule: TypeAlias = Callable[[Sight], Verdict | None]

RULES: Final[tuple[Rule, ...]] = (
    unreadable,
    doubtful,
    headless,
    being_deleted,
    never_begun,
    resource_gone,
    expired,
    ended,
    live,
)


def judge(sight: Sight) -> Verdict:
    """Return what becomes of a run as it was seen."""
    for rule in RULES:
        if (verdict := rule(sight)) is not None:
            return verdict
    raise AssertionError("live answers every head")


def _merged_away(sight: Sight, head: Head) -> list[Useless]:
    """Return segments whose records the head's own segments have covered for long enough."""
    names, long_there = _named_by(head), _long_there(sight)
    covered = head.segments[-1].last if head.segments else 0
    useless = []
    for each in sight.below("segments"):
        span = numbers_at(each.key)
        if each.key in names or span is None or span[2] > covered:
            continue
        instead = [named for named in head.segments if named.first <= span[2] and span[1] <= named.last]
        if all(segment_key(sight.keys, named) in long_there for named in instead):
            useless.append(Useless(each, "its records are in a segment that the head names"))
    return useless


def _older_bases(sight: Sight, head: Head) -> list[Useless]:
    """Return bases that stand beside or before the newest one that the head names."""
    if not head.bases or base_key(sight.keys, head.bases[-1]) not in _long_there(sight):
        return []
    names = _named_by(head)
    return [
        Useless(each, "the head names newer bases")
        for each in sight.below("bases")
        if each.key not in names
        and (place := numbers_at(each.key)) is not None
        and place[1] <= head.bases[-1].seq
    ]


def _named_by(head: Head) -> frozenset[str]:
    segments = (segment_key(head.keys, named) for named in head.segments)
    return frozenset((*segments, *(base_key(head.keys, named) for named in head.bases)))


def _long_there(sight: Sight) -> frozenset[str]:
    """Return the keys of objects that were written so long ago that all who wait for news have had it."""
    limit = sight.now - sight.ages.passed_over
    return frozenset(each.key for each in sight.objects if each.modified <= limit)


def named_blobs(lines: Iterable[bytes]) -> frozenset[str]:
    """Return the digests of all blobs that these records may name: everything in them that looks like one."""
    return frozenset(found.decode() for line in lines for found in _DIGEST.findall(line))


def unnamed_blobs(blobs: Iterable[Listed], named: Collection[str]) -> tuple[Useless, ...]:
    """Return the blobs of a run that has ended which none of its records names."""
    why = "the run has ended, and no record names it"
    return tuple(Useless(each, why) for each in blobs if each.key.rpartition("/")[2] not in named)


def _span(seconds: int) -> str:
    days, rest = divmod(seconds, _DAY_S)
    return f"{days} days" if days and not rest else f"{seconds} s"
