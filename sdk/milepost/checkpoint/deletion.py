"""Look through a store for what may be deleted, and delete it: the hands of `milepost.checkpoint.sweep`.

Every deletion of a run can be cut off anywhere: an expired run's name gives it up, the head is replaced by
one that refuses every writer, the name of a run that went with its resource is freed, then everything else
goes, and the head last. So as long as anything is left, what is left says what to do. Nothing is decided by
what an earlier look saw: name and head are read again, and replaced on condition that they are still what
the verdict was about.

Names are never removed, only given up: a DELETE has no condition, and could hit the record of a run that was
begun a moment ago.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from milepost.api.names import StoreKeys, numbers_at
from milepost.api.resource import DeletionPolicy, Phase
from milepost.api.summary import NameRecord, NameState
from milepost.checkpoint.archive import Archive
from milepost.checkpoint.gathering import Look, Memory, listed, store_time
from milepost.checkpoint.head import Head
from milepost.checkpoint.history import HeadAt, read_head
from milepost.checkpoint.runs import HeadSeen, NameSeen, Runs, Stale
from milepost.checkpoint.sealed import segment_key
from milepost.checkpoint.store import Listed
from milepost.checkpoint.sweep import (
    Ages,
    Cause,
    Living,
    Prune,
    Remove,
    Sight,
    Trouble,
    Unreadable,
    Useless,
    Verdict,
    judge,
    named_blobs,
    unnamed_blobs,
)
from milepost.errors import Damaged, FormatTooNew, RunDeleted

__all__ = ["Carried", "Finding", "Resources", "Sweeper"]

_TRIES_TO_END: Final = 20
_ROUNDS: Final = 10
"""How often a run is listed until nothing of it is left; a writer that was asleep may add to it meanwhile."""


class Resources(Protocol):
    """Who knows which resources there are. Both calls block."""

    def living(self) -> Living | None:
        """Return the uids of all resources there are now; None where that is not known for certain."""
        ...

    def exists(self, namespace: str, name: str, uid: str) -> bool:
        """Tell whether there is this very resource, asking afresh; True where that is not known."""
        ...


@dataclass(frozen=True)
class Finding:
    """What is to be done about one run; or about a name that cannot be read, which has no `sight`."""

    key: str
    verdict: Prune | Remove | Trouble
    name: str = ""
    sight: Sight | None = None

    @property
    def objects(self) -> tuple[Listed, ...]:
        """The objects that go."""
        match self.verdict:
            case Prune(objects=objects):
                return tuple(each.object for each in objects)
            case Remove():
                return self.sight.objects if self.sight else ()
            case Trouble():
                return ()


@dataclass(frozen=True)
class Carried:
    """What became of a finding: the objects that went, their bytes, and why some or all stayed, if so.

    `stayed` are the keys of useless objects that stayed while others of their run went.
    """

    objects: int = 0
    size: int = 0
    left: str = ""
    stayed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Sweeper:
    """Looks through one store. Every method blocks, and raises StoreUnavailable and StoreRefused.

    `blobs_within` is for how long after its end a run's blobs are held against its records, in seconds by the
    store's dates; that reads its whole history, once.
    """

    runs: Runs
    resources: Resources | None = None
    ages: Ages = field(default_factory=Ages)
    memory: Memory = field(default_factory=Memory)
    blobs_within: float = float("inf")

    def store_time(self) -> float:
        """Return the store's own time, in seconds since 1970."""
        return store_time(self.runs)

    def look(self, namespaces: Sequence[str] = ()) -> Iterator[Finding]:
        """Yield what is to be done in these namespaces, or in all of them.

        Nothing is changed but for learning the time. Of a run with nothing to do there is no finding.
        """
        look = self._look(namespaces)
        # After the listing: what stands there for a resource was written when it existed.
        living = self.resources.living() if self.resources else None
        names = look.names()
        for (namespace, name), record in names.items():
            if isinstance(record, Unreadable):
                trouble = Trouble(f"the name cannot be read: {record.why}")
                yield Finding(StoreKeys(namespace).name(name), trouble, name)
        for sight in look.sights(names, living=living, ages=self.ages):
            if (finding := self._finding(sight)) is not None:
                yield finding
        look.forget()

    def carry_out(self, finding: Finding, *, orphans: bool = False) -> Carried:
        """Do what was found to be done, unless it no longer holds. Objects of no run only if `orphans`."""
        sight = finding.sight
        if sight is None:
            return Carried(left="a person has to look")
        try:
            match finding.verdict:
                case Trouble():
                    return Carried(left="a person has to look")
                case Prune(objects=objects):
                    return self._prune(sight, objects)
                case Remove(cause=Cause.ORPHANED) if not orphans:
                    return Carried(left="objects of no run are only deleted on request")
                case Remove(cause=Cause.ORPHANED | Cause.LEFT_OVER):
                    if read_head(self.runs.store, sight.keys) is not None:
                        return Carried(left="a head has appeared")
                    return self._clear(sight.keys)
                case Remove(cause=cause):
                    return self._remove(sight, cause)
        except (Stale, RunDeleted) as error:
            return Carried(left=str(error))
        except (Damaged, FormatTooNew) as error:
            return Carried(left=f"it cannot be read any more: {error}")

    def expired_names(self, namespaces: Sequence[str] = ()) -> Iterator[tuple[str, str, float]]:
        """Yield each name of which nothing is left but its run's outcome: namespace, name, age in seconds."""
        look = self._look(namespaces)
        for at, record in look.names().items():
            if not isinstance(record, NameRecord) or record.state is not NameState.EXPIRED:
                continue
            if (at[0], record.run_id) not in look.listing.objects:
                yield *at, look.now - look.listing.names[at].modified

    def forget(self, namespace: str, name: str) -> str:
        """Let a name start anew that only tells an outcome. Return why it was left, if it was."""
        try:
            seen = self.runs.read_name(namespace, name)
            if seen is None or seen.record.state is not NameState.EXPIRED:
                return "the name was changed meanwhile"
            self.runs.change_name(namespace, seen, state=NameState.FREE)
        except (Stale, Damaged, FormatTooNew) as error:
            return str(error)
        return ""

    def _look(self, namespaces: Sequence[str]) -> Look:
        return Look(self.runs, self.memory, self.store_time(), listed(self.runs.store, namespaces))

    def _finding(self, sight: Sight) -> Finding | None:
        verdict: Verdict = judge(sight)
        if isinstance(verdict, Prune):
            verdict = self._with_blobs(sight, verdict)
            if not verdict.objects:
                return None
        if not isinstance(verdict, Prune | Remove | Trouble):
            return None
        name = sight.head.name if isinstance(sight.head, Head) else sight.named.name if sight.named else ""
        return Finding(sight.keys.run, verdict, name, sight)

    def _with_blobs(self, sight: Sight, verdict: Prune) -> Prune:
        """Add the blobs that no record names, where there may be any."""
        key, age = sight.keys.run, sight.head_age
        late = age is None or age > self.blobs_within
        if not verdict.blobs or late or key in self.memory.whole:
            return verdict
        try:
            seen = read_head(self.runs.store, sight.keys)
            if not isinstance(seen, HeadAt) or not seen.head.phase.terminal or seen.head.deleting:
                return replace(verdict, blobs=())
            named = named_blobs(_lines(self.runs, seen.head))
        except (Damaged, FormatTooNew):
            # The run stays as it is until its retention ends; whoever verifies it is told.
            return replace(verdict, blobs=())
        unnamed = unnamed_blobs(verdict.blobs, named)
        if not unnamed:
            self.memory.whole.add(key)
        return Prune((*verdict.objects, *unnamed))

    def _prune(self, sight: Sight, useless: Iterable[Useless]) -> Carried:
        """Delete what is useless. What stands in a segment's place has been read back before it goes."""
        done = Carried()
        for each in useless:
            key = each.object.key
            if (damaged := self._replaced_badly(sight, each.object)) is not None:
                left = f"what replaced it is damaged: {damaged}"
                done = replace(done, left=left, stayed=(*done.stayed, key))
                continue
            self.runs.store.delete(key)
            done = replace(done, objects=done.objects + 1, size=done.size + each.object.size)
        return done

    def _replaced_badly(self, sight: Sight, listed: Listed) -> str | None:
        assert isinstance(sight.head, Head), "only a run with a head is pruned"
        if not listed.key.startswith(f"{sight.keys.run}segments/"):
            return None
        span = numbers_at(listed.key)
        archive = Archive(self.runs.store, sight.keys, held=0)
        for named in sight.head.segments:
            key = segment_key(sight.keys, named)
            aside = span is not None and (named.last < span[1] or span[2] < named.first)
            if aside or key in self.memory.whole:
                continue
            try:
                archive.segment(named)
            except (Damaged, FormatTooNew) as error:
                return str(error)
            self.memory.whole.add(key)
        return None

    def _remove(self, sight: Sight, cause: Cause) -> Carried:
        """Delete a run with a head. Raises Stale where name and head, read again, do not say the same."""
        head = self.runs.observe(sight.keys)
        if not isinstance(head, HeadSeen):
            raise RunDeleted(sight.keys.run_id)
        name = self.runs.read_name(sight.keys.namespace, head.at.head.name)
        ours = name if name is not None and name.record.run_id == sight.keys.run_id else None
        again = judge(replace(sight, head=head.at.head, named=ours.record if ours else None))
        if not isinstance(again, Remove) or again.cause is not cause:
            raise Stale(f"run {sight.keys.run_id} or its name was changed meanwhile")
        match cause:
            case Cause.NEVER_BEGUN:
                self._keep_from_being_named(head, name)
            case Cause.EXPIRED:
                self._leave_outcome(sight.keys.namespace, ours, head.summary.phase.value)
            case Cause.RESOURCE_GONE:
                head = self._ended(sight, head, ours)
            case _:
                pass
        self.runs.begin_deletion(head)
        if cause in (Cause.RESOURCE_GONE, Cause.INTERRUPTED):
            self._give_up(sight.keys.namespace, ours)
        return self._clear(sight.keys)

    def _keep_from_being_named(self, head: HeadSeen, name: NameSeen | None) -> None:
        """Change the name, so that whoever made the head, and may be asleep, cannot let it lead here."""
        keys = head.at.head.keys
        if name is None:
            self.runs.block_name(keys.namespace, head.at.head.name, keys.run_id)
        else:
            self.runs.change_name(keys.namespace, name)

    def _leave_outcome(self, namespace: str, name: NameSeen | None, outcome: str) -> None:
        if name is not None and name.record.state is NameState.KEPT:
            self.runs.change_name(namespace, name, outcome=outcome, state=NameState.EXPIRED)

    def _ended(self, sight: Sight, head: HeadSeen, name: NameSeen | None) -> HeadSeen:
        """End the run of a resource that is gone. Raises Stale where it is there after all."""
        kept = name.record if name is not None and sight.leading is not None else head.at.head
        if self.resources is None or self.resources.exists(
            sight.keys.namespace, head.at.head.name, kept.resource_uid
        ):
            raise Stale(f"the AgentRun of run {sight.keys.run_id} is there")
        message = "its AgentRun was deleted, and deletionPolicy is Delete"
        for _ in range(_TRIES_TO_END):
            try:
                return self.runs.end(head, phase=Phase.CANCELLED, reason="Deleted", message=message)
            except Stale:
                # Its executor records on, which changes nothing of this.
                seen = self.runs.observe(sight.keys)
                if not isinstance(seen, HeadSeen):
                    raise
                head = seen
        raise Stale(f"run {sight.keys.run_id} records faster than it can be ended")

    def _give_up(self, namespace: str, name: NameSeen | None) -> None:
        """Let the name stand for no run any more, before the last of the run is gone."""
        if name is None or name.record.state is not NameState.KEPT:
            return
        if name.record.deletion_policy is DeletionPolicy.DELETE:
            self.runs.change_name(namespace, name, state=NameState.FREE)
        else:
            outcome = name.record.outcome or Phase.CANCELLED.value
            self.runs.change_name(namespace, name, outcome=outcome, state=NameState.EXPIRED)

    def _clear(self, keys: StoreKeys) -> Carried:
        """Delete all objects of a run whose head refuses every writer, or is gone; the head last."""
        store, done = self.runs.store, Carried()
        for _ in range(_ROUNDS):
            found = [each for prefix in (keys.run, keys.inbox) for each in store.list(prefix)]
            others = [each for each in found if each.key != keys.head]
            if not others:
                store.delete(keys.head)
                size = sum(each.size for each in found)
                return Carried(done.objects + len(found), done.size + size)
            for each in others:
                store.delete(each.key)
                done = Carried(done.objects + 1, done.size + each.size)
        return replace(done, left="its objects are still listed; the next sweep goes on")


def _lines(runs: Runs, head: Head) -> Iterator[bytes]:
    archive = Archive(runs.store, head.keys, held=0)
    for named in head.segments:
        yield from archive.segment(named)
    yield from head.tail
