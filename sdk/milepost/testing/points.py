"""Where an executor of a test is struck: before or after one write of the run's head, and how.

Plain data, and the watch over a store that carries it out. Every head has the number of its newest record,
so a point is the same in each process of a run, and whatever the processes before it did.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Final, final

from typing_extensions import override

from milepost.api.names import StoreKeys
from milepost.checkpoint.gates import Decided, GateOpened, Waiting
from milepost.checkpoint.head import parse_head
from milepost.checkpoint.records import (
    Claimed,
    Event,
    Finished,
    Halted,
    Intended,
    StepCompleted,
    StepFailure,
    ToolCalled,
    parse_line,
)
from milepost.checkpoint.store import Answer, Listed, Read, Store

__all__ = ["ORDER", "How", "Order", "Point", "Watched", "When", "in_no_time", "told"]

ORDER: Final = "MILEPOST_TEST_ORDER"
"""The environment variable that holds an executor's order."""


class When(StrEnum):
    """Whether it falls before the record is written, or after it is durable and before anybody knows."""

    BEFORE = "before"
    AFTER = "after"


class How(StrEnum):
    """Whether the process is killed, or stopped until it is told to go on."""

    KILL = "killed"
    STOP = "stopped"


@dataclass(frozen=True, order=True)
class Point:
    """A place in a run's history: before or after a record. The first one that executors write is 2."""

    record: int
    when: When

    @override
    def __str__(self) -> str:
        return f"{self.when} record {self.record}"


@dataclass(frozen=True)
class Order:
    """What an executor of a test is told: what time it is, and where it is struck, and how.

    `mark` is the file in which it says that it is there.
    """

    now: datetime
    point: Point | None = None
    how: How = How.KILL
    mark: str = ""

    def dumps(self) -> str:
        """Return it as the environment carries it."""
        return json.dumps({**asdict(self), "now": self.now.isoformat()})

    @classmethod
    def loads(cls, text: str) -> Order:
        """Return the order in an environment variable."""
        data = json.loads(text)
        point = data["point"] and Point(data["point"]["record"], When(data["point"]["when"]))
        return cls(datetime.fromisoformat(data["now"]), point, How(data["how"]), data["mark"])


@final
class Watched:
    """A store that strikes its own process at one write of the run's head.

    Writes take turns: a process that is stopped in the midst of one would keep others from the store.
    """

    def __init__(self, inner: Store, keys: StoreKeys, order: Order) -> None:
        self._turn = threading.Lock()
        self._inner = inner
        self._keys = keys
        self._order = order

    @property
    def uri(self) -> str:
        """Where the store is."""
        return self._inner.uri

    def get(self, key: str, *, unless_etag: str = "") -> Read:
        """Read, undisturbed."""
        return self._inner.get(key, unless_etag=unless_etag)

    def put_new(self, key: str, body: bytes, metadata: Mapping[str, str]) -> Answer:
        """Write; heads are only ever replaced here."""
        with self._turn:
            return self._inner.put_new(key, body, metadata)

    def put_if(self, key: str, body: bytes, metadata: Mapping[str, str], *, etag: str) -> Answer:
        """Write, and be struck before it or after it."""

        def write() -> Answer:
            return self._inner.put_if(key, body, metadata, etag=etag)

        with self._turn:
            return self._struck(body, write) if key == self._keys.head else write()

    def list(self, prefix: str) -> Iterator[Listed]:
        """List, undisturbed."""
        return self._inner.list(prefix)

    def delete(self, key: str) -> None:
        """Delete, undisturbed."""
        self._inner.delete(key)

    def _struck(self, body: bytes, write: Callable[[], Answer]) -> Answer:
        point = self._order.point
        head = parse_head(body, self._keys)
        if point is None or point.record != head.seq or Path(self._order.mark).exists():
            return write()
        said = told(parse_line(head.tail[-1], self._keys.head).events) if head.tail else ""
        if point.when is When.BEFORE:
            self._strike(said)
        answer = write()
        if point.when is When.AFTER:
            self._strike(said)
        return answer

    def _strike(self, said: str) -> None:
        # Renamed into place: whoever sees it can read it.
        mark = Path(self._order.mark)
        draft = mark.with_suffix(".draft")
        draft.write_text(said, encoding="utf-8")
        draft.rename(mark)
        if self._order.how is How.STOP:
            # To this very thread: another one may be told of a signal to the process, and this one would then
            # go on for a moment and stop in the midst of the write.
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
            return
        os.kill(os.getpid(), signal.SIGKILL)
        threading.Event().wait()


async def in_no_time(_seconds: float) -> None:
    """Pause for no time at all."""
    await asyncio.sleep(0)


def told(events: tuple[Event, ...]) -> str:
    """Return what a record says, in a few words for people."""
    return ", ".join(filter(None, map(_words, events)))


def _words(event: Event) -> str:  # noqa: C901, PLR0911  (an arm a kind of event)
    match event:
        case Claimed(attempt=attempt):
            return f"attempt {attempt} begins"
        case StepCompleted(step=step):
            return f"step {step.id}"
        case StepFailure(step=step, attempt=attempt):
            return f"try {attempt} of step {step.id}, which failed"
        case Intended(step=step_id, tool=tool):
            return f"the intent to call {tool} in step {step_id}"
        case ToolCalled(step=step_id, tool=tool):
            return f"the call of {tool} in step {step_id}"
        case GateOpened(gate=gate):
            return f"gate {gate.name} opens"
        case Decided(place=place):
            return f"what was decided at {place}"
        case Waiting():
            return "the run waits"
        case Halted(reason=reason):
            return f"the run halts as {reason}"
        case Finished():
            return "the end"
        case _:
            return ""
