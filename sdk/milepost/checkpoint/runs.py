"""What is done to a run from outside its executor: begin it, find it by name, adopt it, end it.

The operator and the local runner call these; executors do not. Each starts from what its caller saw, writes
on condition that this still stands, and raises Stale where it does not: the caller looks again. A head is
made before the name that leads to it, so a name whose head is absent is damage, never a reason to create.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, TypeAlias

from pydantic import TypeAdapter, ValidationError

from milepost.api.names import Entropy, StoreKeys, new_run_id
from milepost.api.resource import Phase, RunSpec
from milepost.api.summary import HeadSummary, NameRecord
from milepost.checkpoint import history
from milepost.checkpoint.answers import Lost, Purpose, Write
from milepost.checkpoint.claim import replace_head
from milepost.checkpoint.formats import NEWEST, Kind, read_json, upgrade
from milepost.checkpoint.head import first_head
from milepost.checkpoint.history import HeadAt
from milepost.checkpoint.records import OPERATOR, Claimed, Event, Finished, Started
from milepost.checkpoint.sending import Patience, send
from milepost.checkpoint.store import Found, Store, Unchanged
from milepost.errors import Corrupt, MilepostError, Missing, RunDeleted

__all__ = [
    "HeadSeen",
    "NameSeen",
    "NewRun",
    "Runs",
    "Stale",
    "require_head",
]

Clock: TypeAlias = Callable[[], datetime]

_DEADLINE: Final = 15.0
"""Seconds that an unclear write is followed up before the caller is told. The next pass goes on."""


class Stale(MilepostError):
    """What the caller saw no longer stands, so it has to look again."""


@dataclass(frozen=True)
class NewRun:
    """A run to begin."""

    namespace: str
    name: str
    resource_uid: str
    cluster: str
    spec: RunSpec
    spec_digest: str


@dataclass(frozen=True)
class HeadSeen:
    """A head as it was seen: what it says, and the version that it was."""

    summary: HeadSummary
    at: HeadAt

    @property
    def etag(self) -> str:
        """The version's ETag."""
        return self.at.etag


@dataclass(frozen=True)
class NameSeen:
    """A name's record as it was seen, and its ETag."""

    record: NameRecord
    etag: str


_NAME_RECORD: Final = TypeAdapter(NameRecord)


