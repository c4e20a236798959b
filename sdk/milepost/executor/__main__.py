"""Entry point of the pod: `python -m milepost.executor`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn, TypeAlias

import structlog

from milepost.checkpoint.opening import open_store
from milepost.checkpoint.store import Store
from milepost.errors import MilepostError
from milepost.executor.ending import SOFTWARE_ERROR, Ending, ending_of, ending_of_exit
from milepost.executor.lifeline import end_with_runner
from milepost.executor.logs import configure
from milepost.executor.session import Session
from milepost.executor.settings import Settings, read_settings

Begin: TypeAlias = Callable[[Settings, Store, structlog.stdlib.BoundLogger], Session]


def main(begin: Begin = Session) -> None:
    """Go on with the run that the environment names, and end the process with a code that tells why.

    `begin` makes the session: a test kit makes it with a clock and a store of its own.
    """
    end_with_runner(os.environ)
    log = configure()
    try:
        settings = read_settings(os.environ)
        log = configure(run=settings.keys.run_id, attempt=settings.attempt, worker=settings.writer)
        store = open_store(settings.store, settings.credentials)
    except MilepostError as error:
        ending_of(error).leave(log, Path(os.environ.get("MILEPOST_TERMINATION_LOG", "/dev/termination-log")))
    _live(begin(settings, store, log), log, settings.termination_log)


def _live(session: Session, log: structlog.stdlib.BoundLogger, termination_log: Path | None) -> NoReturn:
    process = os.getpid()
    # The loop is never closed and the session is held on to: both would unwind the author's code.
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        ending: Ending = loop.run_until_complete(session.run())
    except MilepostError as error:
        ending = ending_of(error)
    except Exception as error:
        log.exception("software-error")
        ending = ending_of(error)
    except BaseException as error:  # noqa: BLE001  (the author's code wants the process to end)
        ending = ending_of_exit(error)
    if os.getpid() != process:
        # A child that the author's code forked and let return. What it says would be taken for its parent's.
        os._exit(SOFTWARE_ERROR)
    ending.leave(log, termination_log)


if __name__ == "__main__":
    main()
