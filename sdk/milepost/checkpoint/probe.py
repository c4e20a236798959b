"""Find out whether a store keeps the promises that a run's safety rests on: the conformance probe.

Many writers at once try to create one object, and to replace one; the bytes that are found afterwards must be
those of the one writer that was told it had won. An answer that was lost is resolved as everywhere, by
sending the same bytes again and reading, so a slow or throttling store is never taken for a false one.

It refuses to guess: a store that gives no clear answer raises StoreUnavailable, and is neither safe nor
unsafe. The surprise: a probe can only ever show that a store is unsafe. One that passes was not caught.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Final, Protocol, runtime_checkable

from milepost.checkpoint.answers import Done, Lost, Purpose, Write
from milepost.checkpoint.sending import Patience, persist, send
from milepost.checkpoint.store import Absent, Answer, Found, Refused, Store, Stored
from milepost.errors import MilepostError, RunDeleted, StoreRefused, StoreUnavailable

__all__ = ["BRIEF", "FOLDER", "THOROUGH", "Check", "Effort", "Outcome", "Report", "TakesDamage", "probe"]

FOLDER: Final = "_probe/"
"""Everything that a probe writes lies here, below a nonce of its own. No namespace can have this name."""

_TRIES: Final = 5


class Outcome(StrEnum):
    """What became of a check."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_APPLICABLE = "not-applicable"


@dataclass(frozen=True)
class Check:
    """One check. `figures` are what was measured: counts, seconds (`_s`) or milliseconds (`_ms`)."""

    name: str
    outcome: Outcome
    detail: str
    figures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Report:
    """What a probe found. `seconds` is how long it took."""

    store: str
    checks: tuple[Check, ...]
    seconds: float

    @property
    def unsafe(self) -> tuple[Check, ...]:
        """The checks that failed: with any of them, two writers may both believe that they own a run."""
        return tuple(check for check in self.checks if check.outcome is Outcome.FAILED)

    def as_json(self) -> dict[str, Any]:
        """Return the report as plain data."""
        return {
            "store": self.store,
            "safe": not self.unsafe,
            "unsafe": [check.name for check in self.unsafe],
            "seconds": round(self.seconds, 3),
            "checks": [{**asdict(check), "outcome": str(check.outcome)} for check in self.checks],
        }


@dataclass(frozen=True)
class Effort:
    """How hard to try. `bound` is in seconds.

    `creations` and `replacements` are rounds of a race between `writers`; none begins once `bound` has
    passed, but one of each is always run.
    """

    writers: int = 32
    creations: int = 3
    replacements: int = 8
    samples: int = 50
    bound: float = 120.0


THOROUGH: Final = Effort()
BRIEF: Final = Effort(creations=1, replacements=2, samples=10, bound=20.0)
"""For who has asked before, or asks again each day."""


@runtime_checkable
class TakesDamage(Protocol):
    """What a store offers beyond `Store` where a checksum travels with each body."""

    def put_damaged(self, key: str, body: bytes) -> Answer:
        """Create an object with a checksum that is not its body's, as if it had been damaged on its way.

        Refused with the reason `ChecksumRefused` says that the store noticed.
        """
        ...


@dataclass(frozen=True)
class _Bench:
    store: Store
    effort: Effort
    patience: Patience
    folder: str

    def key(self, name: str) -> str:
        return f"{self.folder}{name}"

    def put(self, key: str, body: bytes, etag: str = "") -> str | None:
        """Return the ETag of what was written, or None where the condition did not hold."""
        try:
            outcome = send(self.store, Write(Purpose.NAME, key, body, etag=etag), self.patience)
        except RunDeleted:
            # What the answer table says of a condition on an object that is not there.
            return None
        match outcome:
            case Done(etag):
                return etag
            case Lost():
                return None

    def made(self, key: str, body: bytes) -> str:
        """Create an object of this probe's own, and return its ETag."""
        etag = self.put(key, body)
        if etag is None:
            raise _Failed(f"{key} is new, and yet the store says that it exists")
        return etag

    def body(self, key: str) -> bytes | None:
        """Return what is stored; None for nothing."""
        found = persist(lambda: self.store.get(key), self.patience)
        return found.body if isinstance(found, Found) else None

    def listed(self) -> set[str]:
        """Return the keys that a listing of this probe's folder shows."""
        return persist(lambda: {each.key for each in self.store.list(self.folder)}, self.patience)


class _Failed(Exception):
    """A check failed; says how."""


class _NotApplicable(Exception):
    """A check cannot be made here; says why."""


_Judge = Callable[[_Bench], tuple[str, dict[str, float]]]
"""A check: returns what it saw and measured, or raises _Failed or _NotApplicable."""


