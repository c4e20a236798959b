"""A small API server in this process, over real HTTP, with the semantics that the operator leans on.

Versions grow with every write, names are taken once, a status is patched only over the version that it was
made from, a pod is deleted only by its uid and only in the end of its grace period, lists filter by label.
`on_change` is told of every change, as a watch would be. Tests play the kubelet through `Kubelet`.
"""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from aiohttp import web

Raw = dict[str, Any]
Watcher = Callable[[str, str, Raw], None]

GROUP = "/apis/milepost.dev/v1alpha1"


@dataclass
class Fault:
    """The next requests of this method to paths with this part are answered so, before or after they act."""

    method: str
    part: str
    status: int
    reason: str = "InternalError"
    message: str = "programmed"
    acts: bool = False
    times: int = 1
    query: str = ""


def _refusal(status: int, reason: str, message: str) -> web.Response:
    body = {"kind": "Status", "status": "Failure", "reason": reason, "message": message, "code": status}
    return web.json_response(body, status=status)


def _nobody(_kind: str, _plural: str, _raw: Raw) -> None:
    pass


@dataclass
class FakeKubernetes:
    """The objects, by plural, namespace and name."""

    now: Callable[[], datetime]
    objects: dict[tuple[str, str, str], Raw] = field(default_factory=dict)
    requests: list[tuple[str, str]] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    on_change: Watcher = _nobody
    forbidden: set[str] = field(default_factory=set)
    page_size: int = 500
    _versions: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    _uids: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def __post_init__(self) -> None:
        self.put("namespaces", {"metadata": {"name": "kube-system", "namespace": ""}})

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._serve)
        return app

    def put(self, plural: str, raw: Raw) -> Raw:
        """Create or replace an object as somebody else would, and tell the watch."""
        metadata = raw["metadata"]
        key = (plural, metadata.get("namespace", ""), metadata["name"])
        kind = "MODIFIED" if key in self.objects else "ADDED"
        metadata.setdefault("uid", f"uid-{plural}-{next(self._uids)}")
        metadata.setdefault("creationTimestamp", self._stamp())
        metadata["resourceVersion"] = str(next(self._versions))
        self.objects[key] = raw
        self.on_change(kind, plural, copy.deepcopy(raw))
        return raw

    def get(self, plural: str, namespace: str, name: str) -> Raw | None:
        return self.objects.get((plural, namespace, name))

    def all(self, plural: str, namespace: str = "") -> list[Raw]:
        return [
            raw
            for (kind, place, _), raw in sorted(self.objects.items())
            if kind == plural and namespace in ("", place)
        ]

    def remove(self, plural: str, namespace: str, name: str) -> None:
        raw = self.objects.pop((plural, namespace, name))
        raw["metadata"]["resourceVersion"] = str(next(self._versions))
        self.on_change("DELETED", plural, copy.deepcopy(raw))

    def _stamp(self, after: float = 0) -> str:
        return (self.now() + timedelta(seconds=after)).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    async def _serve(self, request: web.Request) -> web.Response:
        self.requests.append((request.method, request.path))
        fault = next(
            (
                f
                for f in self.faults
                if f.times
                and f.method == request.method
                and f.part in request.path
                and f.query in request.query_string
            ),
            None,
        )
        if fault is not None:
            fault.times -= 1
            if fault.acts:
                await self._answer(request)
            return _refusal(fault.status, fault.reason, fault.message)
        return await self._answer(request)

    async def _answer(self, request: web.Request) -> web.Response:
        path = request.path
        if path == GROUP:
            return web.json_response({"resources": [{"name": "agentruns"}, {"name": "agentruns/status"}]})
        plural, namespace, name, sub = _parse(path)
        if plural in self.forbidden:
            return _refusal(403, "Forbidden", f"{plural} is forbidden")
        if request.method == "GET" and not name:
            return self._list(plural, namespace, request.query)
        if request.method == "POST":
            return self._create(plural, namespace, await request.json())
        found = self.get(plural, namespace, name)
        if found is None:
            return _refusal(404, "NotFound", f'{plural} "{name}" not found')
        if request.method == "GET":
            return web.json_response(found)
        if request.method == "PATCH" and sub == "status":
            return self._patch_status(plural, found, json.loads(await request.text()))
        if request.method == "DELETE":
            return self._delete(plural, found, await request.json())
        return _refusal(405, "MethodNotAllowed", f"{request.method} {path}")

    def _list(self, plural: str, namespace: str, query: Any) -> web.Response:
        wanted = dict(part.split("=", 1) for part in query.get("labelSelector", "").split(",") if part)
        items = [
            raw
            for raw in self.all(plural, namespace)
            if wanted.items() <= (raw["metadata"].get("labels") or {}).items()
        ]
        start, size = int(query.get("continue", 0)), min(int(query.get("limit", 500)), self.page_size)
        after = start + size
        metadata = {"continue": str(after)} if after < len(items) else {}
        return web.json_response({"items": items[start:after], "metadata": metadata})

    def _create(self, plural: str, namespace: str, raw: Raw) -> web.Response:
        raw["metadata"]["namespace"] = namespace
        if self.get(plural, namespace, raw["metadata"]["name"]) is not None:
            name = raw["metadata"]["name"]
            return _refusal(409, "AlreadyExists", f'{plural} "{name}" already exists')
        if plural == "pods":
            raw["status"] = {"phase": "Pending"}
        return web.json_response(self.put(plural, raw), status=201)

    def _patch_status(self, plural: str, found: Raw, patch: list[Raw]) -> web.Response:
        changed = copy.deepcopy(found)
        for part in patch:
            if part["path"] == "/metadata/resourceVersion":
                if part["value"] != found["metadata"]["resourceVersion"]:
                    return _refusal(409, "Conflict", "the object has been modified")
            elif part["path"] == "/status" and part["op"] == "add":
                changed["status"] = part["value"]
            else:
                return _refusal(422, "Invalid", f"unexpected {part}")
        if changed.get("status") == found.get("status"):
            return web.json_response(found)
        return web.json_response(self.put(plural, changed))

    def _delete(self, plural: str, found: Raw, options: Raw) -> web.Response:
        metadata = found["metadata"]
        wanted = (options.get("preconditions") or {}).get("uid")
        if wanted and wanted != metadata["uid"]:
            return _refusal(409, "Conflict", "the UID in the precondition does not match")
        if plural == "pods" and (found["spec"].get("nodeName")) and _alive(found):
            if "deletionTimestamp" not in metadata:
                metadata["deletionTimestamp"] = self._stamp(
                    found["spec"].get("terminationGracePeriodSeconds", 30)
                )
                self.put(plural, found)
        else:
            self.remove(plural, metadata["namespace"], metadata["name"])
        return web.json_response(found)


