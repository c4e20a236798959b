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

__all__ = ["Ended", "claim", "replace_head"]


@dataclass(frozen=True)
class Ended:
    """The run has ended already; nothing may be claimed or written."""

    head: Head


Claim: TypeAlias = HeadAt | Ended


def claim(
    store: Store, keys: StoreKeys, claimed: Claimed, *, at: datetime, entropy: Entropy, patience: Patience
) -> Claim:
    """Make `claimed.writer` the run's writer in a new epoch, and return the head that says so.

    A race that is lost to an older attempt is run again; one lost to the same or a newer attempt raises
    Fenced. A pod that claims again does so in a new epoch. Raises RunDeleted, Corrupt, FormatTooNew,
    StoreUnavailable, StoreRefused.
    """
    while True:
        seen = read_head(store, keys)
        if not isinstance(seen, HeadAt) or seen.head.phase is Phase.DELETING:
            raise RunDeleted(keys.run_id)
        if seen.head.phase.terminal:
            return Ended(seen.head)
        again = claimed.attempt == seen.head.attempt and claimed.writer == seen.head.writer
        if claimed.attempt <= seen.head.attempt and not again:
            raise Fenced(keys.run_id, held_epoch=0, seen_epoch=seen.head.epoch)
        # How the pod before ended is counted where it is recorded, so it is recorded once.
        event = claimed.model_copy(update={"previous_end": None}) if again else claimed
        taken = replace_head(store, seen, (event,), at=at, entropy=entropy, patience=patience)
        if taken is not None:
            return taken


def replace_head(
    store: Store,
    seen: HeadAt,
    events: tuple[Event, ...],
    *,
    at: datetime,
    entropy: Entropy,
    patience: Patience,
    resource_uid: str = "",
) -> HeadAt | None:
    """Add a record that begins with a claim to the head that was seen; None if that head no longer stands.

    Raises ProtocolBreach where that head had ended, RunDeleted where it is gone, and as `claim` does.
    """
    commit = next_head(seen.head, events, at=at, entropy=entropy, resource_uid=resource_uid)
    if commit.segment is not None:
        key, body = commit.segment
        send(store, Write(Purpose.CREATE, key, body), patience)
    head = commit.head
    write = Write(
        Purpose.CLAIM, head.keys.head, head.body(), metadata=head.metadata(), etag=seen.etag, head=head
    )
    outcome = send(store, write, patience)
    return HeadAt(head, outcome.etag) if isinstance(outcome, Done) else None
