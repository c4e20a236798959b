from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tools.cluster.interface import ClusterError
from tools.cluster.processes import Program, boot_id, in_namespace, run, started_at


def a_record(program: Program, pid: int, start: int | None, boot: str) -> None:
    folder = program.run_folder / "programs"
    folder.mkdir(exist_ok=True)
    (folder / program.name).write_text(f"{pid} {start} {boot}")


def test_a_program_is_known_by_its_number_and_its_start(tmp_path: Path) -> None:
    program = Program("etcd", tmp_path)
    a_record(program, os.getpid(), started_at(os.getpid()), boot_id())

    assert program.pid == os.getpid()


def test_a_number_that_somebody_else_has_by_now_is_no_program(tmp_path: Path) -> None:
    program = Program("etcd", tmp_path)
    a_record(program, os.getpid(), 1, boot_id())

    assert program.pid is None


def test_a_number_of_an_earlier_boot_is_no_program(tmp_path: Path) -> None:
    program = Program("etcd", tmp_path)
    a_record(program, os.getpid(), started_at(os.getpid()), "another-boot")

    assert program.pid is None


@pytest.mark.parametrize("text", ["", "12", "12 None", "x y z"])
def test_a_record_that_was_cut_off_is_no_program(tmp_path: Path, text: str) -> None:
    (tmp_path / "programs").mkdir()
    (tmp_path / "programs" / "etcd").write_text(text)

    assert Program("etcd", tmp_path).pid is None


def test_a_zombie_has_ended() -> None:
    child = subprocess.Popen(["true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)

    assert started_at(child.pid) is None
    child.wait()


def test_a_name_with_brackets_and_blanks_does_not_shift_the_start(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    fields = " ".join(str(number) for number in range(4, 53))
    (tmp_path / "7" / "stat").write_text(f"7 (a) b (c) S {fields}")

    assert started_at(7, tmp_path) == 22


def test_a_failed_command_says_what_it_complained_about() -> None:
    with pytest.raises(ClusterError, match="exit code 3: no such thing"):
        run("sh", "-c", "echo no such thing >&2; exit 3")


def test_a_command_that_is_not_installed_is_named() -> None:
    with pytest.raises(ClusterError, match="no-such-program is not installed"):
        run("no-such-program")


def test_a_namespace_is_entered_without_mounting_sys_anew() -> None:
    assert in_namespace("milepost-node-1", ["kubelet", "--v=2"]) == [
        "nsenter",
        "--net=/run/netns/milepost-node-1",
        "kubelet",
        "--v=2",
    ]
