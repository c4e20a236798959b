"""The cluster's own certificate authority, keys and tokens: made anew at each start, good for 30 days.

They protect nothing but a test cluster on this machine. Elliptic-curve keys, because making RSA ones
takes longer than starting etcd.
"""

from __future__ import annotations

import base64
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

from tools.cluster.network import CONTROL_PLANE
from tools.cluster.processes import run

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_DAYS = "30"
_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc")
_NAMES = (
    *("DNS:localhost", "DNS:kubernetes", "DNS:kubernetes.default", "DNS:kubernetes.default.svc"),
    *("IP:127.0.0.1", "IP:10.96.0.1", f"IP:{CONTROL_PLANE.address}"),
)


@dataclass(frozen=True)
class User:
    """Somebody who may talk to the API server, and the groups that give the right to."""

    name: str
    groups: Sequence[str] = ()


ADMIN = User("admin", ("system:masters",))
CONTROLLER_MANAGER = User("system:kube-controller-manager")
SCHEDULER = User("system:kube-scheduler")
PROXY = User("system:kube-proxy")


def node_user(name: str) -> User:
    """Return the user that the kubelet of a node is."""
    return User(f"system:node:{name}", ("system:nodes",))


@dataclass(frozen=True)
class Pki:
    """The files of one start."""

    folder: Path

    @property
    def authority(self) -> Path:
        return self.folder / "ca.crt"

    @property
    def tokens(self) -> Path:
        return self.folder / "tokens.csv"

    def file(self, name: str) -> str:
        """Return a path as an option of a program."""
        return str(self.folder / name)

    def create(self, users: Sequence[User]) -> None:
        """Make the authority, the certificates and one token for each user."""
        self.folder.mkdir(parents=True, mode=0o700)
        self._self_signed()
        self._signed("apiserver", "/CN=kube-apiserver", f"subjectAltName={','.join(_NAMES)}")
        self._signed(
            "kubelet-client", "/O=system:masters/CN=apiserver-kubelet-client", "extendedKeyUsage=clientAuth"
        )
        run(
            "openssl",
            "ecparam",
            "-name",
            "prime256v1",
            "-genkey",
            "-noout",
            "-out",
            self.file("accounts.key"),
        )
        run("openssl", "ec", "-in", self.file("accounts.key"), "-pubout", "-out", self.file("accounts.pub"))
        self.tokens.touch(mode=0o600)
        self.tokens.write_text(token_file({user: secrets.token_hex(16) for user in users}))

    def kubeconfig(self, user: User) -> str:
        """Return the text of a kubeconfig that works from anywhere on the bridge."""
        lines = (line.split(",") for line in self.tokens.read_text().splitlines())
        token = next(fields[0] for fields in lines if fields[1] == user.name)
        return kubeconfig(CONTROL_PLANE.address, self.authority.read_bytes(), token)

    def _self_signed(self) -> None:
        out = ("-keyout", self.file("ca.key"), "-out", str(self.authority))
        run(
            "openssl", "req", "-x509", *_NEW_KEY, *out, "-days", _DAYS, "-subj", "/CN=milepost-test-authority"
        )

    def _signed(self, name: str, subject: str, extension: str) -> None:
        key, request, certificate = (self.file(f"{name}.{suffix}") for suffix in ("key", "csr", "crt"))
        extensions = self.folder / f"{name}.ext"
        extensions.write_text(extension + "\n")
        run("openssl", "req", *_NEW_KEY, "-keyout", key, "-out", request, "-subj", subject)
        authority = ("-CA", str(self.authority), "-CAkey", self.file("ca.key"), "-CAcreateserial")
        target = ("-extfile", str(extensions), "-out", certificate)
        run("openssl", "x509", "-req", "-in", request, *authority, "-days", _DAYS, *target)


def token_file(tokens: dict[User, str]) -> str:
    """Return what the API server reads from --token-auth-file: token, name, id and, quoted, the groups."""
    return "".join(
        f'{token},{user.name},{user.name},"{",".join(user.groups)}"\n' for user, token in tokens.items()
    )


def kubeconfig(address: str, authority: bytes, token: str) -> str:
    """Return a kubeconfig that stands alone: it names no other file."""
    cluster = {
        "server": f"https://{address}:6443",
        "certificate-authority-data": base64.b64encode(authority).decode(),
    }
    content: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "milepost", "cluster": cluster}],
        "users": [{"name": "milepost", "user": {"token": token}}],
        "contexts": [{"name": "milepost", "context": {"cluster": "milepost", "user": "milepost"}}],
        "current-context": "milepost",
    }
    return str(yaml.safe_dump(content, sort_keys=False))
