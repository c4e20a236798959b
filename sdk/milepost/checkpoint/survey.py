"""Read all that is left of one run, damaged or not, and say what of it can be trusted.

Nothing is changed, nothing is skipped silently, and nothing is believed because it is there: a record counts
where the head's digests prove it, or a record that continues it, since a writer only ever continues what was
acknowledged. Where the head itself is lost, the newest record before each gap is taken at its word.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from milepost.api.names import StoreKeys
from milepost.api.resource import Phase
from milepost.checkpoint.base import base_key
from milepost.checkpoint.fold import State
from milepost.checkpoint.head import Head
from milepost.checkpoint.history import HeadAt
from milepost.checkpoint.records import (
    Record,
    Resumed,
    Started,
    StepCompleted,
    ToolCalled,
    Withdrawn,
    blob_of,
)
from milepost.checkpoint.remains import Line, Problem, Remains, fetch, require
from milepost.checkpoint.sealed import segment_key
from milepost.checkpoint.store import Found, Store
from milepost.errors import Corrupt, Damaged, FormatTooNew

__all__ = ["Problem", "Span", "StepSeen", "Survey", "survey"]

Span = tuple[int, int]
"""The first and the last record of a part of a history."""

_TRIES: Final = 5
"""A run that goes on while it is read is read again so often."""


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
    def damage(self) -> tuple[Problem, ...]:
        """The problems by which something is lost, or would be.

        A base that readers pass over is not among them. One that they can read and that contradicts the
        records is: they would believe it.
        """
        return tuple(problem for problem in self.problems if not problem.harmless)

    @property
    def repeats(self) -> tuple[str, ...]:
        """The steps that are known to be lost, and so may run again."""
        return tuple(step.id for step in self.steps if not step.kept)

    @property
    def too_new(self) -> bool:
        """Whether a newer Milepost could read more."""
        return any(problem.kind == FormatTooNew.__name__ for problem in self.damage)


def survey(store: Store, keys: StoreKeys, *, blobs: bool = True) -> Survey:
    """Return what is left of the run. Without `blobs` none of those is read.

    It takes a request an object, and the history's size in memory. Raises StoreUnavailable, StoreRefused.
    """
    tries = 0
    while True:
        seen, tries = _Judging(store, Remains(store, keys)).survey(blobs=blobs), tries + 1
        if not seen.problems or seen.head is None or tries == _TRIES:
            return seen
        again = fetch(store, keys.head)
        if isinstance(again, Found) and again.etag == seen.head.etag:
            return seen


class _Judging:
    """What follows from the remains of one pass."""

    def __init__(self, store: Store, left: Remains) -> None:
        self._store = store
        self._left = left
        self._keys = left.keys
        self._wanted: dict[int, str] = {}

    def survey(self, *, blobs: bool) -> Survey:
        last = self._last()
        chosen = self._choose(last)
        state, trusted = self._fold(chosen)
        if trusted == last:
            self._check_header(state)
        records = {seq: line.record for seq, line in sorted(chosen.items())}
        lost_blobs = self._check_blobs(records) if blobs else frozenset()
        steps = _steps(records, self._left.bases.values(), lost_blobs)
        readable, lost = _spans(records, trusted, last)
        done = self._left.head.head.totals.steps_done if self._left.head else 0
        return Survey(
            keys=self._keys,
            head=self._left.head,
            started=_started(records, self._left.bases.values()),
            problems=tuple(self._left.problems),
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

    def _last(self) -> int:
        """Return the newest record that is known of. A head that went back is found out here."""
        known = max(self._left.lines, default=0)
        if self._left.head is None:
            return max(known, *(state.seq for state in self._left.bases.values()), 0)
        head = self._left.head.head
        # One record beyond the head is what a writer leaves that was lost before it could commit.
        if known > head.seq + 1 and self._continues(head, known):
            what = f"it ends with record {head.seq}, and segments hold records that follow it, up to {known}"
            self._left.problems.append(Problem(self._keys.head, "RolledBack", what))
            return known
        return head.seq

    def _continues(self, head: Head, known: int) -> bool:
        newest = _newest(self._left.lines[known])
        before = newest.record.prev
        for seq in range(known - 1, head.seq, -1):
            found = [each.record.prev for each in self._left.lines.get(seq, ()) if each.digest == before]
            if not found:
                return False
            before = found[0]
        self._wanted[known] = newest.digest
        return before == head.chain

    def _choose(self, last: int) -> dict[int, Line]:
        """Return the history's records, from the newest back: each one proves the one before it."""
        continued = {line.record.prev for lines in self._left.lines.values() for line in lines}
        wanted = self._wanted
        if self._left.head is not None:
            wanted |= {state.seq: state.digest for state in self._left.bases.values()}
            wanted[self._left.head.head.seq] = self._left.head.head.chain
        chosen: dict[int, Line] = {}
        # Those that are there, and not all up to the last: what says its number may be damaged.
        for seq in sorted((each for each in self._left.lines if 0 < each <= last), reverse=True):
            found = self._left.lines[seq]
            digest = chosen[seq + 1].record.prev if seq + 1 in chosen else wanted.get(seq)
            line = next((each for each in found if each.digest == digest), None)
            line = line or next((each for each in found if each.proved), None)
            line = line or next((each for each in found if each.digest in continued), None)
            if line is None and self._left.head is None and found:
                line = _newest(found)
            if line is not None:
                chosen[seq] = line
        return chosen

    def _fold(self, chosen: Mapping[int, Line]) -> tuple[State, int]:
        """Return the state of the records before the first gap, and the last one that fits the others."""
        bases = {state.seq: (key, state) for key, state in self._left.bases.items()}
        state = State()
        while (line := chosen.get(state.seq + 1)) is not None:
            try:
                state.apply(line.record, line.digest, self._where(line.record.seq))
            except Corrupt as error:
                self._left.note(error)
                return state, line.record.seq - 1
            key, base = bases.get(state.seq, ("", state))
            if base != state:
                self._left.note(Corrupt(key, f"it differs from what the records up to {state.seq} say"))
                del self._left.bases[key]
        return state, state.seq

    def _where(self, seq: int) -> str:
        for named in self._left.head.head.segments if self._left.head else ():
            if named.first <= seq <= named.last:
                return segment_key(self._keys, named)
        return self._keys.head

    def _check_header(self, state: State) -> None:
        """Compare what the head's header repeats with what its records say."""
        if self._left.head is None or state.seq != self._left.head.head.seq:
            return
        head = self._left.head.head
        said = {"epoch": head.epoch, "chain": head.chain, "totals": head.totals, "phase": head.phase}
        told = {"epoch": state.epoch, "chain": state.digest, "totals": state.totals, "phase": state.phase}
        wrong = [name for name, value in said.items() if value != told[name]]
        if head.phase is Phase.DELETING:
            wrong = [name for name in wrong if name not in ("epoch", "phase")]
        if wrong:
            self._left.note(
                Corrupt(self._keys.head, f"its header and its records differ in {', '.join(wrong)}")
            )

    def _check_blobs(self, records: Mapping[int, Record]) -> frozenset[str]:
        used: dict[str, list[str]] = {}
        for digest, step in _blobs(records.values()):
            used.setdefault(digest, []).append(step)
        damaged = set()
        for digest, steps in used.items():
            key = self._keys.blob(digest)
            try:
                found = require(fetch(self._store, key), key, "a record names it, and it is gone")
                if hashlib.sha256(found.body).hexdigest() == digest:
                    continue
                kind, what = Corrupt.__name__, "it does not match the digest in its name"
            except Damaged as error:
                kind, what = type(error).__name__, error.what
            damaged.add(digest)
            self._left.problems.append(Problem(key, kind, what, tuple(dict.fromkeys(filter(None, steps)))))
        return frozenset(damaged)

    def _orphans(self, records: Mapping[int, Record]) -> tuple[str, ...]:
        if self._left.head is None:
            return ()
        head = self._left.head.head
        used = {self._keys.head, *(self._keys.blob(digest) for digest, _ in _blobs(records.values()))}
        used |= {segment_key(self._keys, segment) for segment in head.segments}
        used |= {base_key(self._keys, base) for base in head.bases}
        return tuple(sorted(self._left.listed - used))


