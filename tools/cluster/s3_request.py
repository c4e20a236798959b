"""The few signed S3 requests that show a server is ready for use, on the standard library alone.

It is no client: one attempt, no redirects, and only keys and queries that need no escaping.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tools.cluster.interface import Identity

_ALGORITHM = "AWS4-HMAC-SHA256"


def send(
    endpoint: str,
    region: str,
    identity: Identity,
    method: str,
    path: str,
    *,
    query: str = "",
    body: bytes = b"",
    headers: Mapping[str, str] | None = None,
    timeout: float = 5.0,
) -> int:
    """Send one signed request and return the status code.

    `path` begins with a slash. `timeout` is in seconds. Raises OSError or http.client.HTTPException where
    there is no answer.
    """
    host = urlsplit(endpoint).netloc
    signed = sign(identity, region, method, host, path, query, body, datetime.now(UTC))
    connection = http.client.HTTPConnection(host, timeout=timeout)
    try:
        connection.request(method, f"{path}?{query}" if query else path, body, {**(headers or {}), **signed})
        response = connection.getresponse()
        response.read()
        return response.status
    finally:
        connection.close()


def sign(
    identity: Identity, region: str, method: str, host: str, path: str, query: str, body: bytes, at: datetime
) -> dict[str, str]:
    """Return the headers that sign a request (AWS Signature Version 4)."""
    stamp = at.strftime("%Y%m%dT%H%M%SZ")
    digest = hashlib.sha256(body).hexdigest()
    headers = {"host": host, "x-amz-content-sha256": digest, "x-amz-date": stamp}
    names = ";".join(headers)
    lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
    canonical = f"{method}\n{path}\n{query}\n{lines}\n{names}\n{digest}"
    scope = f"{stamp[:8]}/{region}/s3/aws4_request"
    text = f"{_ALGORITHM}\n{stamp}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    key = f"AWS4{identity.secret_key}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.new(key, text.encode(), "sha256").hexdigest()
    credential = f"Credential={identity.access_key}/{scope}"
    return {
        **headers,
        "authorization": f"{_ALGORITHM} {credential}, SignedHeaders={names}, Signature={signature}",
    }
