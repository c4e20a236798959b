"""Run the product's own code one request at a time, with its whole state in hashable values.

An activity is one call into the product: claim this run, write this commit. It is run against a store that
answers from a list; where the list ends, the code is stopped, and what it asked for is the request that it
now waits with. To go on, it is run again from the start with one more answer. As its clock and entropy are
arguments, it comes to the same place each time, so *(activity, answers)* is the state of a process that is
in the middle of the product's I/O code. Each such pair is run once and its outcome remembered.

The surprise: a write that is sent again after an unclear answer is the same request of the same process, so
the answers since its first try are forgotten, and states stay finitely many.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeAlias

from milepost.checkpoint.sending import Patience
from milepost.checkpoint.store import (
    Absent,
    Answer,
    Clash,
    Expired,
    Found,
    Gone,
    Listed,
    Read,
    Stored,
    Undecided,
    Unknown,
)
from milepost.errors import MilepostError

__all__ = [
    "PATIENT",
    "Activity",
    "Ask",
    "Asks",
    "Bytes",
    "Delete",
    "Draws",
    "Get",
    "List",
    "Outcome",
    "Put",
    "Raised",
    "Reach",
    "Replayer",
    "Reply",
    "Request",
    "Returned",
    "Scripted",
    "Settle",
    "Table",
    "Waits",
    "etag_of",
    "first_try",
    "honest",
]


class Get(NamedTuple):
    """A read of an object."""

    key: str


class Put(NamedTuple):
    """A conditional write; `body` is a number of `Bytes`. An empty `etag`: only if there is none yet."""

    key: str
    body: int
    etag: str


class List(NamedTuple):
    """A listing of all keys with this prefix."""

    prefix: str


class Delete(NamedTuple):
    """A deletion."""

    key: str


class Reach(NamedTuple):
    """A call of a tool of this effect to the receiver. Where it is not keyed the receiver heeds no key."""

    key: str
    arguments: str
    step: str
    effect: str


class Ask(NamedTuple):
    """A question to the receiver: whether the effect of a key is there."""

    key: str


class Settle(NamedTuple):
    """So much time has to pass that no call of a process which has ended is on its way any more."""


Request: TypeAlias = Get | Put | List | Delete | Reach | Ask | Settle


class Reply(NamedTuple):
    """An answer as a hashable value: `kind`, and what it carries.

    `found` and `stored` have the body's number, `listed` the keys with the numbers of their bodies, `text`
    is what the receiver of effects says.
    """

    kind: str
    body: int = -1
    listed: tuple[tuple[str, int], ...] = ()
    text: str = ""


def etag_of(body: int) -> str:
    """Return the ETag of a body: the same for the same bytes, as a digest of them would be."""
    return f'"{body}"'


def honest(bucket: dict[str, int], put: Put) -> Reply:
    """Answer a write as a store must, and change the bucket if, and only if, its condition holds."""
    standing = bucket.get(put.key)
    if put.etag and standing is None:
        return Reply("gone")
    expected = "" if standing is None else etag_of(standing)
    if put.etag != expected:
        return Reply("clash")
    bucket[put.key] = put.body
    return Reply("stored", put.body)


class Table:
    """Numbers for things that cannot be hashed, or not quickly. Equal things have equal numbers."""

    def __init__(self, key: Callable[[Any], Any]) -> None:
        self._key = key
        self._numbers: dict[Any, int] = {}
        self._things: list[Any] = []

    def number(self, thing: Any) -> int:
        """Return the thing's number, a new one if it is the first of its kind."""
        key = self._key(thing)
        if key not in self._numbers:
            self._numbers[key] = len(self._things)
            self._things.append(thing)
        return self._numbers[key]

    def thing(self, number: int) -> Any:
        """Return what has the number."""
        return self._things[number]


class Bytes(Table):
    """Bodies of objects by number."""

    def __init__(self) -> None:
        super().__init__(lambda body: body)


class Draws:
    """Entropy: each draw differs from all others of all seeds, and is the same in each replay."""

    def __init__(self, seed: str) -> None:
        self._seed = seed
        self.count = 0

    def __call__(self, size: int) -> bytes:
        self.count += 1
        return hashlib.sha256(f"{self._seed}/{self.count}".encode()).digest()[:size]


