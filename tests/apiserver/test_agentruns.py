from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.support.api_server import JSON_PATCH, MERGE_PATCH, TABLE, ApiServer, Refused

pytestmark = pytest.mark.usefixtures("definition")

EXAMPLES: Final = sorted((Path(__file__).resolve().parents[2] / "examples").glob("*/run.yaml"))
RUNS: Final = "/apis/milepost.dev/v1alpha1/namespaces/default/agentruns"
AGENT: Final[dict[str, Any]] = {"image": "example.com/agent:1", "entrypoint": "triage.agent:run"}
FULL: Final[dict[str, Any]] = {
    "agent": AGENT | {"version": "1"},
    "goal": "Sort the mail.",
    "inputs": {"folder": "inbox", "limits": {"mails": 10, "tags": ["a", "b"]}, "none": None, "empty": {}},
    "rerun": "once",
    "store": {"name": "big"},
    "retry": {"stepAttempts": 5, "executorFailures": 1, "outOfMemory": 1},
    "pod": {
        "resources": {"requests": {"cpu": 1, "memory": "1Gi"}},
        "env": [{"name": "MODEL", "value": "large"}, {"name": "REGION", "value": "eu"}],
        "nodeSelector": {"disk": "fast"},
        "gracePeriodSeconds": 30,
    },
}

_numbers = itertools.count()


def a_run(spec: dict[str, Any], name: str = "") -> dict[str, Any]:
    return {
        "apiVersion": "milepost.dev/v1alpha1",
        "kind": "AgentRun",
        "metadata": {"name": name or f"run-{next(_numbers)}"},
        "spec": spec,
    }


Create = Callable[..., str]


@pytest.fixture
def created(api: ApiServer) -> Create:
    """Create a run and return its path."""

    def create(spec: dict[str, Any], name: str = "") -> str:
        answer = api.request("POST", RUNS, a_run(spec, name), query={"fieldValidation": "Strict"})
        return f"{RUNS}/{answer['metadata']['name']}"

    return create


def refusal(api: ApiServer, spec: dict[str, Any], name: str = "") -> str:
    with pytest.raises(Refused) as raised:
        api.request("POST", RUNS, a_run(spec, name), query={"fieldValidation": "Strict", "dryRun": "All"})
    return raised.value.message


def op(kind: str, path: str, value: Any = None, **more: str) -> dict[str, Any]:
    return {"op": kind, "path": f"/spec/{path}", "value": value, **more}


def move(source: str, path: str) -> dict[str, Any]:
    return {"op": "move", "from": f"/spec/{source}", "path": f"/spec/{path}"}


CHANGES: Final[list[tuple[str, dict[str, Any]]]] = [
    ("spec.agent.entrypoint", op("replace", "agent/entrypoint", "triage.agent:other")),
    ("spec.goal", op("replace", "goal", "Sort it all.")),
    ("spec.goal", op("remove", "goal")),
    ("spec.inputs", op("add", "inputs/more", 1)),
    ("spec.inputs", op("add", "inputs/more", None)),
    ("spec.inputs", op("remove", "inputs/folder")),
    ("spec.inputs", op("remove", "inputs/none")),
    ("spec.inputs", op("replace", "inputs/folder", "outbox")),
    ("spec.inputs", op("replace", "inputs/folder", ["inbox"])),
    ("spec.inputs", op("replace", "inputs/none", "something")),
    ("spec.inputs", op("replace", "inputs/empty", [])),
    ("spec.inputs", move("inputs/folder", "inputs/directory")),
    ("spec.inputs", move("inputs/none", "inputs/nothing")),
    ("spec.inputs", op("add", "inputs/limits/more", 1)),
    ("spec.inputs", op("remove", "inputs/limits/tags")),
    ("spec.inputs", op("replace", "inputs/limits/mails", 11)),
    ("spec.inputs", move("inputs/limits/mails", "inputs/limits/letters")),
    ("spec.inputs", op("replace", "inputs/limits/tags", ["b", "a"])),
    ("spec.inputs", op("remove", "inputs")),
    ("spec.rerun", op("replace", "rerun", "twice")),
    ("spec.rerun", op("remove", "rerun")),
    ("spec.store", op("replace", "store/name", "small")),
    ("spec.store", op("remove", "store/name")),
    ("spec.store", op("remove", "store")),
    ("spec.retry", op("replace", "retry/stepAttempts", 6)),
    ("spec.retry", op("remove", "retry/outOfMemory")),
    ("spec.retry", op("remove", "retry")),
    ("spec.pod", op("add", "pod/env/-", {"name": "MORE", "value": "1"})),
    ("spec.pod", op("remove", "pod/env/0")),
    ("spec.pod", op("remove", "pod/env")),
    ("spec.pod", op("replace", "pod/env/0/value", "small")),
    ("spec.pod", op("replace", "pod/env/0/name", "MODELS")),
    ("spec.pod", move("pod/nodeSelector/disk", "pod/nodeSelector/disc")),
    ("spec.pod", op("add", "pod/labels", {"team": "a"})),
    ("spec.pod", op("replace", "pod/resources/requests/cpu", 2)),
    ("spec.pod", op("remove", "pod/gracePeriodSeconds")),
    ("spec.pod", op("remove", "pod")),
]


