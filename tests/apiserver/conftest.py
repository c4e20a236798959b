"""A real API server that knows AgentRun."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest

from milepost.api.schema import custom_resource_definition
from tests.support.api_server import ApiServer, Refused, api_server
from tools.cluster import local_cluster
from tools.cluster.progress import wait_until

_DEFINITION: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/agentruns.milepost.dev"


@pytest.fixture(scope="session")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """Start an API server that is the tests' own."""
    cluster = local_cluster()
    cluster.build("etcd", "kubernetes")
    etcd, apiserver = (cluster.binaries.path(name) for name in ("etcd", "kube-apiserver"))
    with api_server(etcd, apiserver, tmp_path_factory.mktemp("api-server")) as server:
        yield server


@pytest.fixture(scope="session")
def definition(api: ApiServer) -> dict[str, Any]:
    """Apply the definition, wait until AgentRuns can be listed, and return what the API server keeps."""
    api.apply(_DEFINITION, custom_resource_definition())

    def served() -> bool:
        try:
            api.request("GET", "/apis/milepost.dev/v1alpha1/agentruns")
        except Refused:
            return False
        return True

    wait_until(served, "AgentRun to be served", within=60)
    return api.request("GET", _DEFINITION)
