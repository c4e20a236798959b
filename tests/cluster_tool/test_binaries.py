from __future__ import annotations

from pathlib import Path

import pytest

import tools.cluster
import tools.deployment
from tools.cluster.binaries import GoModule, go_mod, go_numbers
from tools.cluster.interface import ClusterError
from tools.cluster.paths import Paths, complete_or_absent
from tools.cluster.preflight import check_machine


def test_a_module_is_required_in_its_exact_version() -> None:
    module = GoModule("etcd", "go.etcd.io/etcd/server/v3", "3.6.16", {"etcd": "go.etcd.io/etcd/server/v3"})

    assert go_mod(module, "1.26") == (
        "module milepost.test/build\n"
        "go 1.26\n"
        "require go.etcd.io/etcd/server/v3 v3.6.16\n"
        "tool go.etcd.io/etcd/server/v3\n"
    )


def test_parts_that_a_module_replaces_by_folders_are_taken_as_published() -> None:
    module = GoModule(
        "kubernetes", "k8s.io/kubernetes", "1.2.3", {"k": "k8s.io/kubernetes/cmd/k"}, staged="v0.2.3"
    )
    original = "replace (\n\tk8s.io/api => ./staging/src/k8s.io/api\n\texample.com/x => example.com/y v1\n)\n"

    assert "replace k8s.io/api => k8s.io/api v0.2.3\ntool k8s.io/kubernetes/cmd/k\n" in go_mod(
        module, "1.26", original
    )


@pytest.mark.parametrize(
    ("version", "numbers"),
    [("go1.26.8", (1, 26)), ("go1.25", (1, 25)), ("go1.27rc1", (1, 27)), ("devel", (0, 0))],
)
def test_the_version_of_go_is_read(version: str, numbers: tuple[int, int]) -> None:
    assert go_numbers(version) == numbers


def test_an_interrupted_build_leaves_nothing(tmp_path: Path) -> None:
    def interrupted() -> None:
        with complete_or_absent(tmp_path / "etcd-1") as draft:
            (draft / "etcd").write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()

    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_build_left_is_not_taken_over(tmp_path: Path) -> None:
    (tmp_path / ".etcd-1.draft").mkdir()
    (tmp_path / ".etcd-1.draft" / "half").touch()

    with complete_or_absent(tmp_path / "etcd-1") as draft:
        (draft / "etcd").touch()

    assert [path.name for path in (tmp_path / "etcd-1").iterdir()] == ["etcd"]


def test_the_cache_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MILEPOST_CACHE", str(tmp_path))

    assert Paths.from_environment().run == tmp_path / "run"


def test_preflight_names_everything_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", "")

    with pytest.raises(ClusterError) as raised:
        check_machine(to_build=True, cache=tmp_path / "not" / "there", disk_gb=10**9)

    assert "Go is not installed; Kubernetes is built with Go 1.25 or later" in str(raised.value)
    assert "GB left and 1000000000 GB are needed" in str(raised.value)


def test_what_a_package_offers_has_the_name_of_none_of_its_modules() -> None:
    for package in (tools.cluster, tools.deployment):
        assert package.__file__ is not None
        modules = {path.stem for path in Path(package.__file__).parent.glob("*.py")}
        # Importing the module would put it in the place of what has its name.
        assert modules.isdisjoint(package.__all__)