@pytest.fixture(scope="module")
def full(api: ApiServer, definition: dict[str, Any]) -> str:
    """Create one run with every field set, for all attempts to change it; return its path."""
    assert definition
    answer = api.request("POST", RUNS, a_run(FULL, "full"), query={"fieldValidation": "Strict"})
    return f"{RUNS}/{answer['metadata']['name']}"


@pytest.mark.parametrize(("field", "change"), CHANGES, ids=str)
def test_what_defines_a_run_cannot_be_changed(
    field: str, change: dict[str, Any], full: str, api: ApiServer
) -> None:
    with pytest.raises(Refused) as raised:
        api.request("PATCH", full, [change], content_type=JSON_PATCH)

    assert f"{field}: Invalid value" in raised.value.message
    assert f"{field} is immutable; to " in raised.value.message


@pytest.mark.parametrize(
    ("field", "addition"),
    [
        ("spec.goal", {"goal": "Sort."}),
        ("spec.inputs", {"inputs": {"a": 1}}),
        ("spec.inputs", {"inputs": {"a": None}}),
        ("spec.rerun", {"rerun": "a"}),
        ("spec.store", {"store": {"name": "big"}}),
        ("spec.retry", {"retry": {"stepAttempts": 1}}),
        ("spec.pod", {"pod": {"labels": {"team": "a"}}}),
    ],
    ids=str,
)
def test_what_was_left_out_cannot_be_added(
    field: str, addition: dict[str, Any], created: Create, api: ApiServer
) -> None:
    path = created({"agent": AGENT})
    current = api.request("GET", path)

    with pytest.raises(Refused) as raised:
        api.request("PUT", path, current | {"spec": current["spec"] | addition})

    assert f"{field} is immutable; to " in raised.value.message


def test_the_same_manifest_can_be_applied_again(created: Create, api: ApiServer) -> None:
    path = created(FULL)
    before = api.request("GET", path)

    after = api.request("PUT", path, before | {"spec": FULL})

    assert after["metadata"]["generation"] == before["metadata"]["generation"] == 1


@pytest.mark.parametrize(
    "change",
    [
        {"suspend": True},
        {"agent": {"image": "example.com/agent:2"}},
        {"agent": {"version": "2"}},
        {"agent": {"version": None}},
        {"cancel": True},
    ],
    ids=str,
)
def test_what_steers_a_run_can_be_changed(change: dict[str, Any], created: Create, api: ApiServer) -> None:
    path = created(FULL)

    after = api.request("PATCH", path, {"spec": change}, content_type=MERGE_PATCH)

    assert after["metadata"]["generation"] == 2


@pytest.mark.req("G5")
@pytest.mark.parametrize(
    ("limit", "less", "more"), [("steps", 9, 11), ("tokens", 9, 11), ("costUSD", 9.5, 10.5)]
)
def test_a_limit_can_be_raised_and_taken_out_and_not_lowered(
    limit: str, less: float, more: float, created: Create, api: ApiServer
) -> None:
    path = created({"agent": AGENT, "limits": {limit: 10}})
    with pytest.raises(Refused) as raised:
        api.request("PATCH", path, {"spec": {"limits": {limit: less}}}, content_type=MERGE_PATCH)
    assert f"spec.limits.{limit} can only be raised, or taken out; to " in raised.value.message

    for given in (more, None):
        after = api.request("PATCH", path, {"spec": {"limits": {limit: given}}}, content_type=MERGE_PATCH)
        assert after["spec"]["limits"] == ({} if given is None else {limit: given})


