"""How to reach the API server: a pod's service account, or a kubeconfig outside a cluster.

The address comes from the environment that the kubelet sets, so the operator needs no cluster DNS. A
mounted token is replaced before it runs out, so it is read again each minute, for Kopf and for ourselves.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import kopf

from milepost_operator.shell.settings import BadSettings

__all__ = ["ACCOUNT", "TOKEN_LIFETIME", "Headers", "log_in"]

ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TOKEN_LIFETIME: Final = timedelta(seconds=60)


def log_in(settings: kopf.OperatorSettings, account: Path = ACCOUNT) -> kopf.ConnectionInfo:
    """Return how to reach the API server. Raises BadSettings where nothing says so."""
    host, port = (
        os.environ.get("KUBERNETES_SERVICE_HOST", ""),
        os.environ.get("KUBERNETES_SERVICE_PORT", "443"),
    )
    if host and (account / "token").exists():
        return kopf.ConnectionInfo(
            server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
            ca_path=account / "ca.crt",
            token=(account / "token").read_text(encoding="utf-8").strip(),
            expiration=datetime.now(UTC) + TOKEN_LIFETIME,  # noqa: TID251  Kopf compares it with the wall clock
        )
    found = kopf.login_with_kubeconfig(settings=settings)
    if found is None:
        raise BadSettings("no service account is mounted and no kubeconfig was found: set KUBECONFIG")
    return found


class Headers:
    """The request headers that carry the credentials, read again once they are a minute old."""

    def __init__(self, read: Callable[[], kopf.ConnectionInfo], monotonic: Callable[[], float]) -> None:
        self._read = read
        self._monotonic = monotonic
        self._headers: dict[str, str] = {}
        self._until = float("-inf")

    def __call__(self) -> dict[str, str]:
        if self._monotonic() >= self._until:
            self._headers = self._read().as_http_headers()
            self._until = self._monotonic() + TOKEN_LIFETIME.total_seconds()
        return self._headers
