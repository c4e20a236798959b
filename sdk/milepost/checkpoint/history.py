"""Read a run's history: the head, then the segments that it names, folded into a state.

Reading changes nothing and needs no claim; a claimed run's history is read in the same way, and cannot
change under its owner. What does not verify is reported and never skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from milepost.api.names import StoreKeys
from milepost.api.resource import Phase
from milepost.api.summary import HeadSummary, Outcome
from milepost.checkpoint.fold import State
from milepost.checkpoint.head import Head, parse_head, parse_segment
from milepost.checkpoint.records import Finished, Record, parse_line
from milepost.checkpoint.store import Absent, Found, Store, Unchanged
from milepost.errors import Corrupt, Missing

__all__ = ["HeadAt", "load", "read_head", "read_records", "summarize"]


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


def load(store: Store, head: Head) -> State:
    """Return the state folded from the head's whole history.

    Raises Missing where a segment is gone, Corrupt where something is not what was written.
    """
    state = State()
    for key, lines in read_records(store, head):
        state.apply_all(lines, key)
    if (state.seq, state.epoch, state.digest) != (head.seq, head.epoch, head.chain):
        raise Corrupt(
            head.keys.head,
            f"its records end at {state.seq} in epoch {state.epoch}, "
            f"its header says {head.seq} in epoch {head.epoch}",
        )
    if state.started is None:
        raise Corrupt(head.keys.head, "its history is empty")
    return state


def read_records(store: Store, head: Head) -> Iterator[tuple[str, tuple[tuple[Record, str], ...]]]:
    """Yield the history's objects in order: each one's key, and its records with their lines' digests.

    That the records continue each other is for the fold to check. Raises as `load` does.
    """
    for named in head.segments:
        key = head.keys.segment(named.epoch, named.first, named.last, named.nonce)
        found = store.get(key)
        if not isinstance(found, Found):
            raise Missing(key, f"the head names it for records {named.first} to {named.last}, and it is gone")
        yield key, parse_segment(found.body, named, head)
    yield head.keys.head, head.records()


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
    return Outcome(head.reason, head.message, result=result.inline)
