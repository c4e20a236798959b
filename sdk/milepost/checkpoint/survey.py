"""Read all that is left of one run, damaged or not, and say what of it can be trusted.

Nothing is changed, nothing is skipped silently, and nothing is believed because it is there: a record counts
where the head's digests prove it, or a record that continues it, since a writer only ever continues what was
acknowledged. Where the head itself is lost, the newest record before each gap is taken at its word.

The surprise: objects that no head names any more are read too. What was merged away and not yet removed, and
the undamaged lines of a damaged segment, may hold exactly what is missing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from milepost.api.names import StoreKeys
from milepost.api.resource import Phase
from milepost.checkpoint.base import Base, base_key, parse_base
from milepost.checkpoint.fold import State
from milepost.checkpoint.formats import Kind
from milepost.checkpoint.head import Head, parse_head
from milepost.checkpoint.history import HeadAt
from milepost.checkpoint.records import (
    Finished,
    Record,
    Started,
    StepCompleted,
    ToolCalled,
    digest_of,
    parse_line,
)
from milepost.checkpoint.sealed import Segment, header_of, lines_of, segment_key
from milepost.checkpoint.store import Found, Store
from milepost.errors import Corrupt, Damaged, FormatTooNew, Missing

__all__ = ["Problem", "Span", "StepSeen", "Survey", "survey"]

Span = tuple[int, int]
"""The first and the last record of a part of a history."""

_TRIES: Final = 5
"""A run that goes on while it is read is read again so often."""


@dataclass(frozen=True)
class Problem:
    """What is wrong with one object. `kind` is the error's: Missing, Corrupt, FormatTooNew or RolledBack.

    `steps` are those whose results were in it, where it is a blob.
    """

    key: str
    kind: str
    what: str
    steps: tuple[str, ...] = ()


@dataclass(frozen=True)
class StepSeen:
    """A completed step. `seq` is its record; not `kept` means that it is lost and may run again."""

    id: str
    seq: int
    kept: bool
    description: str = ""
    summary: str = ""


@dataclass(frozen=True)
class Survey:
    """What is left of a run.

    `head` is None where it is lost or damaged. `last` is the newest record that is known of, and `trusted`
    the one up to which all are there and continue each other. `records` are all that can be read, by their
    number; `readable` and `lost` are the spans after `trusted`. `unnamed` counts completed steps of which
    not even the name is left. `orphans` are objects that the head does not lead to, which is no damage.
    """

    keys: StoreKeys
    head: HeadAt | None
    started: Started | None
    problems: tuple[Problem, ...]
    last: int
    trusted: int
    readable: tuple[Span, ...]
    lost: tuple[Span, ...]
    records: Mapping[int, Record] = field(repr=False)
    steps: tuple[StepSeen, ...] = ()
    unnamed: int = 0
    lost_blobs: frozenset[str] = frozenset()
    orphans: tuple[str, ...] = ()

    @property
    def repeats(self) -> tuple[str, ...]:
        """The steps that are known to be lost, and so may run again."""
        return tuple(step.id for step in self.steps if not step.kept)

    @property
    def too_new(self) -> bool:
        """Whether a newer Milepost could read more."""
        return any(problem.kind == FormatTooNew.__name__ for problem in self.problems)


def survey(store: Store, keys: StoreKeys, *, blobs: bool = True) -> Survey:
    """Return what is left of the run. Without `blobs` none of those is read.

    It takes a request an object, and the history's size in memory. Raises StoreUnavailable, StoreRefused.
    """
    tries = 0
    while True:
        seen, tries = _Reading(store, keys).survey(blobs=blobs), tries + 1
        if not seen.problems or seen.head is None or tries == _TRIES:
            return seen
        again = _get(store, keys.head)
        if isinstance(again, Found) and again.etag == seen.head.etag:
            return seen


@dataclass(frozen=True)
class _Line:
    """One record as it was found. `proved`: by the digest of its segment, or the head's own."""

    record: Record
    digest: str
    proved: bool


