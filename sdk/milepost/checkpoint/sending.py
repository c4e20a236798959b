"""Send a conditional write until its outcome is known: the loop around the answer table.

The same bytes go out again and again, with a capped and jittered back-off, until the table says how the
write ended or the deadline has passed. Only then may its writer build the next body.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from milepost.api.names import Entropy
from milepost.checkpoint.answers import Done, Look, Lost, Next, SendAgain, Write, after_look, after_put
from milepost.checkpoint.store import Answer, Store
from milepost.errors import StoreUnavailable

__all__ = ["Patience", "persist", "send"]

T = TypeVar("T")

FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 5.0


def _wait(seconds: float) -> None:
    threading.Event().wait(seconds)


def _untold(_key: str, _cause: str, _waited: float) -> None:
    pass


@dataclass(frozen=True)
class Patience:
    """How long to go on. Times are seconds; `monotonic`, `pause` and `entropy` are the shell's.

    `on_trouble` hears before each pause of the object, what went wrong, and for how long it has by now.
    """

    entropy: Entropy
    deadline: float = 60.0
    monotonic: Callable[[], float] = time.monotonic
    pause: Callable[[float], None] = _wait
    on_trouble: Callable[[str, str, float], None] = _untold

    def back_off(self, attempt: int) -> float:
        """Return the pause before try `attempt`, counted from 1: doubling, capped, half of it jitter."""
        whole: float = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(attempt - 1, 16))
        return whole * (0.5 + self.entropy(1)[0] / 512)


def send(store: Store, write: Write, patience: Patience) -> Done | Lost:
    """Return how the write ended.

    Raises StoreUnavailable where that is still unknown at the deadline, and what the answer table raises.
    """
    began = patience.monotonic()
    attempt = 0
    while True:
        step = after_put(write, _put(store, write))
        if isinstance(step, Look):
            step = _look(store, write)
        if isinstance(step, Done | Lost):
            return step
        assert isinstance(step, SendAgain), "after a look everything else is settled"
        attempt += 1
        waited = patience.monotonic() - began
        if waited >= patience.deadline:
            raise StoreUnavailable(write.key, waited=waited, cause=step.cause)
        pause = max(patience.back_off(attempt), step.retry_after)
        patience.on_trouble(write.key, step.cause, waited)
        patience.pause(min(pause, patience.deadline - waited))


def persist(call: Callable[[], T], patience: Patience) -> T:
    """Return what a call gives that is harmless to repeat, such as a read or a claim.

    Raises StoreUnavailable where the store has still not answered at the deadline.
    """
    began = patience.monotonic()
    attempt = 0
    while True:
        try:
            return call()
        except StoreUnavailable as error:
            attempt += 1
            waited = patience.monotonic() - began
            if waited >= patience.deadline:
                raise StoreUnavailable(error.key, waited=waited, cause=error.cause) from error
            patience.on_trouble(error.key, error.cause, waited)
            patience.pause(min(patience.back_off(attempt), patience.deadline - waited))


def _look(store: Store, write: Write) -> Next:
    try:
        return after_look(write, store.get(write.key))
    except StoreUnavailable as error:
        return SendAgain(error.cause)


def _put(store: Store, write: Write) -> Answer:
    if write.etag:
        return store.put_if(write.key, write.body, write.metadata, etag=write.etag)
    return store.put_new(write.key, write.body, write.metadata)