@dataclass(frozen=True)
class Runs:
    """The runs of one store. Every method blocks.

    All raise StoreUnavailable, StoreRefused, Corrupt, FormatTooNew; what else is said at each.
    """

    store: Store
    clock: Clock
    entropy: Entropy
    deadline: float = _DEADLINE

    def look_up(self, namespace: str, name: str) -> NameSeen | None:
        """Return which run the name stands for, or None if it stands for none."""
        key = StoreKeys(namespace).name(name)
        found = self.store.get(key)
        return _name_seen(found, key) if isinstance(found, Found) else None

    def observe(self, keys: StoreKeys, *, unless_etag: str = "") -> HeadSeen | Unchanged | None:
        """Return what the run's head says; None if there is no head."""
        seen = history.read_head(self.store, keys, unless_etag=unless_etag)
        return self._seen(seen) if isinstance(seen, HeadAt) else seen

    def start(self, new: NewRun) -> str:
        """Begin a run under a name that stands for none yet, and return its run id.

        Begun meanwhile for the same resource: that run's id. Raises Stale where the name was given to
        another resource's run.
        """
        run_id = self._create_head(new)
        record = NameRecord(new.name, run_id, new.resource_uid, new.spec_digest)
        lost = self._write_name(new.namespace, record, etag="")
        if lost is None:
            return run_id
        if lost.record.resource_uid == new.resource_uid:
            return lost.record.run_id
        raise Stale(f"the name {new.name} was given to run {lost.record.run_id}")

    def adopt(self, namespace: str, name: NameSeen, head: HeadSeen, resource_uid: str) -> None:
        """Let a known run belong to another resource of the same name, which goes on with it.

        The name is changed first: a head that still carries the old resource is set right by the next call.
        Raises Stale, and RunDeleted where the head is gone.
        """
        if name.record.resource_uid != resource_uid:
            record = replace(name.record, resource_uid=resource_uid)
            if self._write_name(namespace, record, etag=name.etag) is not None:
                raise Stale(f"the name {record.name} was changed meanwhile")
        if not head.summary.phase.terminal and head.summary.resource_uid != resource_uid:
            self._claim(head, (), resource_uid=resource_uid)

    def end(self, head: HeadSeen, *, phase: Phase, reason: str, message: str) -> HeadSeen:
        """End a run from outside: claim it, keeping the attempt, and record its end.

        A run that was seen to have ended stays as it is. Raises Stale where the head is no longer the one
        seen, RunDeleted where it is gone.
        """
        if head.summary.phase.terminal:
            return head
        return self._claim(head, (Finished(phase=phase, reason=reason, message=message),))

    def supersede(self, name: NameSeen, head: HeadSeen | None, new: NewRun) -> str:
        """Begin a run under a name whose run is another one, which is ended first. Return the new run's id.

        Raises Stale, and RunDeleted where the head of the run that is to end is gone.
        """
        if head is not None and not head.summary.phase.terminal:
            why = f"{new.namespace}/{new.name} was applied anew with another spec"
            self.end(head, phase=Phase.CANCELLED, reason="Superseded", message=why)
        run_id = self._create_head(new)
        record = NameRecord(new.name, run_id, new.resource_uid, new.spec_digest)
        if self._write_name(new.namespace, record, etag=name.etag) is not None:
            raise Stale(f"the name {new.name} was changed meanwhile")
        return run_id

    def note_outcome(self, namespace: str, name: NameSeen, outcome: str) -> None:
        """Let the name say how its run ended. Raises Stale."""
        if name.record.outcome == outcome:
            return
        record = replace(name.record, outcome=outcome)
        if self._write_name(namespace, record, etag=name.etag) is not None:
            raise Stale(f"the name {record.name} was changed meanwhile")

    def _patience(self) -> Patience:
        return Patience(self.entropy, deadline=self.deadline)

    def _seen(self, at: HeadAt) -> HeadSeen:
        return HeadSeen(history.summarize(at.head, self.store.uri), at)

    def _create_head(self, new: NewRun) -> str:
        run_id = new_run_id(self.entropy)
        started = Started(
            namespace=new.namespace,
            name=new.name,
            resource_uid=new.resource_uid,
            cluster=new.cluster,
            key_root=run_id,
            spec_digest=new.spec_digest,
            entrypoint=new.spec.agent.entrypoint,
            agent_version=new.spec.agent.version,
            goal=new.spec.goal,
            inputs=new.spec.inputs,
            step_attempts=new.spec.retry.step_attempts,
            every_steps=new.spec.checkpoint.every_steps,
            configuration=_configuration(new.spec),
        )
        keys = StoreKeys(new.namespace, run_id)
        commit = first_head(
            keys,
            name=new.name,
            resource_uid=new.resource_uid,
            cluster=new.cluster,
            spec_digest=new.spec_digest,
            key_root=run_id,
            events=(started,),
            at=self.clock(),
            entropy=self.entropy,
            goal=new.spec.goal,
            deletion_policy=new.spec.deletion_policy,
            retention_s=new.spec.retention_seconds,
        )
        for key, body in commit.objects:
            send(self.store, Write(Purpose.CREATE, key, body), self._patience())
        head = commit.head
        write = Write(Purpose.CREATE, keys.head, head.body(), head.metadata(), head=head)
        send(self.store, write, self._patience())
        return run_id

    def _claim(self, head: HeadSeen, events: tuple[Event, ...], *, resource_uid: str = "") -> HeadSeen:
        claimed = Claimed(attempt=head.summary.attempt, writer=OPERATOR)
        taken = replace_head(
            self.store,
            head.at,
            (claimed, *events),
            at=self.clock(),
            entropy=self.entropy,
            patience=self._patience(),
            resource_uid=resource_uid,
        )
        if taken is None:
            raise Stale(f"run {head.summary.run_id} has gone on since record {head.summary.seq}")
        return self._seen(taken)

    def _write_name(self, namespace: str, record: NameRecord, *, etag: str) -> NameSeen | None:
        """Return None once the record stands, else what stands in its place."""
        key = StoreKeys(namespace).name(record.name)
        body = json.dumps(
            {"format": NEWEST[Kind.NAME], "nonce": self.entropy(9).hex(), **_NAME_RECORD.dump_python(record)},
            separators=(",", ":"),
        ).encode()
        try:
            outcome = send(self.store, Write(Purpose.NAME, key, body, etag=etag), self._patience())
        except RunDeleted as error:
            raise Stale(f"the name {record.name} was removed meanwhile") from error
        return _name_seen(outcome.found, key) if isinstance(outcome, Lost) else None


def _configuration(spec: RunSpec) -> dict[str, Any]:
    """Return what governs the run, beside what has a place of its own in the same record.

    The pod's part is left out: it may hold values that are nobody's business in a bucket.
    """
    given = spec.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    elsewhere = ("goal", "inputs", "pod", "suspend", "cancel")
    return {name: value for name, value in given.items() if name not in elsewhere}


def require_head(seen: HeadSeen | Unchanged | None, keys: StoreKeys) -> HeadSeen | Unchanged:
    """Return the head of a run that a name leads to. Raises Missing where there is none: that is damage."""
    if seen is None:
        raise Missing(keys.head, "a name leads to it, and it is gone")
    return seen


def _name_seen(found: Found, key: str) -> NameSeen:
    try:
        data = upgrade(Kind.NAME, read_json(found.body), key)
        data.pop("nonce")
        return NameSeen(_NAME_RECORD.validate_python(data), found.etag)
    except (ValueError, TypeError, KeyError, AttributeError, ValidationError) as error:
        raise Corrupt(key, f"it is not a name's record: {error}") from error
