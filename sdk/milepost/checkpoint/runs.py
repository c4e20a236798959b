"""What is done to a run from outside its executor: begin it, find it by name, adopt it, end it.

The operator and the local runner call these; executors do not. Each starts from what its caller saw, writes
on condition that this still stands, and raises Stale where it does not: the caller looks again. A head is
made before the name that leads to it, so a name whose head is absent is damage, never a reason to create.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, TypeAlias

from pydantic import TypeAdapter, ValidationError

from milepost.api.names import Entropy, StoreKeys, new_run_id
from milepost.api.resource import DeletionPolicy, Phase, RunSpec
from milepost.api.summary import HeadSummary, NameRecord, NameState
from milepost.checkpoint import history
from milepost.checkpoint.answers import Done, Lost, Purpose, Write
from milepost.checkpoint.claim import replace_head
from milepost.checkpoint.formats import NEWEST, Kind, read_json, upgrade, write_json
from milepost.checkpoint.head import deleting_head, first_head
from milepost.checkpoint.history import HeadAt
from milepost.checkpoint.records import OPERATOR, Claimed, Event, Finished, Halted, Started
from milepost.checkpoint.sending import Patience, send
from milepost.checkpoint.store import Found, Store, Unchanged
from milepost.errors import Corrupt, MilepostError, Missing, RunDeleted

__all__ = [
    "REPAIRED",
    "SUPERSEDED",
    "HeadSeen",
    "NameSeen",
    "NewRun",
    "Runs",
    "Stale",
    "require_head",
]

Clock: TypeAlias = Callable[[], datetime]

SUPERSEDED: Final = "Superseded"
"""Why a run ended in whose place another one was begun."""

REPAIRED: Final = "Repaired"
"""Why a run ended that goes on as another one."""

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
        """Return which run the name stands for, or None if it stands for none.

        Of a run whose state is Expired the record is all there is, or will be in a moment.
        """
        seen = self.read_name(namespace, name)
        return None if seen is not None and seen.record.state is NameState.FREE else seen

    def read_name(self, namespace: str, name: str) -> NameSeen | None:
        """Return the name's record as it stands, also one that stands for no run any more."""
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
        another resource's run, or was changed since this call began.
        """
        # Looked at before the head is made: whoever takes an unnamed head away changes the name first.
        seen = self.read_name(new.namespace, new.name)
        if seen is not None and seen.record.state is not NameState.FREE:
            return _begun(seen.record, new)
        run_id = self._create_head(new)
        lost = self._write_name(new.namespace, _record(new, run_id), etag=seen.etag if seen else "")
        return run_id if lost is None else _begun(lost.record, new)

    def adopt(
        self, namespace: str, name: NameSeen, head: HeadSeen, resource_uid: str, *, cluster: str = ""
    ) -> None:
        """Let a known run belong to another resource of the same name, which goes on with it.

        `cluster` is the resource's, where it may be another one. The name is changed first: a head that still
        carries the old resource is set right by the next call. Raises Stale, and RunDeleted where the head is
        gone.
        """
        cluster = cluster or name.record.cluster
        if (name.record.resource_uid, name.record.cluster) != (resource_uid, cluster):
            self.change_name(namespace, name, resource_uid=resource_uid, cluster=cluster)
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

    def begin_deletion(self, head: HeadSeen) -> HeadSeen:
        """Take the run from every writer for good, so that its objects can go. It cannot be taken back.

        A run that is being deleted already stays as it is. Raises Stale where the head is no longer the one
        seen, RunDeleted where it is gone.
        """
        if head.at.head.deleting:
            return head
        after = deleting_head(head.at.head, at=self.clock(), entropy=self.entropy)
        write = Write(Purpose.CLAIM, after.keys.head, after.body(), after.metadata(), head.etag, after)
        outcome = send(self.store, write, self._patience())
        if not isinstance(outcome, Done):
            raise Stale(f"run {after.run_id} has gone on since record {after.seq}")
        return self._seen(HeadAt(after, outcome.etag))

    def hold(self, at: HeadAt, *, reason: str, message: str) -> HeadSeen:
        """Halt a run from outside: claim it, keeping the attempt, so that its executor is refused.

        Raises Stale where the head is no longer this one, RunDeleted where it is gone.
        """
        return self._claim(self._seen(at), (Halted(reason=reason, message=message),))

    def supersede(self, name: NameSeen, head: HeadSeen | None, new: NewRun) -> str:
        """Begin a run under a name whose run is another one, which is ended first. Return the new run's id.

        Where the name's policy is Delete, the other run's deletion is begun as well. Raises Stale, and
        RunDeleted where the head of the run that is to end is gone.
        """
        if head is not None and not head.summary.phase.terminal:
            how = "after its checkpoints were to go" if _same_spec(name, new) else "with another spec"
            why = f"{new.namespace}/{new.name} was applied anew {how}"
            head = self.end(head, phase=Phase.CANCELLED, reason=SUPERSEDED, message=why)
        if head is not None and name.record.deletion_policy is DeletionPolicy.DELETE:
            self.begin_deletion(head)
        run_id = self._create_head(new)
        if self._write_name(new.namespace, _record(new, run_id), etag=name.etag) is not None:
            raise Stale(f"the name {new.name} was changed meanwhile")
        return run_id

    def note_outcome(self, namespace: str, name: NameSeen, outcome: str) -> None:
        """Let the name say how its run ended. Raises Stale."""
        if name.record.outcome != outcome:
            self.change_name(namespace, name, outcome=outcome)

    def note_retention(
        self, namespace: str, name: NameSeen, *, deletion_policy: DeletionPolicy, retention_s: int
    ) -> None:
        """Let the name say what becomes of its run, as the resource says now. Raises Stale."""
        if (name.record.deletion_policy, name.record.retention_s) != (deletion_policy, retention_s):
            self.change_name(namespace, name, deletion_policy=deletion_policy, retention_s=retention_s)

    def change_name(self, namespace: str, name: NameSeen, **changes: Any) -> None:
        """Replace fields of the name's record, on condition that it is the one seen. Raises Stale.

        Without any changes it is written anew all the same: whoever is about to write it looks again.
        """
        record = replace(name.record, **changes)
        if self._write_name(namespace, record, etag=name.etag) is not None:
            raise Stale(f"the name {record.name} was changed meanwhile")

    def block_name(self, namespace: str, name: str, run_id: str) -> None:
        """Let a name that has no record stand for no run, least of all for this one. Raises Stale."""
        record = NameRecord(name, run_id, "", "", state=NameState.FREE)
        if self._write_name(namespace, record, etag="") is not None:
            raise Stale(f"the name {name} was given to a run meanwhile")

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
            granularity=new.spec.checkpoint.granularity.in_code,
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
        nonce = self.entropy(9).hex()
        data = {"format": NEWEST[Kind.NAME], "nonce": nonce, **_NAME_RECORD.dump_python(record)}
        write = Write(Purpose.NAME, key, write_json(data), etag=etag)
        try:
            outcome = send(self.store, write, self._patience())
        except RunDeleted as error:
            raise Stale(f"the name {record.name} was removed meanwhile") from error
        return _name_seen(outcome.found, key) if isinstance(outcome, Lost) else None


def _record(new: NewRun, run_id: str) -> NameRecord:
    return NameRecord(
        new.name,
        run_id,
        new.resource_uid,
        new.spec_digest,
        cluster=new.cluster,
        deletion_policy=new.spec.deletion_policy,
        retention_s=new.spec.retention_seconds,
    )


def _same_spec(name: NameSeen, new: NewRun) -> bool:
    return name.record.spec_digest == new.spec_digest


def _begun(record: NameRecord, new: NewRun) -> str:
    """Return the run that was begun for this very resource. Raises Stale where the name says otherwise."""
    if record.resource_uid == new.resource_uid and record.state is not NameState.FREE:
        return record.run_id
    raise Stale(f"the name {new.name} was given to run {record.run_id}, or freed of it, meanwhile")


def _configuration(spec: RunSpec) -> dict[str, Any]:
    """Return what governs the run, beside what has a place of its own in the same record.

    The pod's part is left out: it may hold values that are nobody's business in a bucket.
    """
    given = spec.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    elsewhere = ("goal", "inputs", "pod", "suspend", "cancel", "limits")
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
