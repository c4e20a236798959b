"""Read a run's history: the head, then the segments and the base that it names, folded into a state.

Reading changes nothing and needs no claim; a claimed run's history is read in the same way, and cannot
change under its owner. What does not verify is reported and never skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

from milepost.api.names import StoreKeys
from milepost.api.resource import Phase
from milepost.api.summary import GateSummary, HeadSummary, Outcome
from milepost.checkpoint import codec
from milepost.checkpoint.archive import Archive, parsed
from milepost.checkpoint.base import Base, base_key, parse_base
from milepost.checkpoint.fold import State
from milepost.checkpoint.gates import GateAt
from milepost.checkpoint.head import Head, parse_head
from milepost.checkpoint.records import Finished, Record, parse_line
from milepost.checkpoint.sealed import segment_key
from milepost.checkpoint.store import Absent, Found, Store, Unchanged
from milepost.errors import Corrupt, Damaged, FormatTooNew, Missing, RunDeleted

__all__ = [
    "HeadAt",
    "consistently",
    "load",
    "read_base",
    "read_head",
    "read_records",
    "summarize",
]

T = TypeVar("T")

_TRIES: Final = 5
"""Heads of a run that goes on, by each of which something is gone, until that is taken for damage."""

Unusable: TypeAlias = Damaged | FormatTooNew


@dataclass(frozen=True)
class HeadAt:
    """A head and the ETag under which it was read or written."""

    head: Head
    etag: str


def read_head(store: Store, keys: StoreKeys, *, unless_etag: str = "") -> HeadAt | Unchanged | None:
    """Return the run's head; Unchanged if it still has that ETag; None if there is none.

    Raises Corrupt, FormatTooNew, StoreUnavailable, StoreRefused.
    """
    match store.get(keys.head, unless_etag=unless_etag):
        case Absent():
            return None
        case Unchanged() as unchanged:
            return unchanged
        case Found(body=body, etag=etag):
            return HeadAt(parse_head(body, keys), etag)


def load(
    store: Store,
    head: Head,
    archive: Archive | None = None,
    *,
    on_damage: Callable[[Unusable], None] = lambda _: None,
) -> State:
    """Return the state at the head, having read and verified its whole history.

    What a base says need not be folded again. `on_damage` hears of each base that cannot be used; the one
    before it serves, or record 1. Raises Missing where a segment is gone, Corrupt where something is not what
    was written, RunDeleted where all of it is about to go.
    """
    if head.deleting:
        raise RunDeleted(head.run_id)
    archive = archive or Archive(store, head.keys)
    state = _newest_base(store, head, on_damage)
    for key, first, lines in _objects(head, archive):
        state.apply_all(parsed(lines[max(0, state.seq + 1 - first) :], key), key)
    if (state.seq, state.epoch, state.digest) != (head.seq, head.epoch, head.chain):
        raise Corrupt(
            head.keys.head,
            f"its records end at {state.seq} in epoch {state.epoch}, "
            f"its header says {head.seq} in epoch {head.epoch}",
        )
    if state.started is None:
        raise Corrupt(head.keys.head, "its history is empty")
    return state


def _objects(head: Head, archive: Archive) -> Iterator[tuple[str, int, tuple[bytes, ...]]]:
    """Yield the history's objects in order: the key, the first record's number, the lines."""
    for named in head.segments:
        yield segment_key(head.keys, named), named.first, archive.segment(named)
    yield head.keys.head, head.seq - len(head.tail) + 1, head.tail


def _newest_base(store: Store, head: Head, on_damage: Callable[[Unusable], None]) -> State:
    for named in reversed(head.bases):
        try:
            return read_base(store, head.keys, named)
        except (Damaged, FormatTooNew) as error:
            # A newer Milepost that was taken back may have left it. What it says stands in the records too.
            on_damage(error)
    return State()


def read_base(store: Store, keys: StoreKeys, named: Base) -> State:
    """Return the state in a base that the head names. Raises Missing, Corrupt, FormatTooNew."""
    key = base_key(keys, named)
    found = store.get(key)
    if not isinstance(found, Found):
        raise Missing(key, f"the head names it for record {named.seq}, and it is gone")
    return parse_base(found.body, named, keys)


def read_records(
    store: Store, head: Head, archive: Archive | None = None
) -> Iterator[tuple[str, tuple[tuple[Record, str], ...]]]:
    """Yield the history's objects in order: each one's key, and its records with their lines' digests.

    That the records continue each other is for the fold to check. Raises as `load` does.
    """
    for key, _, lines in _objects(head, archive or Archive(store, head.keys)):
        yield key, parsed(lines, key)


def consistently(store: Store, keys: StoreKeys, read: Callable[[HeadAt], T]) -> T | None:
    """Return what `read` gives for the run's head; None if there is no head.

    While a run goes on its segments are merged, and the old ones deleted: where one is gone and the head is
    another one meanwhile, it is read again, a few times. Raises what `read` and `read_head` raise.
    """
    seen, tries = read_head(store, keys), 1
    while isinstance(seen, HeadAt):
        try:
            return read(seen)
        except Missing:
            before, seen = seen, read_head(store, keys)
            if tries == _TRIES or (isinstance(seen, HeadAt) and seen.etag == before.etag):
                raise
            tries += 1
    return None


def summarize(head: Head, uri: str) -> HeadSummary:
    """Return what the head says of the run. `uri` is the store's, for the address of a large result."""
    return HeadSummary(
        run_id=head.run_id,
        resource_uid=head.resource_uid,
        spec_digest=head.spec_digest,
        phase=head.phase,
        epoch=head.epoch,
        attempt=head.attempt,
        seq=head.seq,
        writer=head.writer,
        digest=head.chain,
        image=head.image,
        steps_done=head.totals.steps_done,
        steps_total=head.totals.steps_total,
        oom_at_step=head.totals.oom_at_step,
        ends=head.totals.ends,
        outcome=_outcome(head, uri),
        gates=tuple(map(_gate, head.gates)),
        tokens=head.totals.tokens,
        cost_nano_usd=head.totals.cost_nano_usd,
    )


def _gate(gate: GateAt) -> GateSummary:
    return GateSummary(
        gate.id, gate.type.value, gate.name, gate.key, gate.request_digest, gate.since, gate.until
    )


def _outcome(head: Head, uri: str) -> Outcome | None:
    if head.phase is Phase.HALTED:
        return Outcome(head.reason, head.message)
    if not head.phase.terminal:
        return None
    last = parse_line(head.tail[-1], head.keys.head).events[-1] if head.tail else None
    result = last.result if isinstance(last, Finished) else None
    if result is None:
        return Outcome(head.reason, head.message)
    if result.blob:
        return Outcome(head.reason, head.message, result_ref=f"{uri}/{head.keys.blob(result.blob)}")
    return Outcome(head.reason, head.message, result=codec.plain(result.inline))
