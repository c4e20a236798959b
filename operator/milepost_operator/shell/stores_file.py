"""The administrator's stores file, read and checked: which buckets there are, and who may use them.

A mistake stops the operator at its start with a message that names the entry, because a store that is only
found wrong when a run needs it is found too late.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Final

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from milepost.checkpoint.isolation import Isolation
from milepost.checkpoint.s3 import S3Config
from milepost_operator.core.executor_pod import StoreAccess
from milepost_operator.core.observation import StoreProblem
from milepost_operator.shell.settings import BadSettings

__all__ = ["StoreEntry", "StoresFile", "read_stores"]

# What the operator reads is small. A read is tried four times, and until the last one a pass says nothing.
_ANSWER_WITHIN_S: Final = 5.0
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


class _Model(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)


class Credentials(_Model):
    """The Secret with the keys, in the release's namespace and in each allowed one."""

    secret_name: Annotated[str, Field(min_length=1)]


class StoreEntry(_Model):
    """One store. Without credentials, pods are expected to have a workload identity.

    `recover_from` are the clusters whose prefix this may be taken over as. `isolation` is whether the keys of
    a namespace's pods must open nothing of another's.
    """

    bucket: Annotated[str, Field(min_length=1)]
    endpoint: str = ""
    prefix: str = ""
    region: str = "us-east-1"
    allowed_namespaces: Annotated[tuple[str, ...], Field(min_length=1)]
    credentials: Credentials | None = None
    recover_from: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    isolation: Isolation = Isolation.REQUIRED

    def allows(self, namespace: str) -> bool:
        """Whether runs of the namespace may keep their checkpoints here."""
        return "*" in self.allowed_namespaces or namespace in self.allowed_namespaces

    def config(self, credentials: Path | None = None, *, answer_within: float = _ANSWER_WITHIN_S) -> S3Config:
        """Return how to open it, with the operator's own credentials or none; the time is in seconds."""
        return S3Config(
            self.endpoint,
            self.bucket,
            self.prefix.strip("/"),
            self.region,
            credentials,
            read_timeout=answer_within,
        )

    @property
    def access(self) -> StoreAccess:
        """How an executor reaches it."""
        secret = self.credentials.secret_name if self.credentials else ""
        return StoreAccess(self.config().url, secret, self.isolation.value)


@dataclass(frozen=True)
class StoresFile:
    """All stores by name."""

    stores: Mapping[str, StoreEntry]

    def entry(self, name: str, namespace: str) -> StoreEntry | StoreProblem:
        """Return the store, or why the namespace cannot have it."""
        entry = self.stores.get(name)
        if entry is None:
            known = ", ".join(sorted(self.stores)) or "none"
            return StoreProblem(
                "StoreUnknown",
                f"spec.store.name: there is no store {name!r}; the administrator's stores file has: {known}",
            )
        if not entry.allows(namespace):
            return StoreProblem(
                "StoreNotAllowed",
                f"store {name!r} is not open to namespace {namespace!r}; "
                "the administrator can add it to allowedNamespaces in the stores file",
            )
        return entry


def read_stores(text: str) -> StoresFile:
    """Return what the stores file says. Raises BadSettings, naming the entry and field."""
    try:
        data: Any = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        raise BadSettings(f"the stores file is not YAML: {error}") from error
    if not isinstance(data, dict) or set(data) - {"stores"} or not isinstance(data.get("stores", {}), dict):
        raise BadSettings("the stores file must hold one key, `stores`: a mapping of name to store")
    entries: dict[str, StoreEntry] = {}
    for name, entry in (data.get("stores") or {}).items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise BadSettings(f"stores: {name!r} must be a DNS label, since a run's spec.store.name is one")
        try:
            entries[name] = StoreEntry.model_validate(entry)
        except ValidationError as error:
            fault = error.errors(include_url=False, include_input=False)[0]
            field = ".".join(("stores", name, *map(str, fault["loc"])))
            raise BadSettings(f"{field}: {fault['msg']}") from error
    return StoresFile(MappingProxyType(entries))
