from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.api_server import ApiServer, Refused
from tools.cluster import local_cluster

pytestmark = pytest.mark.usefixtures("namespaces")

ROOT: Final = Path(__file__).resolve().parents[2]
VALUES: Final = sorted((ROOT / "tests" / "chart" / "values").glob("*.yaml"))
RELEASE_NAMESPACE: Final = "milepost-system"


@pytest.fixture(scope="module")
def namespaces(api: ApiServer) -> None:
    """Make the namespaces that the values name; the release's admits restricted pods only."""
    for name in (RELEASE_NAMESPACE, "team-a", "team-b"):
        labels = {"pod-security.kubernetes.io/enforce": "restricted"} if name == RELEASE_NAMESPACE else {}
        api.apply(
            f"/api/v1/namespaces/{name}",
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}},
        )
        # A controller would make it, and none runs.
        api.apply(
            f"/api/v1/namespaces/{name}/serviceaccounts/default",
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}},
        )


def helm(api: ApiServer, home: Path, *arguments: str) -> None:
    done = subprocess.run(
        [
            local_cluster().helm,
            *arguments,
            f"--namespace={RELEASE_NAMESPACE}",
            f"--kubeconfig={api.kubeconfig}",
        ],
        env={"HOME": str(home), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture
def installed(api: ApiServer, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """Install the chart with the values file that the test is parametrized with."""
    values: Path = request.param
    # A definition that tests have applied by hand is nobody's release yet.
    helm(
        api,
        tmp_path,
        "install",
        "milepost",
        str(ROOT / "charts/milepost"),
        f"--values={values}",
        "--take-ownership",
    )
    yield values
    helm(api, tmp_path, "uninstall", "milepost")


def pod_of(api: ApiServer) -> dict[str, Any]:
    """Return the pod that the deployment would make."""
    path = f"/apis/apps/v1/namespaces/{RELEASE_NAMESPACE}/deployments/milepost"
    template: dict[str, Any] = api.request("GET", path)["spec"]["template"]
    # The class brings a number of its own, which admission would compare with the template's.
    template["spec"].pop("priority", None)
    return {"apiVersion": "v1", "kind": "Pod", **template, "metadata": {"name": "pod"}}


@pytest.mark.req("K4")
@pytest.mark.parametrize("installed", VALUES, indirect=True, ids=lambda path: path.stem)
def test_it_installs_and_its_pod_is_let_in_where_pods_are_restricted(installed: Path, api: ApiServer) -> None:
    assert installed

    admitted = api.request(
        "POST", f"/api/v1/namespaces/{RELEASE_NAMESPACE}/pods", pod_of(api), query={"dryRun": "All"}
    )

    assert admitted["metadata"]["name"] == "pod"


def may(api: ApiServer, verb: str, resource: str, namespace: str = "", name: str = "") -> bool:
    group, _, plural = resource.rpartition("/")
    plural, _, subresource = plural.partition(":")
    review = api.request(
        "POST",
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {
                "resourceAttributes": {
                    "verb": verb,
                    "group": group,
                    "resource": plural,
                    "subresource": subresource,
                    "namespace": namespace,
                    "name": name,
                }
            },
        },
        user=f"system:serviceaccount:{RELEASE_NAMESPACE}:milepost",
    )
    return bool(review["status"]["allowed"])


NEVER: Final = [
    ("get", "secrets", "team-a"),
    ("list", "secrets", "team-a"),
    ("get", "secrets", RELEASE_NAMESPACE),
    ("create", "pods:exec", "team-a"),
    ("patch", "pods", "team-a"),
    ("update", "pods", "team-a"),
    ("patch", "milepost.dev/agentruns", "team-a"),
    ("delete", "milepost.dev/agentruns", "team-a"),
    ("create", "milepost.dev/agentruns", "team-a"),
    ("list", "nodes", ""),
    ("list", "namespaces", ""),
    ("get", "coordination.k8s.io/leases", "kube-node-lease"),
    ("list", "apiextensions.k8s.io/customresourcedefinitions", ""),
]


@pytest.mark.req("K4")
@pytest.mark.parametrize(
    "installed",
    [ROOT / "tests/chart/values/one-store.yaml", ROOT / "tests/chart/values/namespaced.yaml"],
    indirect=True,
    ids=lambda path: path.stem,
)
def test_the_operator_may_do_its_work_and_nothing_else(installed: Path, api: ApiServer) -> None:
    everywhere = installed.stem == "one-store"
    work = [
        *(("milepost.dev/agentruns", verb) for verb in ("get", "list", "watch")),
        *(("milepost.dev/agentruns:status", verb) for verb in ("get", "patch")),
        *(("pods", verb) for verb in ("get", "list", "watch", "create", "delete")),
        *(("events", verb) for verb in ("create", "patch")),
    ]

    assert [each for each in work if not may(api, each[1], each[0], "team-a")] == []
    assert {may(api, verb, resource, "default") for resource, verb in work} == {everywhere}
    assert may(api, "list", "coordination.k8s.io/leases", "kube-node-lease") == everywhere
    assert [each for each in NEVER if may(api, *each)] == []


@pytest.mark.parametrize(
    ("installed", "readable"),
    [
        (ROOT / "tests/chart/values/one-store.yaml", ["kube-system", RELEASE_NAMESPACE]),
        (ROOT / "tests/chart/values/namespaced.yaml", [RELEASE_NAMESPACE]),
    ],
    indirect=["installed"],
    ids=["all namespaces", "two namespaces"],
)
def test_the_operator_may_read_the_namespace_whose_uid_is_the_clusters_identity(
    installed: Path, readable: list[str], api: ApiServer
) -> None:
    assert installed

    def can_read(namespace: str) -> bool:
        try:
            api.request(
                "GET",
                f"/api/v1/namespaces/{namespace}",
                user=f"system:serviceaccount:{RELEASE_NAMESPACE}:milepost",
            )
        except Refused:
            return False
        return True

    assert [name for name in ("default", "kube-system", RELEASE_NAMESPACE) if can_read(name)] == readable
