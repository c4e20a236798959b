from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from milepost.api.schema import custom_resource_definition
from milepost_operator.shell.settings import Settings, read_settings
from milepost_operator.shell.stores_file import StoreEntry, read_stores

HERE: Final = Path(__file__).resolve().parent
CHART: Final = HERE.parents[1] / "charts" / "milepost"
VALUES: Final = sorted((HERE / "values").glob("*.yaml"))
ONE_STORE: Final = "--set=stores.default.bucket=checkpoints"
REWRITE: Final = bool(os.environ.get("MILEPOST_REWRITE_GOLDEN"))

Helm = Callable[..., "subprocess.CompletedProcess[str]"]


def without_definition(rendered: str) -> str:
    """Leave out the definition: it is long, and tests of its own hold it to its types."""
    parts = rendered.removeprefix("---\n").split("\n---\n")
    return "---\n" + "\n---\n".join(part for part in parts if "kind: CustomResourceDefinition" not in part)


def objects(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def of_kind(kind: str, done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    return [each for each in objects(done) if each["kind"] == kind]


@pytest.mark.req("K4")
@pytest.mark.parametrize("values", VALUES, ids=lambda path: path.stem)
def test_what_it_renders_is_what_it_rendered(values: Path, template: Helm) -> None:
    golden = HERE / "golden" / values.name

    done = template(f"--values={values}")

    assert done.returncode == 0, done.stderr
    if REWRITE:
        golden.write_text(without_definition(done.stdout))
    assert without_definition(done.stdout) == golden.read_text()


@pytest.mark.req("K5")
def test_the_operator_does_not_stay_on_a_lost_node_for_minutes(template: Helm) -> None:
    (deployment,) = of_kind("Deployment", template(ONE_STORE))

    tolerated = deployment["spec"]["template"]["spec"]["tolerations"]
    waits = {each["key"]: each["tolerationSeconds"] for each in tolerated}
    assert waits == {"node.kubernetes.io/not-ready": 30, "node.kubernetes.io/unreachable": 30}


def test_no_golden_file_has_lost_its_values() -> None:
    assert {path.name for path in (HERE / "golden").iterdir()} == {path.name for path in VALUES}


@pytest.mark.parametrize("values", VALUES, ids=lambda path: path.stem)
def test_lint_has_nothing_to_say(values: Path, helm: Helm) -> None:
    done = helm("lint", "--strict", CHART, f"--values={values}")

    assert done.returncode == 0, done.stdout + done.stderr


def test_the_definition_is_the_one_that_the_types_make_and_is_kept(template: Helm) -> None:
    (rendered,) = of_kind("CustomResourceDefinition", template(ONE_STORE))

    assert rendered["metadata"].pop("labels")["app.kubernetes.io/managed-by"] == "Helm"
    assert rendered["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
    assert rendered == custom_resource_definition()


def test_the_definition_goes_with_the_release_where_that_is_asked_for(template: Helm) -> None:
    (rendered,) = of_kind("CustomResourceDefinition", template(ONE_STORE, "--set=crds.keep=false"))

    assert "annotations" not in rendered["metadata"]


def test_the_definition_can_be_left_to_somebody_else(template: Helm) -> None:
    assert of_kind("CustomResourceDefinition", template(ONE_STORE, "--set=crds.enabled=false")) == []


def rules(rendered: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for each in rendered:
        if each["kind"] in {"Role", "ClusterRole"}:
            yield from each["rules"]


@pytest.mark.req("K4")
@pytest.mark.parametrize("values", VALUES, ids=lambda path: path.stem)
def test_no_rule_has_a_wildcard_or_reaches_secrets(values: Path, template: Helm) -> None:
    for rule in rules(objects(template(f"--values={values}"))):
        assert "*" not in {*rule["apiGroups"], *rule["resources"], *rule["verbs"]}
        assert not {"secrets", "pods/exec", "nodes", "serviceaccounts"} & set(rule["resources"])


@pytest.mark.req("K4")
def test_an_install_in_namespaces_asks_for_nothing_of_the_cluster(template: Helm) -> None:
    rendered = objects(template(f"--values={HERE / 'values' / 'namespaced.yaml'}"))

    assert {each["metadata"].get("namespace") for each in rendered} == {
        "milepost-system",
        "team-a",
        "team-b",
    }


@pytest.mark.req("K4")
def test_the_operators_pod_is_restricted(template: Helm) -> None:
    (deployment,) = of_kind("Deployment", template(ONE_STORE))
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]

    assert pod["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "runAsGroup": 65532,
        "fsGroup": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_the_pod_is_replaced_when_the_stores_change(template: Helm) -> None:
    def checksum(*arguments: str) -> str:
        (deployment,) = of_kind("Deployment", template(ONE_STORE, *arguments))
        return str(deployment["spec"]["template"]["metadata"]["annotations"]["checksum/stores"])

    assert checksum() == checksum("--set=logLevel=debug")
    assert checksum() != checksum("--set=stores.default.prefix=other")


@pytest.mark.req("K4")
@pytest.mark.parametrize(
    ("setting", "said"),
    [
        (
            "stores.default.credential=x",
            "at '/stores/default': additional properties 'credential' not allowed",
        ),
        ("stores.default.endpoint=s3.example.com", "at '/stores/default/endpoint'"),
        ("stores.other.region=eu-west-1", "at '/stores/other': missing property 'bucket'"),
        (
            "stores.default.isolation=some",
            "at '/stores/default/isolation': value must be one of 'required', 'none'",
        ),
        ("stores.default.recoverFrom={a b}", "at '/stores/default/recoverFrom/0'"),
        ("stores.A_.bucket=xyz", "at '/stores': additional properties 'A_' not allowed"),
        ("stores.default.credentials.secretName=", "at '/stores/default/credentials/secretName'"),
        ("replicas=2", "at '': additional properties 'replicas' not allowed"),
        ("image.digest=abc", "at '/image/digest': 'abc' does not match pattern"),
        (
            "image.pullPolicy=Sometimes",
            "at '/image/pullPolicy': value must be one of 'Always', 'IfNotPresent', 'Never'",
        ),
        ("watch.namespaces={Team}", "at '/watch/namespaces/0': 'Team' does not match pattern"),
        ("logLevel=loud", "at '/logLevel': value must be one of 'debug', 'info', 'warning', 'error'"),
        ("rbac.create=perhaps", "at '/rbac/create': got string, want boolean"),
        (r"podLabels.app\.kubernetes\.io/name=x", "podLabels must not set app.kubernetes.io/name"),
        ("stores=null", "stores"),
    ],
)
def test_a_wrong_value_is_refused_by_name(setting: str, said: str, template: Helm) -> None:
    done = template(ONE_STORE, "--set", setting)

    assert done.returncode != 0
    assert said in done.stderr


@pytest.mark.parametrize("values", VALUES, ids=lambda path: path.stem)
def test_the_operator_reads_the_stores_file_as_it_was_meant(values: Path, template: Helm) -> None:
    (file,) = of_kind("ConfigMap", template(f"--values={values}"))
    meant = yaml.safe_load(values.read_text())["stores"]

    read = read_stores(file["data"]["stores.yaml"]).stores

    assert read == {
        name: StoreEntry.model_validate({"allowedNamespaces": ["*"], **store})
        for name, store in meant.items()
    }


@pytest.mark.parametrize("values", VALUES, ids=lambda path: path.stem)
def test_the_operator_reads_its_environment_as_it_was_meant(values: Path, template: Helm) -> None:
    (deployment,) = of_kind("Deployment", template(f"--values={values}"))
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    meant = yaml.safe_load(values.read_text())

    settings = read_settings({each["name"]: each.get("value", "") for each in container["env"]})

    assert settings == Settings(
        namespaces=tuple(meant.get("watch", {}).get("namespaces", ())),
        release_namespace="",
        log_level=meant.get("logLevel", "info").upper(),
    )


def test_an_install_without_a_store_is_refused_with_what_to_set(template: Helm) -> None:
    done = template()

    assert done.returncode != 0
    assert "set at least stores.default.bucket" in done.stderr
