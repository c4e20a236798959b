"""Raw API objects read into what the rules look at, and trimmed for the cache.

Nothing is defaulted silently that a rule would then act on: a spec that does not fit the types is reported
as invalid, with the field named. A status that does not fit is read as far as it goes, because an operator
of another version may have written it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from pydantic import ValidationError

from milepost.api.names import GROUP, LABEL_ATTEMPT
from milepost.api.resource import AgentRun, AgentSpec, RunSpec, RunStatus
from milepost_operator.core.observation import (
    CONTAINER,
    Container,
    End,
    Fault,
    PodSeen,
    Started,
    Terminated,
    Waiting,
)

__all__ = [
    "ANNOTATION_AVOIDS",
    "ANNOTATION_IMAGE",
    "ANNOTATION_IN_A_ROW",
    "ANNOTATION_PREVIOUS_END",
    "ANNOTATION_RESUMES_AFTER",
    "ANNOTATION_RUN_ID",
    "ANNOTATION_VERSION",
    "parse_time",
    "read_pod",
    "read_run",
    "trimmed",
]

ANNOTATION_PREVIOUS_END: Final = f"{GROUP}/previous-end"
ANNOTATION_AVOIDS: Final = f"{GROUP}/avoids"
ANNOTATION_IMAGE: Final = f"{GROUP}/image"
ANNOTATION_RUN_ID: Final = f"{GROUP}/run-id"
ANNOTATION_VERSION: Final = f"{GROUP}/agent-version"
ANNOTATION_IN_A_ROW: Final = f"{GROUP}/fruitless-in-a-row"
ANNOTATION_RESUMES_AFTER: Final = f"{GROUP}/resumes-after"

_KEPT_METADATA: Final = (
    "name", "namespace", "uid", "generation", "generateName", "resourceVersion", "creationTimestamp",
    "deletionTimestamp", "labels", "annotations", "ownerReferences",
)  # fmt: skip
_DIGITS: Final = 9
_KEPT_POD_STATUS: Final = ("phase", "reason", "message", "conditions", "containerStatuses")


def trimmed(raw: Mapping[str, Any], *, pod: bool = False) -> dict[str, Any]:
    """Return the parts of an object that are worth keeping in memory."""
    metadata = {key: raw["metadata"][key] for key in _KEPT_METADATA if key in raw["metadata"]}
    if not pod:
        metadata.pop("annotations", None)
        return {"metadata": metadata, "spec": raw.get("spec") or {}, "status": raw.get("status") or {}}
    spec, status = raw.get("spec") or {}, raw.get("status") or {}
    return {
        "metadata": metadata,
        "spec": {"nodeName": spec.get("nodeName", "")},
        "status": {key: status[key] for key in _KEPT_POD_STATUS if key in status},
    }


def read_run(raw: Mapping[str, Any]) -> tuple[AgentRun, str]:
    """Return the run, and what is wrong with its spec; empty if nothing is.

    The spec of an invalid run is a stand-in that no rule may look at.
    """
    metadata = raw["metadata"]
    invalid = ""
    try:
        spec = RunSpec.model_validate(raw.get("spec") or {})
    except ValidationError as error:
        spec = RunSpec(agent=AgentSpec(image="invalid", entrypoint="invalid:invalid"))
        invalid = _first_fault(error)
    run = AgentRun(
        name=metadata["name"],
        namespace=metadata["namespace"],
        uid=metadata["uid"],
        generation=metadata.get("generation", 1),
        generate_name=metadata.get("generateName") or "",
        deletion_timestamp=metadata.get("deletionTimestamp"),
        spec=spec,
        status=_read_status(raw.get("status") or {}),
    )
    return run, invalid


def _first_fault(error: ValidationError) -> str:
    fault = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(('spec', *map(str, fault['loc'])))}: {fault['msg']}"


def _read_status(raw: Mapping[str, Any]) -> RunStatus:
    known = {(field.alias or name) for name, field in RunStatus.model_fields.items()}
    readable: dict[str, Any] = {}
    for key, value in raw.items():
        if key not in known:
            continue
        try:
            RunStatus.model_validate({key: value})
        except ValidationError:
            continue
        readable[key] = value
    return RunStatus.model_validate(readable)


def parse_time(text: str | None) -> datetime | None:
    """Return a timestamp of the API server as an aware datetime."""
    return datetime.fromisoformat(text) if text else None


def read_pod(raw: Mapping[str, Any], owner_uid: str, run_id: str, *, gone: bool = False) -> PodSeen | None:
    """Return the pod if it belongs to this resource or works on its run, else None.

    `run_id` is empty while the resource has no run yet.
    """
    metadata, status = raw["metadata"], raw.get("status") or {}
    notes = metadata.get("annotations") or {}
    owned = any(
        ref.get("uid") == owner_uid and ref.get("controller") for ref in metadata.get("ownerReferences") or ()
    )
    if not owned and (not run_id or notes.get(ANNOTATION_RUN_ID) != run_id):
        return None
    conditions = {part.get("type"): part for part in status.get("conditions") or ()}
    disruption = conditions.get("DisruptionTarget") or {}
    scheduled = conditions.get("PodScheduled") or {}
    return PodSeen(
        name=metadata["name"],
        uid=metadata["uid"],
        attempt=_number((metadata.get("labels") or {}).get(LABEL_ATTEMPT)),
        phase=status.get("phase") or "Pending",
        node=(raw.get("spec") or {}).get("nodeName") or "",
        owned=owned,
        gone=gone,
        container=_container(status),
        reason=status.get("reason") or "",
        message=status.get("message") or "",
        deadline=parse_time(metadata.get("deletionTimestamp")),
        disruption=str(disruption.get("reason", "")) if disruption.get("status") == "True" else "",
        unschedulable=str(scheduled.get("message") or "no node fits")
        if scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable"
        else "",
        created=parse_time(metadata.get("creationTimestamp")),
        avoids=frozenset(notes.get(ANNOTATION_AVOIDS, "").split()),
        image=notes.get(ANNOTATION_IMAGE, ""),
        agent_version=notes.get(ANNOTATION_VERSION, ""),
        run_id=notes.get(ANNOTATION_RUN_ID, ""),
        previous_end=_read_end(notes.get(ANNOTATION_PREVIOUS_END, "")),
        in_a_row=_number(notes.get(ANNOTATION_IN_A_ROW)),
        resumes_after=notes.get(ANNOTATION_RESUMES_AFTER, ""),
    )


def _number(text: str | None) -> int:
    """Return a number of attempts; 0 where somebody has put something else in its place."""
    plausible = text and len(text) <= _DIGITS and text.isascii() and text.isdecimal()
    return int(text) if text and plausible else 0


def _container(status: Mapping[str, Any]) -> Container | None:
    state = next(
        (
            part.get("state") or {}
            for part in status.get("containerStatuses") or ()
            if part.get("name") == CONTAINER
        ),
        {},
    )
    if (ended := state.get("terminated")) is not None:
        return Terminated(
            exit_code=int(ended.get("exitCode", -1)),
            reason=ended.get("reason") or "",
            message=ended.get("message") or "",
            at=parse_time(ended.get("finishedAt")),
        )
    if state.get("running") is not None:
        return Started()
    if (waiting := state.get("waiting")) is not None:
        return Waiting(waiting.get("reason") or "", waiting.get("message") or "")
    return None


def _read_end(text: str) -> End | None:
    """Return what an annotation that the operator itself wrote says; None where somebody has changed it."""
    try:
        said = json.loads(text)
        return End(
            attempt=int(said["attempt"]),
            cause=str(said["cause"]),
            fault=Fault(said["fault"]),
            exit_code=said.get("exit_code"),
            message=str(said.get("message") or ""),
        )
    except (ValueError, KeyError, TypeError, OverflowError):
        return None
