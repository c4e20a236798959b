"""The executor's pod, built by code from a closed list of fields.

An author chooses resources, environment, volumes of safe kinds and where the pod may run. What protects the
node, the other tenants and the run's record is not theirs to choose: the security context, the service
account's token, the labels by which the operator finds its pods, `/etc/milepost` and the `MILEPOST_`
variables. The pod meets the restricted Pod Security Standard as it is.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final, Literal

from milepost.api.names import (
    GROUP,
    KIND,
    LABEL_ATTEMPT,
    LABEL_MANAGED_BY,
    LABEL_RUN,
    MANAGED_BY,
    VERSION,
    check_name,
    pod_name,
)
from milepost.api.resource import AgentRun, EnvVar, PodSpec, Toleration, Volume
from milepost.errors import InvalidRun
from milepost_operator.core.observation import CONTAINER, End
from milepost_operator.core.plan import CreatePod
from milepost_operator.core.reading import (
    ANNOTATION_AVOIDS,
    ANNOTATION_IMAGE,
    ANNOTATION_IN_A_ROW,
    ANNOTATION_PREVIOUS_END,
    ANNOTATION_RESUMES_AFTER,
    ANNOTATION_RUN_ID,
    ANNOTATION_VERSION,
)

__all__ = ["StoreAccess", "check_run", "executor_pod"]

_RESERVED_PATH: Final = "/etc/milepost"
_STORE_PATH: Final = f"{_RESERVED_PATH}/store"
_USER: Final = 65532
_TMP_SIZE: Final = "1Gi"
_GONE_NODE_SECONDS: Final = 30
_NODE_TAINTS: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


@dataclass(frozen=True)
class StoreAccess:
    """How an executor reaches its store: the URL, and its namespace's Secret; "" is workload identity.

    `isolation` is what it must find out about its keys before it claims: `required` or `none`.
    """

    url: str
    secret: str = ""
    isolation: Literal["required", "none"] = "required"


def check_run(run: AgentRun) -> None:
    """Refuse what a pod of this run could not be built from. Raises InvalidRun, naming the field."""
    check_name(run.name)
    pod = run.spec.pod
    for index, variable in enumerate(pod.env):
        if variable.name.startswith("MILEPOST_"):
            raise InvalidRun(
                f"spec.pod.env[{index}].name", f"{variable.name}: the prefix MILEPOST_ is reserved"
            )
    for index, volume in enumerate(pod.volumes):
        _check_volume(volume, f"spec.pod.volumes[{index}]")
    known = {volume.name for volume in pod.volumes}
    for index, mount in enumerate(pod.volume_mounts):
        field = f"spec.pod.volumeMounts[{index}]"
        if mount.name not in known:
            raise InvalidRun(f"{field}.name", f"there is no volume {mount.name!r} in spec.pod.volumes")
        if _touches_reserved(mount.mount_path):
            raise InvalidRun(f"{field}.mountPath", f"{_RESERVED_PATH} is reserved; mount it elsewhere")


def _touches_reserved(path: str) -> bool:
    """Whether a mount there would lie in the reserved folder or cover it."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    reserved = _RESERVED_PATH.strip("/").split("/")
    shared = min(len(parts), len(reserved))
    return ".." in parts or parts[:shared] == reserved[:shared]


def _check_volume(volume: Volume, field: str) -> None:
    if volume.name.startswith("milepost-"):
        raise InvalidRun(f"{field}.name", "names that begin with milepost- are reserved")
    sources = (volume.secret, volume.config_map, volume.empty_dir, volume.persistent_volume_claim)
    if sum(source is not None for source in sources) != 1:
        raise InvalidRun(
            field, "it needs exactly one of secret, configMap, emptyDir and persistentVolumeClaim"
        )


