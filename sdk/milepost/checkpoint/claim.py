"""Become a run's one writer: how every executor starts, the first included.

The head is replaced with the next epoch and this pod's name, from the ETag that was read. From then on the
ETag of every earlier writer is dead, however long it slept. Only then is the history loaded: what is read
after the claim can no longer change under the reader.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from milepost.api.names import Entropy, StoreKeys
from milepost.api.resource import Phase
from milepost.checkpoint.answers import Done, Purpose, Write
from milepost.checkpoint.head import Head, next_head
from milepost.checkpoint.history import HeadAt, read_head
from milepost.checkpoint.records import Claimed, Event
from milepost.checkpoint.sending import Patience, send
from milepost.checkpoint.store import Store
from milepost.errors import Fenced, RunDeleted

__all__ = ["Ended", "claim", "judge", "replace_head"]


@dataclass(frozen=True)
class Ended:
    """The run has ended already; nothing may be claimed or written."""

    head: Head


Claim: TypeAlias = HeadAt | Ended


def claim(
    store: Store,
    keys: StoreKeys,
    claimed: Claimed,
    *,
    at: datetime,
    entropy: Entropy,
    patience: Patience,
    seen: HeadAt | None = None,
) -> Claim:
    """Make `claimed.writer` the run's writer in a new epoch, and return the head that says so.

    `seen` is the head if it was read already; should it stand no longer, it is read again.

    A race that is lost to an older attempt is run again; one lost to the same or a newer attempt raises
    Fenced. A pod that claims again does so in a new epoch. Raises RunDeleted, Corrupt, FormatTooNew,
    StoreUnavailable, StoreRefused.
    """
    while True:
        standing = seen or _standing(store, keys)
        event = judge(standing.head, claimed)
        if event is None:
            return Ended(standing.head)
        taken = replace_head(store, standing, (event,), at=at, entropy=entropy, patience=patience)
        if taken is not None:
            return taken
        seen = None


def judge(head: Head, claimed: Claimed) -> Claimed | None:
    """Return the claim that may be made on this head; None where the run has ended.

    Does no I/O. Raises Fenced where a newer attempt holds the run, or another pod of the same, RunDeleted.
    """
    if head.phase is Phase.DELETING:
        raise RunDeleted(head.run_id)
    if head.phase.terminal:
        return None
    again = claimed.attempt == head.attempt and claimed.writer == head.writer
    if claimed.attempt <= head.attempt and not again:
        raise Fenced(head.run_id, held_epoch=0, seen_epoch=head.epoch)
    # How the pod before ended is counted where it is recorded, so it is recorded once.
    return claimed.model_copy(update={"previous_end": None}) if again else claimed


def _standing(store: Store, keys: StoreKeys) -> HeadAt:
    seen = read_head(store, keys)
    if not isinstance(seen, HeadAt):
        raise RunDeleted(keys.run_id)
    return seen


def replace_head(
    store: Store,
    seen: HeadAt,
    events: tuple[Event, ...],
    *,
    at: datetime,
    entropy: Entropy,
    patience: Patience,
    resource_uid: str = "",
    purpose: Purpose = Purpose.CLAIM,
) -> HeadAt | None:
    """Add a record to the head that was seen; None if that head no longer stands.

    The record begins with a claim, unless the purpose is a COMMIT of the run's own writer, which raises
    Fenced instead of returning None. Raises ProtocolBreach where that head had ended, RunDeleted where it is
    gone, and as `claim` does.
    """
    commit = next_head(seen.head, events, at=at, entropy=entropy, resource_uid=resource_uid)
    for key, body in commit.objects:
        send(store, Write(Purpose.CREATE, key, body), patience)
    head = commit.head
    write = Write(purpose, head.keys.head, head.body(), metadata=head.metadata(), etag=seen.etag, head=head)
    outcome = send(store, write, patience)
    return HeadAt(head, outcome.etag) if isinstance(outcome, Done) else None
