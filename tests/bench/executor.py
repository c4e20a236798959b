"""The executor, with what a bench wants to know or to change: `python -m tests.bench.executor`.

It is `milepost.executor` on the same environment, and two variables more. BENCH_REQUESTS names a file that
gets a line for each request to the store. BENCH_ALONE=1 gives each step a record of its own, which is
what it would cost without group commit.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, cast

from typing_extensions import override

from milepost.checkpoint.committer import Committer
from milepost.checkpoint.opening import open_store
from milepost.checkpoint.records import Event
from milepost.checkpoint.store import Store
from milepost.errors import MilepostError
from milepost.executor.ending import ending_of
from milepost.executor.logs import configure
from milepost.executor.session import Session
from milepost.executor.settings import read_settings


class Noting:
    """A store that notes what is asked of it: the call, the key, and when it began, in monotonic seconds."""

    def __init__(self, inner: Store, file: Path) -> None:
        self._inner = inner
        self._file = file

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        return self._noted(name, found) if callable(found) else found

    def _noted(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def noted(key: str, *args: Any, **options: Any) -> Any:
            with self._file.open("a") as file:
                file.write(f"{time.monotonic()} {name} {key}\n")
            return call(key, *args, **options)

        return noted


class Alone(Committer):
    """A committer that is never given a second commit before the first is durable."""

    _turn: asyncio.Lock | None = None

    @override
    async def commit(self, *events: Event, **options: Any) -> None:
        self._turn = self._turn or asyncio.Lock()
        async with self._turn:
            await super().commit(*events, **options)


class AloneSession(Session):
    """A session whose steps never share a record."""

    @override
    def _committer(self, *args: Any, **options: Any) -> Committer:
        made = super()._committer(*args, **options)
        made.__class__ = Alone
        return made


def main() -> NoReturn:
    """Go on with the run that the environment names."""
    log = configure()
    settings = read_settings(os.environ)
    store = open_store(settings.store, settings.credentials)
    if requests := os.environ.get("BENCH_REQUESTS"):
        store = cast("Store", Noting(store, Path(requests)))
    kind = AloneSession if os.environ.get("BENCH_ALONE") else Session
    session = kind(settings, store, log)
    loop = asyncio.new_event_loop()
    try:
        ending = loop.run_until_complete(session.run())
    except MilepostError as error:
        ending = ending_of(error)
    ending.leave(log, settings.termination_log)


if __name__ == "__main__":
    main()
