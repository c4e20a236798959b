"""The back end that needs nothing but a Linux machine: two nodes, control plane and S3 server as processes.

A cluster is one per machine and outlives the process that started it, so everything here is found again
through files in the cache, from any checkout. Nothing of a cluster survives its stop, and a start makes
everything anew, so there is no state that a crash could have left half done.

There is no DNS in it: pods find the API through KUBERNETES_SERVICE_HOST, and all else by address.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tools.cluster import (
    archives,
    binaries,
    certificates,
    cgroups,
    control_plane,
    leftovers,
    network,
    preflight,
    s3_process,
    seaweedfs,
)
from tools.cluster.api import Api
from tools.cluster.binaries import Binaries
from tools.cluster.certificates import Pki
from tools.cluster.interface import ClusterError, Identity, S3Server
from tools.cluster.node import LocalNode
from tools.cluster.node_config import PAUSE
from tools.cluster.paths import STATE, Paths, locked
from tools.cluster.processes import Program, in_group, in_namespace
from tools.cluster.progress import say, step, wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

VERSIONS = {"kubernetes": binaries.KUBERNETES, "etcd": binaries.ETCD}


@dataclass(frozen=True)
class LocalHost:
    """A network namespace beside the cluster, for programs that pods talk to."""

    place: network.Place

    @property
    def name(self) -> str:
        return self.place.name

    @property
    def address(self) -> str:
        return self.place.address

    def popen(self, argv: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Start a program there; the process returned is the program's own. `down` ends it at the latest."""
        return subprocess.Popen(in_group(self._group, in_namespace(self.place.namespace, argv)), **options)

    def clear(self) -> None:
        """Kill what `popen` started here, by whichever process."""
        cgroups.kill(self._group)

    @property
    def _group(self) -> str:
        return f"hosts/{self.name}"


