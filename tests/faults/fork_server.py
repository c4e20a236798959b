"""Start executors by forking a process that has imported what they need: fresh processes in milliseconds.

It is started as a program, with orders on standard input, one JSON object a line, with a child's environment,
its folder and the file for its output. It answers on standard output: the child's process id, and how each
child ended. It ends, with all of its children, when its input ends.

A fork is only honest where nothing that belongs to one executor was made before it. So this process imports
and does nothing else: it has one thread, no event loop, no client and no connection, which it checks of
itself before each fork, and it does not import the agent. A child calls the entry point of
`python -m milepost.executor` and nothing before it, with an environment of its own.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import sys
import threading
from typing import Any, NoReturn

import botocore.parsers
import botocore.signers
from botocore.client import BaseClient

import milepost.checkpoint.s3
from milepost.executor.__main__ import main as executor_main

__all__: list[str] = []

_IMPORTED = (botocore.parsers, botocore.signers, milepost.checkpoint.s3)


class _Server:
    def __init__(self) -> None:
        self._children: dict[int, int] = {}
        self._poll = select.poll()
        self._poll.register(sys.stdin.fileno(), select.POLLIN | select.POLLHUP)
        self._unread = b""

    def serve(self) -> None:
        while True:
            for descriptor, _ in self._poll.poll():
                if descriptor == sys.stdin.fileno():
                    if not self._read():
                        self._end()
                        return
                else:
                    self._reap(descriptor)

    def _read(self) -> bool:
        came = os.read(sys.stdin.fileno(), 1 << 16)
        *lines, self._unread = (self._unread + came).split(b"\n")
        for line in lines:
            self._start(json.loads(line))
        return bool(came)

    def _start(self, order: dict[str, Any]) -> None:
        _check_nothing_is_shared()
        pid = os.fork()
        if pid == 0:
            _be_an_executor(order)
        pidfd = os.pidfd_open(pid)
        self._children[pidfd] = pid
        self._poll.register(pidfd, select.POLLIN)
        _say({"started": pid})

    def _reap(self, pidfd: int) -> None:
        pid = self._children.pop(pidfd)
        self._poll.unregister(pidfd)
        os.close(pidfd)
        _, status = os.waitpid(pid, 0)
        _say({"ended": pid, "code": os.waitstatus_to_exitcode(status)})

    def _end(self) -> None:
        for pid in self._children.values():
            os.kill(pid, signal.SIGKILL)


def _say(what: dict[str, int]) -> None:
    os.write(sys.stdout.fileno(), json.dumps(what).encode() + b"\n")


def _check_nothing_is_shared() -> None:
    assert threading.active_count() == 1, "a thread would be missing in the child"
    clients = [each for each in gc.get_objects() if isinstance(each, BaseClient)]
    assert not clients, "a client would be shared with the child"


def _be_an_executor(order: dict[str, Any]) -> NoReturn:
    try:
        os.setsid()
        out = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for number, source in enumerate((nothing, out, out)):
            os.dup2(source, number)
        # What is left open is the server's: orders, answers, and the ends of its other children.
        os.closerange(3, 1024)
        os.environ.clear()
        os.environ.update(order["environment"])
        os.chdir(order["folder"])
        executor_main()
    finally:
        os._exit(70)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _Server().serve()