class _Reading:
    """One pass over a run's objects."""

    def __init__(self, store: Store, keys: StoreKeys) -> None:
        self._store = store
        self._keys = keys
        self._problems: list[Problem] = []
        self._head = self._read_head()
        self._listed = {listed.key for listed in store.list(keys.run)}
        self._lines: dict[int, list[_Line]] = {}
        self._bases: dict[str, State] = {}
        self._wanted: dict[int, str] = {}

    def survey(self, *, blobs: bool) -> Survey:
        if self._head is None and self._problems[-1].kind == FormatTooNew.__name__:
            return self._nothing()
        named = self._head.head.segments if self._head else ()
        for segment in named:
            self._read_segment(segment_key(self._keys, segment), segment)
        prefix = f"{self._keys.run}segments/"
        for key in sorted(self._listed - {segment_key(self._keys, each) for each in named}):
            if key.startswith(prefix):
                self._read_segment(key, None)
        self._read_tail()
        self._read_bases()
        last = self._last()
        chosen = self._choose(last)
        state, trusted = self._fold(chosen)
        if trusted == last:
            self._check_header(state)
        records = {seq: line.record for seq, line in sorted(chosen.items())}
        lost_blobs = self._check_blobs(records) if blobs else frozenset()
        steps = _steps(records, self._bases.values(), lost_blobs)
        readable, lost = _spans(records, trusted, last)
        done = self._head.head.totals.steps_done if self._head else 0
        return Survey(
            keys=self._keys,
            head=self._head,
            started=_started(records, self._bases.values()),
            problems=tuple(self._problems),
            last=last,
            trusted=trusted,
            readable=readable,
            lost=lost,
            records=records,
            steps=steps,
            unnamed=max(0, done - len(steps)),
            lost_blobs=lost_blobs,
            orphans=self._orphans(records),
        )

    def _nothing(self) -> Survey:
        return Survey(self._keys, None, None, tuple(self._problems), 0, 0, (), (), {})

    def _note(self, error: Damaged | FormatTooNew) -> None:
        what = error.what if isinstance(error, Damaged) else str(error).removeprefix(f"{error.key}: ")
        self._problems.append(Problem(error.key, type(error).__name__, what))

    def _read_head(self) -> HeadAt | None:
        try:
            found = _require(_get(self._store, self._keys.head), self._keys.head, "there is no head")
            return HeadAt(parse_head(found.body, self._keys), found.etag)
        except (Damaged, FormatTooNew) as error:
            self._note(error)
            return None

    def _read_segment(self, key: str, named: Segment | None) -> None:
        """Collect a segment's records. Of a damaged one, and of one that no head names, nothing is proved."""
        found, proved = _get(self._store, key), False
        if named is not None:
            gone = f"the head names it for records {named.first} to {named.last}, and it is gone"
            try:
                lines_of(_require(found, key, gone).body, named, self._keys)
                proved = True
            except (Damaged, FormatTooNew) as error:
                self._note(error)
        if not isinstance(found, Found) or (self._head is None and not self._is_ours(found.body, key)):
            return
        self._collect(found.body.splitlines(keepends=True)[1:], key, proved=proved)

    def _is_ours(self, body: bytes, key: str) -> bool:
        """Tell whether a segment that no head vouches for says that it is this run's."""
        try:
            header = header_of(body.partition(b"\n")[0], Kind.SEGMENT, key)
            if header.get("run_id") != self._keys.run_id:
                raise Corrupt(key, f"it says of itself that it is {header}")
        except (Damaged, FormatTooNew) as error:
            self._note(error)
            return False
        return True

    def _collect(self, lines: Iterable[bytes], key: str, *, proved: bool) -> None:
        for line in lines:
            try:
                record = parse_line(line, key)
            except (Damaged, FormatTooNew) as error:
                if proved or self._head is None:
                    self._note(error)
                continue
            self._lines.setdefault(record.seq, []).append(_Line(record, digest_of(line), proved))

    def _read_tail(self) -> None:
        if self._head is not None:
            self._collect(self._head.head.tail, self._keys.head, proved=True)

    def _read_bases(self) -> None:
        """Read the bases that the head names, or, where it is lost, all that are there."""
        named = {base_key(self._keys, base): base for base in self._head.head.bases} if self._head else None
        prefix = f"{self._keys.run}bases/"
        for key in (
            named if named is not None else sorted(each for each in self._listed if each.startswith(prefix))
        ):
            gone = "the head names it, and it is gone; it is a cache, and nothing is lost by it"
            try:
                found = _require(_get(self._store, key), key, gone)
                base = named[key] if named is not None else _base_of(key, found.body)
                self._bases[key] = parse_base(found.body, base, self._keys)
            except (Damaged, FormatTooNew) as error:
                self._note(error)

    def _last(self) -> int:
        """Return the newest record that is known of. A head that went back is found out here."""
        known = max(self._lines, default=0)
        if self._head is None:
            return max(known, *(state.seq for state in self._bases.values()), 0)
        head = self._head.head
        # One record beyond the head is what a writer leaves that was lost before it could commit.
        if known > head.seq + 1 and self._continues(head, known):
            what = f"it ends with record {head.seq}, and segments hold records that follow it, up to {known}"
            self._problems.append(Problem(self._keys.head, "RolledBack", what))
            return known
        return head.seq

    def _continues(self, head: Head, known: int) -> bool:
        newest = _newest(self._lines[known])
        before = newest.record.prev
        for seq in range(known - 1, head.seq, -1):
            found = [each.record.prev for each in self._lines.get(seq, ()) if each.digest == before]
            if not found:
                return False
            before = found[0]
        self._wanted[known] = newest.digest
        return before == head.chain

    def _choose(self, last: int) -> dict[int, _Line]:
        """Return the history's records, from the newest back: each one proves the one before it."""
        continued = {line.record.prev for lines in self._lines.values() for line in lines}
        wanted = self._wanted
        if self._head is not None:
            wanted |= {state.seq: state.digest for state in self._bases.values()}
            wanted[self._head.head.seq] = self._head.head.chain
        chosen: dict[int, _Line] = {}
        after: _Line | None = None
        for seq in range(last, 0, -1):
            found = self._lines.get(seq, [])
            digest = after.record.prev if after else wanted.get(seq)
            line = next((each for each in found if each.digest == digest), None)
            line = line or next((each for each in found if each.proved), None)
            line = line or next((each for each in found if each.digest in continued), None)
            if line is None and self._head is None and found:
                line = _newest(found)
            if line is not None:
                chosen[seq] = line
            after = line
        return chosen

    def _fold(self, chosen: Mapping[int, _Line]) -> tuple[State, int]:
        """Return the state of the records before the first gap, and the last one that fits the others."""
        bases = {state.seq: (key, state) for key, state in self._bases.items()}
        state = State()
        while (line := chosen.get(state.seq + 1)) is not None:
            try:
                state.apply(line.record, line.digest, self._where(line.record.seq))
            except Corrupt as error:
                self._note(error)
                return state, line.record.seq - 1
            key, base = bases.get(state.seq, ("", state))
            if base != state:
                self._note(Corrupt(key, f"it differs from what the records up to {state.seq} say"))
                del self._bases[key]
        return state, state.seq

    def _where(self, seq: int) -> str:
        for named in self._head.head.segments if self._head else ():
            if named.first <= seq <= named.last:
                return segment_key(self._keys, named)
        return self._keys.head

    def _check_header(self, state: State) -> None:
        """Compare what the head's header repeats with what its records say."""
        if self._head is None or state.seq != self._head.head.seq:
            return
        head = self._head.head
        said = {"epoch": head.epoch, "chain": head.chain, "totals": head.totals, "phase": head.phase}
        told = {"epoch": state.epoch, "chain": state.digest, "totals": state.totals, "phase": state.phase}
        wrong = [name for name, value in said.items() if value != told[name]]
        if head.phase is Phase.DELETING:
            wrong = [name for name in wrong if name not in ("epoch", "phase")]
        if wrong:
            self._note(Corrupt(self._keys.head, f"its header and its records differ in {', '.join(wrong)}"))

    def _check_blobs(self, records: Mapping[int, Record]) -> frozenset[str]:
        used: dict[str, list[str]] = {}
        for digest, step in _blobs(records.values()):
            used.setdefault(digest, []).append(step)
        damaged = set()
        for digest, steps in used.items():
            key = self._keys.blob(digest)
            try:
                found = _require(_get(self._store, key), key, "a record names it, and it is gone")
                if hashlib.sha256(found.body).hexdigest() == digest:
                    continue
                kind, what = Corrupt.__name__, "it does not match the digest in its name"
            except Damaged as error:
                kind, what = type(error).__name__, error.what
            damaged.add(digest)
            self._problems.append(Problem(key, kind, what, tuple(dict.fromkeys(filter(None, steps)))))
        return frozenset(damaged)

    def _orphans(self, records: Mapping[int, Record]) -> tuple[str, ...]:
        if self._head is None:
            return ()
        head = self._head.head
        used = {self._keys.head, *(self._keys.blob(digest) for digest, _ in _blobs(records.values()))}
        used |= {segment_key(self._keys, segment) for segment in head.segments}
        used |= {base_key(self._keys, base) for base in head.bases}
        return tuple(sorted(self._listed - used))