@dataclass(frozen=True)
class LocalCluster:
    """The cluster of this machine, running or not."""

    paths: Paths = field(default_factory=Paths.from_environment)

    @cached_property
    def binaries(self) -> Binaries:
        return Binaries(self.paths.bin)

    @property
    def kubeconfig(self) -> Path:
        return self.paths.run / "admin.kubeconfig"

    @property
    def kubectl(self) -> Path:
        return self.binaries.path("kubectl")

    @property
    def helm(self) -> Path:
        return self.binaries.path("helm")

    @cached_property
    def nodes(self) -> tuple[LocalNode, ...]:
        return tuple(LocalNode(place, self.paths.run, self.binaries) for place in network.NODES)

    @property
    def s3(self) -> S3Server:
        """Where the S3 server is. Raises ClusterError if the cluster was never started."""
        try:
            return s3_from(json.loads(self._s3_record.read_text()))
        except OSError:
            raise ClusterError("the cluster does not run: make cluster") from None

    def identity(self, namespace: str) -> Identity:
        """Return the keys of a namespace, made known to the running server where it has none yet."""
        if namespace not in self.s3.scoped:
            server = seaweedfs.with_namespace(self.s3, namespace, self._s3_record.parent / "s3.json")
            self._s3_record.write_text(json.dumps(asdict(server)))
            if (pid := self._s3_program.pid) is None:
                raise ClusterError("the S3 server does not run: make cluster")
            os.kill(pid, signal.SIGHUP)
            what = f"the S3 server to know the keys of {namespace}"
            wait_until(lambda: seaweedfs.knows(server, namespace), what, within=30)
        return self.s3.identity(namespace)

    def host(self, name: str) -> LocalHost:
        """Return "receiver", "s3" or "control-plane"; KeyError for any other."""
        return LocalHost({place.name: place for place in network.HOSTS}[name])

    def build(self, *wanted: str) -> None:
        """Build what is missing of these programs' modules ("helm"), or of all. Raises ClusterError."""
        if self.binaries.missing(*wanted):
            preflight.check_build(self.paths.cache)
            with locked(self.paths.cache):
                self.binaries.build(*wanted)

    def up(self) -> None:
        """Bring the cluster up, or return at once where it is up and healthy."""
        preflight.check_machine(to_build=bool(self.binaries.missing()), cache=self.paths.cache)
        self.build()
        preflight.install(preflight.CLUSTER_PROGRAMS)
        with locked(STATE):
            if self._mend():
                say("the cluster is up")
                return
            with step("clearing what an earlier cluster left"):
                leftovers.clear(self.paths.run)
            try:
                self._start()
            except BaseException:
                leftovers.end(self.paths.run)
                raise
        say(f"the cluster is up; KUBECONFIG={self.kubeconfig}")

    def down(self) -> None:
        """End everything that `up` started, and whatever the cluster ran."""
        with locked(STATE), step("ending the cluster"):
            leftovers.clear(self.paths.run)

    def healthy(self) -> bool:
        """Say whether all programs run, the API answers, all nodes are Ready and S3 takes writes."""
        if not self._record.exists() or any(program.pid is None for program in self._programs):
            return False
        names = {node.name for node in self.nodes}
        return (
            self._api.ready()
            and self._api.ready_nodes() == names
            and s3_process.takes_conditional_writes(self.s3)
        )

    def load(self, archive: Path, reference: str) -> None:
        """Give every node the image in a docker-archive, unless it has that very image."""
        digest = archives.image_digest(archive)
        lacking = [node for node in self.nodes if not node.has(digest, reference)]
        running = [(node, node.start_import(archive)) for node in lacking]
        for node, process in running:
            node.finish_import(process, archive, reference)

    def status(self) -> str:
        """Return a line on each program and on each node, for a person."""
        lines = [
            f"{program.name:32} {f'pid {program.pid}' if program.pid else 'not running'}"
            for program in self._programs
        ]
        ready = self._api.ready_nodes()
        lines += [f"{node.name:32} {'Ready' if node.name in ready else 'not Ready'}" for node in self.nodes]
        return "\n".join([*lines, f"{'cluster':32} {'healthy' if self.healthy() else 'not healthy'}"])

    @property
    def _api(self) -> Api:
        return Api(self.kubeconfig)

    @property
    def _record(self) -> Path:
        return self.paths.run / "up.json"

    @property
    def _s3_record(self) -> Path:
        return self.paths.run / "s3" / "server.json"

    @property
    def _s3_program(self) -> Program:
        return Program("seaweedfs", self.paths.run)

    @property
    def _programs(self) -> list[Program]:
        of_nodes = [program for node in self.nodes for program in node.programs]
        return [*control_plane.programs(self.paths.run), self._s3_program, *of_nodes]

    def _mend(self) -> bool:
        """Undo what tests do to nodes without ending programs; say whether all is well then."""
        try:
            same = json.loads(self._record.read_text()) == VERSIONS
        except OSError:
            return False
        if not same or any(program.pid is None for program in self._programs):
            return False
        for node in self.nodes:
            node.thaw()
            node.reconnect()
        if self.healthy():
            return True
        with contextlib.suppress(ClusterError), step("waiting for the running cluster to be healthy"):
            wait_until(self.healthy, "health", within=30, pause=0.5)
            return True
        return False

    def _start(self) -> None:
        run, pki = self.paths.run, Pki(self.paths.run / "pki")
        run.mkdir(parents=True)
        leftovers.record(run)
        with step("network, certificates and configuration"):
            network.set_up()
            users = [
                certificates.ADMIN,
                certificates.CONTROLLER_MANAGER,
                certificates.SCHEDULER,
                certificates.PROXY,
            ]
            pki.create([*users, *(certificates.node_user(node.name) for node in self.nodes)])
            self.kubeconfig.touch(mode=0o600)
            self.kubeconfig.write_text(pki.kubeconfig(certificates.ADMIN))
        with step("starting the control plane, the S3 server and two container runtimes"):
            control_plane.start_api(run, pki, self.binaries)
            self._start_s3()
            for node in self.nodes:
                node.configure(pki)
                node.start_runtime()
            pause = run / "pause.tar"
            archives.write_single_program(pause, PAUSE, self.binaries.path("pause"))
            for node in self.nodes:
                node.wait_for_runtime()
            self.load(pause, PAUSE)
            apiserver = Program("kube-apiserver", run)
            wait_until(self._api.ready, "a ready API server", within=60, hint=apiserver.last_words)
        with step("starting controllers and nodes"):
            control_plane.start_controllers(run, pki, self.binaries)
            for node in self.nodes:
                node.start_kubelet()
            s3_process.wait_until_ready(self.s3, lambda: self._s3_program.pid is not None)
            kubelet = self.nodes[0].programs[1]
            names = {node.name for node in self.nodes}
            wait_until(
                lambda: self._api.ready_nodes() == names, "ready nodes", within=60, hint=kubelet.last_words
            )
        self._record.write_text(json.dumps(VERSIONS))

    def _start_s3(self) -> None:
        folder = self._s3_record.parent
        admin, scoped = seaweedfs.identities(seaweedfs.BUCKET)
        ports = seaweedfs.Ports()
        endpoint = f"http://{network.S3.address}:{ports.s3}"
        server = S3Server(endpoint, seaweedfs.BUCKET, seaweedfs.REGION, admin, scoped)
        data, config = seaweedfs.prepare(folder, server.bucket, admin, tuple(scoped.values()))
        self._s3_record.touch(mode=0o600)
        self._s3_record.write_text(json.dumps(asdict(server)))
        argv = seaweedfs.command(data, config, network.S3.address, ports)
        self._s3_program.start(argv, namespace=network.S3.namespace, environment=seaweedfs.environment())


def s3_from(record: dict[str, Any]) -> S3Server:
    """Return the server that was written down with `dataclasses.asdict`."""

    def identity(fields: dict[str, Any]) -> Identity:
        return Identity(**{**fields, "prefixes": tuple(fields["prefixes"])})

    scoped = {name: identity(fields) for name, fields in record["scoped"].items()}
    return S3Server(**{**record, "admin": identity(record["admin"]), "scoped": scoped})
