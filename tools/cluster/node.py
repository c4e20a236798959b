"""A node of the local cluster: containerd, kubelet and kube-proxy in a network namespace of their own.

Losing a node kills all that runs on it at once, as a power cut would. What was on its disk (images, the
kubelet's folder) is there when it comes back; what was in memory (mounts, sockets, addresses) is not.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tools.cluster import cgroups, network
from tools.cluster.archives import image_digest
from tools.cluster.certificates import PROXY, Pki, node_user
from tools.cluster.interface import ClusterError
from tools.cluster.mounts import unmount_below
from tools.cluster.node_config import NodeFiles
from tools.cluster.processes import Program, run, started_at
from tools.cluster.progress import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tools.cluster.binaries import Binaries
    from tools.cluster.network import Place


@dataclass(frozen=True)
class LocalNode:
    """One node; nothing but its name and its folders is kept in memory."""

    place: Place
    run_folder: Path
    binaries: Binaries

    @property
    def name(self) -> str:
        return self.place.name

    @property
    def address(self) -> str:
        return self.place.address

    @property
    def files(self) -> NodeFiles:
        return NodeFiles(self.place, self.run_folder)

    @property
    def programs(self) -> list[Program]:
        return [self._program(name) for name in ("containerd", "kubelet", "kube-proxy")]

    def configure(self, pki: Pki) -> None:
        """Write its configuration and make its control groups."""
        self.files.write(
            cgroup_root=cgroups.make_node_root(self.name),
            authority=pki.authority,
            kubelet=pki.kubeconfig(node_user(self.name)),
            proxy=pki.kubeconfig(PROXY),
        )

    def start_runtime(self) -> None:
        """Start containerd, without waiting for it."""
        self.files.state.mkdir(parents=True, exist_ok=True)
        argv = ["containerd", "--config", str(self.files.folder / "containerd.toml")]
        self._program("containerd").start(argv, namespace=self.place.namespace)

    def wait_for_runtime(self) -> None:
        """Wait until containerd answers."""
        program = self._program("containerd")
        wait_until(self._runtime_answers, f"containerd of {self.name}", within=30, hint=program.last_words)

    def start_kubelet(self) -> None:
        """Start the kubelet and kube-proxy."""
        folder = self.files.folder
        kubelet = [
            str(self.binaries.path("kubelet")),
            f"--config={folder / 'kubelet.yaml'}",
            f"--kubeconfig={folder / 'kubelet.kubeconfig'}",
            f"--hostname-override={self.name}",
            f"--node-ip={self.address}",
            f"--root-dir={folder / 'kubelet'}",
            f"--cert-dir={folder / 'pki'}",
        ]
        proxy = [str(self.binaries.path("kube-proxy")), f"--config={folder / 'kube-proxy.yaml'}"]
        self._program("kubelet").start(kubelet, namespace=self.place.namespace)
        self._program("kube-proxy").start(proxy, namespace=self.place.namespace)

    def freeze(self) -> None:
        """Stop the kubelet where it stands: containers go on, heartbeats end."""
        self._program("kubelet").signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let a frozen kubelet go on."""
        self._program("kubelet").signal(signal.SIGCONT)

    def cut_off(self, *peers: str) -> None:
        """Cut the node and its pods off from "api", "s3", other hosts and nodes, or from all of them."""
        network.cut_off(self.place, [network.PEERS[peer] for peer in peers])

    def reconnect(self) -> None:
        """Undo every `cut_off`."""
        network.reconnect(self.place)

    def lose(self) -> None:
        """Kill all that runs on the node, containers included."""
        for program in self.programs:
            cgroups.kill(f"programs/{program.name}")
        cgroups.kill(self.name)
        unmount_below(self.files.folder, self.files.state)
        shutil.rmtree(self.files.state, ignore_errors=True)

    def bring_back(self) -> None:
        """Start the node anew after `lose`; Kubernetes sees it Ready some seconds later."""
        self.start_runtime()
        self.wait_for_runtime()
        self.start_kubelet()

    def container_pids(self, pod: str, namespace: str, container: str) -> list[int]:
        """Return the process ids in a pod's running container, the oldest first; none if it does not run."""
        labels = {"pod.name": pod, "pod.namespace": namespace, "container.name": container}
        query = ",".join(f'labels."io.kubernetes.{name}"=={value}' for name, value in labels.items())
        found: list[int] = []
        for identity in self._ctr("containers", "list", "--quiet", query).split():
            for group in cgroups.group(self.name).glob(f"**/{identity}"):
                found += cgroups.pids(str(group.relative_to(cgroups.group(""))))
        return sorted(found, key=lambda pid: (started_at(pid) or 0, pid))

    def has(self, archive_digest: str, reference: str) -> bool:
        """Say whether the image of that digest was imported under this name and is still there."""
        imported, manifest = self._imports().get(reference, ("", ""))
        return imported == archive_digest and manifest == self._manifest_digest(reference)

    def start_import(self, archive: Path) -> subprocess.Popen[str]:
        """Begin to import an archive; `finish_import` is to follow."""
        argv = [*self._ctr_command(), "images", "import", str(archive)]
        return subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def finish_import(self, running: subprocess.Popen[str], archive: Path, reference: str) -> None:
        """Wait for an import and note what it brought."""
        _, complaint = running.communicate(timeout=300)
        manifest = self._manifest_digest(reference)
        if running.returncode or manifest is None:
            reason = complaint.strip() or "it holds an image of another name"
            raise ClusterError(f"{self.name} did not take {reference} from {archive}: {reason}")
        imports = {**self._imports(), reference: (image_digest(archive), manifest)}
        self._imports_file.write_text(json.dumps(imports))

    @property
    def _imports_file(self) -> Path:
        return self.files.folder / "imports.json"

    def _imports(self) -> dict[str, tuple[str, str]]:
        with contextlib.suppress(OSError, ValueError):
            return {
                name: (pair[0], pair[1]) for name, pair in json.loads(self._imports_file.read_text()).items()
            }
        return {}

    def _manifest_digest(self, reference: str) -> str | None:
        lines = self._ctr("images", "list", f"name=={reference}").splitlines()[1:]
        return lines[0].split()[2] if lines else None

    def _ctr(self, *words: str) -> str:
        return run(*self._ctr_command(), *words)

    def _ctr_command(self) -> list[str]:
        return ["ctr", "--address", str(self.files.socket), "--namespace", "k8s.io"]

    def _runtime_answers(self) -> bool:
        try:
            self._ctr("images", "list", "--quiet")
        except ClusterError:
            return False
        return True

    def _program(self, name: str) -> Program:
        return Program(f"{name}-{self.name}", self.run_folder)