def executor_pod(run: AgentRun, run_id: str, create: CreatePod, store: StoreAccess) -> dict[str, Any]:
    """Return the pod of one attempt, as the API server takes it."""
    chosen = run.spec.pod
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": chosen.grace_period_seconds,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "fsGroup": _USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(run, run_id, create, store)],
        "volumes": _volumes(chosen, store),
        "tolerations": _tolerations(chosen),
        **_placement(chosen, create),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod_name(run.name, run.uid, create.attempt),
            "namespace": run.namespace,
            "labels": {
                **_free(chosen.labels),
                LABEL_RUN: run.name,
                LABEL_ATTEMPT: str(create.attempt),
                LABEL_MANAGED_BY: MANAGED_BY,
            },
            "annotations": {**_free(chosen.annotations), **_annotations(run, run_id, create)},
            "ownerReferences": [
                {
                    "apiVersion": f"{GROUP}/{VERSION}",
                    "kind": KIND,
                    "name": run.name,
                    "uid": run.uid,
                    "controller": True,
                    # The pod must never keep its run from being deleted in the foreground.
                    "blockOwnerDeletion": False,
                }
            ],
        },
        "spec": spec,
    }


def _free(given: dict[str, str]) -> dict[str, str]:
    return {
        key: value
        for key, value in given.items()
        if not key.startswith(f"{GROUP}/") and key != LABEL_MANAGED_BY
    }


def _annotations(run: AgentRun, run_id: str, create: CreatePod) -> dict[str, str]:
    notes = {ANNOTATION_RUN_ID: run_id, ANNOTATION_IMAGE: run.spec.agent.image}
    if run.spec.agent.version:
        notes[ANNOTATION_VERSION] = run.spec.agent.version
    if create.in_a_row:
        notes[ANNOTATION_IN_A_ROW] = str(create.in_a_row)
    if create.previous_end is not None:
        notes[ANNOTATION_PREVIOUS_END] = _previous_end(create.previous_end)
    if create.avoid:
        notes[ANNOTATION_AVOIDS] = " ".join(sorted(create.avoid))
    if create.resumes_after:
        notes[ANNOTATION_RESUMES_AFTER] = create.resumes_after
    return notes


def _container(run: AgentRun, run_id: str, create: CreatePod, store: StoreAccess) -> dict[str, Any]:
    chosen = run.spec.pod
    container: dict[str, Any] = {
        "name": CONTAINER,
        "image": run.spec.agent.image,
        "terminationMessagePolicy": "File",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "privileged": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        # The author's variables come first: where a name occurs twice, Kubernetes takes the last.
        "env": [*(_given(variable) for variable in chosen.env), *_env(run, run_id, create, store)],
        "volumeMounts": _mounts(chosen, store),
    }
    if chosen.env_from:
        container["envFrom"] = [_plain(source) for source in chosen.env_from]
    if chosen.image_pull_policy:
        container["imagePullPolicy"] = chosen.image_pull_policy
    if resources := _plain(chosen.resources):
        container["resources"] = resources
    return container


