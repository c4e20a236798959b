"""The executor's pod against a golden file, and what an author cannot have in it.

MILEPOST_REWRITE_GOLDEN=1 rewrites the file; read the difference before committing it.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from milepost.api.resource import AgentRun, CheckpointStatus, PodSpec
from milepost.errors import InvalidRun
from milepost_operator.core.executor_pod import StoreAccess, check_run, executor_pod
from milepost_operator.core.observation import End, Fault
from milepost_operator.core.plan import CreatePod
from milepost_operator.core.reading import read_pod
from tests.support.builders import RUN_ID, UID, a_run, a_spec

GOLDEN = Path(__file__).parent.parent / "data" / "executor-pod.yaml"
STORE = StoreAccess("s3://bucket/prefix?endpoint=http://10.0.0.1:8333&region=us-east-1", "store-keys")
TMP = "/tmp"  # noqa: S108  a path in the container
IDENTITY = StoreAccess("s3://bucket/prefix")

EVERYTHING = PodSpec.model_validate(
    {
        "resources": {"requests": {"cpu": "100m"}, "limits": {"memory": "256Mi"}},
        "env": [
            {"name": "MODEL", "value": "small"},
            {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "model", "key": "token"}}},
        ],
        "envFrom": [{"configMapRef": {"name": "settings"}, "prefix": "APP_"}],
        "volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": "data", "readOnly": True}},
            {"name": "scratch", "emptyDir": {"sizeLimit": "1Gi"}},
            {"name": "config", "configMap": {"name": "settings"}},
            {"name": "secret", "secret": {"secretName": "model"}},
        ],
        "volumeMounts": [
            {"name": "data", "mountPath": "/data", "readOnly": True},
            {"name": "scratch", "mountPath": "/scratch"},
        ],
        "nodeSelector": {"pool": "agents"},
        "tolerations": [{"key": "agents", "operator": "Exists", "effect": "NoSchedule"}],
        "priorityClassName": "low",
        "runtimeClassName": "gvisor",
        "serviceAccountName": "agent",
        "imagePullSecrets": ["registry"],
        "imagePullPolicy": "IfNotPresent",
        "labels": {
            "team": "docs",
            "milepost.dev/run": "not-mine",
            "app.kubernetes.io/managed-by": "somebody-else",
        },
        "annotations": {"note": "kept", "milepost.dev/run-id": "b" * 20},
        "gracePeriodSeconds": 90,
    }
)


KNOWN = CheckpointStatus(seq=50, epoch=3, digest="a" * 64)


def built(
    pod: PodSpec,
    create: CreatePod,
    store: StoreAccess,
    *,
    version: str = "",
    known: CheckpointStatus | None = None,
) -> dict[str, Any]:
    run = a_run(a_spec(pod=pod, version=version), checkpoint=known)
    return executor_pod(run, RUN_ID, create, store)


def test_the_pods_are_the_golden_ones() -> None:
    resumed = CreatePod(
        3,
        End(2, "AgentFailed", Fault.AGENT, 3, "no disk"),
        frozenset({"node-2", "node-1"}),
        in_a_row=1,
        resumes_after="5/10",
    )
    pods = {
        "dull": built(PodSpec(), CreatePod(1), IDENTITY),
        "everything": built(EVERYTHING, resumed, STORE, version="2", known=KNOWN),
    }
    if os.environ.get("MILEPOST_REWRITE_GOLDEN"):
        GOLDEN.write_text(yaml.safe_dump(pods, sort_keys=False, width=110))

    assert pods == yaml.safe_load(GOLDEN.read_text())


def test_what_is_written_into_a_pod_is_read_back() -> None:
    create = CreatePod(3, End(2, "AgentFailed", Fault.AGENT, 3, "no disk"), in_a_row=1, resumes_after="5/10")
    pod = built(PodSpec(), create, IDENTITY, version="2")
    pod["metadata"]["uid"] = "pod-3"

    seen = read_pod(pod, UID, "")
    assert seen is not None
    assert (seen.attempt, seen.previous_end, seen.in_a_row, seen.resumes_after) == (
        3,
        create.previous_end,
        1,
        "5/10",
    )
    assert (seen.owned, seen.agent_version, seen.image) == (True, "2", "registry.example/agent:1")


@pytest.mark.req("K4")
def expanded(value: str, known: dict[str, str]) -> str:
    """Return what a kubelet makes of a variable's value."""

    def one(match: re.Match[str]) -> str:
        return "$" if match[1] == "$" else known.get(match[2], match[0])

    return re.sub(r"\$(\$|\(([^)]*)\))", one, value)