def _newest(lines: list[Line]) -> Line:
    """Return the one of the highest epoch: whoever wrote another was refused before that epoch began."""
    return max(lines, key=lambda line: (line.record.epoch, line.digest))


def _blobs(records: Iterable[Record]) -> Iterator[tuple[str, str]]:
    """Yield each blob that the records name, with the step whose it is, empty for the run's own result."""
    for event in (event for record in records for event in record.events):
        if not (blob := blob_of(event)):
            continue
        match event:
            case StepCompleted(step=place):
                yield blob, place.id
            case ToolCalled(step=step):
                yield blob, step
            case _:
                yield blob, ""


def _steps(
    records: Mapping[int, Record], bases: Iterable[State], lost_blobs: frozenset[str]
) -> tuple[StepSeen, ...]:
    """Return the completed steps in order: those that are recorded, and those that only bases tell of."""
    steps: dict[str, StepSeen] = {}
    for seq, record in records.items():
        for event in record.events:
            match event:
                case StepCompleted():
                    kept = event.result.blob not in lost_blobs
                    seen = StepSeen(event.step.id, seq, kept, event.description, event.summary)
                    steps.setdefault(event.step.id, seen)
                case Withdrawn(step=step):
                    steps.pop(step, None)
                case Resumed(strategy="RestartWithContext"):
                    # They are facts of the execution that begins here, which may adopt them.
                    steps.clear()
                case _:
                    pass
    for state in bases:
        for step, place in state.completed.items():
            if place.seq not in records:
                steps.setdefault(step, StepSeen(step, place.seq, kept=False))
    return tuple(sorted(steps.values(), key=lambda step: step.seq))


def _spans(
    records: Mapping[int, Record], trusted: int, last: int
) -> tuple[tuple[Span, ...], tuple[Span, ...]]:
    """Return the spans after `trusted` that can be read, and those that are lost."""
    readable: list[Span] = []
    for seq in sorted(each for each in records if each > trusted):
        if readable and readable[-1][1] == seq - 1:
            readable[-1] = (readable[-1][0], seq)
        else:
            readable.append((seq, seq))
    lost, before = [], trusted
    for first, until in (*readable, (last + 1, last + 1)):
        if first > before + 1:
            lost.append((before + 1, first - 1))
        before = until
    return tuple(readable), tuple(lost)


def _started(records: Mapping[int, Record], bases: Iterable[State]) -> Started | None:
    """Return how the run was asked for: from record 1, or from a base where that is lost."""
    first = records[1].events[0] if 1 in records else None
    if isinstance(first, Started):
        return first
    return next((state.started for state in bases if state.started is not None), None)
