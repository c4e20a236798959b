"""What the executor's environment says. Goal, inputs and configuration are in the log, not here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from milepost.api.names import StoreKeys
from milepost.checkpoint.records import PreviousEnd
from milepost.errors import CannotStart, InvalidRun

__all__ = ["Settings", "read_settings"]


@dataclass(frozen=True)
class Settings:
    """Which run to go on with, where, and as whom. Times are seconds."""

    store: str
    credentials: Path | None
    keys: StoreKeys
    attempt: int
    writer: str
    pod: str
    node: str
    image: str
    previous_end: PreviousEnd | None
    grace: float
    store_deadline: float
    termination_log: Path | None


def read_settings(environment: Mapping[str, str]) -> Settings:
    """Return the settings. Raises CannotStart, naming the variable, where one is missing or wrong."""
    credentials = environment.get("MILEPOST_CREDENTIALS", "")
    termination_log = environment.get("MILEPOST_TERMINATION_LOG", "/dev/termination-log")
    try:
        return Settings(
            store=environment["MILEPOST_STORE"],
            credentials=Path(credentials) if credentials else None,
            keys=StoreKeys(environment["MILEPOST_NAMESPACE"], environment["MILEPOST_RUN_ID"]),
            attempt=int(environment["MILEPOST_ATTEMPT"]),
            writer=environment["MILEPOST_POD_UID"],
            pod=environment.get("MILEPOST_POD_NAME", ""),
            node=environment.get("MILEPOST_NODE", ""),
            image=environment.get("MILEPOST_IMAGE", ""),
            previous_end=_previous_end(environment.get("MILEPOST_PREVIOUS_END", "")),
            grace=float(environment.get("MILEPOST_GRACE_SECONDS", "60")),
            store_deadline=float(environment.get("MILEPOST_STORE_DEADLINE_SECONDS", "120")),
            termination_log=Path(termination_log) if termination_log else None,
        )
    except KeyError as error:
        raise CannotStart(
            "EnvironmentInvalid",
            f"the variable {error.args[0]} is not set: an executor is started by the operator or by "
            "`milepost run`, not by hand",
        ) from error
    except (ValueError, InvalidRun) as error:
        raise CannotStart("EnvironmentInvalid", f"a MILEPOST_ variable is wrong: {error}") from error


def _previous_end(text: str) -> PreviousEnd | None:
    if not text:
        return None
    try:
        return PreviousEnd.model_validate(json.loads(text))
    except ValidationError as error:
        raise ValueError(f"MILEPOST_PREVIOUS_END: {error.errors()[0]['msg']}") from error
