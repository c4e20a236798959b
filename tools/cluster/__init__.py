"""A Kubernetes cluster and an S3 server for tests, on one Linux machine.

`local_cluster()` is the way in for tests and for the demo; `python -m tools.cluster` is the one for people.
The cluster outlives the process that started it and is the same one for every checkout on the machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tools.cluster.interface import Cluster, ClusterError, Host, Identity, Node, S3Server

if TYPE_CHECKING:
    from tools.cluster.local import LocalCluster

__all__ = ["Cluster", "ClusterError", "Host", "Identity", "Node", "S3Server", "local_cluster"]


def local_cluster() -> LocalCluster:
    """Return this machine's cluster, which `up()` starts unless it runs.

    It has not the name of the module: importing that would put the module in the function's place.
    """
    # Only here, so that the S3 server alone needs nothing of Linux.
    from tools.cluster.local import LocalCluster  # noqa: PLC0415

    return LocalCluster()