def test_a_run_can_be_suspended_and_go_on(created: Create, api: ApiServer) -> None:
    path = created({"agent": AGENT, "suspend": True})

    after = api.request("PATCH", path, {"spec": {"suspend": None}}, content_type=MERGE_PATCH)

    assert after["spec"]["suspend"] is False


@pytest.mark.parametrize("change", [{"cancel": False}, {"cancel": None}], ids=str)
def test_a_cancel_cannot_be_taken_back(change: dict[str, Any], created: Create, api: ApiServer) -> None:
    path = created({"agent": AGENT, "cancel": True})

    with pytest.raises(Refused, match=r"spec\.cancel cannot be taken back; to start the run anew"):
        api.request("PATCH", path, {"spec": change}, content_type=MERGE_PATCH)


def test_large_inputs_do_not_stand_in_the_way_of_other_changes(created: Create, api: ApiServer) -> None:
    path = created({"agent": AGENT, "inputs": {"numbers": [0] * 60_000, **{f"k{n}": n for n in range(200)}}})

    after = api.request("PATCH", path, {"spec": {"suspend": True}}, content_type=MERGE_PATCH)

    assert after["spec"]["suspend"] is True


def test_defaults_are_filled_in_where_they_say_something(created: Create, api: ApiServer) -> None:
    assert api.request("GET", created({"agent": AGENT}))["spec"] == {
        "agent": AGENT,
        "goal": "",
        "inputs": {},
        "rerun": "",
        "store": {"name": "default"},
        "checkpoint": {"everySteps": 1, "granularity": "Step"},
        "resume": {"strategy": "Exact", "onEnvironmentChange": "Halt"},
        "limits": {},
        "retry": {"stepAttempts": 3, "executorFailures": 3, "outOfMemory": 3},
        "deletionPolicy": "Retain",
        "retentionSeconds": 2592000,
        "suspend": False,
        "cancel": False,
        "pod": {"gracePeriodSeconds": 60},
    }


def test_inputs_are_kept_as_they_are(created: Create, api: ApiServer) -> None:
    inputs: dict[str, Any] = {"a": None, "b": [1, "2", 3.5, None, {"c": {}}], "größe": True, "d": 2**53 - 1}

    assert api.request("GET", created({"agent": AGENT, "inputs": inputs}))["spec"]["inputs"] == inputs


A_VOLUME: Final[dict[str, Any]] = {"name": "v", "emptyDir": {}}
A_MOUNT: Final[dict[str, Any]] = {"name": "v", "mountPath": "/v"}


def with_pod(**pod: Any) -> dict[str, Any]:
    return {"agent": AGENT, "pod": pod}


