"""What Kopf calls: logging in, and events of runs and of their pods. Events only put a key into the queue.

There are no handlers for creation, change or deletion: those would make Kopf keep state in annotations and
finalizers, and a run must neither carry marks nor hang in deletion while the operator is away.
"""

from __future__ import annotations

from typing import Any

import kopf

from milepost.api.names import GROUP, LABEL_MANAGED_BY, MANAGED_BY, PLURAL, VERSION
from milepost_operator.shell.cache import Cache, RunKey, key_of_pod, key_of_run
from milepost_operator.shell.connection import log_in
from milepost_operator.shell.queue import KeyedQueue
from milepost_operator.shell.settings import BadSettings
from milepost_operator.shell.startup import Operator

__all__ = ["pod_event", "register", "run_event"]


def run_event(cache: Cache, queue: KeyedQueue[RunKey], kind: str | None, raw: dict[str, Any]) -> None:
    """Take in one event of a resource. `kind` is None for what the first list holds.

    A change of the status alone asks for no pass: it is our own write coming back, and passing over it again
    at once would undo the growing delay after a failure.
    """
    key = key_of_run(raw)
    before = cache.run(key)
    if kind == "DELETED":
        cache.drop_run(key, raw["metadata"]["uid"])
    elif not cache.put_run(raw, watched=True) or (before is not None and _asks(before) == _asks(raw)):
        return
    queue.put(key)


def _asks(raw: dict[str, Any]) -> tuple[Any, ...]:
    """Return what of a resource its user, not the operator, changes."""
    metadata = raw["metadata"]
    return metadata["uid"], metadata.get("generation"), metadata.get("deletionTimestamp")


def pod_event(cache: Cache, queue: KeyedQueue[RunKey], kind: str | None, raw: dict[str, Any]) -> None:
    """Take in one event of an executor pod."""
    key = key_of_pod(raw)
    if key is None:
        return
    if kind == "DELETED":
        cache.drop_pod(raw)
    elif not cache.put_pod(raw, watched=True):
        return
    queue.put(key)


def register(operator: Operator) -> kopf.OperatorRegistry:
    """Return the handlers of one operator."""
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    def login(settings: kopf.OperatorSettings, **_: Any) -> kopf.ConnectionInfo:
        try:
            return log_in(settings)
        except BadSettings as error:
            raise kopf.LoginError(str(error)) from error

    @kopf.on.startup(registry=registry)
    async def start(**_: Any) -> None:
        try:
            await operator.start()
        except BadSettings as error:
            operator.misconfigured = str(error)
            await operator.stop()
            # Anything else is tried again by Kopf; a setting does not get better by waiting.
            raise kopf.PermanentError(str(error)) from error

    @kopf.on.cleanup(registry=registry)
    async def stop(**_: Any) -> None:
        await operator.stop()

    @kopf.on.event(GROUP, VERSION, PLURAL, registry=registry)
    async def on_run(event: kopf.RawEvent, **_: Any) -> None:
        run_event(operator.cache, operator.queue, event["type"], dict(event["object"]))

    @kopf.on.event("", "v1", "pods", labels={LABEL_MANAGED_BY: MANAGED_BY}, registry=registry)
    async def on_pod(event: kopf.RawEvent, **_: Any) -> None:
        pod_event(operator.cache, operator.queue, event["type"], dict(event["object"]))

    return registry
