"""A store in memory whose answers can be made to go wrong, one by one.

What is stored is real: a write that is said to be lost was applied or not, and the conditions hold as in
any store. Only what the caller is told, and when, is programmed. Every write is kept for inspection.
"""

from __future__ import annotations

import hashlib
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from milepost.checkpoint.memory import MemoryStore
from milepost.checkpoint.store import (
    Answer,
    Clash,
    Expired,
    Listed,
    Read,
    Refused,
    Stored,
    Undecided,
    Unknown,
)
from milepost.errors import StoreUnavailable

__all__ = ["Crashed", "FakeTime", "Fault", "FaultyStore", "Numbers", "Put"]


class Crashed(Exception):
    """Stands for the process dying at this write."""


def _nothing() -> None:
    pass


@dataclass(frozen=True)
class Fault:
    """What happens to one write: `before`, then it is applied or not, then `after`, then `answer`.

    `answer` None is the store's own. `late` writes are neither applied nor forgotten: `arrive` applies them.
    """

    answer: Answer | None = None
    applied: bool = True
    late: bool = False
    before: Callable[[], None] = _nothing
    after: Callable[[], None] = _nothing

    @classmethod
    def lost_answer(cls, cause: str = "reset by peer", retry_after: float = 0.0) -> Fault:
        """Applied, and nobody is told."""
        return cls(Unknown(cause, retry_after))

    @classmethod
    def lost_request(cls, cause: str = "time-out", retry_after: float = 0.0) -> Fault:
        """Never applied, and nobody is told."""
        return cls(Unknown(cause, retry_after), applied=False)

    @classmethod
    def delayed(cls) -> Fault:
        """Given up by the caller, and applied later."""
        return cls(Unknown("time-out"), applied=False, late=True)

    @classmethod
    def conflict(cls) -> Fault:
        """409, with nothing applied."""
        return cls(Undecided("ConditionalRequestConflict"), applied=False)

    @classmethod
    def busy(cls, retry_after: float = 0.0) -> Fault:
        """503, with nothing applied."""
        return cls(Unknown("503 SlowDown", retry_after), applied=False)

    @classmethod
    def expired(cls) -> Fault:
        """Credentials that have run out."""
        return cls(Expired("ExpiredToken"), applied=False)

    @classmethod
    def refused(cls) -> Fault:
        """403."""
        return cls(Refused("StoreForbidden", "403 AccessDenied", "allow s3:PutObject"), applied=False)

    @classmethod
    def without_etag(cls) -> Fault:
        """Applied and said so, but the answer carries no ETag."""
        return cls(Stored(""))

    @classmethod
    def clash(cls) -> Fault:
        """412 though the condition holds, as a store under repair may say."""
        return cls(Clash(), applied=False)

    @classmethod
    def crash(cls, *, applied: bool) -> Fault:
        """The process dies before or after the write is applied."""
        return cls(applied=applied, after=_crash)


def _crash() -> None:
    raise Crashed


@dataclass(frozen=True)
class Put:
    """One write as it was sent. An empty `etag` is a create."""

    key: str
    body: bytes
    metadata: Mapping[str, str]
    etag: str


@dataclass
class FaultyStore:
    """A MemoryStore with a programme of faults: one for each write to come whose key holds `only`."""

    inner: MemoryStore = field(default_factory=MemoryStore)
    puts: list[Put] = field(default_factory=list)
    gets: list[str] = field(default_factory=list)
    only: str = ""
    _faults: deque[Fault | None] = field(default_factory=deque)
    _failing_reads: int = 0
    _late: list[Put] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def uri(self) -> str:
        return self.inner.uri

    def next_puts(self, *faults: Fault | None, only: str = "") -> None:
        """Replace the programme: what the next writes meet; None is an undisturbed one."""
        self.only = only
        self._faults = deque(faults)

    def next_gets_fail(self, count: int) -> None:
        """Let so many of the next reads find the store unavailable."""
        self._failing_reads = count

    def arrive(self) -> list[Answer]:
        """Let the delayed writes arrive; return what nobody was told."""
        late, self._late = self._late, []
        return [self._apply(put) for put in late]

    def puts_to(self, part: str) -> list[Put]:
        """Return the writes so far whose key holds `part`."""
        return [put for put in self.puts if part in put.key]

    def get(self, key: str, *, unless_etag: str = "") -> Read:
        self.gets.append(key)
        if self._failing_reads:
            self._failing_reads -= 1
            raise StoreUnavailable(key, waited=1.0, cause="503 on a read")
        return self.inner.get(key, unless_etag=unless_etag)

    def put_new(self, key: str, body: bytes, metadata: Mapping[str, str]) -> Answer:
        return self._put(Put(key, body, metadata, ""))

    def put_if(self, key: str, body: bytes, metadata: Mapping[str, str], *, etag: str) -> Answer:
        return self._put(Put(key, body, metadata, etag))

    def list(self, prefix: str) -> Iterator[Listed]:
        return self.inner.list(prefix)

    def delete(self, key: str) -> None:
        self.inner.delete(key)

    def _put(self, put: Put) -> Answer:
        with self._lock:
            self.puts.append(put)
            fault = self._faults.popleft() if self._faults and self.only in put.key else None
        if fault is None:
            return self._apply(put)
        fault.before()
        answer: Answer | None = self._apply(put) if fault.applied else None
        if fault.late:
            self._late.append(put)
        fault.after()
        if fault.answer is not None:
            return fault.answer
        assert answer is not None, "a fault that applies nothing says what the caller is told"
        return answer

    def _apply(self, put: Put) -> Answer:
        if put.etag:
            return self.inner.put_if(put.key, put.body, put.metadata, etag=put.etag)
        return self.inner.put_new(put.key, put.body, put.metadata)


@dataclass
class FakeTime:
    """A monotonic clock that only pauses move."""

    now: float = 0.0
    pauses: list[float] = field(default_factory=list)

    def monotonic(self) -> float:
        return self.now

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


@dataclass
class Numbers:
    """Entropy for tests: no two draws of the length of a nonce are equal, and it is the same every time."""

    count: int = 0

    def __call__(self, size: int) -> bytes:
        self.count += 1
        return hashlib.sha256(str(self.count).encode()).digest()[:size]