WRONG: Final[list[tuple[dict[str, Any], str]]] = [
    ({}, "spec.agent: Required value"),
    ({"agent": {"image": "a"}}, "spec.agent.entrypoint: Required value"),
    ({"agent": {"entrypoint": "a:b"}}, "spec.agent.image: Required value"),
    ({"agent": AGENT | {"image": ""}}, "spec.agent.image in body should be at least 1 chars long"),
    ({"agent": AGENT | {"entrypoint": "triage"}}, "must be package.module:name, as in triage.agent:run"),
    ({"agent": AGENT, "input": {}}, 'unknown field "spec.input"'),
    ({"agent": AGENT | {"entry": "a:b"}}, 'unknown field "spec.agent.entry"'),
    (with_pod(hostNetwork=True), 'unknown field "spec.pod.hostNetwork"'),
    ({"agent": AGENT, "inputs": [1]}, "spec.inputs in body must be of type object"),
    ({"agent": AGENT, "goal": "x" * 8193}, "spec.goal: Too long: may not be more than 8192 bytes"),
    ({"agent": AGENT, "suspend": "yes"}, "spec.suspend in body must be of type boolean"),
    (
        {"agent": AGENT, "retry": {"stepAttempts": 0}},
        "spec.retry.stepAttempts in body should be greater than",
    ),
    ({"agent": AGENT, "store": {"name": "Big"}}, "spec.store.name: Invalid value"),
    (with_pod(imagePullPolicy="Often"), 'supported values: "", "Always", "IfNotPresent", "Never"'),
    (with_pod(gracePeriodSeconds=0), "spec.pod.gracePeriodSeconds in body should be greater than"),
    (with_pod(resources={"limits": {"cpu": "two"}}), "must be a quantity, as in 500m, 2 or 4Gi"),
    (with_pod(resources={"requests": {"cpu": "two"}}), "spec.pod.resources.requests[cpu]: Invalid value"),
    (with_pod(nodeSelector={"a/b/c": "x"}), "spec.pod.nodeSelector: Invalid value"),
    (with_pod(annotations={"a/b/c": "x"}), "spec.pod.annotations: Invalid value"),
    (
        with_pod(imagePullSecrets=["Pull"]),
        "spec.pod.imagePullSecrets[0]: Invalid value: must be an object's name",
    ),
    (
        with_pod(env=[{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "a/b"}}}]),
        "must be a key of a Secret or ConfigMap",
    ),
    (with_pod(volumes=[A_VOLUME, A_VOLUME]), "spec.pod.volumes[1]: Duplicate value"),
    (
        with_pod(volumes=[A_VOLUME], volumeMounts=[A_MOUNT, A_MOUNT]),
        "spec.pod.volumeMounts[1]: Duplicate value",
    ),
    (with_pod(volumeMounts=[A_MOUNT]), "spec.pod.volumeMounts: Invalid value"),
    (
        with_pod(volumes=[A_VOLUME | {"name": "other"}], volumeMounts=[A_MOUNT]),
        "every name must be one of spec.pod.volumes",
    ),
    (with_pod(env=[{"name": "A-B"}]), "spec.pod.env[0].name: Invalid value"),
    (with_pod(env=[{"name": "A"}, {"name": "A"}]), 'spec.pod.env[1]: Duplicate value: {"name":"A"}'),
    (with_pod(env=[{"name": "MILEPOST_RUN_ID"}]), "names that begin with MILEPOST_ are reserved"),
    (
        with_pod(
            env=[{"name": "A", "value": "1", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]
        ),
        "spec.pod.env[0]: Invalid value",
    ),
    (
        with_pod(env=[{"name": "A", "valueFrom": {}}]),
        "spec.pod.env[0].valueFrom: Invalid value: give exactly one of secretKeyRef, configMapKeyRef",
    ),
    (
        with_pod(env=[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.hostNetwork"}}}]),
        "spec.pod.env[0].valueFrom.fieldRef.fieldPath: Invalid value",
    ),
    (with_pod(envFrom=[{}]), "give exactly one of secretRef, configMapRef"),
    (
        with_pod(envFrom=[{"secretRef": {"name": "a"}, "configMapRef": {"name": "b"}}]),
        "give exactly one of secretRef, configMapRef",
    ),
    (
        with_pod(envFrom=[{"secretRef": {"name": "a"}, "prefix": "MILEPOST_"}]),
        "prefixes that begin with MILEPOST_ are reserved",
    ),
    (
        with_pod(volumes=[{"name": "v"}]),
        "give exactly one of secret, configMap, emptyDir, persistentVolumeClaim",
    ),
    (
        with_pod(volumes=[{"name": "v", "emptyDir": {}, "secret": {"secretName": "s"}}]),
        "spec.pod.volumes[0]: Invalid value",
    ),
    (
        with_pod(volumes=[{"name": "v", "hostPath": {"path": "/"}}]),
        'unknown field "spec.pod.volumes[0].hostPath"',
    ),
    (
        with_pod(volumes=[{"name": "milepost-x", "emptyDir": {}}]),
        "names that begin with milepost- are reserved",
    ),
    (
        with_pod(volumes=[{"name": "v", "emptyDir": {"sizeLimit": "much"}}]),
        "spec.pod.volumes[0].emptyDir.sizeLimit: Invalid value",
    ),
    (with_pod(volumeMounts=[{"name": "v", "mountPath": "data"}]), "must be an absolute path below /"),
    (with_pod(volumeMounts=[{"name": "v", "mountPath": "/"}]), "must be an absolute path below /"),
    (with_pod(volumeMounts=[{"name": "v", "mountPath": "/a//b"}]), "must be an absolute path below /"),
    (with_pod(volumeMounts=[{"name": "v", "mountPath": "/a/../b"}]), "must not hold '.' or '..' as a part"),
    (
        with_pod(volumeMounts=[{"name": "v", "mountPath": "/etc/milepost"}]),
        "paths at and below /etc/milepost are reserved",
    ),
    (
        with_pod(volumeMounts=[{"name": "v", "mountPath": "/etc/milepost/store"}]),
        "spec.pod.volumeMounts[0].mountPath: Invalid value",
    ),
    (with_pod(labels={"milepost.dev/run": "x"}), "spec.pod.labels: Invalid value"),
    (
        with_pod(labels={"app.kubernetes.io/managed-by": "x"}),
        "app.kubernetes.io/managed-by is the operator's",
    ),
    (with_pod(labels={"team": "a b"}), "must be a label's value"),
    (with_pod(labels={"a/b/c": "x"}), "every key must be a name with an optional prefix"),
    (with_pod(annotations={"milepost.dev/x": "x"}), "the prefix milepost.dev/ is reserved"),
    (with_pod(tolerations=[{"operator": "Like"}]), 'supported values: "Exists", "Equal"'),
]


@pytest.mark.parametrize(("spec", "said"), WRONG, ids=[said for _, said in WRONG])
def test_a_wrong_field_is_refused_with_what_would_be_right(
    spec: dict[str, Any], said: str, api: ApiServer
) -> None:
    # The value stands between the field's path and the rule's words, in a form that servers differ in.
    place, _, words = said.partition(" Invalid value: ")
    message = refusal(api, spec)

    assert place in message
    assert words in message


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.parent.name)
def test_the_examples_manifests_are_taken(path: Path, api: ApiServer) -> None:
    for manifest in yaml.safe_load_all(path.read_text()):
        if manifest["kind"] == "AgentRun":
            api.request("POST", RUNS, manifest, query={"fieldValidation": "Strict", "dryRun": "All"})


def test_a_manifest_without_a_spec_is_refused(api: ApiServer) -> None:
    manifest = {key: value for key, value in a_run({}).items() if key != "spec"}

    with pytest.raises(Refused, match="spec: Required value"):
        api.request("POST", RUNS, manifest)


@pytest.mark.parametrize("name", ["a" * 46, "a.b"])
def test_a_name_that_no_pod_could_carry_is_refused(name: str, api: ApiServer) -> None:
    assert "metadata.name must be a DNS label" in refusal(api, {"agent": AGENT}, name)


def test_the_longest_name_is_taken(created: Create) -> None:
    assert created({"agent": AGENT}, "a" * 45)


@pytest.mark.parametrize(
    "pod",
    [
        {"env": [{"name": "A"}, {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k.txt"}}}]},
        {"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['team']"}}}]},
        {"envFrom": [{"secretRef": {"name": "s"}, "prefix": "S_"}, {"configMapRef": {"name": "c"}}]},
        {"resources": {"requests": {"cpu": 1, "memory": "1Gi"}, "limits": {"example.com/gpu": "1"}}},
        {
            "volumes": [
                {"name": "a", "emptyDir": {}},
                {"name": "b", "persistentVolumeClaim": {"claimName": "c", "readOnly": True}},
                {"name": "c", "secret": {"secretName": "s"}},
                {"name": "d", "configMap": {"name": "c", "optional": True}},
            ],
            "volumeMounts": [
                {"name": "a", "mountPath": "/data/a..b"},
                {"name": "b", "mountPath": "/etc/milepost2", "readOnly": True},
                {"name": "c", "mountPath": "/.hidden", "subPath": "x"},
            ],
        },
        {"labels": {"team": "a", "example.com/cost": "", "app.kubernetes.io/part-of": "x"}},
        {"annotations": {"example.com/note": "any text: at all"}},
        {"tolerations": [{"operator": "Exists"}, {"key": "k", "value": "v", "effect": "NoSchedule"}]},
        {"imagePullSecrets": ["pull"], "imagePullPolicy": "Always", "serviceAccountName": "agent"},
    ],
    ids=str,
)
def test_what_a_pod_may_be_given(pod: dict[str, Any], created: Create) -> None:
    assert created(with_pod(**pod))


