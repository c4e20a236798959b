"""The Kubernetes API as a handful of calls on plain dicts, over the official client.

Its generated models are left out: tests look at resources as a person does who prints them.
"""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from typing import Any, Final

from kubernetes import config

__all__ = ["Kube", "NotFound", "Refused"]

Resource = dict[str, Any]

RUNS: Final = "/apis/milepost.dev/v1alpha1"
TABLE: Final = "application/json;as=Table;v=v1;g=meta.k8s.io"


class Refused(Exception):
    """The API server said no; `code` is the HTTP status, the message is the server's."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class NotFound(Refused):
    """There is no such object."""


class Kube:
    """One user's access to a cluster."""

    def __init__(self, kubeconfig: Path) -> None:
        self._api = config.new_client_from_config(str(kubeconfig))  # type: ignore[no-untyped-call]  # it has no types

    def close(self) -> None:
        """Give the connections back."""
        self._api.close()

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        content: str = "application/json",
        accept: str = "application/json",
        query: dict[str, str] | None = None,
    ) -> Any:
        """Send one request and return the answer's JSON. Raises NotFound and Refused."""
        url, headers = self._api.param_serialize(
            method,
            path,
            query_params=list((query or {}).items()),
            header_params={"Content-Type": content, "Accept": accept},
            auth_settings=["BearerToken"],
        )[1:3]
        answer = self._api.call_api(method, url, headers, body).response
        if answer.status < http.client.BAD_REQUEST:
            return json.loads(answer.data)
        missing = answer.status == http.client.NOT_FOUND
        raise (NotFound if missing else Refused)(answer.status, _message(answer.data))

    def runs(self, namespace: str, name: str = "", subresource: str = "") -> str:
        """Return the path of the namespace's AgentRuns, of one of them, or of a part of it."""
        return "/".join(
            part for part in (f"{RUNS}/namespaces/{namespace}/agentruns", name, subresource) if part
        )

    def apply_run(self, manifest: Resource) -> Resource:
        """Create an AgentRun, or patch the one that is there, as `kubectl apply` does."""
        meta = manifest["metadata"]
        path = self.runs(meta["namespace"], meta["name"])
        query = {"fieldManager": "tests", "force": "true"}
        content = "application/apply-patch+yaml"
        applied: Resource = self.request("PATCH", path, manifest, content=content, query=query)
        return applied

    def run(self, namespace: str, name: str) -> Resource:
        """Return an AgentRun. Raises NotFound."""
        found: Resource = self.request("GET", self.runs(namespace, name))
        return found

    def patch_run(self, namespace: str, name: str, spec: Resource) -> Resource:
        """Change fields of a run's spec."""
        content = "application/merge-patch+json"
        patched: Resource = self.request("PATCH", self.runs(namespace, name), {"spec": spec}, content=content)
        return patched

    def delete_run(self, namespace: str, name: str) -> None:
        """Delete an AgentRun; its pod follows through its owner reference."""
        self.request("DELETE", self.runs(namespace, name))

    def table(self, namespace: str) -> list[dict[str, Any]]:
        """Return what `kubectl get agentruns` shows, a dict of columns a row."""
        table = self.request("GET", self.runs(namespace), accept=TABLE)
        names = [column["name"] for column in table["columnDefinitions"]]
        return [dict(zip(names, row["cells"], strict=True)) for row in table["rows"]]

    def pods(self, namespace: str, run: str = "") -> list[Resource]:
        """Return pods, all of them or those of one run, the oldest attempt first."""
        query = {"labelSelector": f"milepost.dev/run={run}"} if run else {}
        pods = self.request("GET", f"/api/v1/namespaces/{namespace}/pods", query=query)["items"]
        return sorted(pods, key=lambda pod: int(pod["metadata"]["labels"].get("milepost.dev/attempt", "0")))

    def evict(self, namespace: str, pod: str) -> None:
        """Evict a pod through the Eviction API, as a drain does."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": namespace},
        }
        self.request("POST", f"/api/v1/namespaces/{namespace}/pods/{pod}/eviction", body)

    def delete_pod(self, namespace: str, pod: str, *, grace: int | None = None) -> None:
        """Delete a pod; a grace of 0 s forgets it while its container may still run."""
        body = {} if grace is None else {"gracePeriodSeconds": grace}
        self.request("DELETE", f"/api/v1/namespaces/{namespace}/pods/{pod}", body)

    def cordon(self, node: str, *, closed: bool = True) -> None:
        """Close a node for new pods, or open it again."""
        patch = {"spec": {"unschedulable": closed}}
        self.request("PATCH", f"/api/v1/nodes/{node}", patch, content="application/merge-patch+json")

    def events(self, resource: Resource) -> list[Resource]:
        """Return the events that tell a namespaced object's story, the oldest first."""
        namespace, uid = resource["metadata"]["namespace"], resource["metadata"]["uid"]
        query = {"fieldSelector": f"involvedObject.uid={uid}"}
        events = self.request("GET", f"/api/v1/namespaces/{namespace}/events", query=query)["items"]
        return sorted(events, key=lambda event: event["metadata"]["creationTimestamp"])

    def ensure(self, path: str, resource: Resource) -> None:
        """Create the object, or put it in the place of the one that is there."""
        try:
            self.request("POST", path, resource)
        except Refused as refused:
            if refused.code != http.client.CONFLICT:
                raise
            self.request(
                "PATCH",
                f"{path}/{resource['metadata']['name']}",
                resource,
                content="application/merge-patch+json",
            )


def _message(body: bytes) -> str:
    try:
        message: str = json.loads(body)["message"]
    except (ValueError, KeyError, TypeError):
        return body.decode(errors="replace")
    return message
