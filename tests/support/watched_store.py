"""A store with something that happens before or after each call: a death, another writer, a long sleep."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from milepost.checkpoint.store import Answer, Listed, Read, Store
from tests.support.store_doubles import Crashed

__all__ = ["WatchedStore", "dying"]

Hook = Callable[[int, str], None]
"""Takes the number of the call, from 1, and what it is: `get KEY`, `create KEY`, `replace KEY`, ..."""


def _nothing(number: int, call: str) -> None:
    pass


@dataclass
class WatchedStore:
    """Passes every call on to `inner`. What `hides` says yes to is left out of listings."""

    inner: Store
    before: Hook = _nothing
    after: Hook = _nothing
    hides: Callable[[str], bool] = lambda _: False
    calls: list[str] = field(default_factory=list)

    @property
    def uri(self) -> str:
        return self.inner.uri

    def get(self, key: str, *, unless_etag: str = "") -> Read:
        number = self._begin(f"get {key}")
        found = self.inner.get(key, unless_etag=unless_etag)
        self.after(number, f"get {key}")
        return found

    def put_new(self, key: str, body: bytes, metadata: Mapping[str, str]) -> Answer:
        number = self._begin(f"create {key}")
        answer = self.inner.put_new(key, body, metadata)
        self.after(number, f"create {key}")
        return answer

    def put_if(self, key: str, body: bytes, metadata: Mapping[str, str], *, etag: str) -> Answer:
        number = self._begin(f"replace {key}")
        answer = self.inner.put_if(key, body, metadata, etag=etag)
        self.after(number, f"replace {key}")
        return answer

    def list(self, prefix: str) -> Iterator[Listed]:
        number = self._begin(f"list {prefix}")
        found = [each for each in self.inner.list(prefix) if not self.hides(each.key)]
        self.after(number, f"list {prefix}")
        return iter(found)

    def delete(self, key: str) -> None:
        number = self._begin(f"delete {key}")
        self.inner.delete(key)
        self.after(number, f"delete {key}")

    def _begin(self, call: str) -> int:
        self.calls.append(call)
        number = len(self.calls)
        self.before(number, call)
        return number


def dying(inner: Store, at: int, *, applied: bool = False) -> WatchedStore:
    """Return a store whose user dies at its call `at`, before the store gets it or once it was applied."""

    def die(number: int, _: str) -> None:
        if number == at:
            raise Crashed

    return WatchedStore(inner, after=die) if applied else WatchedStore(inner, before=die)