STATUS: Final[dict[str, Any]] = {
    "observedGeneration": 1,
    "phase": "Running",
    "progress": "3/10",
    "attempt": 2,
    "runId": "abcdefghijklmnopqrst",
    "conditions": [
        {
            "type": kind,
            "status": "False",
            "reason": reason,
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
            "observedGeneration": 1,
        }
        for kind, reason in (("Reconciling", "Other"), ("Ready", "Resuming"))
    ],
    "disruptions": {"Evicted": 1},
    "result": None,
}


def table(api: ApiServer, path: str) -> tuple[list[str], list[Any]]:
    answer = api.request("GET", path, accept=TABLE)
    return [column["name"] for column in answer["columnDefinitions"]], answer["rows"][0]["cells"]


def test_the_columns_show_where_a_run_is(created: Create, api: ApiServer) -> None:
    path = created({"agent": AGENT}, "seen")
    api.request("PATCH", f"{path}/status", {"status": STATUS}, content_type=MERGE_PATCH)

    columns, cells = table(api, path)

    assert columns == ["Name", "Phase", "Progress", "Attempt", "Reason", "Age"]
    assert cells[:5] == ["seen", "Running", "3/10", 2, "Resuming"]
    assert cells[5].endswith("s")


def test_the_columns_of_a_run_that_nobody_looked_at_are_empty(created: Create, api: ApiServer) -> None:
    _, cells = table(api, created({"agent": AGENT}, "unseen"))

    assert cells[:5] == ["unseen", None, None, None, None]


