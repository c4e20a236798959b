"""`python -m milepost_operator`: the operator's process. It takes all its settings from the environment.

It exits with 0 when it was asked to stop, 2 when its settings cannot be used, 1 when a part of it died.
"""

from __future__ import annotations

import os
import sys
from typing import Final

import kopf
import structlog

from milepost_operator.shell.handlers import register
from milepost_operator.shell.logs import configure
from milepost_operator.shell.settings import BadSettings, kopf_settings, read_settings
from milepost_operator.shell.startup import Operator

# The API server takes inputs nested almost 10,000 levels deep. Whoever cannot read one such run can read none
# of those that are listed with it, so anybody who may create runs could end the operator for everyone.
DEEPEST_JSON: Final = 30_000


def main() -> int:
    """Run until asked to stop, and return the exit code."""
    sys.setrecursionlimit(DEEPEST_JSON)
    configure("INFO")
    log = structlog.get_logger("milepost_operator")
    try:
        settings = read_settings(os.environ)
    except BadSettings as error:
        log.error("bad settings", error=str(error))  # noqa: TRY400  the message says it all
        return 2
    configure(settings.log_level)
    for_kopf = kopf_settings()
    operator = Operator(settings, for_kopf)
    try:
        kopf.run(
            registry=register(operator),
            settings=for_kopf,
            standalone=True,
            # Kopf would make one of the user's name, and a container's user id need not have a name.
            identity="milepost",  # type: ignore[arg-type]  # a NewType of str that Kopf does not export
            clusterwide=not settings.namespaces,
            namespaces=settings.namespaces,
            stop_flag=operator.stop_flag,
        )
    except Exception:
        # Kopf wraps what start-up raised in an error that says less than ours; anything else is a bug.
        if not operator.misconfigured:
            raise
        log.error("cannot start", error=operator.misconfigured)  # noqa: TRY400  the message says it all
        return 2
    if operator.failure:
        log.error("ended by a failure", failure=operator.failure)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
