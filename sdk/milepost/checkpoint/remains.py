"""Read every object that is left of one run, sound or not, and keep what of it can be read at all.

Nothing is judged here: a record that is read is a candidate for its number, `proved` where the digest of its
object says that it is what was written. Objects that no head names any more are read too: what was merged
away and not yet removed, and the undamaged lines of a damaged segment or head, may hold exactly what is
missing.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from milepost.api.names import StoreKeys
from milepost.checkpoint.base import Base, base_key, parse_base
from milepost.checkpoint.fold import State
from milepost.checkpoint.formats import Kind
from milepost.checkpoint.head import parse_head
from milepost.checkpoint.history import HeadAt
from milepost.checkpoint.records import Record, digest_of, parse_line
from milepost.checkpoint.sealed import Segment, header_of, lines_of, segment_key
from milepost.checkpoint.store import Found, Store
from milepost.errors import Corrupt, Damaged, FormatTooNew, Missing

__all__ = ["Line", "Problem", "Remains", "fetch", "require"]

_PREDECESSOR: Final = re.compile(rb'"(?:prev|chain)":"([0-9a-f]{64})"')
"""The digest of the record before, as a record has it, and a header that of its newest. Read from the bytes,
since it may stand in a line that cannot be read as a whole."""


@dataclass(frozen=True)
class Problem:
    """What is wrong with one object. `kind` is the error's: Missing, Corrupt, FormatTooNew or RolledBack.

    `steps` are those whose results were in it, where it is a blob. `harmless`: a base that readers pass over,
    since it is gone or cannot be read, and the head that leads to the records is there.
    """

    key: str
    kind: str
    what: str
    steps: tuple[str, ...] = ()
    harmless: bool = False


@dataclass(frozen=True)
class Line:
    """One record as it was found. `proved`: by the digest of its segment, or the head's own."""

    record: Record
    digest: str
    proved: bool


class Remains:
    """What is left of a run, after one pass over its objects.

    `head` is None where it is lost or damaged, `lines` the candidates for each record, `bases` the states in
    the bases by their keys, `listed` all keys, and `problems` what was found to be wrong so far. Raises
    StoreUnavailable, StoreRefused.
    """

    def __init__(self, store: Store, keys: StoreKeys) -> None:
        self._store = store
        self.keys = keys
        self.problems: list[Problem] = []
        self.lines: dict[int, list[Line]] = {}
        self.bases: dict[str, State] = {}
        self._hurt: bytes | None = None
        self.head = self._read_head()
        self.listed = {listed.key for listed in store.list(keys.run)}
        if self.head is None and self.problems[-1].kind == FormatTooNew.__name__:
            return
        named = {segment_key(keys, each): each for each in self.head.head.segments} if self.head else {}
        for key in (*named, *sorted(self._under("segments/") - named.keys())):
            self._read_segment(key, named.get(key))
        if self.head is not None:
            self._collect(self.head.head.tail, keys.head, proved=True)
        elif self._hurt is not None:
            self._collect(_vouched_for(self._hurt, keys), keys.head, proved=False)
        self._read_bases()

    def note(self, error: Damaged | FormatTooNew, *, harmless: bool = False) -> None:
        """Add what is wrong."""
        what = error.what if isinstance(error, Damaged) else str(error).removeprefix(f"{error.key}: ")
        self.problems.append(Problem(error.key, type(error).__name__, what, harmless=harmless))

    def _under(self, folder: str) -> set[str]:
        return {key for key in self.listed if key.startswith(f"{self.keys.run}{folder}")}

    def _read_head(self) -> HeadAt | None:
        try:
            found = require(fetch(self._store, self.keys.head), self.keys.head, "there is no head")
            self._hurt = found.body
            return HeadAt(parse_head(found.body, self.keys), found.etag)
        except (Damaged, FormatTooNew) as error:
            self.note(error)
            return None

    def _read_segment(self, key: str, named: Segment | None) -> None:
        """Collect a segment's records. Of a damaged one, and of one that no head names, nothing is proved."""
        found, proved = fetch(self._store, key), False
        if named is not None:
            gone = f"the head names it for records {named.first} to {named.last}, and it is gone"
            try:
                lines_of(require(found, key, gone).body, named, self.keys)
                proved = True
            except (Damaged, FormatTooNew) as error:
                self.note(error)
        if not isinstance(found, Found) or (self.head is None and not self._is_ours(found.body, key)):
            return
        self._collect(found.body.splitlines(keepends=True)[1:], key, proved=proved)

    def _is_ours(self, body: bytes, key: str) -> bool:
        """Tell whether a segment that no head vouches for says that it is this run's."""
        try:
            header = header_of(body.partition(b"\n")[0], Kind.SEGMENT, key)
            if header.get("run_id") != self.keys.run_id:
                raise Corrupt(key, f"it says of itself that it is {header}")
        except (Damaged, FormatTooNew) as error:
            self.note(error)
            return False
        return True

    def _collect(self, lines: Iterable[bytes], key: str, *, proved: bool) -> None:
        for line in lines:
            try:
                record = parse_line(line, key)
            except (Damaged, FormatTooNew) as error:
                if proved or self.head is None:
                    self.note(error)
                continue
            self.lines.setdefault(record.seq, []).append(Line(record, digest_of(line), proved))

    def _read_bases(self) -> None:
        """Read the bases that the head names, or, where it is lost, all that are there."""
        named = {base_key(self.keys, base): base for base in self.head.head.bases} if self.head else None
        for key in named if named is not None else sorted(self._under("bases/")):
            gone = "the head names it, and it is gone"
            try:
                found = require(fetch(self._store, key), key, gone)
                base = named[key] if named is not None else _base_of(key, found.body)
                self.bases[key] = parse_base(found.body, base, self.keys)
            except (Damaged, FormatTooNew) as error:
                self.note(error, harmless=named is not None)


def _vouched_for(head: bytes, keys: StoreKeys) -> list[bytes]:
    """Return the lines of a damaged head that are what was written: the next record says so, or its header.

    Nothing is returned of a head that does not say whose it is.
    """
    header, *lines = head.splitlines(keepends=True) or [b""]
    if f'"run_id":"{keys.run_id}"'.encode() not in header:
        return []
    vouched = set(_PREDECESSOR.findall(head))
    return [line for line in lines if digest_of(line).encode() in vouched]


def fetch(store: Store, key: str) -> Found | Damaged | None:
    """Return the object, or what its store says of its being damaged."""
    try:
        found = store.get(key)
    except Damaged as error:
        return error
    return found if isinstance(found, Found) else None


def require(found: Found | Damaged | None, key: str, gone: str) -> Found:
    """Return the object. Raises Missing where it is gone, and what its store said of it."""
    if isinstance(found, Damaged):
        raise found
    if found is None:
        raise Missing(key, gone)
    return found


def _base_of(key: str, body: bytes) -> Base:
    """Return the base of a key, where no head says its digest. Raises Corrupt."""
    try:
        epoch, seq, nonce = key.rpartition("/")[2].split("-")
        return Base(int(epoch), int(seq), nonce, len(body), hashlib.sha256(body).hexdigest())
    except ValueError as error:
        raise Corrupt(key, "its key is not that of a base") from error