@pytest.mark.parametrize("result", ["text", 3, 0.5, True, None, [1, {"a": None}], {"a": {"b": []}}], ids=str)
def test_status_keeps_a_result_of_any_kind(result: Any, created: Create, api: ApiServer) -> None:
    path = created({"agent": AGENT})
    patch = {"op": "add", "path": "/status", "value": STATUS | {"result": result}}

    # A merge patch would take nulls inside the result for fields to remove.
    api.request("PATCH", f"{path}/status", [patch], content_type=JSON_PATCH)

    assert api.request("GET", path)["status"]["result"] == result


def test_status_is_written_in_no_other_way(created: Create, api: ApiServer) -> None:
    path = created({"agent": AGENT})

    api.request("PATCH", path, {"status": STATUS}, content_type=MERGE_PATCH)
    api.request("PATCH", f"{path}/status", {"spec": {"suspend": True}}, content_type=MERGE_PATCH)

    after = api.request("GET", path)
    assert "status" not in after
    assert after["spec"]["suspend"] is False


def test_two_conditions_of_one_type_are_refused(created: Create, api: ApiServer) -> None:
    path = created({"agent": AGENT})
    twice = STATUS | {"conditions": [*STATUS["conditions"], STATUS["conditions"][0]]}

    with pytest.raises(Refused, match=r"status\.conditions\[2\]: Duplicate value"):
        api.request("PATCH", f"{path}/status", {"status": twice}, content_type=MERGE_PATCH)


def test_a_phase_that_there_is_not_is_refused(created: Create, api: ApiServer) -> None:
    path = created({"agent": AGENT})

    with pytest.raises(Refused, match=r"status\.phase: Unsupported value"):
        api.request("PATCH", f"{path}/status", {"status": {"phase": "Lost"}}, content_type=MERGE_PATCH)


def test_the_short_name_and_the_category_are_known(api: ApiServer) -> None:
    resources = api.request("GET", "/apis/milepost.dev/v1alpha1")["resources"]

    found = {each["name"]: each for each in resources}
    assert found["agentruns"]["shortNames"] == ["mrun"]
    assert found["agentruns"]["categories"] == ["milepost"]
    assert "agentruns/status" in found


def test_the_api_server_has_nothing_to_complain_about(definition: dict[str, Any]) -> None:
    conditions = {each["type"]: each["status"] for each in definition["status"]["conditions"]}

    assert conditions == {"NamesAccepted": "True", "Established": "True"}
