"""Lines that tell a person what is going on, with the time that it took, and waits with a bound.

Progress goes to standard error, so that the output of a command stays usable by a program.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from typing import TYPE_CHECKING, TypeVar

from tools.cluster.interface import ClusterError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")

_HEARTBEAT_S = 20.0
_STARTED = time.monotonic()


def say(text: str) -> None:
    """Print a line with the seconds since the program started."""
    print(f"[{time.monotonic() - _STARTED:6.1f} s] {text}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def step(text: str) -> Iterator[None]:
    """Announce a piece of work, say every 20 s that it goes on, and how long it took."""
    began = time.monotonic()
    say(text)
    done = threading.Event()

    def beat() -> None:
        while not done.wait(_HEARTBEAT_S):
            say(f"  still: {text} ({time.monotonic() - began:.0f} s)")

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
    took = time.monotonic() - began
    if took >= 1:
        say(f"  done in {took:.1f} s")


def wait_until(
    probe: Callable[[], T | None],
    what: str,
    *,
    within: float,
    pause: float = 0.1,
    hint: Callable[[], str] = str,
) -> T:
    """Call `probe` until it returns something true, and return that.

    `within` and `pause` are in seconds. Raises ClusterError, with what `hint` returns, when it never does.
    """
    end = time.monotonic() + within
    while not (found := probe()):
        if time.monotonic() > end:
            raise ClusterError(f"{what}: not within {within:.0f} s. {hint()}".rstrip())
        time.sleep(pause)
    return found
