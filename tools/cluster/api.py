"""The few questions that the tool itself asks the API server. It is no client: it reads, and only JSON."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import yaml

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Api:
    """The API server that a kubeconfig of ours names."""

    kubeconfig: Path

    def get(self, path: str, timeout: float = 3.0) -> bytes | None:
        """Return the body of a good answer; None for any other, or for none within `timeout` seconds."""
        try:
            content = yaml.safe_load(self.kubeconfig.read_text())
            cluster, user = content["clusters"][0]["cluster"], content["users"][0]["user"]
            authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
            trust = ssl.create_default_context(cadata=authority)
            connection = http.client.HTTPSConnection(
                urlsplit(cluster["server"]).netloc, timeout=timeout, context=trust
            )
            try:
                connection.request("GET", path, headers={"Authorization": f"Bearer {user['token']}"})
                response = connection.getresponse()
                body = response.read()
                return body if response.status == http.client.OK else None
            finally:
                connection.close()
        except (OSError, http.client.HTTPException):
            return None

    def ready(self) -> bool:
        """Say whether the API server is ready."""
        return self.get("/readyz") is not None

    def ready_nodes(self) -> set[str]:
        """Return the names of the nodes whose condition Ready is true."""
        body = self.get("/api/v1/nodes")
        return ready_nodes(json.loads(body)) if body else set()


def ready_nodes(answer: dict[str, Any]) -> set[str]:
    """Return the names of the ready nodes in a NodeList."""
    return {
        node["metadata"]["name"]
        for node in answer["items"]
        for condition in node.get("status", {}).get("conditions", ())
        if (condition["type"], condition["status"]) == ("Ready", "True")
    }
