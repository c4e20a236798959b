"""Stores that break one promise each, as real servers were found to, around a store that keeps them all."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from typing_extensions import override

from milepost.checkpoint.memory import MemoryStore
from milepost.checkpoint.store import Absent, Answer, Found, Listed, Read, Refused, Stored, Unknown
from milepost.errors import StoreRefused, StoreUnavailable
from milepost.testing.fake_s3 import FakeS3
from milepost.testing.s3_messages import Request, Response, error

__all__ = [
    "BENT",
    "Bent",
    "CarelessS3",
    "Closed",
    "GuardedS3",
    "MixesBodies",
    "Silent",
    "SlowToOne",
    "Throttling",
]


@dataclass
class Bent:
    """A store without a fault of its own; those below change one thing."""

    inner: MemoryStore = field(default_factory=MemoryStore)

    @property
    def uri(self) -> str:
        return self.inner.uri

    def get(self, key: str, *, unless_etag: str = "") -> Read:
        return self.inner.get(key, unless_etag=unless_etag)

    def put_new(self, key: str, body: bytes, metadata: Mapping[str, str]) -> Answer:
        return self.inner.put_new(key, body, metadata)

    def put_if(self, key: str, body: bytes, metadata: Mapping[str, str], *, etag: str) -> Answer:
        return self.inner.put_if(key, body, metadata, etag=etag)

    def list(self, prefix: str) -> Iterator[Listed]:
        return self.inner.list(prefix)

    def delete(self, key: str) -> None:
        self.inner.delete(key)

    def overwrite(self, key: str, body: bytes) -> Answer:
        """Write whatever stands there."""
        while True:
            found = self.inner.get(key)
            if isinstance(found, Found):
                answer = self.inner.put_if(key, body, {}, etag=found.etag)
            else:
                answer = self.inner.put_new(key, body, {})
            if isinstance(answer, Stored):
                return answer


class IgnoresIfNoneMatch(Bent):
    @override
    def put_new(self, key: str, body: bytes, metadata: Mapping[str, str]) -> Answer:
        del metadata
        return self.overwrite(key, body)


class IgnoresIfMatch(Bent):
    @override
    def put_if(self, key: str, body: bytes, metadata: Mapping[str, str], *, etag: str) -> Answer:
        del metadata, etag
        return self.overwrite(key, body)


class CreatesTheMissing(Bent):
    @override
    def put_if(self, key: str, body: bytes, metadata: Mapping[str, str], *, etag: str) -> Answer:
        if isinstance(self.inner.get(key), Absent):
            return self.inner.put_new(key, body, metadata)
        return self.inner.put_if(key, body, metadata, etag=etag)


@dataclass
class Meeting:
    """Lets the first who comes wait for a second, so that both have looked before either writes.

    Races are run by threads. The main thread is alone with its store, and waits for nobody.
    """

    within: float = 60.0
    _came: int = 0
    _another: threading.Condition = field(default_factory=threading.Condition)

    def meet(self) -> None:
        if threading.current_thread() is threading.main_thread():
            return
        with self._another:
            self._came += 1
            self._another.notify_all()
            self._another.wait_for(lambda: self._came > 1, self.within)


@dataclass
class ChecksThenCreates(Bent):
    """Looks, and writes a moment later, as a server does that has no lock."""

    meeting: Meeting = field(default_factory=Meeting)

    @override
    def put_new(self, key: str, body: bytes, metadata: Mapping[str, str]) -> Answer:
        if not isinstance(self.inner.get(key), Absent):
            return self.inner.put_new(key, body, metadata)
        self.meeting.meet()
        return self.overwrite(key, body)


@dataclass
class ChecksThenReplaces(Bent):
    meeting: Meeting = field(default_factory=Meeting)

    @override
    def put_if(self, key: str, body: bytes, metadata: Mapping[str, str], *, etag: str) -> Answer:
        found = self.inner.get(key)
        if not isinstance(found, Found) or found.etag != etag:
            return self.inner.put_if(key, body, metadata, etag=etag)
        self.meeting.meet()
        return self.overwrite(key, body)


class MixesBodies(Bent):
    """Tells one writer that it won, and keeps other bytes than that writer's."""

    @override
    def put_new(self, key: str, body: bytes, metadata: Mapping[str, str]) -> Answer:
        return self.inner.put_new(key, body[::-1], metadata)


class TakesAnyChecksum(Bent):
    def put_damaged(self, key: str, body: bytes) -> Answer:
        return self.inner.put_new(key, body, {})


@dataclass
class ReadsLate(Bent):
    """Shows the object before the newest one."""

    before: dict[str, Read] = field(default_factory=dict)

    @override
    def get(self, key: str, *, unless_etag: str = "") -> Read:
        return self.before.get(key) or self.inner.get(key, unless_etag=unless_etag)

    @override
    def put_if(self, key: str, body: bytes, metadata: Mapping[str, str], *, etag: str) -> Answer:
        old = self.inner.get(key)
        answer = self.inner.put_if(key, body, metadata, etag=etag)
        if isinstance(answer, Stored) and body.isdigit():
            self.before[key] = old
        return answer