def test_what_a_pod_has_said_reaches_the_next_one_as_it_is() -> None:
    end = End(1, "AgentFailed", Fault.AGENT, 1, "it cost $5, $$ and $(TOKEN)")
    pod = executor_pod(a_run(), RUN_ID, CreatePod(2, previous_end=end), STORE)
    env = {each["name"]: each.get("value", "") for each in pod["spec"]["containers"][0]["env"]}

    seen = json.loads(expanded(env["MILEPOST_PREVIOUS_END"], {"TOKEN": 'a secret"'}))
    assert seen["message"] == end.message
    assert expanded(env["MILEPOST_STORE"], {}) == STORE.url


def test_an_author_cannot_take_what_protects_the_others() -> None:
    pod = built(EVERYTHING, CreatePod(1), STORE)
    labels = pod["metadata"]["labels"]

    assert (labels["milepost.dev/run"], labels["app.kubernetes.io/managed-by"]) == ("docs", "milepost")
    assert pod["metadata"]["annotations"]["milepost.dev/run-id"] == RUN_ID
    assert pod["spec"]["automountServiceAccountToken"] is False


def test_an_author_cannot_forge_what_the_operator_notes_on_a_pod() -> None:
    forged = PodSpec(
        labels={"milepost.dev/other": "x"}, annotations={"milepost.dev/previous-end": "{}", "note": "kept"}
    )
    metadata = built(forged, CreatePod(1), IDENTITY)["metadata"]

    assert "milepost.dev/other" not in metadata["labels"]
    assert sorted(metadata["annotations"]) == ["milepost.dev/image", "milepost.dev/run-id", "note"]


def test_an_author_who_mounts_tmp_gets_no_second_one() -> None:
    own = PodSpec.model_validate(
        {
            "volumes": [{"name": "big", "emptyDir": {"sizeLimit": "20Gi"}}],
            "volumeMounts": [{"name": "big", "mountPath": TMP}],
        }
    )
    spec = built(own, CreatePod(1), IDENTITY)["spec"]

    assert [mount["mountPath"] for mount in spec["containers"][0]["volumeMounts"]] == [TMP]
    assert [volume["name"] for volume in spec["volumes"]] == ["big"]


def test_an_author_decides_how_long_a_lost_node_is_tolerated() -> None:
    own = PodSpec.model_validate(
        {
            "tolerations": [
                {
                    "key": "node.kubernetes.io/unreachable",
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": 300,
                }
            ]
        }
    )
    tolerations = built(own, CreatePod(1), IDENTITY)["spec"]["tolerations"]

    assert [(part["key"], part["tolerationSeconds"]) for part in tolerations] == [
        ("node.kubernetes.io/unreachable", 300),
        ("node.kubernetes.io/not-ready", 30),
    ]


@pytest.mark.parametrize(
    ("pod", "field"),
    [
        ({"env": [{"name": "MILEPOST_STORE", "value": "s3://mine"}]}, "spec.pod.env[0].name"),
        ({"volumes": [{"name": "milepost-store", "emptyDir": {}}]}, "spec.pod.volumes[0].name"),
        ({"volumes": [{"name": "none"}]}, "spec.pod.volumes[0]"),
        (
            {"volumes": [{"name": "two", "emptyDir": {}, "secret": {"secretName": "s"}}]},
            "spec.pod.volumes[0]",
        ),
        ({"volumeMounts": [{"name": "lost", "mountPath": "/data"}]}, "spec.pod.volumeMounts[0].name"),
        *(
            (
                {
                    "volumes": [{"name": "v", "emptyDir": {}}],
                    "volumeMounts": [{"name": "v", "mountPath": path}],
                },
                "spec.pod.volumeMounts[0].mountPath",
            )
            for path in (
                "/etc/milepost",
                "/etc/milepost/store",
                "/etc",
                "/etc/x/../milepost",
            )
        ),
    ],
)
def test_what_a_pod_cannot_have_is_refused_with_its_field(pod: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRun) as refused:
        check_run(a_run(a_spec(pod=PodSpec.model_validate(pod))))

    assert refused.value.field == field


def test_a_name_that_is_too_long_is_refused() -> None:
    run: AgentRun = a_run().model_copy(update={"name": "x" * 46})

    with pytest.raises(InvalidRun):
        check_run(run)


@pytest.mark.req("I4")
def test_what_the_status_knows_of_another_run_anchors_no_pod() -> None:
    run = a_run(checkpoint=KNOWN)

    def anchor(run_id: str) -> str:
        env = executor_pod(run, run_id, CreatePod(1), IDENTITY)["spec"]["containers"][0]["env"]
        return next(str(part["value"]) for part in env if part["name"] == "MILEPOST_ANCHOR")

    assert anchor(RUN_ID) == json.dumps({"seq": 50, "epoch": 3, "digest": "a" * 64}, separators=(",", ":"))
    assert anchor("b" * 20) == ""
