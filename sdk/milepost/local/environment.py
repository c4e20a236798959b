"""The environment of an executor on this machine: the user's own, and on top what a pod would get.

The user's own `MILEPOST_` variables do not reach it. What a manifest takes from a Secret or a ConfigMap
cannot be had here; such a variable is taken from the user's environment, and `missing` says which are not.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from milepost.api.names import pod_name
from milepost.checkpoint.records import PreviousEnd
from milepost.local.manifest import Manifest

__all__ = ["Seat", "environment_of", "missing"]


@dataclass(frozen=True)
class Seat:
    """One attempt's place: which run, where, as whom, after what. `writer` is new for each attempt."""

    store: str
    run_id: str
    resource_uid: str
    attempt: int
    writer: str
    node: str = ""
    previous: PreviousEnd | None = None


def environment_of(
    seat: Seat, manifest: Manifest, environ: Mapping[str, str], folder: Path
) -> dict[str, str]:
    """Return the executor's environment. The agent's package is looked for in `folder` first."""
    spec = manifest.spec
    own = {key: value for key, value in environ.items() if not key.startswith("MILEPOST_")}
    paths = [str(folder), *filter(None, [own.get("PYTHONPATH", "")])]
    return {
        **own,
        **{each.name: each.value or "" for each in spec.pod.env if each.value_from is None},
        "PYTHONPATH": os.pathsep.join(paths),
        # What the agent prints should appear when it is printed.
        "PYTHONUNBUFFERED": "1",
        "MILEPOST_STORE": seat.store,
        "MILEPOST_NAMESPACE": manifest.namespace,
        "MILEPOST_RUN_ID": seat.run_id,
        "MILEPOST_ATTEMPT": str(seat.attempt),
        "MILEPOST_POD_UID": seat.writer,
        "MILEPOST_POD_NAME": pod_name(manifest.name, seat.resource_uid, seat.attempt),
        "MILEPOST_NODE": seat.node,
        # One user with one set of keys: there is nobody to be kept apart.
        "MILEPOST_ISOLATION": "none",
        "MILEPOST_AGENT_VERSION": spec.agent.version,
        "MILEPOST_LIMITS": spec.limits.model_dump_json(by_alias=True, exclude_none=True),
        "MILEPOST_POLICY": environ.get("MILEPOST_POLICY", ""),
        "MILEPOST_GRACE_SECONDS": str(spec.pod.grace_period_seconds),
        "MILEPOST_PREVIOUS_END": json.dumps(seat.previous.model_dump()) if seat.previous else "",
    }


def missing(manifest: Manifest, environ: Mapping[str, str]) -> list[str]:
    """Return what only a cluster could set: variables that the user has not, Secrets and ConfigMaps."""
    pod = manifest.spec.pod
    variables = [each.name for each in pod.env if each.value_from is not None and each.name not in environ]
    secrets = [f"the keys of Secret {each.secret_ref.name}" for each in pod.env_from if each.secret_ref]
    maps = [
        f"the keys of ConfigMap {each.config_map_ref.name}" for each in pod.env_from if each.config_map_ref
    ]
    return [*variables, *secrets, *maps]
