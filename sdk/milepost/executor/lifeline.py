"""The end of an executor whose runner is gone.

`milepost run` gives its executor the reading end of a pipe, and holds the writing end for as long as it
lives. The kernel closes that end however the runner dies. A pod has no runner, and no pipe.

The surprise: the executor kills itself at once, and stops nothing in good order. Its standard output went
with the runner, so whatever the author's code prints from then on raises, and would be recorded as the
step's failure. What the author's code started ends with it, as it would with a pod: nothing of an attempt is
at work any more once its processes are seen to be gone.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Mapping
from typing import Final

__all__ = ["end_with_runner"]

_VARIABLE: Final = "MILEPOST_LIFELINE"


def end_with_runner(environment: Mapping[str, str]) -> None:
    """Watch the pipe that the environment names, in a thread; do nothing where it names none."""
    number = environment.get(_VARIABLE, "")
    if number.isdecimal():
        threading.Thread(target=_watch, args=(int(number),), name="milepost-lifeline", daemon=True).start()


def _watch(pipe: int) -> None:
    # Nobody writes into it: a read returns at the pipe's end.
    os.read(pipe, 1)
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
