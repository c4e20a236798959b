"""Gather what there is to see of each run in a store, for `milepost.checkpoint.sweep` to judge.

The time is the store's own, taken from an object that is written and removed for it, because ages are
differences between the store's own dates. Nothing else is changed. What an earlier look read is not read
again while the listing shows it unchanged.

The surprise: a sight is no snapshot. The listing comes first, then what the caller knows of resources, then
names and heads, so whoever acts on a sight reads name and head again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from milepost.api.names import StoreKeys, name_at, run_at
from milepost.api.summary import NameRecord, NameState
from milepost.checkpoint.answers import Purpose, Write
from milepost.checkpoint.head import Head
from milepost.checkpoint.history import HeadAt, read_head
from milepost.checkpoint.runs import Runs
from milepost.checkpoint.sending import Patience, send
from milepost.checkpoint.store import Listed, Store
from milepost.checkpoint.sweep import Ages, Living, Sight, Unreadable
from milepost.errors import Corrupt, FormatTooNew, StoreUnavailable

__all__ = ["CLOCK_FOLDER", "Listing", "Look", "Memory", "Names", "listed", "store_time"]

CLOCK_FOLDER: Final = "_sweep/"
"""Where objects are written to learn the store's time."""

_STALE_CLOCK_S: Final = 3600.0
_SETTLED_S: Final = 10.0

_At: TypeAlias = tuple[str, str]
"""A namespace, and a name or a run id in it."""

Names: TypeAlias = Mapping[_At, NameRecord | Unreadable]
"""Each name's record, by namespace and name."""


@dataclass
class Memory:
    """What was read in earlier looks, so that one costs no read of what has not changed since.

    Only what was some seconds old when it was read is kept: a date may be a second coarse, and so the same
    for what was written just after.
    """

    heads: dict[str, tuple[Listed, Head | Unreadable]] = field(default_factory=dict)
    names: dict[str, tuple[Listed, NameRecord | Unreadable]] = field(default_factory=dict)
    whole: set[str] = field(default_factory=set)
    """Keys of segments that were read back, and of runs that ended whose blobs were held against the log."""


@dataclass
class Listing:
    """What a listing shows: each run's objects, by namespace and run id, and each name's record."""

    objects: dict[_At, list[Listed]] = field(default_factory=lambda: defaultdict(list))
    names: dict[_At, Listed] = field(default_factory=dict)


def store_time(runs: Runs) -> float:
    """Return the store's own time, in seconds since 1970. Raises StoreUnavailable, StoreRefused."""
    store = runs.store
    key = f"{CLOCK_FOLDER}{runs.entropy(9).hex()}"
    send(store, Write(Purpose.CREATE, key, b"{}"), Patience(runs.entropy, deadline=runs.deadline))
    there = list(store.list(CLOCK_FOLDER))
    now = next((each.modified for each in there if each.key == key), None)
    store.delete(key)
    if now is None:
        raise StoreUnavailable(key, waited=0.0, cause="it was written, and the listing does not show it")
    for each in there:
        if each.key != key and now - each.modified > _STALE_CLOCK_S:
            store.delete(each.key)
    return now


def listed(store: Store, namespaces: Sequence[str]) -> Listing:
    """Return what these namespaces hold, or all of them. Raises StoreUnavailable, StoreRefused."""
    listing = Listing()
    for prefix in [f"{namespace}/" for namespace in namespaces] or [""]:
        for each in store.list(prefix):
            if (of_run := run_at(each.key)) is not None:
                listing.objects[of_run].append(each)
            elif (named := name_at(each.key)) is not None:
                listing.names[named] = each
    return listing


@dataclass(frozen=True)
class Look:
    """One look through a store, at its time `now`. Its methods block, and raise as reading does."""

    runs: Runs
    memory: Memory
    now: float
    listing: Listing

    def names(self) -> Names:
        """Return what each name says, or why it cannot be read."""
        return {at: self._name(at, each) for at, each in self.listing.names.items()}

    def sights(self, names: Names, *, living: Living | None, ages: Ages) -> Iterator[Sight]:
        """Yield what there is to see of each run that has objects, or a name that wants it."""
        known = {
            (namespace, record.run_id): record
            for (namespace, _), record in names.items()
            if isinstance(record, NameRecord)
        }
        wanted = {at for at, record in known.items() if record.state is NameState.KEPT}
        for at in sorted(self.listing.objects.keys() | wanted):
            keys = StoreKeys(*at)
            objects = tuple(self.listing.objects.get(at, ()))
            head = self._head(keys, objects)
            yield Sight(
                keys=keys,
                now=self.now,
                objects=objects,
                head=head,
                named=known.get(at),
                doubt=_doubt(keys.namespace, head, names),
                living=living,
                ages=ages,
            )

    def forget(self) -> None:
        """Drop what is remembered of objects that are gone, and of namespaces that were not looked at."""
        objects = {each.key for of_run in self.listing.objects.values() for each in of_run}
        for key in self.memory.heads.keys() - objects:
            del self.memory.heads[key]
        for key in self.memory.names.keys() - {each.key for each in self.listing.names.values()}:
            del self.memory.names[key]
        self.memory.whole &= objects | {StoreKeys(*at).run for at in self.listing.objects}

    def _name(self, at: _At, there: Listed) -> NameRecord | Unreadable:
        known = self.memory.names.get(there.key)
        if known is not None and known[0] == there:
            return known[1]
        try:
            seen = self.runs.read_name(*at)
        except (Corrupt, FormatTooNew) as error:
            record: NameRecord | Unreadable = Unreadable(str(error))
        else:
            # Removed by hand since the listing: who knows what it said.
            record = seen.record if seen else Unreadable("it was removed while it was looked at")
        if self.now - there.modified > _SETTLED_S:
            self.memory.names[there.key] = (there, record)
        return record

    def _head(self, keys: StoreKeys, objects: Sequence[Listed]) -> Head | Unreadable | None:
        """Return the head; asked for where the listing shows none, since a listing is no snapshot."""
        there = next((each for each in objects if each.key == keys.head), None)
        known = self.memory.heads.get(keys.head)
        if known is not None and there is not None and known[0] == there:
            return known[1]
        try:
            seen = read_head(self.runs.store, keys)
        except (Corrupt, FormatTooNew) as error:
            found: Head | Unreadable | None = Unreadable(str(error))
        else:
            # Without its records, which nobody judges by: thousands of heads are kept.
            found = replace(seen.head, tail=()) if isinstance(seen, HeadAt) else None
        if there is not None and found is not None and self.now - there.modified > _SETTLED_S:
            self.memory.heads[keys.head] = (there, found)
        return found


def _doubt(namespace: str, head: Head | Unreadable | None, names: Names) -> str:
    """Return which name that may lead to the run cannot be read, and why. Only a head tells its name."""
    wanted = head.name if isinstance(head, Head) else None
    for (where, name), record in names.items():
        if isinstance(record, Unreadable) and where == namespace and wanted in (None, name):
            return f"{name}: {record.why}"
    return ""
