"""Breaks that are seeded on purpose: each takes one guard away, and the model has to find what follows.

A break stands in the place of one of the functions of `Code`. The product itself stays as it is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from typing_extensions import override

from milepost.api.names import Entropy, StoreKeys, new_run_id
from milepost.api.resource import Phase
from milepost.api.summary import NameRecord
from milepost.checkpoint import history
from milepost.checkpoint.answers import Done, Purpose, Write
from milepost.checkpoint.archive import Archive
from milepost.checkpoint.base import base_key, parse_base
from milepost.checkpoint.claim import Claim, Ended, replace_head
from milepost.checkpoint.fold import State
from milepost.checkpoint.head import Commit, draft
from milepost.checkpoint.history import HeadAt, read_head
from milepost.checkpoint.records import Claimed, Event, Value
from milepost.checkpoint.runs import HeadSeen, NameSeen, NewRun, Runs, Stale
from milepost.checkpoint.sealed import segment_key
from milepost.checkpoint.sending import send
from milepost.checkpoint.store import Answer, Clash, Found, Gone, Listed, Read, Store, Stored, Unknown
from milepost.errors import Fenced, StoreUnavailable
from tests.model import code
from tests.model.code import Code, Written
from tests.model.life_breaks import LIFE_BREAKS, ignores_if_none_match
from tests.model.passes import one_pass
from tests.model.replay import PATIENT, Draws, Put, Reply, Scripted, etag_of, honest
from tests.model.scenario import Break
from tests.support.histories import NOON

__all__ = ["BREAKS", "Break"]


@dataclass(frozen=True)
class _Between:
    """A store that hands on what it is asked, for breaks to change one answer of."""

    inner: Scripted

    @property
    def uri(self) -> str:
        return self.inner.uri

    def get(self, key: str, *, unless_etag: str = "") -> Read:
        return self.inner.get(key, unless_etag=unless_etag)

    def put_new(self, key: str, body: bytes, metadata: Mapping[str, str]) -> Answer:
        return self.inner.put_new(key, body, metadata)

    def put_if(self, key: str, body: bytes, metadata: Mapping[str, str], *, etag: str) -> Answer:
        return self.inner.put_if(key, body, metadata, etag=etag)

    def list(self, prefix: str) -> Iterator[Listed]:
        return self.inner.list(prefix)

    def delete(self, key: str) -> None:
        self.inner.delete(key)


class _ClashIsSuccess(_Between):
    @override
    def put_if(self, key: str, body: bytes, metadata: Mapping[str, str], *, etag: str) -> Answer:
        answer = super().put_if(key, body, metadata, etag=etag)
        return Stored(etag_of(self.inner.bodies.number(body))) if isinstance(answer, Clash) else answer


class _UnknownIsFailure(_Between):
    """An adapter to which no answer means that nothing was written."""

    @override
    def put_if(self, key: str, body: bytes, metadata: Mapping[str, str], *, etag: str) -> Answer:
        answer = super().put_if(key, body, metadata, etag=etag)
        if isinstance(answer, Unknown):
            raise StoreUnavailable(key, waited=0.0, cause=answer.cause)
        return answer


class _CreatesWhatIsGone(_Between):
    @override
    def put_if(self, key: str, body: bytes, metadata: Mapping[str, str], *, etag: str) -> Answer:
        answer = super().put_if(key, body, metadata, etag=etag)
        return self.put_new(key, body, metadata) if isinstance(answer, Gone) else answer


def _ignores_if_match(bucket: dict[str, int], put: Put) -> Reply:
    if put.etag and put.key in bucket:
        bucket[put.key] = put.body
        return Reply("stored", put.body)
    return honest(bucket, put)


def _any_attempt_claims(store: Store, keys: StoreKeys, claimed: Claimed, entropy: Entropy) -> Claim:
    while True:
        seen = read_head(store, keys)
        assert isinstance(seen, HeadAt)
        if seen.head.phase.terminal:
            return Ended(seen.head)
        taken = replace_head(store, seen, (claimed,), at=NOON, entropy=entropy, patience=PATIENT)
        if taken is not None:
            return taken


def _only_nobodys_run(store: Store, keys: StoreKeys, claimed: Claimed, entropy: Entropy) -> Claim:
    """Claim a run only where nobody seems to be at work on it."""
    seen = read_head(store, keys)
    assert isinstance(seen, HeadAt)
    if seen.head.phase is Phase.RUNNING:
        raise Fenced(keys.run_id, held_epoch=0, seen_epoch=seen.head.epoch)
    return code.claim(store, keys, claimed, entropy)


def _no_new_epoch(store: Store, keys: StoreKeys, claimed: Claimed, entropy: Entropy) -> Claim:
    """Take the run over without a claim: whoever reads the head may write the next."""
    del claimed, entropy
    seen = read_head(store, keys)
    assert isinstance(seen, HeadAt)
    return Ended(seen.head) if seen.head.phase.terminal else seen


Order = Callable[[Store, HeadAt, Commit], HeadAt]


def _write(store: Store, at: HeadAt, commit: Commit) -> HeadAt:
    head = commit.head
    write = Write(Purpose.COMMIT, head.keys.head, head.body(), head.metadata(), at.etag, head)
    outcome = send(store, write, PATIENT)
    assert isinstance(outcome, Done)
    return HeadAt(head, outcome.etag)


def _create(store: Store, commit: Commit) -> None:
    for key, body in commit.objects:
        send(store, Write(Purpose.CREATE, key, body), PATIENT)


def _committing(
    order: Order, store: Store, at: HeadAt, state: State, events: tuple[Event, ...], entropy: Entropy
) -> Written:
    """Commit as the committer does but for the order of what is written."""
    planned = draft(at.head, events, at=NOON, entropy=entropy)
    merged = []
    for named in planned.merging:
        found = store.get(segment_key(at.head.keys, named))
        assert isinstance(found, Found)
        merged.append((named, tuple(found.body.splitlines(keepends=True)[1:])))
    after = order(store, at, planned.commit(merged))
    state.apply(planned.record, after.head.chain, after.head.keys.head)
    return Written(after, state, "")


def _head_first(store: Store, at: HeadAt, commit: Commit) -> HeadAt:
    after = _write(store, at, commit)
    _create(store, commit)
    return after


def _old_segments_go_first(store: Store, at: HeadAt, commit: Commit) -> HeadAt:
    _create(store, commit)
    for named in set(at.head.segments) - set(commit.head.segments):
        store.delete(segment_key(at.head.keys, named))
    return _write(store, at, commit)


def _on_whatever_stands(store: Store, at: HeadAt, commit: Commit) -> HeadAt:
    """Take the ETag of whatever head there is, and write over it."""
    seen = read_head(store, at.head.keys)
    assert isinstance(seen, HeadAt)
    return _write(store, HeadAt(at.head, seen.etag), commit)


def _new_body_after_silence(
    store: Store, at: HeadAt, state: State, events: tuple[Event, ...], entropy: Entropy
) -> Written:
    """Make another record, with another nonce, where the outcome of the first is not known."""
    while True:
        try:
            return _committing(_write_once, store, at, state, events, entropy)
        except StoreUnavailable:
            continue


def _write_once(store: Store, at: HeadAt, commit: Commit) -> HeadAt:
    _create(store, commit)
    assert isinstance(store, Scripted)
    return _write(_UnknownIsFailure(store), at, commit)


def _believes_bases(store: Store, at: HeadAt) -> State:
    """Load without holding a base against its digest."""
    for named in reversed(at.head.bases):
        found = store.get(base_key(at.head.keys, named))
        if isinstance(found, Found):
            state = parse_base(
                found.body, replace(named, digest=hashlib.sha256(found.body).hexdigest()), at.head.keys
            )
            archive = Archive(store, at.head.keys)
            for seq in range(state.seq + 1, at.head.seq + 1):
                state.apply(archive.record(at.head, seq), archive.digest(at.head, seq), at.head.keys.head)
            return state
    return history.load(store, at.head)


def _key_of_the_epoch(root: str, step: str, epoch: int) -> str:
    return f"{root}/{epoch}/{step}"


def _nothing_is_recorded(state: State, step: str) -> bool:
    return step in state.completed and len(state.completed) > 1


def _record_before_blob(store: Store, keys: StoreKeys, result: str) -> Value:
    del store, keys
    return Value(blob=hashlib.sha256(result.encode()).hexdigest(), size=len(result))


def _sweeps(folder: str, store: Store, now: float, entropy: Entropy) -> None:
    """Delete everything in a folder that the head does not name, whatever it holds."""
    del now, entropy
    listed = [each.key for each in store.list("") if f"/{folder}/" in each.key]
    heads = [each.key for each in store.list("") if each.key.endswith("/head")]
    for key in heads:
        seen = read_head(store, StoreKeys(key.split("/")[0], key.split("/")[2]))
        assert isinstance(seen, HeadAt)
        named = {segment_key(seen.head.keys, each) for each in seen.head.segments}
        for each in listed:
            if each not in named:
                store.delete(each)


def _deletes(store: Store, now: float, entropy: Entropy, *, mark: bool) -> None:
    """Delete a run: with a head that keeps its epoch, or with none that says so."""
    del now
    for key in [each.key for each in store.list("") if each.key.endswith("/head")]:
        seen = read_head(store, StoreKeys(key.split("/")[0], key.split("/")[2]))
        if not isinstance(seen, HeadAt):
            continue
        if mark:
            head = replace(seen.head, phase=Phase.DELETING, nonce=entropy(9).hex())
            write = Write(Purpose.CLAIM, key, head.body(), head.metadata(), seen.etag, head)
            if not isinstance(send(store, write, PATIENT), Done):
                continue
        store.delete(key)


@dataclass(frozen=True)
class _NameFirst(Runs):
    """Gives the name to a run before there is one."""

    @override
    def start(self, new: NewRun) -> str:
        if self.read_name(new.namespace, new.name) is not None:
            raise Stale("it has a name")
        run_id = new_run_id(Draws("ahead"))
        record = NameRecord(new.name, run_id, new.resource_uid, new.spec_digest, cluster=new.cluster)
        if self._write_name(new.namespace, record, etag="") is not None:
            raise Stale("it has a name by now")
        return replace(self, entropy=Draws("ahead"))._create_head(new)


@dataclass(frozen=True)
class _NeverAdopts(Runs):
    """Finds what it saw changed, each time that it is to adopt a run."""

    @override
    def adopt(
        self, namespace: str, name: NameSeen, head: HeadSeen, resource_uid: str, *, cluster: str = ""
    ) -> None:
        raise Stale(f"{namespace}/{name.record.name} is not for {resource_uid}")


def _commit(order: Order) -> Code:
    return Code(commit=partial(_committing, order))


def _through(kind: type[_Between]) -> Callable[[Store], Store]:
    def store(inner: Store) -> Store:
        assert isinstance(inner, Scripted)
        return kind(inner)

    return store


BREAKS = (
    Break("412 taken for success", "two executors", Code(store=_through(_ClashIsSuccess))),
    Break("a new body after silence", "two executors", Code(commit=_new_body_after_silence)),
    Break("a store that ignores If-Match", "two executors", Code(bucket=_ignores_if_match)),
    Break("a store that ignores If-None-Match", "another spec", Code(bucket=ignores_if_none_match)),
    Break("any attempt may claim", "two executors", Code(claim=_any_attempt_claims)),
    Break("no claim while somebody holds the run", "a crash", Code(claim=_only_nobodys_run), finish=True),
    Break("no new epoch at a claim", "two executors", Code(claim=_no_new_epoch)),
    Break("a commit on whatever stands", "two executors", _commit(_on_whatever_stands)),
    Break("a step that is recorded is started", "two executors", Code(recorded=_nothing_is_recorded)),
    Break("the epoch in the idempotency key", "calls in flight", Code(key=_key_of_the_epoch)),
    Break(
        "an effect before what it follows from is recorded", "every so many steps", Code(), {"settles": False}
    ),
    Break("the head before its segment", "sealing", _commit(_head_first)),
    Break("merged segments deleted before the head", "merging", _commit(_old_segments_go_first)),
    Break("bases believed without their digest", "bases", Code(load=_believes_bases)),
    Break("the record before its blob", "blobs", Code(keep=_record_before_blob)),
    Break("a sweep of segments that no head names yet", "merging", Code(sweep=partial(_sweeps, "segments"))),
    Break("a sweep of a live run's blobs", "blobs", Code(sweep=partial(_sweeps, "blobs"))),
    Break("create where the head is gone", "deletion", Code(store=_through(_CreatesWhatIsGone))),
    Break("deleting without a new epoch", "deletion", Code(sweep=partial(_deletes, mark=True))),
    Break("a head deleted without saying so first", "deletion", Code(sweep=partial(_deletes, mark=False))),
    Break(
        "an adoption that never succeeds",
        "adoption",
        Code(one_pass=partial(one_pass, again=True, kind=_NeverAdopts)),
        finish=True,
    ),
    Break(
        "the name before its head", "adoption", Code(one_pass=partial(one_pass, again=True, kind=_NameFirst))
    ),
    Break(
        "a record changed for a resource that is gone",
        "another spec",
        Code(one_pass=partial(one_pass, again=False)),
    ),
    *LIFE_BREAKS,
)