def probe(store: Store, *, patience: Patience, effort: Effort = THOROUGH) -> Report:
    """Put the store through all checks. Blocks, and starts `effort.writers` threads.

    `patience` holds the clock, the entropy for a nonce, and for how long one unclear answer is followed up.
    Everything it wrote is removed at the end. Raises StoreUnavailable where the store gives no clear answer,
    StoreRefused where these credentials may not read, write or list below the store's prefix.
    """
    began = patience.monotonic()
    bench = _Bench(store, effort, patience, f"{FOLDER}{patience.entropy(10).hex()}/")
    try:
        checks = tuple(_made(name, judge, bench) for name, judge in _CHECKS.items())
    except MilepostError:
        # What is in the way is reported; that it also kept the probe from tidying up is no news.
        with contextlib.suppress(MilepostError):
            for key in bench.listed():
                store.delete(key)
        raise
    return Report(store.uri, checks, patience.monotonic() - began)


def _made(name: str, judge: _Judge, bench: _Bench) -> Check:
    try:
        detail, figures = judge(bench)
    except _Failed as failed:
        return Check(name, Outcome.FAILED, str(failed))
    except _NotApplicable as why:
        return Check(name, Outcome.NOT_APPLICABLE, str(why))
    return Check(name, Outcome.PASSED, detail, figures)


def _create_race(bench: _Bench) -> tuple[str, dict[str, float]]:
    return _races(bench, "create", bench.effort.creations, lambda _key: "")


def _replace_race(bench: _Bench) -> tuple[str, dict[str, float]]:
    return _races(bench, "replace", bench.effort.replacements, lambda key: bench.made(key, b"before"))


def _races(
    bench: _Bench, name: str, rounds: int, prepare: Callable[[str], str]
) -> tuple[str, dict[str, float]]:
    """Run the rounds of a race. `prepare` returns the ETag that all writers of a round replace."""
    monotonic = bench.patience.monotonic
    began, longest, done = monotonic(), 0.0, 0
    while done < rounds and (done == 0 or monotonic() - began < bench.effort.bound):
        key = bench.key(f"{name}-{done}")
        etag = prepare(key)
        at = monotonic()
        _race(bench, key, etag)
        longest, done = max(longest, monotonic() - at), done + 1
    writers = bench.effort.writers
    figures = {"rounds": done, "writers": writers, "longest_round_s": round(longest, 3)}
    return f"{writers} writers at once, {_times(done)}: exactly one won, and its bytes were found", figures


def _race(bench: _Bench, key: str, etag: str) -> None:
    """Let all writers write at once. Raises _Failed unless exactly one is told that it won, and did."""
    bodies = [f"{key} {number}".encode() for number in range(bench.effort.writers)]
    start = threading.Barrier(len(bodies))

    def write(body: bytes) -> bool:
        try:
            # Its connection is open before the race begins.
            bench.body(key)
        except BaseException:
            start.abort()
            raise
        start.wait(bench.patience.deadline)
        return bench.put(key, body, etag) is not None

    with ThreadPoolExecutor(len(bodies), thread_name_prefix="probe") as pool:
        writing = [pool.submit(write, body) for body in bodies]
    told = _results(writing, key, bench.patience)
    winners = [body for body, won in zip(bodies, told, strict=True) if won]
    if len(winners) != 1:
        raise _Failed(f"{len(winners)} of {len(bodies)} writers were told that they alone had written")
    if bench.body(key) != winners[0]:
        raise _Failed("the store holds other bytes than those of the one writer that was told it had won")


def _results(writing: list[Future[bool]], key: str, patience: Patience) -> list[bool]:
    """Return what the writers were told. Raises what one met, and else that some did not begin."""
    errors = [error for each in writing if (error := each.exception()) is not None]
    for error in errors:
        if not isinstance(error, threading.BrokenBarrierError):
            raise error
    if errors:
        cause = "some of the writers that begin together had no answer in time"
        raise StoreUnavailable(key, waited=patience.deadline, cause=cause)
    return [each.result() for each in writing]


def _create_once(bench: _Bench) -> tuple[str, dict[str, float]]:
    key = bench.key("once")
    bench.made(key, b"first")
    if bench.put(key, b"second") is not None or bench.body(key) != b"first":
        raise _Failed("a creation replaced an object that was there: If-None-Match is not honoured")
    return "a creation is refused where there is an object, and changes nothing", {}