def _get(store: Store, key: str) -> Found | Damaged | None:
    """Return the object, or what its store says of its being damaged."""
    try:
        found = store.get(key)
    except Damaged as error:
        return error
    return found if isinstance(found, Found) else None


def _require(found: Found | Damaged | None, key: str, gone: str) -> Found:
    """Return the object. Raises Missing where it is gone, and what its store said of it."""
    if isinstance(found, Damaged):
        raise found
    if found is None:
        raise Missing(key, gone)
    return found


def _newest(lines: list[_Line]) -> _Line:
    """Return the one of the highest epoch: whoever wrote another was refused before that epoch began."""
    return max(lines, key=lambda line: (line.record.epoch, line.digest))


def _base_of(key: str, body: bytes) -> Base:
    """Return the base of a key, where no head says its digest. Raises Corrupt."""
    try:
        epoch, seq, nonce = key.rpartition("/")[2].split("-")
        return Base(int(epoch), int(seq), nonce, len(body), hashlib.sha256(body).hexdigest())
    except ValueError as error:
        raise Corrupt(key, "its key is not that of a base") from error


def _blobs(records: Iterable[Record]) -> Iterator[tuple[str, str]]:
    """Yield each blob that the records name, with the step whose it is, empty for the run's own result."""
    for record in records:
        for event in record.events:
            match event:
                case StepCompleted(step=step, result=result) if result.blob:
                    yield result.blob, step.id
                case ToolCalled(step=step_id, result=called) if called is not None and called.blob:
                    yield called.blob, step_id
                case Finished(result=final) if final is not None and final.blob:
                    yield final.blob, ""
                case _:
                    pass


