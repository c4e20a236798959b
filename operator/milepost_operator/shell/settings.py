"""The operator's settings, read once from its environment into one frozen object, and Kopf's.

A value that cannot be used stops the operator with a message that names the variable. Kopf is used for
logging in and watching only: its change detection, finalizers, peering and event posting stay off.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import kopf

from milepost.api.names import GROUP, LABEL_MANAGED_BY, MANAGED_BY
from milepost.errors import MilepostError

__all__ = ["BadSettings", "Settings", "kopf_settings", "read_settings"]

_LEAST_STORE_SWEEP_S: Final = 60


class BadSettings(MilepostError):
    """The operator cannot run as it is configured; the message says what to change."""


@dataclass(frozen=True)
class Settings:
    """Where things are, and how often they are looked at. Times are in seconds.

    `store_sweep_s` is 0 where nothing is to be deleted from stores.
    """

    stores_file: Path = Path("/etc/milepost/stores.yaml")
    store_credentials: Path = Path("/etc/milepost/credentials")
    namespaces: tuple[str, ...] = ()
    health_port: int = 8080
    release_namespace: str = "default"
    log_level: str = "INFO"
    workers: int = 8
    store_threads: int = 8
    progress_read_s: float = 10.0
    progress_write_s: float = 30.0
    lease_poll_s: float = 5.0
    sweep_s: float = 120.0
    store_sweep_s: float = 600.0


def read_settings(environ: Mapping[str, str]) -> Settings:
    """Return the settings that the environment asks for. Raises BadSettings."""
    level = environ.get("MILEPOST_LOG_LEVEL", "INFO").upper()
    if level not in ("DEBUG", "INFO", "WARNING", "ERROR"):
        raise BadSettings(f"MILEPOST_LOG_LEVEL: {level!r} must be DEBUG, INFO, WARNING or ERROR")
    port = environ.get("MILEPOST_HEALTH_PORT", "8080")
    if not port.isdecimal() or not 0 <= int(port) < 2**16:
        raise BadSettings(f"MILEPOST_HEALTH_PORT: {port!r} must be a port number")
    store_sweep = environ.get("MILEPOST_STORE_SWEEP_SECONDS", "600")
    if not store_sweep.isdecimal() or 0 < int(store_sweep) < _LEAST_STORE_SWEEP_S:
        raise BadSettings(
            f"MILEPOST_STORE_SWEEP_SECONDS: {store_sweep!r} must be 0, for never, or at least "
            f"{_LEAST_STORE_SWEEP_S}"
        )
    given = environ.get("MILEPOST_NAMESPACES", "").split(",")
    return Settings(
        stores_file=Path(environ.get("MILEPOST_STORES", "/etc/milepost/stores.yaml")),
        store_credentials=Path(environ.get("MILEPOST_STORE_CREDENTIALS", "/etc/milepost/credentials")),
        namespaces=tuple(sorted({name.strip() for name in given} - {""})),
        health_port=int(port),
        release_namespace=environ.get("MILEPOST_RELEASE_NAMESPACE", "default"),
        log_level=level,
        store_sweep_s=float(store_sweep),
    )


def kopf_settings() -> kopf.OperatorSettings:
    """Return Kopf's settings: watch few things, keep nothing in annotations, fail fast into our own queue."""
    settings = kopf.OperatorSettings()
    settings.watching.label_selectors["", "v1", "pods"] = f"{LABEL_MANAGED_BY}={MANAGED_BY}"
    settings.watching.chunk_size = 500
    settings.watching.server_timeout = 300
    settings.watching.client_timeout = 330
    settings.watching.connect_timeout = 5
    settings.networking.request_timeout = 20
    settings.networking.connect_timeout = 5
    settings.networking.error_backoffs = (0.5, 1, 2, 4)
    settings.queueing.worker_limit = None
    settings.queueing.idle_timeout = 1
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.peering.standalone = True
    # Unused while there are only event handlers; they keep a handler added later from touching others' marks.
    settings.persistence.finalizer = f"{GROUP}/operator"
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=GROUP, v1=False)
    settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix=GROUP)
    settings.execution.max_workers = 2
    settings.process.ultimate_exiting_timeout = 20
    return settings
