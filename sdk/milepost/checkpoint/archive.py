"""The records of a run by their number: what is read of a history, verified, and held while it is of use.

A record that was acknowledged never changes, whichever segment holds it today, so what was read once stays
good after segments are merged. Only so many bytes are held; what was let go is read again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from milepost.api.names import StoreKeys
from milepost.checkpoint.head import Head
from milepost.checkpoint.records import Event, Record, digest_of, parse_line
from milepost.checkpoint.sealed import Segment, lines_of, segment_key
from milepost.checkpoint.store import Found, Store
from milepost.errors import Corrupt, Missing

__all__ = ["Archive", "parsed"]

E = TypeVar("E", bound=Event)

HELD: Final = 64 * 1024 * 1024
"""Bytes of segments that are held."""


@dataclass(frozen=True)
class _Part:
    first: int
    last: int
    lines: tuple[bytes, ...]
    size: int


class Archive:
    """One run's records, read from its store. May be used from several threads.

    Its methods block, but for those that say what is at hand: an event loop may ask them.
    Which segments there are is told by the head that each call takes: the newest that its caller knows.
    """

    def __init__(self, store: Store, keys: StoreKeys, *, held: int = HELD) -> None:
        self._store = store
        self._keys = keys
        self._held = held
        self._parts: OrderedDict[tuple[int, int], _Part] = OrderedDict()
        self._lock = threading.Lock()
        # Held while the store is asked: two who want the same segment fetch it once.
        self._fetching = threading.Lock()

    def segment(self, named: Segment) -> tuple[bytes, ...]:
        """Return the lines of a segment, from the store unless they are held.

        Raises Missing, Corrupt, FormatTooNew, StoreUnavailable, StoreRefused.
        """
        lines = self._held_lines(named)
        if lines is None:
            with self._fetching:
                lines = self._held_lines(named)
                if lines is None:
                    lines = self._fetch(named)
                    self._hold(_Part(named.first, named.last, lines, named.size))
        return lines

    def at_hand(self, head: Head, seq: int) -> bytes | None:
        """Return the line of record `seq` if it is held, waiting for nobody; None where the store has it."""
        sealed = head.seq - len(head.tail)
        if sealed < seq <= head.seq:
            return head.tail[seq - sealed - 1]
        with self._lock:
            for part in reversed(self._parts.values()):
                if part.first <= seq <= part.last:
                    return part.lines[seq - part.first]
        return None

    def let_go(self, merged: Sequence[Segment]) -> None:
        """Hold these segments no longer: their records are in one that was written in their place."""
        with self._lock:
            for named in merged:
                self._parts.pop((named.first, named.last), None)

    def line(self, head: Head, seq: int) -> bytes:
        """Return the line of record `seq`. Raises as `segment` does."""
        line = self.at_hand(head, seq)
        if line is not None:
            return line
        for named in head.segments:
            if named.first <= seq <= named.last:
                return self.segment(named)[seq - named.first]
        raise Corrupt(head.keys.head, f"no segment holds record {seq}")

    def record(self, head: Head, seq: int) -> Record:
        """Return record `seq`. Raises as `segment` does."""
        return parse_line(self.line(head, seq), self._where(head, seq))

    def event(self, head: Head, seq: int, kind: type[E], wanted: Callable[[E], bool]) -> E:
        """Return the event of record `seq` that is wanted.

        Raises as `segment` does, and Corrupt where there is none.
        """
        return self._event(self.record(head, seq), head, kind, wanted)

    def event_at_hand(self, head: Head, seq: int, kind: type[E], wanted: Callable[[E], bool]) -> E | None:
        """Return what `event` does, waiting for nobody; None where the store would have to be asked."""
        line = self.at_hand(head, seq)
        if line is None:
            return None
        return self._event(parse_line(line, self._where(head, seq)), head, kind, wanted)

    def digest(self, head: Head, seq: int) -> str:
        """Return the digest of record `seq`, which the next one carries. Raises as `segment` does."""
        return digest_of(self.line(head, seq))

    def _event(self, record: Record, head: Head, kind: type[E], wanted: Callable[[E], bool]) -> E:
        for event in record.events:
            if isinstance(event, kind) and wanted(event):
                return event
        where = self._where(head, record.seq)
        raise Corrupt(where, f"record {record.seq} does not hold what the base says it does")

    def _held_lines(self, named: Segment) -> tuple[bytes, ...] | None:
        span = (named.first, named.last)
        with self._lock:
            if span not in self._parts:
                return None
            self._parts.move_to_end(span)
            return self._parts[span].lines

    def _fetch(self, named: Segment) -> tuple[bytes, ...]:
        key = segment_key(self._keys, named)
        found = self._store.get(key)
        if not isinstance(found, Found):
            raise Missing(key, f"the head names it for records {named.first} to {named.last}, and it is gone")
        return lines_of(found.body, named, self._keys)

    def _where(self, head: Head, seq: int) -> str:
        for named in head.segments:
            if named.first <= seq <= named.last:
                return segment_key(self._keys, named)
        return head.keys.head

    def _hold(self, part: _Part) -> None:
        with self._lock:
            self._parts[part.first, part.last] = part
            total = sum(each.size for each in self._parts.values())
            while total > self._held and len(self._parts) > 1:
                _, let_go = self._parts.popitem(last=False)
                total -= let_go.size


def parsed(lines: Sequence[bytes], key: str) -> tuple[tuple[Record, str], ...]:
    """Return the records in these lines of the object `key`, with the digests of the lines."""
    return tuple((parse_line(line, key), digest_of(line)) for line in lines)
