"""The second S3 server: where it can run, it does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.cluster import s3_process, versitygw
from tools.cluster.binaries import Binaries
from tools.cluster.interface import ClusterError


@pytest.mark.s3
@pytest.mark.skipif(bool(versitygw.lacking()), reason=versitygw.lacking())
def test_a_server_is_yielded_once_it_takes_conditional_writes() -> None:
    with versitygw.server() as server:
        assert s3_process.takes_conditional_writes(server)
        assert s3_process.put(server, "/key", b"x") == 200


def test_a_machine_without_go_is_told_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("MILEPOST_CACHE", str(tmp_path))

    with pytest.raises(ClusterError, match=r"is built with Go 1\.25 or later, and here is none"):
        versitygw.server().__enter__()


def test_the_cluster_is_complete_without_it(tmp_path: Path) -> None:
    binaries = Binaries(tmp_path)

    assert binaries.missing() == ["etcd", "helm", "kubernetes", "pause"]
    assert binaries.missing("versitygw") == ["versitygw"]


def test_a_program_that_there_is_not_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ClusterError, match="there is no program kube-apiserver; there are etcd, helm, kubernetes"
    ):
        Binaries(tmp_path).missing("etcd", "kube-apiserver")