def _alive(pod: Raw) -> bool:
    return pod["status"].get("phase") not in ("Succeeded", "Failed")


def _parse(path: str) -> tuple[str, str, str, str]:
    """Return plural, namespace, name and subresource of a path."""
    parts = path.strip("/").split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    namespace = ""
    if parts[0] == "namespaces" and len(parts) > 2:
        namespace, parts = parts[1], parts[2:]
    return parts[0], namespace, *[*parts, "", ""][1:3]  # type: ignore[return-value]  # two strings


@dataclass
class Kubelet:
    """What happens to pods, as it shows in the API."""

    api: FakeKubernetes

    @contextmanager
    def _pod(self, name: str, namespace: str = "team") -> Iterator[Raw]:
        raw = self.api.get("pods", namespace, name)
        assert raw is not None
        raw = copy.deepcopy(raw)
        yield raw
        self.api.put("pods", raw)

    def run(self, name: str, node: str = "node-1") -> None:
        """Schedule the pod and start its container."""
        with self._pod(name) as pod:
            pod["spec"]["nodeName"] = node
            pod["status"] = {"phase": "Running", "containerStatuses": [_state({"running": {}})]}

    def wait(self, name: str, reason: str, message: str) -> None:
        """Schedule the pod, whose container cannot start."""
        with self._pod(name) as pod:
            pod["spec"]["nodeName"] = "node-1"
            waiting = {"waiting": {"reason": reason, "message": message}}
            pod["status"] = {"phase": "Pending", "containerStatuses": [_state(waiting)]}

    def announce_eviction(self, name: str) -> None:
        """Accept an eviction: condition, then deletion with the grace period."""
        with self._pod(name) as pod:
            condition = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
            pod["status"]["conditions"] = [condition]
            pod["metadata"]["deletionTimestamp"] = self.api._stamp(60)

    def exit(self, name: str, code: int, *, reason: str = "", message: str = "") -> None:
        """End the container. A pod that is being deleted is then removed."""
        with self._pod(name) as pod:
            pod["status"]["phase"] = "Failed" if code else "Succeeded"
            ended = {
                "exitCode": code,
                "reason": reason or ("Error" if code else "Completed"),
                "message": message,
                "finishedAt": self.api._stamp(),
            }
            pod["status"]["containerStatuses"] = [_state({"terminated": ended})]
            deleted = "deletionTimestamp" in pod["metadata"]
        if deleted:
            self.api.remove("pods", "team", name)

    def lose(self, name: str) -> None:
        """Remove the pod with force, its container's end unknown."""
        self.api.remove("pods", "team", name)


def _state(state: Raw) -> Raw:
    return {"name": "executor", "state": state}
