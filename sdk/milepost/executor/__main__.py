"""Entry point of the pod: `python -m milepost.executor`."""

from __future__ import annotations

import asyncio
import os

from milepost.checkpoint.opening import open_store
from milepost.errors import MilepostError
from milepost.executor.ending import Ending, ending_of
from milepost.executor.logs import configure
from milepost.executor.session import Session
from milepost.executor.settings import read_settings


def main() -> None:
    """Go on with the run that the environment names, and end the process with a code that tells why."""
    log = configure()
    termination_log = None
    try:
        settings = read_settings(os.environ)
        termination_log = settings.termination_log
        log = configure(run=settings.keys.run_id, attempt=settings.attempt, worker=settings.writer)
        store = open_store(settings.store, settings.credentials)
        ending: Ending = asyncio.run(_live(Session(settings, store, log)))
    except MilepostError as error:
        ending = ending_of(error)
    ending.leave(log, termination_log)


async def _live(session: Session) -> Ending:
    # The process ends inside the loop: closing the loop would unwind, or wait for, the author's code.
    try:
        ending = await session.run()
    except Exception as error:
        if not isinstance(error, MilepostError):
            session.log.exception("software-error")
        ending = ending_of(error)
    ending.leave(session.log, session.settings.termination_log)


if __name__ == "__main__":
    main()