@dataclass
class ListsLate(Bent):
    """Does not list the newest object yet."""

    newest: str = ""

    @override
    def put_new(self, key: str, body: bytes, metadata: Mapping[str, str]) -> Answer:
        self.newest = key
        return self.inner.put_new(key, body, metadata)

    @override
    def list(self, prefix: str) -> Iterator[Listed]:
        return (each for each in self.inner.list(prefix) if each.key != self.newest)


class KeepsTheDeleted(Bent):
    @override
    def delete(self, key: str) -> None:
        """Say nothing and do nothing."""


BENT: Mapping[str, Callable[[], Bent]] = {
    "create-race": ChecksThenCreates,
    "replace-race": ChecksThenReplaces,
    "create-once": IgnoresIfNoneMatch,
    "stale-etag": IgnoresIfMatch,
    "missing-key": CreatesTheMissing,
    "checksum": TakesAnyChecksum,
    "read-after-write": ReadsLate,
    "list-after-write": ListsLate,
    "delete": KeepsTheDeleted,
}
"""A store for each check, which that check finds out."""


@dataclass
class Throttling(Bent):
    """Every second write is applied and not answered for, every third is not even applied."""

    count: Iterator[int] = field(default_factory=itertools.count)

    def _answer(self, write: Callable[[], Answer]) -> Answer:
        number = next(self.count)
        if number % 3 == 2:
            return Unknown("503 SlowDown")
        answer = write()
        return Unknown("reset by peer") if number % 2 else answer

    @override
    def put_new(self, key: str, body: bytes, metadata: Mapping[str, str]) -> Answer:
        return self._answer(lambda: self.inner.put_new(key, body, metadata))

    @override
    def put_if(self, key: str, body: bytes, metadata: Mapping[str, str], *, etag: str) -> Answer:
        return self._answer(lambda: self.inner.put_if(key, body, metadata, etag=etag))


class Silent(Bent):
    @override
    def put_new(self, key: str, body: bytes, metadata: Mapping[str, str]) -> Answer:
        del key, body, metadata
        return Unknown("time-out")

    @override
    def get(self, key: str, *, unless_etag: str = "") -> Read:
        del unless_etag
        raise StoreUnavailable(key, waited=1.0, cause="time-out")


@dataclass
class SlowToOne(Bent):
    """Lets the first reader wait for its answer, for so many seconds."""

    seconds: float = 0.5
    _first: threading.Lock = field(default_factory=threading.Lock)

    @override
    def get(self, key: str, *, unless_etag: str = "") -> Read:
        if self._first.acquire(blocking=False):
            threading.Event().wait(self.seconds)
        return super().get(key, unless_etag=unless_etag)


@dataclass
class Closed(Bent):
    """Opens only what lies below `own`, for the calls in `guarded`: read, list, write, delete."""

    own: str = ""
    guarded: frozenset[str] = frozenset({"read", "list", "write", "delete"})
    reason: str = "StoreForbidden"

    def _refused(self, call: str, key: str) -> bool:
        return call in self.guarded and not key.startswith(self.own)

    def _refuse(self, call: str, key: str) -> None:
        if self._refused(call, key):
            raise StoreRefused(self.reason, f"{key}: 403", advice="allow it")

    @override
    def get(self, key: str, *, unless_etag: str = "") -> Read:
        self._refuse("read", key)
        return self.inner.get(key, unless_etag=unless_etag)

    @override
    def list(self, prefix: str) -> Iterator[Listed]:
        self._refuse("list", prefix)
        return self.inner.list(prefix)

    @override
    def delete(self, key: str) -> None:
        self._refuse("delete", key)
        self.inner.delete(key)

    @override
    def put_new(self, key: str, body: bytes, metadata: Mapping[str, str]) -> Answer:
        if self._refused("write", key):
            return Refused(self.reason, f"{key}: 403", "allow it")
        return self.inner.put_new(key, body, metadata)

    @override
    def put_if(self, key: str, body: bytes, metadata: Mapping[str, str], *, etag: str) -> Answer:
        if self._refused("write", key):
            return Refused(self.reason, f"{key}: 403", "allow it")
        return self.inner.put_if(key, body, metadata, etag=etag)


class CarelessS3(FakeS3):
    """A server that accepts both conditions of a write and looks at neither, until `careful` is set."""

    careful = False

    @override
    def _answer(self, request: Request) -> Response:
        if request.method == "PUT" and not self.careful:
            headers = {name: each for name, each in request.headers.items() if not name.startswith("if-")}
            request = replace(request, headers=headers)
        return super()._answer(request)


class GuardedS3(FakeS3):
    """A server whose keys open only what lies below `own`."""

    own = ""

    @override
    def _answer(self, request: Request) -> Response:
        if not (request.key or request.query.get("prefix", "")).startswith(self.own):
            return error(403, "AccessDenied", "Access Denied.")
        return super()._answer(request)
