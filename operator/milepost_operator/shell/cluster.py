"""The operator's own calls to the API server: raw JSON, one request each, every refusal an error with a name.

Only what a pass needs is here, and each call says what it depends on: a pod is deleted by its uid, a status
is written only over the version it was made from. Lists are consistent reads, never answers from a cache,
because a pod is created on their word.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

import aiohttp

from milepost.api.names import GROUP, LABEL_MANAGED_BY, LABEL_RUN, MANAGED_BY, PLURAL, VERSION
from milepost.errors import MilepostError

__all__ = ["AlreadyExists", "ApiError", "Cluster", "Conflict", "Forbidden", "NotFound", "Unreachable"]

Raw = dict[str, Any]

_TIMEOUT: Final = aiohttp.ClientTimeout(total=20, connect=5)
_CHUNK: Final = 500


class ApiError(MilepostError):
    """The API server refused a request. `message` is its own."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message


class NotFound(ApiError):
    """The object is not there."""


class Conflict(ApiError):
    """The object is no longer the version that the request was made from: look again."""


class AlreadyExists(ApiError):
    """There is an object of this name."""


class Forbidden(ApiError):
    """The operator may not do this, or the cluster's policy does not allow it."""


class Unreachable(MilepostError):
    """The API server gave no answer; whether it did what was asked is not known."""


class Cluster:
    """One API server. `headers` is asked for each request, since tokens are replaced."""

    def __init__(
        self, session: aiohttp.ClientSession, server: str, headers: Callable[[], Mapping[str, str]]
    ) -> None:
        self._session = session
        self._server = server.rstrip("/")
        self._headers = headers

    async def get_run(self, namespace: str, name: str) -> Raw | None:
        """Return the resource, or None if there is none."""
        try:
            return await self._send("GET", f"{_runs(namespace)}/{quote(name)}")
        except NotFound:
            return None

    def list_runs(self, namespace: str) -> AsyncIterator[Raw]:
        """List every resource of a namespace, or of all with ""."""
        return self._list(_runs(namespace), {})

    async def write_status(self, namespace: str, name: str, version: str, status: Raw) -> Raw:
        """Replace the whole status, on condition that the resource is still this version.

        Raises Conflict, NotFound.
        """
        patch = [
            {"op": "replace", "path": "/metadata/resourceVersion", "value": version},
            {"op": "add", "path": "/status", "value": status},
        ]
        path = f"{_runs(namespace)}/{quote(name)}/status"
        return await self._send("PATCH", path, body=patch, content_type="application/json-patch+json")

    async def list_pods(self, namespace: str, run: str) -> list[Raw]:
        """List the executor pods of one run's name, as they are now."""
        selector = f"{LABEL_MANAGED_BY}={MANAGED_BY},{LABEL_RUN}={run}"
        return [pod async for pod in self._list(_pods(namespace), {"labelSelector": selector})]

    def list_all_pods(self, namespace: str) -> AsyncIterator[Raw]:
        """List every executor pod of a namespace, or of all with ""."""
        return self._list(_pods(namespace), {"labelSelector": f"{LABEL_MANAGED_BY}={MANAGED_BY}"})

    async def get_pod(self, namespace: str, name: str) -> Raw | None:
        """Return the pod, or None if there is none."""
        try:
            return await self._send("GET", f"{_pods(namespace)}/{quote(name)}")
        except NotFound:
            return None

    async def create_pod(self, namespace: str, pod: Raw) -> Raw:
        """Create the pod. Raises AlreadyExists, Forbidden, ApiError."""
        return await self._send("POST", _pods(namespace), body=pod)

    async def delete_pod(self, namespace: str, name: str, uid: str) -> None:
        """Delete exactly this pod, with its own grace period. It is no error if it is gone or another one."""
        options = {"preconditions": {"uid": uid}}
        try:
            await self._send("DELETE", f"{_pods(namespace)}/{quote(name)}", body=options)
        except (NotFound, Conflict):
            return

    async def create_event(self, namespace: str, event: Raw) -> None:
        """Create a Kubernetes Event. Raises AlreadyExists."""
        await self._send("POST", f"/api/v1/namespaces/{quote(namespace)}/events", body=event)

    async def list_leases(self) -> list[Raw]:
        """List the Leases by which kubelets say that they live. Raises Forbidden where nodes are not ours."""
        path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
        return [lease async for lease in self._list(path, {})]

    async def namespace_uid(self, name: str) -> str:
        """Return the uid of a namespace. Raises Forbidden, NotFound."""
        found = await self._send("GET", f"/api/v1/namespaces/{quote(name)}")
        return str(found["metadata"]["uid"])

    async def served(self) -> set[str]:
        """Return the resources that the API server serves in our group and version, subresources included."""
        try:
            found = await self._send("GET", f"/apis/{GROUP}/{VERSION}")
        except NotFound:
            return set()
        return {str(part["name"]) for part in found.get("resources") or ()}

    async def _list(self, path: str, query: Mapping[str, str]) -> AsyncIterator[Raw]:
        token = ""
        while True:
            asked = {**query, "limit": str(_CHUNK), **({"continue": token} if token else {})}
            page = await self._send("GET", path, query=asked)
            for item in page.get("items") or ():
                yield item
            token = (page.get("metadata") or {}).get("continue") or ""
            if not token:
                return

    async def _send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
    ) -> Raw:
        headers = {**self._headers(), "Accept": "application/json", "User-Agent": "milepost-operator"}
        if body is not None:
            headers["Content-Type"] = content_type
        try:
            async with self._session.request(
                method, self._server + path, params=query, json=body, headers=headers, timeout=_TIMEOUT
            ) as answer:
                found: Any = await answer.json(content_type=None)
                if answer.status < HTTPStatus.BAD_REQUEST:
                    return dict(found)
                raise _refusal(answer.status, found)
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise Unreachable(f"{method} {path}: {type(error).__name__}: {error}") from error


def _runs(namespace: str) -> str:
    place = f"/namespaces/{quote(namespace)}" if namespace else ""
    return f"/apis/{GROUP}/{VERSION}{place}/{PLURAL}"


def _pods(namespace: str) -> str:
    return f"/api/v1/namespaces/{quote(namespace)}/pods" if namespace else "/api/v1/pods"


def _refusal(status: int, found: Any) -> ApiError:
    said = found if isinstance(found, dict) else {}
    reason, message = str(said.get("reason") or ""), str(said.get("message") or "no message")
    kind: type[ApiError] = ApiError
    if status == HTTPStatus.NOT_FOUND:
        kind = NotFound
    elif status == HTTPStatus.CONFLICT:
        kind = AlreadyExists if reason == "AlreadyExists" else Conflict
    elif status == HTTPStatus.FORBIDDEN:
        kind = Forbidden
    return kind(status, reason, message)
