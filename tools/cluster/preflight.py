"""Says in plain words what a machine lacks for the cluster, and installs what Debian has for it.

It changes nothing on a machine where all is there, and without root or apt it only names what to install.
"""

from __future__ import annotations

import os
import platform
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from tools.cluster import cgroups
from tools.cluster.binaries import OLDEST_GO, go_numbers, installed_go
from tools.cluster.interface import ClusterError
from tools.cluster.node_config import CNI_PLUGINS, RUNC
from tools.cluster.processes import run
from tools.cluster.progress import step

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

DISK_GB = 15
"""Gigabytes that building takes."""

_GB = 10**9

# What is needed, by name or path, and the Debian package that brings it.
CLUSTER_PROGRAMS = {
    "containerd": "containerd",
    "ctr": "containerd",
    str(RUNC): "runc",
    str(CNI_PLUGINS / "bridge"): "containernetworking-plugins",
    "nft": "nftables",
    "iptables": "iptables",
    "conntrack": "conntrack",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "umount": "mount",
    "openssl": "openssl",
}
IMAGE_PROGRAMS = {"debootstrap": "debootstrap", "buildah": "buildah"}


def check_machine(*, to_build: bool, cache: Path, disk_gb: float = DISK_GB) -> None:
    """Raise ClusterError, naming everything that only a person can mend.

    `to_build` says that programs are still to be built, which takes Go and `disk_gb` gigabytes.
    """
    problems = [*_of_the_machine(), *(_of_a_build(cache, disk_gb) if to_build else ())]
    _refuse_for(problems, "run the cluster")


def check_build(cache: Path) -> None:
    """Raise ClusterError, naming everything that keeps programs from being built here. Root is not needed."""
    _refuse_for(_of_a_build(cache, DISK_GB), "build the cluster's programs")


def _refuse_for(problems: Iterable[str], what: str) -> None:
    listed = list(problems)
    if listed:
        raise ClusterError(f"this machine cannot {what}:\n" + "\n".join(f"- {text}" for text in listed))


def install(programs: Mapping[str, str]) -> None:
    """Install the Debian packages whose programs are missing. Raises ClusterError where it cannot."""
    packages = missing_packages(programs)
    if not packages:
        return
    names = " ".join(packages)
    if not shutil.which("apt-get") or os.geteuid() != 0:
        raise ClusterError(f"these Debian packages are missing, or what they bring: {names}")
    with step(f"installing {names}"):
        run("apt-get", "update", within=300)
        run(
            *(
                "env",
                "DEBIAN_FRONTEND=noninteractive",
                "apt-get",
                "install",
                "--yes",
                "--no-install-recommends",
            ),
            *packages,
            within=600,
        )
    if left := missing_packages(programs):
        raise ClusterError(f"after installing them these packages still bring nothing: {' '.join(left)}")


def missing_packages(programs: Mapping[str, str]) -> list[str]:
    """Return the packages of the programs that are not there."""
    return sorted({package for program, package in programs.items() if not shutil.which(program)})


def _of_the_machine() -> Iterable[str]:
    if platform.system() != "Linux":
        yield f"it runs {platform.system()}; the cluster is made of Linux's namespaces and control groups"
        return
    if os.geteuid() != 0:
        yield "you are not root; network namespaces, mounts and control groups need it"
    if missing := cgroups.missing_controllers():
        yield f"these control group controllers are missing or not delegated: {', '.join(missing)}"


def _of_a_build(cache: Path, disk_gb: float) -> Iterable[str]:
    needed = "{}.{}".format(*OLDEST_GO)
    go = installed_go()
    if go is None:
        yield f"Go is not installed; Kubernetes is built with Go {needed} or later"
    elif go_numbers(go) < OLDEST_GO:
        yield f"{go} is too old; Kubernetes is built with Go {needed} or later"
    folder = next(each for each in (cache, *cache.parents) if each.exists())
    free = shutil.disk_usage(folder).free / _GB
    if free < disk_gb:
        yield (
            f"{cache} has {free:.1f} GB left and {disk_gb} GB are needed; MILEPOST_CACHE names another place"
        )
