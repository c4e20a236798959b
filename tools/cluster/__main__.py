"""The cluster tool for people: `python -m tools.cluster up`, `down`, `status`, `build`, `env`."""

from __future__ import annotations

import os
import shlex
import sys
from argparse import REMAINDER, ArgumentParser
from typing import TYPE_CHECKING

from tools.cluster import ClusterError, local_cluster

if TYPE_CHECKING:
    from tools.cluster.local import LocalCluster

_COMMANDS = {
    "up": "start the cluster, or return at once where it is healthy",
    "down": "end the cluster and everything that runs in it",
    "status": "show what runs; exit code 1 where the cluster is not healthy",
    "build": "build the programs that are missing, and start nothing",
    "env": "print what to put into a shell's environment",
    "kubectl": "run kubectl with the cluster's kubeconfig",
    "helm": "run helm with the cluster's kubeconfig",
}


def main(arguments: list[str]) -> int:
    """Run one command and return its exit code."""
    parser = ArgumentParser(prog="python -m tools.cluster", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, text in _COMMANDS.items():
        command = commands.add_parser(name, help=text, add_help=name not in {"kubectl", "helm"})
        if name in {"kubectl", "helm"}:
            command.add_argument("rest", nargs=REMAINDER)
        if name == "build":
            names = "kubernetes, etcd, helm, versitygw; none: what the cluster needs"
            command.add_argument("rest", nargs="*", metavar="NAME", help=names)
    options = parser.parse_args(arguments)
    try:
        return _run(local_cluster(), options.command, getattr(options, "rest", []))
    except ClusterError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _run(cluster: LocalCluster, command: str, rest: list[str]) -> int:
    match command:
        case "up":
            cluster.up()
        case "down":
            cluster.down()
        case "build":
            cluster.build(*rest)
        case "status":
            print(cluster.status())
            return 0 if cluster.healthy() else 1
        case "env":
            print(environment(cluster))
        case "kubectl" | "helm":
            program = str(getattr(cluster, command))
            # From here on this process is that program, with its output and its exit code.
            os.execve(program, [command, *rest], {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)})  # noqa: S606  no shell is wanted
        case _:
            raise AssertionError(command)
    return 0


def environment(cluster: LocalCluster) -> str:
    """Return shell commands that make kubectl, helm and S3 clients use the cluster."""
    variables = {
        "KUBECONFIG": str(cluster.kubeconfig),
        "AWS_ENDPOINT_URL_S3": cluster.s3.endpoint,
        "AWS_DEFAULT_REGION": cluster.s3.region,
        "AWS_ACCESS_KEY_ID": cluster.s3.access_key,
        "AWS_SECRET_ACCESS_KEY": cluster.s3.secret_key,
    }
    folders = f"{cluster.kubectl.parent}:{cluster.helm.parent}"
    lines = [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
    return "\n".join([*lines, f'export PATH={shlex.quote(folders)}:"$PATH"'])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