def _stale_etag(bench: _Bench) -> tuple[str, dict[str, float]]:
    key = bench.key("stale")
    first = bench.made(key, b"first")
    second = bench.put(key, b"second", first)
    if second is None:
        raise _Failed("a replacement on condition of the object's own ETag was refused")
    if bench.put(key, b"third", first) is not None or bench.body(key) != b"second":
        raise _Failed("a replacement on condition of an older ETag was accepted: If-Match is not honoured")
    return "a replacement on condition of an older ETag is refused, and changes nothing", {}


def _missing_key(bench: _Bench) -> tuple[str, dict[str, float]]:
    etag = bench.made(bench.key("there"), b"there")
    key = bench.key("missing")
    if bench.put(key, b"created", etag) is not None or bench.body(key) is not None:
        raise _Failed("a replacement of an object that is not there created it: deleted runs would come back")
    return "a replacement of an object that is not there is refused, and creates nothing", {}


def _checksum(bench: _Bench) -> tuple[str, dict[str, float]]:
    if not isinstance(bench.store, TakesDamage):
        raise _NotApplicable("no checksum travels with a body to this kind of store")
    key, cause = bench.key("damaged"), ""
    for attempt in range(1, _TRIES + 1):
        answer = bench.store.put_damaged(key, b"damaged")
        if isinstance(answer, Stored) or bench.body(key) is not None:
            raise _Failed("a body that did not fit its checksum was stored")
        if isinstance(answer, Refused):
            if answer.reason == "ChecksumRefused":
                return "a body that does not fit its checksum is refused, and nothing is stored", {}
            raise StoreRefused(answer.reason, answer.message, advice=answer.advice)
        cause = getattr(answer, "cause", type(answer).__name__)
        bench.patience.pause(bench.patience.back_off(attempt))
    raise StoreUnavailable(key, waited=0.0, cause=cause)


def _read_after_write(bench: _Bench) -> tuple[str, dict[str, float]]:
    key = bench.key("read")
    etag = bench.made(key, b"0")
    for number in range(1, _TRIES + 1):
        body = str(number).encode()
        written = bench.put(key, body, etag)
        if written is None or bench.body(key) != body:
            raise _Failed("what was written just before was not what was read")
        etag = written
    return f"what was written is what is read, {_times(_TRIES)}", {"tries": _TRIES}


def _list_after_write(bench: _Bench) -> tuple[str, dict[str, float]]:
    for number in range(_TRIES):
        key = bench.key(f"listed-{number}")
        bench.made(key, b"listed")
        if key not in bench.listed():
            raise _Failed("an object that was written just before was not listed")
    return f"what was written is listed at once, {_times(_TRIES)}", {"tries": _TRIES}


def _latency(bench: _Bench) -> tuple[str, dict[str, float]]:
    samples = range(bench.effort.samples)
    keys = [bench.key(f"timed-{number}") for number in samples]
    calls: dict[str, Callable[[str], object]] = {
        "put": lambda key: bench.made(key, b"x" * 1024),
        "get": bench.body,
        "list": lambda _key: bench.listed(),
    }
    figures: dict[str, float] = {}
    for name, call in calls.items():
        took = sorted(_milliseconds(bench, call, key) for key in keys)
        figures[f"{name}_p50_ms"] = round(took[len(took) // 2], 2)
        figures[f"{name}_p99_ms"] = round(took[math.ceil(len(took) * 0.99) - 1], 2)
    return "; ".join(f"{name} {figures[f'{name}_p50_ms']} ms" for name in calls), figures


def _milliseconds(bench: _Bench, call: Callable[[str], object], key: str) -> float:
    at = bench.patience.monotonic()
    call(key)
    return (bench.patience.monotonic() - at) * 1000


def _delete(bench: _Bench) -> tuple[str, dict[str, float]]:
    """Remove everything that the probe wrote: the last check, and the tidying up."""
    keys = bench.listed()
    for key in keys:
        try:
            bench.store.delete(key)
        except StoreRefused as error:
            if error.reason != "StoreForbidden":
                raise
            raise _NotApplicable(
                f"these credentials may not delete; {len(keys)} small objects stay below {bench.folder}"
            ) from error
    if any(not isinstance(bench.store.get(key), Absent) for key in keys) or bench.listed():
        raise _Failed("an object that was deleted just before was still there")
    return "what was deleted is neither read nor listed", {"objects": len(keys)}


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


_CHECKS: Final[Mapping[str, _Judge]] = {
    "create-race": _create_race,
    "replace-race": _replace_race,
    "create-once": _create_once,
    "stale-etag": _stale_etag,
    "missing-key": _missing_key,
    "checksum": _checksum,
    "read-after-write": _read_after_write,
    "list-after-write": _list_after_write,
    "latency": _latency,
    "delete": _delete,
}
"""In this order: what a run's safety hangs on first, the tidying up last."""
