"""The cluster's network: one bridge on the machine, and a network namespace for each part.

    172.30.0.1      the machine itself
    172.30.0.10     control plane
    172.30.0.20     S3 server
    172.30.0.30     receiver: a spare host for what pods call
    172.30.0.111    node-1, with pods in 10.244.1.0/24
    172.30.0.112    node-2, with pods in 10.244.2.0/24

No namespace has a default route: nothing in the cluster reaches the world outside.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tools.cluster.interface import ClusterError
from tools.cluster.processes import in_namespace, run
from tools.cluster.progress import wait_until

BRIDGE = "milepost0"
MACHINE = "172.30.0.1"
SERVICES = "10.96.0.0/16"
PODS = "10.244.0.0/16"
_TABLE = "milepost_cut"


@dataclass(frozen=True)
class Place:
    """A network namespace with one address on the bridge."""

    name: str
    address: str
    link: str
    pods: str | None = None

    @property
    def namespace(self) -> str:
        return f"milepost-{self.name}"


CONTROL_PLANE = Place("control-plane", "172.30.0.10", "mp-api")
S3 = Place("s3", "172.30.0.20", "mp-s3")
RECEIVER = Place("receiver", "172.30.0.30", "mp-receiver")
NODES = (
    Place("node-1", "172.30.0.111", "mp-node-1", "10.244.1.0/24"),
    Place("node-2", "172.30.0.112", "mp-node-2", "10.244.2.0/24"),
)
HOSTS = (CONTROL_PLANE, S3, RECEIVER)
PLACES = (*HOSTS, *NODES)
PEERS = {"api": CONTROL_PLANE.address, **{place.name: place.address for place in PLACES}}


def set_up() -> None:
    """Make the bridge and every namespace with its link, address and routes."""
    _ip(f"link add {BRIDGE} type bridge", f"addr add {MACHINE}/24 dev {BRIDGE}", f"link set {BRIDGE} up")
    for place in PLACES:
        run("ip", "netns", "add", place.namespace)
        _ip(
            f"link add {place.link} type veth peer name eth0 netns {place.namespace}",
            f"link set {place.link} master {BRIDGE} up",
        )
        _ip(
            f"addr add {place.address}/24 dev eth0",
            "link set eth0 up",
            "link set lo up",
            *(f"route add {node.pods} via {node.address}" for node in NODES if node != place),
            namespace=place.namespace,
        )
    _ip(*(f"route add {node.pods} via {node.address}" for node in NODES))
    for node in NODES:
        run(*in_namespace(node.namespace, ["sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward"]))


def tear_down() -> None:
    """Remove the bridge and every namespace, as far as they are there."""
    for place in PLACES:
        if Path("/run/netns", place.namespace).exists():
            run("ip", "netns", "delete", place.namespace)
    # A deleted namespace frees its link late, and the link's name is needed again at once.
    links = [place.link for place in PLACES] + [BRIDGE]
    for link in links:
        with contextlib.suppress(ClusterError):  # it vanished between the look and the removal
            if _has_link(link):
                run("ip", "link", "delete", link)
        wait_until(partial(_is_gone, link), f"the network link {link} to vanish", within=10)


def cut_off(place: Place, addresses: list[str]) -> None:
    """Drop what a place and its pods exchange with the given addresses; with everybody if there are none.

    Packets vanish without an answer, as on a broken wire.
    """
    rules = {
        "input": "iifname eth0 drop" if not addresses else f"ip saddr {{ {', '.join(addresses)} }} drop",
        "output": "oifname eth0 drop" if not addresses else f"ip daddr {{ {', '.join(addresses)} }} drop",
    }
    chains = "\n".join(
        f"chain {hook} {{ type filter hook {hook} priority 0; {rule}; }}"
        for hook, rule in (*rules.items(), ("forward", f"{rules['input']}; {rules['output']}"))
    )
    run(
        *in_namespace(place.namespace, ["nft", "-f", "-"]),
        stdin=f"add table inet {_TABLE}\ntable inet {_TABLE} {{\n{chains}\n}}\n",
    )


def reconnect(place: Place) -> None:
    """Undo every `cut_off` of a place."""
    script = f"add table inet {_TABLE}\ndelete table inet {_TABLE}\n"
    run(*in_namespace(place.namespace, ["nft", "-f", "-"]), stdin=script)


def _ip(*lines: str, namespace: str | None = None) -> None:
    where = ["-n", namespace] if namespace else []
    run("ip", *where, "-batch", "-", stdin="\n".join(lines) + "\n")


def _has_link(name: str) -> bool:
    return Path("/sys/class/net", name).exists()


def _is_gone(name: str) -> bool:
    return not _has_link(name)
