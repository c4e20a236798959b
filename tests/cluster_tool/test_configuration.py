from __future__ import annotations

import tomllib
from pathlib import Path

import yaml

from tools.cluster import certificates, control_plane, node_config
from tools.cluster.api import ready_nodes
from tools.cluster.certificates import Pki, User
from tools.cluster.cgroups import make_node_root, missing_controllers
from tools.cluster.mounts import below

RUN = Path("/cache/run")


def test_containerd_keeps_all_that_a_crash_could_leave_mounted_below_two_folders() -> None:
    text = node_config.containerd(
        RUN / "node-1", Path("/run/milepost/node-1"), Path("/run/milepost/node-1/c.sock")
    )

    content = tomllib.loads(text)
    cri = content["plugins"]["io.containerd.grpc.v1.cri"]
    runc = cri["containerd"]["runtimes"]["runc"]["options"]
    assert (content["root"], content["state"], runc["Root"], cri["netns_mounts_under_state_dir"]) == (
        "/cache/run/node-1/containerd",
        "/run/milepost/node-1/containerd",
        "/run/milepost/node-1/runc",
        True,
    )


def test_nodes_hand_out_addresses_of_their_own_range() -> None:
    content = node_config.pod_network("10.244.1.0/24", Path("/state"))

    assert content["plugins"][0]["ipam"]["ranges"] == [[{"subnet": "10.244.1.0/24"}]]


def test_a_kubelet_lives_below_its_own_control_group_and_folder() -> None:
    content = node_config.kubelet_configuration(
        "172.30.0.111", RUN / "node-1", Path("/c.sock"), "/milepost/node-1", Path("/ca.crt")
    )

    assert (content["cgroupRoot"], content["podLogsDir"], content["address"]) == (
        "/milepost/node-1",
        "/cache/run/node-1/pod-logs",
        "172.30.0.111",
    )


def test_the_controllers_talk_to_the_api_with_their_own_rights() -> None:
    flags = control_plane.flags("kube-scheduler", RUN, Pki(RUN / "pki"))

    assert "--kubeconfig=/cache/run/kube-scheduler.kubeconfig" in flags


def test_the_groups_of_a_user_are_one_quoted_field() -> None:
    users = {certificates.ADMIN: "t1", User("somebody", ("a", "b")): "t2"}

    assert certificates.token_file(users) == ('t1,admin,admin,"system:masters"\nt2,somebody,somebody,"a,b"\n')


def test_a_kubeconfig_names_no_other_file() -> None:
    content = yaml.safe_load(certificates.kubeconfig("172.30.0.10", b"authority", "secret"))

    assert (content["clusters"], content["users"]) == (
        [
            {
                "name": "milepost",
                "cluster": {
                    "server": "https://172.30.0.10:6443",
                    "certificate-authority-data": "YXV0aG9yaXR5",
                },
            }
        ],
        [{"name": "milepost", "user": {"token": "secret"}}],
    )


def test_only_nodes_with_a_true_condition_count_as_ready() -> None:
    def node(name: str, status: str) -> dict[str, object]:
        return {"metadata": {"name": name}, "status": {"conditions": [{"type": "Ready", "status": status}]}}

    answer = {"items": [node("a", "True"), node("b", "Unknown"), {"metadata": {"name": "new"}}]}

    assert ready_nodes(answer) == {"a"}


def test_mounts_are_listed_with_the_deepest_first_and_only_those_below() -> None:
    mountinfo = (
        "1 0 0:1 / /run/milepost rw - tmpfs tmpfs rw\n"
        "2 1 0:2 / /run/milepost/a\\040b rw - tmpfs tmpfs rw\n"
        "3 0 0:3 / /run/milepost-other rw - tmpfs tmpfs rw\n"
    )

    assert below([Path("/run/milepost")], mountinfo) == [Path("/run/milepost/a b"), Path("/run/milepost")]


def test_a_group_of_version_one_may_use_every_processor(tmp_path: Path) -> None:
    for hierarchy in ("cpuset", "memory", "pids"):
        (tmp_path / hierarchy).mkdir()
    for setting, value in (("cpuset.cpus", "0-3\n"), ("cpuset.mems", "0\n")):
        (tmp_path / "cpuset" / setting).write_text(value)

    assert make_node_root("node-1", tmp_path) == "/milepost/node-1"
    assert (tmp_path / "cpuset/milepost/node-1/cpuset.cpus").read_text() == "0-3\n"
    assert (tmp_path / "memory/milepost/node-1").is_dir()
    assert missing_controllers(tmp_path) == ["cpu"]


def test_under_version_two_each_level_hands_its_controllers_down(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")

    assert make_node_root("node-1", tmp_path) == "/milepost/node-1"
    assert (tmp_path / "milepost/cgroup.subtree_control").read_text() == "+cpuset +cpu +memory +pids"
    assert (tmp_path / "milepost/node-1").is_dir()
    assert missing_controllers(tmp_path) == []
