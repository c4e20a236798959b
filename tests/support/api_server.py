"""A real API server with its own etcd on loopback, and nothing behind it: no node, no controller.

For tests of what the API server itself decides: definitions, validation, tables, rights. It needs no root
and shares nothing with a running cluster. Both programs end with the fixture that started them.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from tools.cluster import s3_process
from tools.cluster.progress import wait_until

__all__ = ["APPLY", "JSON_PATCH", "MERGE_PATCH", "TABLE", "ApiServer", "Refused", "api_server"]

Json = dict[str, Any]

_TOKEN: Final = "token-of-the-test"
_JSON: Final = "application/json"
JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
APPLY: Final = "application/apply-patch+yaml"
TABLE: Final = "application/json;as=Table;v=v1;g=meta.k8s.io"


class Refused(Exception):
    """The API server said no. `code` is the HTTP status, `message` what a user would read."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


@dataclass(frozen=True)
class ApiServer:
    """Requests to a running API server, as its administrator or, with `user`, as somebody else."""

    port: int
    certificate: Path
    kubeconfig: Path

    def request(
        self,
        method: str,
        path: str,
        body: Json | list[Json] | str | None = None,
        *,
        content_type: str = _JSON,
        accept: str = _JSON,
        user: str = "",
        query: Mapping[str, str] | None = None,
    ) -> Json:
        """Send one request and return the answer's JSON; a body of text is sent as it is. Raises Refused."""
        headers = {"Authorization": f"Bearer {_TOKEN}", "Content-Type": content_type, "Accept": accept}
        if user:
            headers["Impersonate-User"] = user
        trust = ssl.create_default_context(cafile=str(self.certificate))
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=30, context=trust)
        with contextlib.closing(connection):
            target = f"{path}?{urlencode(query)}" if query else path
            content = body if isinstance(body, str | None) else json.dumps(body)
            connection.request(method, target, content, headers)
            response = connection.getresponse()
            text = response.read().decode()
        if response.status >= http.client.BAD_REQUEST:
            message = json.loads(text)["message"] if text.startswith("{") else text
            raise Refused(response.status, message)
        answer: Json = json.loads(text) if text.startswith("{") else {}
        return answer

    def apply(self, path: str, manifest: Json, query: Mapping[str, str] | None = None) -> Json:
        """Server-side apply of one object at its path."""
        return self.request(
            "PATCH",
            path,
            manifest,
            content_type=APPLY,
            query={"fieldManager": "test", "force": "true", **(query or {})},
        )

    def ready(self) -> bool:
        """Say whether it answers and says that it is ready."""
        try:
            self.request("GET", "/readyz")
        except (OSError, http.client.HTTPException, Refused):
            return False
        return True


@contextlib.contextmanager
def api_server(etcd: Path, apiserver: Path, folder: Path) -> Iterator[ApiServer]:
    """Start etcd and the API server in `folder`, wait until it is ready, and end both afterwards."""
    with s3_process.ports() as block:
        yield from _running(etcd, apiserver, folder, block)


def _running(etcd: Path, apiserver: Path, folder: Path, block: range) -> Iterator[ApiServer]:
    client, peer, port = block[:3]
    storage = f"http://127.0.0.1:{client}"
    (folder / "tokens.csv").write_text(f"{_TOKEN},admin,admin,system:masters\n")
    _key(folder / "accounts.key")
    server = ApiServer(port, folder / "apiserver.crt", folder / "kubeconfig")
    server.kubeconfig.write_text(json.dumps(_kubeconfig(server)))
    programs = {
        "etcd": [
            str(etcd),
            f"--data-dir={folder / 'etcd'}",
            f"--listen-client-urls={storage}",
            f"--advertise-client-urls={storage}",
            f"--listen-peer-urls=http://127.0.0.1:{peer}",
            f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}",
            f"--initial-cluster=default=http://127.0.0.1:{peer}",
            "--unsafe-no-fsync",
        ],
        "apiserver": [
            str(apiserver),
            f"--etcd-servers={storage}",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            f"--cert-dir={folder}",
            f"--token-auth-file={folder / 'tokens.csv'}",
            f"--service-account-key-file={folder / 'accounts.key'}",
            f"--service-account-signing-key-file={folder / 'accounts.key'}",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--service-cluster-ip-range=10.97.0.0/16",
            "--authorization-mode=RBAC",
        ],
    }
    with contextlib.ExitStack() as running:
        for name, argv in programs.items():
            running.enter_context(_program(argv, folder / f"{name}.log"))
        wait_until(server.ready, "a ready API server", within=120, hint=lambda: _ends_of_logs(folder))
        # The namespace comes a moment after readiness.
        wait_until(lambda: _exists(server, "/api/v1/namespaces/default"), "the namespace default", within=60)
        yield server


def _exists(server: ApiServer, path: str) -> bool:
    try:
        server.request("GET", path)
    except Refused:
        return False
    return True


def _ends_of_logs(folder: Path) -> str:
    return "\n".join(path.read_text()[-1000:] for path in folder.glob("*.log"))


@contextlib.contextmanager
def _program(argv: Sequence[str], log: Path) -> Iterator[None]:
    with log.open("w") as output:
        process = subprocess.Popen(argv, stdout=output, stderr=subprocess.STDOUT)
        try:
            yield
        finally:
            process.kill()
            process.wait()


def _key(path: Path) -> None:
    subprocess.run(["openssl", "genrsa", "-out", path, "2048"], check=True, capture_output=True)


def _kubeconfig(server: ApiServer) -> Json:
    cluster = {"server": f"https://127.0.0.1:{server.port}", "certificate-authority": str(server.certificate)}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "admin", "user": {"token": _TOKEN}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
        "current-context": "test",
    }
