"""The configuration files of a node, as plain data: containerd, pod network, kubelet, kube-proxy.

The settings that are not self-evident are the ones without which the node does not start on a machine
whose root user is itself confined, or disturbs what else runs there.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools.cluster.network import PODS
from tools.cluster.paths import STATE

if TYPE_CHECKING:
    from tools.cluster.network import Place

PAUSE = "localhost/milepost-pause:1"
CNI_PLUGINS = Path("/usr/lib/cni")
RUNC = Path("/usr/sbin/runc")


@dataclass(frozen=True)
class NodeFiles:
    """Where the files of a node are."""

    place: Place
    run_folder: Path

    @property
    def folder(self) -> Path:
        """What a node keeps over a power cut."""
        return self.run_folder / self.place.name

    @property
    def state(self) -> Path:
        """What it does not."""
        return STATE / self.place.name

    @property
    def socket(self) -> Path:
        return self.state / "containerd.sock"

    def write(self, *, cgroup_root: str, authority: Path, kubelet: str, proxy: str) -> None:
        """Write all configuration, JSON where YAML is read. `kubelet` and `proxy` are kubeconfigs' texts."""
        (self.folder / "cni").mkdir(parents=True, exist_ok=True)
        texts = {
            "containerd.toml": containerd(self.folder, self.state, self.socket),
            "cni/10-pods.conflist": json.dumps(pod_network(self.place.pods or "", self.state)),
            "kubelet.yaml": json.dumps(
                kubelet_configuration(self.place.address, self.folder, self.socket, cgroup_root, authority)
            ),
            "kube-proxy.yaml": json.dumps(
                proxy_configuration(self.place.name, self.folder / "proxy.kubeconfig")
            ),
            # Without one of its own, a pod would get the machine's, whose servers it cannot reach.
            "resolv.conf": "search cluster.local\n",
            "kubelet.kubeconfig": kubelet,
            "proxy.kubeconfig": proxy,
        }
        for name, text in texts.items():
            (self.folder / name).touch(mode=0o600)
            (self.folder / name).write_text(text)


def containerd(folder: Path, state: Path, socket: Path) -> str:
    """Return containerd's configuration."""
    cri = 'plugins."io.containerd.grpc.v1.cri"'
    return f"""version = 2
root = "{folder / "containerd"}"
state = "{state / "containerd"}"
disabled_plugins = [
  "io.containerd.internal.v1.opt",
  "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs",
]
[grpc]
  address = "{socket}"
[{cri}]
  sandbox_image = "{PAUSE}"
  # Without CAP_SYS_RESOURCE nobody may lower a score, and runc would die of trying.
  restrict_oom_score_adj = true
  # So that what a crash leaves mounted lies where it is looked for.
  netns_mounts_under_state_dir = true
  [{cri}.cni]
    bin_dir = "{CNI_PLUGINS}"
    conf_dir = "{folder / "cni"}"
  [{cri}.containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [{cri}.containerd.runtimes.runc.options]
      BinaryName = "{RUNC}"
      Root = "{state / "runc"}"
"""


def pod_network(pods: str, state: Path) -> dict[str, Any]:
    """Return the pod network of a node: a bridge, with the node's address towards everybody else."""
    addresses = {
        "type": "host-local",
        "dataDir": str(state / "addresses"),
        "ranges": [[{"subnet": pods}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    bridge = {"type": "bridge", "bridge": "cni0", "isGateway": True, "ipMasq": True, "ipam": addresses}
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    return {"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge, ports]}


def kubelet_configuration(
    address: str, folder: Path, socket: Path, cgroup_root: str, authority: Path
) -> dict[str, Any]:
    """Return the kubelet's configuration."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": address,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(authority)},
        },
        "authorization": {"mode": "Webhook"},
        "containerRuntimeEndpoint": f"unix://{socket}",
        "failCgroupV1": False,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": cgroup_root,
        "enforceNodeAllocatable": [],
        "failSwapOn": False,
        "nodeStatusUpdateFrequency": "4s",
        "podLogsDir": str(folder / "pod-logs"),
        "volumePluginDir": str(folder / "volume-plugins"),
        "resolvConf": str(folder / "resolv.conf"),
        "clusterDomain": "cluster.local",
        # The machine's disk is shared: its state is nothing that this node could mend by evicting pods.
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "evictionHard": {
            "memory.available": "100Mi",
            "nodefs.available": "1%",
            "imagefs.available": "1%",
            "nodefs.inodesFree": "1%",
        },
    }


def proxy_configuration(name: str, kubeconfig: Path) -> dict[str, Any]:
    """Return kube-proxy's configuration; the machine's limits of tracked connections are left alone."""
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        "clusterCIDR": PODS,
        "hostnameOverride": name,
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    }
