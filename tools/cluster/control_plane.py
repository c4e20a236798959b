"""etcd, API server, controller manager and scheduler, in a network namespace of their own.

Nothing of it is kept over a stop: etcd does not even sync to disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tools.cluster.certificates import CONTROLLER_MANAGER, SCHEDULER, Pki
from tools.cluster.network import CONTROL_PLANE, SERVICES
from tools.cluster.processes import Program

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tools.cluster.binaries import Binaries

NAMES = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
# A node is NotReady when it was silent for this long; Kubernetes says 50 s, which tests would wait for.
NODE_GRACE = "16s"
_ETCD = "http://127.0.0.1:2379"


def programs(run_folder: Path) -> list[Program]:
    """Return the control plane's programs."""
    return [Program(name, run_folder) for name in NAMES]


def start_api(run_folder: Path, pki: Pki, binaries: Binaries) -> None:
    """Start etcd and the API server, which waits for etcd by itself."""
    _start(("etcd", "kube-apiserver"), run_folder, pki, binaries)


def start_controllers(run_folder: Path, pki: Pki, binaries: Binaries) -> None:
    """Start controller manager and scheduler. They would give up if the API server were not ready."""
    for user in (CONTROLLER_MANAGER, SCHEDULER):
        _kubeconfig(run_folder, user.name).touch(mode=0o600)
        _kubeconfig(run_folder, user.name).write_text(pki.kubeconfig(user))
    _start(("kube-controller-manager", "kube-scheduler"), run_folder, pki, binaries)


def flags(program: str, run_folder: Path, pki: Pki) -> list[str]:
    """Return the flags of one of the programs."""
    match program:
        case "etcd":
            return [
                f"--data-dir={run_folder / 'etcd'}",
                f"--listen-client-urls={_ETCD}",
                f"--advertise-client-urls={_ETCD}",
                "--listen-peer-urls=http://127.0.0.1:2380",
                "--unsafe-no-fsync",
            ]
        case "kube-apiserver":
            return _apiserver(pki)
        case "kube-controller-manager":
            return [
                *_client(run_folder, CONTROLLER_MANAGER.name),
                f"--service-account-private-key-file={pki.file('accounts.key')}",
                f"--root-ca-file={pki.authority}",
                "--use-service-account-credentials",
                f"--node-monitor-grace-period={NODE_GRACE}",
                "--allocate-node-cidrs=false",
                "--kube-api-qps=100",
                "--kube-api-burst=200",
            ]
        case "kube-scheduler":
            return _client(run_folder, SCHEDULER.name)
        case _:
            raise ValueError(f"{program} is no part of the control plane")


def _start(names: Sequence[str], run_folder: Path, pki: Pki, binaries: Binaries) -> None:
    for name in names:
        argv = [str(binaries.path(name)), *flags(name, run_folder, pki)]
        Program(name, run_folder).start(argv, namespace=CONTROL_PLANE.namespace)


def _apiserver(pki: Pki) -> list[str]:
    return [
        f"--etcd-servers={_ETCD}",
        "--secure-port=6443",
        "--bind-address=0.0.0.0",
        f"--advertise-address={CONTROL_PLANE.address}",
        f"--tls-cert-file={pki.file('apiserver.crt')}",
        f"--tls-private-key-file={pki.file('apiserver.key')}",
        f"--client-ca-file={pki.authority}",
        f"--token-auth-file={pki.tokens}",
        f"--service-account-key-file={pki.file('accounts.pub')}",
        f"--service-account-signing-key-file={pki.file('accounts.key')}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-cluster-ip-range={SERVICES}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        # The names of nodes resolve nowhere.
        "--kubelet-preferred-address-types=InternalIP",
        f"--kubelet-client-certificate={pki.file('kubelet-client.crt')}",
        f"--kubelet-client-key={pki.file('kubelet-client.key')}",
        "--allow-privileged",
    ]


def _client(run_folder: Path, user: str) -> list[str]:
    path = _kubeconfig(run_folder, user)
    kinds = ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig")
    return [*(f"--{kind}={path}" for kind in kinds), "--leader-elect=false"]


def _kubeconfig(run_folder: Path, user: str) -> Path:
    return run_folder / f"{user.removeprefix('system:')}.kubeconfig"
