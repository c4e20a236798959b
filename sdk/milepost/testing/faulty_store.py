"""A store whose answers go wrong where a test says so, over one that works.

What is stored is real, and so are the conditions. A fault decides whether the request arrives, and what its
sender is told, with the words of `milepost.testing.faults`: the answers of an S3 server mean here what they
mean there. A read that a real store would notice to be damaged, or cut off, finds the store unavailable.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar, final

from milepost.checkpoint.memory import MemoryStore
from milepost.checkpoint.store import Answer, Found, Gone, Listed, Read, Refused, Store, Unknown
from milepost.errors import StoreRefused, StoreUnavailable
from milepost.testing.faults import Action, Delay, Drop, Fault, Faults, Flip, Hold, Reply, Truncate

__all__ = ["FaultyStore"]

T = TypeVar("T")

_LOST = Unknown("the connection was closed before an answer came")
_DAMAGED = Unknown("the body was damaged on its way")


@final
class FaultyStore:
    """A store with faults. Their methods are PUT, GET, LIST and DELETE, their keys those of a run's objects.

    `faults` takes more of them, or all of them back, at any time. `requests` are those that came so far, each
    with its method and key. Safe to use from several threads.
    """

    def __init__(self, *faults: Fault, store: Store | None = None) -> None:
        """Take the faults, and the store behind them: in memory, where none is given."""
        self.store: Store = store or MemoryStore()
        self.faults = Faults()
        self.faults.add(*faults)
        self.requests: list[tuple[str, str]] = []

    @property
    def uri(self) -> str:
        """Where the store is."""
        return self.store.uri

    def get(self, key: str, *, unless_etag: str = "") -> Read:
        """Read, as far as no fault is in the way."""

        def read() -> Read:
            return self.store.get(key, unless_etag=unless_etag)

        action = self._action("GET", key)
        if isinstance(action, Flip) and action.mended:
            found = read()
            return _flipped(found, action.at) if isinstance(found, Found) else found
        return self._read(action, key, read)

    def put_new(self, key: str, body: bytes, metadata: Mapping[str, str]) -> Answer:
        """Create, as far as no fault is in the way."""
        return self._write(key, lambda: self.store.put_new(key, body, metadata))

    def put_if(self, key: str, body: bytes, metadata: Mapping[str, str], *, etag: str) -> Answer:
        """Replace, as far as no fault is in the way."""
        return self._write(key, lambda: self.store.put_if(key, body, metadata, etag=etag))

    def list(self, prefix: str) -> Iterator[Listed]:
        """List, as far as no fault is in the way."""
        return self._read(self._action("LIST", prefix), prefix, lambda: self.store.list(prefix))

    def delete(self, key: str) -> None:
        """Delete, as far as no fault is in the way."""
        self._read(self._action("DELETE", key), key, lambda: self.store.delete(key))

    def _action(self, method: str, key: str) -> Action | None:
        self.requests.append((method, key))
        fault = self.faults.due(method, key)
        return fault.action if fault else None

    def _write(self, key: str, write: Callable[[], Answer]) -> Answer:
        match action := self._action("PUT", key):
            case Truncate() | Flip():
                return _DAMAGED
            case Reply(after=True) | Drop(after=True):
                write()
                return _told(action, key)
            case Reply() | Drop():
                return _told(action, key)
            case Delay(after=True) | Hold(after=True):
                answer = write()
                return answer if _waited(action) else _LOST
            case Delay() | Hold():
                return write() if _waited(action) else _LOST
            case None:
                return write()

    def _read(self, action: Action | None, key: str, read: Callable[[], T]) -> T:
        match action:
            case Reply() | Drop():
                _raise(_told(action, key), key)
            case Truncate() | Flip():
                _raise(_DAMAGED, key)
            case Delay() | Hold():
                if not _waited(action):
                    _raise(_LOST, key)
            case None:
                pass
        return read()


def _waited(action: Delay | Hold) -> bool:
    """Return once the fault lets the request go on; False where it goes nowhere."""
    if isinstance(action, Delay):
        threading.Event().wait(action.seconds)
        return True
    action.wait()
    return not action.lost


def _told(action: Reply | Drop, key: str) -> Answer:
    if isinstance(action, Drop):
        return _LOST
    # Importing the S3 client takes longer than all of the kit.
    from botocore.exceptions import ClientError  # noqa: PLC0415  (as said above)

    from milepost.checkpoint.s3_answers import answer_to  # noqa: PLC0415  (as said above)

    headers = {name.lower(): value for name, value in action.headers.items()}
    said: Any = {
        "Error": {"Code": action.code, "Message": action.message},
        "ResponseMetadata": {"HTTPStatusCode": action.status, "HTTPHeaders": headers},
    }
    return answer_to(ClientError(said, "test"), key)


def _raise(answer: Answer, key: str) -> None:
    if isinstance(answer, Refused):
        raise StoreRefused(answer.reason, answer.message, advice=answer.advice)
    cause = "no such object" if isinstance(answer, Gone) else getattr(answer, "cause", type(answer).__name__)
    raise StoreUnavailable(key, waited=0.0, cause=cause)


def _flipped(found: Found, at: int) -> Found:
    body = bytearray(found.body)
    body[at % len(body)] ^= 1
    return Found(bytes(body), found.etag, found.metadata)