def _env(run: AgentRun, run_id: str, create: CreatePod, store: StoreAccess) -> list[dict[str, Any]]:
    values = {
        "MILEPOST_STORE": store.url,
        "MILEPOST_ISOLATION": store.isolation,
        "MILEPOST_NAMESPACE": run.namespace,
        "MILEPOST_RUN_ID": run_id,
        "MILEPOST_ATTEMPT": str(create.attempt),
        "MILEPOST_IMAGE": run.spec.agent.image,
        "MILEPOST_AGENT_VERSION": run.spec.agent.version,
        "MILEPOST_GRACE_SECONDS": str(run.spec.pod.grace_period_seconds),
        "MILEPOST_PREVIOUS_END": _previous_end(create.previous_end),
        "MILEPOST_ANCHOR": _anchor(run, run_id),
    }
    if limits := run.spec.limits.model_dump_json(by_alias=True, exclude_none=True).removeprefix("{}"):
        values["MILEPOST_LIMITS"] = limits
    if store.secret:
        values["MILEPOST_CREDENTIALS"] = _STORE_PATH
    fields = {
        "MILEPOST_POD_UID": "metadata.uid",
        "MILEPOST_POD_NAME": "metadata.name",
        "MILEPOST_NODE": "spec.nodeName",
    }
    return [
        # Kubernetes would put an author's variable in place of $(NAME), in what an author's pod has said too.
        *({"name": name, "value": value.replace("$", "$$")} for name, value in values.items()),
        *({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()),
    ]


def _previous_end(end: End | None) -> str:
    if end is None:
        return ""
    said = {
        "attempt": end.attempt,
        "cause": end.cause,
        "fault": end.fault.value,
        "exit_code": end.exit_code,
        "message": end.message[:1024],
        # The exit code is the container's, which is known once nothing of it is at work any more.
        "proved": end.exit_code is not None,
    }
    return json.dumps(said, separators=(",", ":"))


def _anchor(run: AgentRun, run_id: str) -> str:
    """Return the newest position that the cluster knows of this very run, by which a pod checks the store."""
    known = run.status.checkpoint
    if run.status.run_id != run_id or not known.digest:
        return ""
    said = {"seq": known.seq, "epoch": known.epoch, "digest": known.digest}
    return json.dumps(said, separators=(",", ":"))


def _given(variable: EnvVar) -> dict[str, Any]:
    given = _plain(variable)
    return given if "valueFrom" in given else {"name": variable.name, "value": variable.value or ""}


def _plain(part: Any) -> dict[str, Any]:
    dumped: dict[str, Any] = part.model_dump(by_alias=True, exclude_none=True, exclude_defaults=True)
    return dumped


def _volumes(chosen: PodSpec, store: StoreAccess) -> list[dict[str, Any]]:
    volumes = [_volume(volume) for volume in chosen.volumes]
    if not _own_tmp(chosen):
        volumes.append({"name": "milepost-tmp", "emptyDir": {"sizeLimit": _TMP_SIZE}})
    if store.secret:
        secret = {"secretName": store.secret, "defaultMode": 0o440}
        volumes.append({"name": "milepost-store", "secret": secret})
    return volumes


def _volume(volume: Volume) -> dict[str, Any]:
    dumped = volume.model_dump(by_alias=True, exclude_none=True)
    if volume.empty_dir is not None and not volume.empty_dir.medium:
        dumped["emptyDir"].pop("medium", None)
    return dumped


def _mounts(chosen: PodSpec, store: StoreAccess) -> list[dict[str, Any]]:
    mounts = [_plain(mount) for mount in chosen.volume_mounts]
    if not _own_tmp(chosen):
        mounts.append({"name": "milepost-tmp", "mountPath": "/tmp"})  # noqa: S108  a path in the container
    if store.secret:
        mounts.append({"name": "milepost-store", "mountPath": _STORE_PATH, "readOnly": True})
    return mounts


def _own_tmp(chosen: PodSpec) -> bool:
    return any(mount.mount_path.rstrip("/") == "/tmp" for mount in chosen.volume_mounts)  # noqa: S108  as above


def _tolerations(chosen: PodSpec) -> list[dict[str, Any]]:
    given = [_toleration(part) for part in chosen.tolerations]
    return [
        *given,
        *(
            {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _GONE_NODE_SECONDS}
            for key in _NODE_TAINTS
            if key not in {part.key for part in chosen.tolerations}
        ),
    ]


def _toleration(part: Toleration) -> dict[str, Any]:
    return {"operator": part.operator, **_plain(part)}


def _placement(chosen: PodSpec, create: CreatePod) -> dict[str, Any]:
    placement: dict[str, Any] = {
        "nodeSelector": dict(chosen.node_selector),
        "priorityClassName": chosen.priority_class_name,
        "runtimeClassName": chosen.runtime_class_name,
        "serviceAccountName": chosen.service_account_name,
        "imagePullSecrets": [{"name": name} for name in chosen.image_pull_secrets],
    }
    if create.avoid:
        # By name, not by taint: a node is silent to us long before its taints say so. One value a
        # requirement is all that matchFields takes.
        fields = [
            {"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in sorted(create.avoid)
        ]
        terms = [{"matchFields": fields}]
        placement["affinity"] = {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        }
    return {key: value for key, value in placement.items() if value}
