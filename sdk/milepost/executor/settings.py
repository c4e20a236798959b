"""What the executor's environment says. Goal, inputs and configuration are in the log, not here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

from pydantic import BaseModel, ValidationError

from milepost.api.names import StoreKeys
from milepost.api.resource import LimitsSpec
from milepost.checkpoint.isolation import Isolation
from milepost.checkpoint.records import PreviousEnd
from milepost.errors import CannotStart, InvalidRun
from milepost.executor.anchor import Anchor, parse_anchor
from milepost.executor.environment import Policy

__all__ = ["Settings", "read_settings"]

M = TypeVar("M", bound=BaseModel)
N = TypeVar("N", int, float)

_BEYOND: Final = 10**9


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
    agent_version: str
    previous_end: PreviousEnd | None
    grace: float
    store_deadline: float
    linger: float
    termination_log: Path | None
    isolation: Isolation = Isolation.NONE
    limits: LimitsSpec = field(default_factory=LimitsSpec)
    policy: Policy = field(default_factory=Policy)
    anchor: Anchor | None = None


def read_settings(environment: Mapping[str, str]) -> Settings:
    """Return the settings. Raises CannotStart, naming the variable, where one is missing or wrong."""
    credentials = environment.get("MILEPOST_CREDENTIALS", "")
    termination_log = environment.get("MILEPOST_TERMINATION_LOG", "/dev/termination-log")
    return Settings(
        store=_required(environment, "MILEPOST_STORE"),
        credentials=Path(credentials) if credentials else None,
        keys=_keys(environment),
        attempt=_number(environment, "MILEPOST_ATTEMPT", _required(environment, "MILEPOST_ATTEMPT"), int, 1),
        writer=_required(environment, "MILEPOST_POD_UID"),
        pod=environment.get("MILEPOST_POD_NAME", ""),
        node=environment.get("MILEPOST_NODE", ""),
        image=environment.get("MILEPOST_IMAGE", ""),
        agent_version=environment.get("MILEPOST_AGENT_VERSION", ""),
        previous_end=_previous_end(environment.get("MILEPOST_PREVIOUS_END", "")),
        grace=_number(environment, "MILEPOST_GRACE_SECONDS", "60", float, 0),
        store_deadline=_number(environment, "MILEPOST_STORE_DEADLINE_SECONDS", "120", float, 0),
        linger=_number(environment, "MILEPOST_LINGER_SECONDS", "1", float, 0),
        termination_log=Path(termination_log) if termination_log else None,
        isolation=_isolation(environment.get("MILEPOST_ISOLATION", "")),
        limits=_json(environment, "MILEPOST_LIMITS", LimitsSpec),
        policy=_json(environment, "MILEPOST_POLICY", Policy),
        anchor=_anchor(environment.get("MILEPOST_ANCHOR", "")),
    )


def _required(environment: Mapping[str, str], name: str) -> str:
    value = environment.get(name, "")
    if not value:
        raise CannotStart(
            "EnvironmentInvalid",
            f"the variable {name} is not set: an executor is started by the operator or by `milepost run`, "
            "not by hand",
        )
    return value


def _number(
    environment: Mapping[str, str], name: str, default: str, kind: Callable[[str], N], least: int
) -> N:
    text = environment.get(name, "") or default
    try:
        number = kind(text)
    except ValueError:
        number = None
    if number is None or not least <= number < _BEYOND:
        raise CannotStart("EnvironmentInvalid", f"{name}: {text!r} is no number from {least} on")
    return number


def _isolation(text: str) -> Isolation:
    # Whoever starts pods says what is asked for. Without a word there is nobody to be kept apart.
    try:
        return Isolation(text or Isolation.NONE)
    except ValueError as error:
        raise CannotStart("EnvironmentInvalid", f"MILEPOST_ISOLATION: {error}") from error


def _json(environment: Mapping[str, str], name: str, kind: type[M]) -> M:
    try:
        return kind.model_validate_json(environment.get(name, "") or "{}")
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise CannotStart("EnvironmentInvalid", f"{name}: {where or 'the text'}: {first['msg']}") from error


def _anchor(text: str) -> Anchor | None:
    try:
        return parse_anchor(text)
    except ValueError as error:
        raise CannotStart("EnvironmentInvalid", f"MILEPOST_ANCHOR: {error}") from error


def _keys(environment: Mapping[str, str]) -> StoreKeys:
    namespace = _required(environment, "MILEPOST_NAMESPACE")
    run_id = _required(environment, "MILEPOST_RUN_ID")
    try:
        return StoreKeys(namespace, run_id)
    except InvalidRun as error:
        raise CannotStart("EnvironmentInvalid", f"MILEPOST_NAMESPACE or MILEPOST_RUN_ID: {error}") from error


def _previous_end(text: str) -> PreviousEnd | None:
    if not text:
        return None
    try:
        return PreviousEnd.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        message = f"MILEPOST_PREVIOUS_END: {where or 'the text'}: {first['msg']}"
        raise CannotStart("EnvironmentInvalid", message) from error
