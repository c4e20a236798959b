"""What a user gets told for every mistake that the API server cannot see, on the real cluster."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.scene import Scene, condition
from tools.cluster.interface import Identity
from tools.deployment.installation import SECRET, store_secret

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300), pytest.mark.req("F-A13", "F-D9")]

MISTAKES = [
    pytest.param(
        {"agent": {"entrypoint": "scenario.agent:nothing"}},
        {},
        "EntrypointNotFound",
        "nothing",
        id="no such agent",
    ),
    pytest.param(
        {"agent": {"entrypoint": "scenario.absent:scripted"}},
        {},
        "EntrypointNotFound",
        "absent",
        id="no module",
    ),
    pytest.param(
        {"agent": {"entrypoint": "scenario.agent:apply"}},
        {},
        "EntrypointNotAgent",
        "@agent",
        id="not an agent",
    ),
    pytest.param({}, {"stepz": 3}, "InputsInvalid", "stepz", id="unknown input"),
    pytest.param({}, {"steps": "three"}, "InputsInvalid", "spec.inputs.steps", id="wrong type"),
    pytest.param({"agent": {"version": "7"}}, {}, "VersionMismatch", "'7'", id="another version"),
    pytest.param({"store": {"name": "elsewhere"}}, {}, "StoreUnknown", "elsewhere", id="no such store"),
]


@pytest.mark.parametrize(("spec", "inputs", "reason", "named"), MISTAKES)
def test_a_mistake_becomes_a_reason_and_a_message_that_names_it(
    scene: Scene, spec: dict[str, Any], inputs: dict[str, Any], reason: str, named: str
) -> None:
    scene.apply(scene.manifest("mistake", spec=spec, **inputs))

    status = scene.until(
        "mistake", reason, lambda s: any(c["reason"] == reason for c in s.get("conditions", []))
    )

    message = next(c["message"] for c in status["conditions"] if c["reason"] == reason)
    assert named in message
    assert len(scene.kube.pods(scene.namespace, "mistake")) <= 1


def test_a_result_that_cannot_be_stored_fails_the_run_and_says_where(scene: Scene) -> None:
    scene.apply(scene.manifest("unstorable", agent="unstorable"))

    status = scene.until_phase("unstorable", "Failed", "Succeeded", "Halted")

    ready = next(c for c in status["conditions"] if c["type"] == "Ready")
    assert (status["phase"], ready["reason"]) == ("Failed", "ResultNotStorable")
    assert "result" in ready["message"]


def test_a_halted_run_goes_on_once_the_cause_is_mended(scene: Scene) -> None:
    scene.apply(scene.manifest("mended", steps=2, pause=0.05, spec={"agent": {"version": "7"}}))
    scene.until_phase("mended", "Halted")

    scene.kube.patch_run(scene.namespace, "mended", {"agent": {"version": "1"}})

    assert scene.until_phase("mended", "Succeeded", "Failed")["phase"] == "Succeeded"


def test_wrong_keys_of_a_namespace_are_said_and_mended_without_a_new_run(scene: Scene) -> None:
    path = f"/api/v1/namespaces/{scene.namespace}/secrets"
    scene.kube.ensure(path, store_secret(Identity("wrong", "nobody", "nothing")))
    scene.apply(scene.manifest("locked-out", steps=2, pause=0.05))
    status = scene.until(
        "locked-out",
        "CredentialsInvalid",
        lambda s: any(c["reason"] == "CredentialsInvalid" for c in s["conditions"]),
    )
    assert status["phase"] == "Pending"

    scene.kube.ensure(path, store_secret(scene.deployment.cluster.identity(scene.namespace)))

    assert scene.until_phase("locked-out", "Succeeded", "Failed", within=150)["phase"] == "Succeeded"


def test_a_missing_secret_is_said_to_be_what_to_look_for(scene: Scene) -> None:
    path = f"/api/v1/namespaces/{scene.namespace}/secrets"
    scene.kube.request("DELETE", f"{path}/{SECRET}")
    scene.apply(scene.manifest("no-secret", steps=2, pause=0.05))
    status = scene.until("no-secret", "NotStarting", lambda s: condition(s, "Ready")[1] == "NotStarting")
    assert status["phase"] == "Pending"

    scene.kube.ensure(path, store_secret(scene.deployment.cluster.identity(scene.namespace)))

    ended = scene.until_phase("no-secret", "Succeeded", "Failed", within=240)
    assert (ended["phase"], ended["attempt"]) == ("Succeeded", 1)