def _steps(
    records: Mapping[int, Record], bases: Iterable[State], lost_blobs: frozenset[str]
) -> tuple[StepSeen, ...]:
    """Return the completed steps in order: those that are recorded, and those that only bases tell of."""
    steps: dict[str, StepSeen] = {}
    for seq, record in records.items():
        for event in record.events:
            if isinstance(event, StepCompleted):
                kept = event.result.blob not in lost_blobs
                seen = StepSeen(event.step.id, seq, kept, event.description, event.summary)
                steps.setdefault(event.step.id, seen)
    for state in bases:
        for step, place in state.completed.items():
            if place.seq not in records:
                steps.setdefault(step, StepSeen(step, place.seq, kept=False))
    return tuple(sorted(steps.values(), key=lambda step: step.seq))


def _spans(
    records: Mapping[int, Record], trusted: int, last: int
) -> tuple[tuple[Span, ...], tuple[Span, ...]]:
    """Return the spans after `trusted` that can be read, and those that are lost."""
    spans: dict[bool, list[Span]] = {True: [], False: []}
    for seq in range(trusted + 1, last + 1):
        into = spans[seq in records]
        if into and into[-1][1] == seq - 1:
            into[-1] = (into[-1][0], seq)
        else:
            into.append((seq, seq))
    return tuple(spans[True]), tuple(spans[False])


def _started(records: Mapping[int, Record], bases: Iterable[State]) -> Started | None:
    """Return how the run was asked for: from record 1, or from a base where that is lost."""
    first = records[1].events[0] if 1 in records else None
    if isinstance(first, Started):
        return first
    return next((state.started for state in bases if state.started is not None), None)
