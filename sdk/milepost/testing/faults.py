"""What can go wrong between a client and a store, as values: the action, and the requests it is for.

It is shared by the fake S3 server and by proxies in front of real ones; who serves requests asks `Faults`
what to do to each. Nothing here sends anything.

The surprise: a fault counts the requests that match it from the moment it is added. Several may match one
request; all of them count it, and the first one that is due decides.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

__all__ = ["Action", "Delay", "Drop", "Fault", "Faults", "Flip", "Hold", "Reply", "Truncate"]

_HELD_AT_MOST_S = 60.0


@dataclass(frozen=True)
class Reply:
    """Answer with this error; `after` says whether the request is applied first.

    Without a `code` the answer has no body, as from a proxy that knows nothing of S3.
    """

    status: int
    code: str
    after: bool = False
    message: str = "as the test asked"
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Drop:
    """Close the connection without an answer; `after` says whether the request is applied first.

    With `reset` the client sees a reset instead of an orderly end.
    """

    after: bool = False
    reset: bool = False


@dataclass(frozen=True)
class Truncate:
    """Announce the whole body, pass on only the first `at` bytes of it, and close the connection.

    The body is the answer's, or with `upload` the request's.
    """

    at: int
    upload: bool = False


@dataclass(frozen=True)
class Flip:
    """Change one bit of the byte `at` in the answer's body, or with `upload` in the request's.

    `mended`: the checksums in the headers are made to match it.
    """

    at: int = 0
    mended: bool = False
    upload: bool = False


@dataclass(frozen=True)
class Delay:
    """Take `seconds` longer; `after` says whether the request is applied first."""

    seconds: float
    after: bool = False


@dataclass(frozen=True)
class Hold:
    """Wait until the test sets `release`, for a minute at most; then go on as usual.

    `reached` is set once a request waits. `after` says whether the request is applied first. What is `lost`
    goes nowhere once it is let go, the request or, with `after`, its answer.
    """

    after: bool = False
    lost: bool = False
    reached: threading.Event = field(default_factory=threading.Event)
    release: threading.Event = field(default_factory=threading.Event)

    def wait(self) -> None:
        """Wait for the test."""
        self.reached.set()
        self.release.wait(_HELD_AT_MOST_S)


Action: TypeAlias = Reply | Drop | Truncate | Flip | Hold | Delay


@dataclass(frozen=True)
class Fault:
    """What to do to the `nth` request (counted from 1) that matches, and to the `times` - 1 after it.

    `method` is a whole method, `key` a part of the object's key with its query behind a `?`; both match
    anything where they are empty.
    """

    action: Action
    method: str = ""
    key: str = ""
    nth: int = 1
    times: int = 1


@dataclass
class _Armed:
    fault: Fault
    matched: int = 0

    def due(self, method: str, key: str) -> bool:
        if self.fault.method not in {"", method} or self.fault.key not in key:
            return False
        self.matched += 1
        return self.fault.nth <= self.matched < self.fault.nth + self.fault.times


class Faults:
    """The faults that are in force. Safe to use from several threads."""

    def __init__(self) -> None:
        self._armed: list[_Armed] = []
        self._lock = threading.Lock()

    def add(self, *faults: Fault) -> None:
        """Add faults, each with a count of its own."""
        with self._lock:
            self._armed += [_Armed(each) for each in faults]

    def clear(self) -> None:
        """Take back all faults and let go of the requests that they hold."""
        with self._lock:
            held = [each.fault.action for each in self._armed]
            self._armed.clear()
        for action in held:
            if isinstance(action, Hold):
                action.release.set()

    def due(self, method: str, key: str) -> Fault | None:
        """Count one request, and return the fault that it meets."""
        with self._lock:
            due = [each.fault for each in self._armed if each.due(method, key)]
        return due[0] if due else None