PATIENT = Patience(bytes, monotonic=lambda: 0.0, pause=lambda _: None)
"""It never runs out: a process that gives up is one that dies, and dying is a move of the model."""


class Activity(Protocol):
    """One call into the product. Hashable, equal to an equal one."""

    def run_it(self, store: Any, tables: Any) -> Any:
        """Make the call, and return its result as a hashable value."""
        ...


class Waits(NamedTuple):
    """The code waits for the answer to a request. `answers` are those that brought it there."""

    request: Request
    answers: tuple[Reply, ...]


class Returned(NamedTuple):
    """The code returned."""

    value: Any


class Raised(NamedTuple):
    """The code raised one of the product's errors."""

    name: str
    message: str


Outcome: TypeAlias = Waits | Returned | Raised


class Asks(BaseException):
    """The list of answers has ended. No error: nothing in the product may handle it."""


@dataclass
class Scripted:
    """A store that answers from a list. It holds nothing itself, and no metadata: nobody here reads any."""

    bodies: Bytes
    answers: tuple[Reply, ...]
    asked: list[Request] = field(default_factory=list)

    @property
    def uri(self) -> str:
        return "model:"

    def get(self, key: str, *, unless_etag: str = "") -> Read:
        assert not unless_etag, "no code under test saves itself a body"
        reply = self.ask(Get(key))
        if reply.kind == "absent":
            return Absent()
        return Found(self.bodies.thing(reply.body), etag_of(reply.body))

    def put_new(self, key: str, body: bytes, metadata: Mapping[str, str]) -> Answer:  # noqa: ARG002
        return self._put(Put(key, self.bodies.number(body), ""))

    def put_if(self, key: str, body: bytes, metadata: Mapping[str, str], *, etag: str) -> Answer:  # noqa: ARG002
        return self._put(Put(key, self.bodies.number(body), etag))

    def list(self, prefix: str) -> Iterator[Listed]:
        reply = self.ask(List(prefix))
        # All is as old as the sweeper's clock makes it: how long a process is paused has no bound.
        return iter([Listed(key, len(self.bodies.thing(body)), 0.0) for key, body in reply.listed])

    def delete(self, key: str) -> None:
        self.ask(Delete(key))

    def _put(self, put: Put) -> Answer:
        reply = self.ask(put)
        match reply.kind:
            case "stored":
                return Stored(etag_of(put.body))
            case "stored without etag":
                return Stored("")
            case "clash":
                return Clash()
            case "gone":
                return Gone()
            case "undecided":
                return Undecided("409")
            case "expired":
                return Expired("ExpiredToken")
            case _:
                return Unknown("time-out")

    def ask(self, request: Request) -> Reply:
        """Return the next answer of the list. Raises Asks where it has ended."""
        place = len(self.asked)
        self.asked.append(request)
        if place < len(self.answers):
            return self.answers[place]
        raise Asks


class Replayer:
    """Runs activities, each with each list of answers once. `tables` is handed to them."""

    def __init__(self, tables: Any) -> None:
        self._tables = tables
        self._known: dict[tuple[Any, tuple[Reply, ...]], Outcome] = {}

    def outcome(self, activity: Activity, answers: tuple[Reply, ...]) -> Outcome:
        """Return where the activity is after these answers."""
        key = (activity, answers)
        if key not in self._known:
            self._known[key] = self._run(activity, answers)
        return self._known[key]

    def close(self) -> None:
        """Let go of what is in the middle of something. What is asked for after that is begun anew."""
        for process in self._tables.under_way.values():
            process.unwind()
        self._tables.under_way.clear()

    def _run(self, activity: Activity, answers: tuple[Reply, ...]) -> Outcome:
        store = Scripted(self._tables.bodies, answers)
        try:
            return Returned(activity.run_it(self._tables.code.store(store), self._tables))
        except Asks:
            return Waits(store.asked[-1], answers[: first_try(store.asked)])
        except MilepostError as error:
            return Raised(type(error).__name__, str(error))


def first_try(asked: list[Request]) -> int:
    """Return how many requests came before the first try of the last one."""
    last = asked[-1]
    first = len(asked) - 1
    if not isinstance(last, Put):
        return first
    for place in range(len(asked) - 2, -1, -1):
        if asked[place] == last:
            first = place
        elif asked[place] != Get(last.key):
            break
    return first
