"""SIGTERM: says that the process should stop, and sees to it that it does while that is still its own doing.

The kubelet kills what is still there at the end of the grace period, and how a killed process ended says
nothing. The author's code may block the event loop for longer than that, so a thread stands by that ends
the process itself. The surprise: a forked child reports its own SIGTERM to its parent's event loop, as long
as it has not run its first line.
"""

from __future__ import annotations

import asyncio
import os
import queue
import signal
import threading
from collections.abc import Callable
from typing import Final, NoReturn

__all__ = ["MARGIN", "Stop", "StopSignal"]

MARGIN: Final = 3.0
"""Seconds of the grace period that are kept for the last write and for the exit itself."""

SHORTEST: Final = 0.5
"""Seconds that the steps in flight get, however short the grace period is."""


class Stop:
    """Tells whether the process has been asked to stop, which nobody asks of this one.

    `asked` is done once it has. It is a future and no task: the author's code may cancel every task that it
    finds. `patience` is how many seconds the steps in flight have then. Make it inside the event loop.
    """

    def __init__(self, patience: float = SHORTEST) -> None:
        self.patience = patience
        self.asked: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class StopSignal(Stop):
    """SIGTERM asks. Make it in the main thread, inside the event loop. `grace` is in seconds.

    `leave` ends the process; it is called in a thread where nothing else has by then.
    """

    def __init__(self, grace: float, leave: Callable[[], NoReturn]) -> None:
        super().__init__(max(grace - MARGIN, SHORTEST))
        self._leave = leave
        self._came: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._loop = asyncio.get_running_loop()
        # It wakes the loop, so that Python gets to call the handler below, and does no more than that: what
        # it reads may come from a forked child.
        self._loop.add_signal_handler(signal.SIGTERM, _do_nothing)
        # The handler may interrupt anything, and a SimpleQueue is made for being used there.
        signal.signal(signal.SIGTERM, lambda *_: self._came.put(None))
        os.register_at_fork(after_in_child=_forget)
        threading.Thread(target=self._stand_by, name="stop", daemon=True).start()

    def _stand_by(self) -> None:
        self._came.get()
        self._loop.call_soon_threadsafe(self.asked.set_result, None)
        threading.Event().wait(self.patience + MARGIN / 2)
        self._leave()


def _do_nothing() -> None:
    pass


def _forget() -> None:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
