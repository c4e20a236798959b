"""Every fault of a store against every kind of write: what is recorded in the end, and how often it was sent.

A real server stands behind a faulty way. What a fault is answered with is the same for all kinds of writes,
so this is a table: a write stands once, after the same bytes were sent again where that was needed; or it is
refused with a reason, and nothing is recorded.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar, Final, NoReturn

import pytest
from typing_extensions import override

from milepost.api.names import StoreKeys
from milepost.api.resource import Phase, RunSpec
from milepost.checkpoint import values
from milepost.checkpoint.claim import claim
from milepost.checkpoint.committer import Committer
from milepost.checkpoint.history import HeadAt, load, read_head
from milepost.checkpoint.records import Event
from milepost.checkpoint.runs import NewRun, Runs
from milepost.checkpoint.s3 import S3Store, open_store
from milepost.checkpoint.sending import Patience
from milepost.checkpoint.store import Found
from milepost.errors import StoreRefused
from milepost.testing.faults import Action, Delay, Drop, Fault, Flip, Reply, Truncate
from tests.support.fault_proxy import FaultProxy
from tests.support.histories import a_claim, a_step, an_outcome
from tests.support.real_s3 import config_on
from tools.cluster.interface import S3Server

pytestmark = pytest.mark.s3

PATIENCE: Final = Patience(os.urandom, deadline=20.0)
LARGE: Final = "x" * 15_000
_namespaces = (f"team-{number}" for number in itertools.count())


def now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True)
class Ways:
    """Two ways to one store: through the proxy, and past it."""

    proxy: FaultProxy
    through: S3Store
    direct: S3Store


@pytest.fixture(scope="module")
def opened(seaweedfs_server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ways]:
    config = config_on(seaweedfs_server, Path(tmp_path_factory.mktemp("keys")) / "credentials")
    with FaultProxy(seaweedfs_server.endpoint) as proxy:
        yield Ways(proxy, open_store(config(proxy.endpoint)), open_store(config("")))


@pytest.fixture
def ways(opened: Ways) -> Iterator[Ways]:
    yield opened
    opened.proxy.heal()


class Writing(ABC):
    """One kind of write: what is there before it, how it is done, and what there is afterwards."""

    part: ClassVar[str]
    """The part of its key by which its request is known."""

    def __init__(self, ways: Ways) -> None:
        self.ways = ways
        self.namespace = next(_namespaces)

    @abstractmethod
    def write(self) -> None:
        """Do it through the proxy."""

    @abstractmethod
    def recorded(self) -> object:
        """Return what the store says of it, past the proxy."""

    def begin(self, runs: Runs) -> StoreKeys:
        spec = RunSpec.model_validate({"agent": {"image": "agent:1", "entrypoint": "a:b"}, "inputs": {}})
        run_id = runs.start(NewRun(self.namespace, "triage", "uid-1", "cluster-1", spec, "spec-1"))
        return StoreKeys(self.namespace, run_id)

    def runs(self, store: S3Store) -> Runs:
        return Runs(store, now, os.urandom, deadline=PATIENCE.deadline)

    def head(self, keys: StoreKeys) -> HeadAt:
        found = read_head(self.ways.direct, keys)
        assert isinstance(found, HeadAt)
        return found


class CreatesHead(Writing):
    part = "/head"

    @override
    def write(self) -> None:
        self.begin(self.runs(self.ways.through))

    @override
    def recorded(self) -> object:
        """Return the run that the name leads to, and how many runs there are."""
        name = self.runs(self.ways.direct).look_up(self.namespace, "triage")
        heads = [each.key for each in self.ways.direct.list(f"{self.namespace}/runs/")]
        return (name and self.head(StoreKeys(self.namespace, name.record.run_id)).head.phase, len(heads))


class Names(CreatesHead):
    part = "/names/"


class Claims(Writing):
    part = "/head"

    @override
    def __init__(self, ways: Ways) -> None:
        super().__init__(ways)
        self.keys = self.begin(self.runs(ways.direct))

    @override
    def write(self) -> None:
        claim(self.ways.through, self.keys, a_claim(1), at=now(), entropy=os.urandom, patience=PATIENCE)

    @override
    def recorded(self) -> object:
        head = self.head(self.keys).head
        return (head.epoch, head.seq, head.writer)


class Commits(Claims):
    before: ClassVar[tuple[Event, ...]] = (a_step("one"),)
    event: ClassVar[Event] = a_step("two")

    @override
    def __init__(self, ways: Ways) -> None:
        super().__init__(ways)
        claim(ways.direct, self.keys, a_claim(1), at=now(), entropy=os.urandom, patience=PATIENCE)
        for event in self.before:
            asyncio.run(self._commit(ways.direct, event))

    @override
    def write(self) -> None:
        asyncio.run(self._commit(self.ways.through, self.event))

    @override
    def recorded(self) -> object:
        head = self.head(self.keys).head
        state = load(self.ways.direct, head)
        return (list(state.completed), head.seq, len(head.segments), len(head.bases), head.phase)

    async def _commit(self, store: S3Store, event: Event) -> None:
        def lost(error: Exception) -> NoReturn:
            raise error

        at = self.head(self.keys)
        committer = Committer(
            store,
            at,
            load(self.ways.direct, at.head),
            clock=now,
            entropy=os.urandom,
            patience=PATIENCE,
            on_lost=lost,
        )
        try:
            await committer.commit(event)
        finally:
            committer.close()


class Seals(Commits):
    part = "/segments/"
    before = (a_step("one", LARGE), a_step("two", LARGE))
    event = a_step("three", LARGE)


class WritesBase(Commits):
    part = "/bases/"
    before = (a_step("one", LARGE), a_step("two", LARGE), a_step("three", LARGE))
    event = an_outcome()


class KeepsBlob(Claims):
    part = "/blobs/"

    @override
    def write(self) -> None:
        values.Values(self.ways.through, self.keys, PATIENCE).keep(LARGE * 2)

    @override
    def recorded(self) -> object:
        blobs = list(self.ways.direct.list(f"{self.namespace}/runs/{self.keys.run_id}/blobs/"))
        return [isinstance(self.ways.direct.get(each.key), Found) for each in blobs]


KINDS: Final[dict[str, tuple[type[Writing], object, object]]] = {
    "create head": (CreatesHead, (None, 0), (Phase.PENDING, 1)),
    "name": (Names, (None, 1), (Phase.PENDING, 1)),
    "claim": (Claims, (0, 1, ""), (1, 2, "pod-1")),
    "commit": (
        Commits,
        (["one"], 3, 0, 0, Phase.RUNNING),
        (["one", "two"], 4, 0, 0, Phase.RUNNING),
    ),
    "segment": (
        Seals,
        (["one", "two"], 4, 0, 0, Phase.RUNNING),
        (["one", "two", "three"], 5, 1, 0, Phase.RUNNING),
    ),
    "base": (
        WritesBase,
        (["one", "two", "three"], 5, 1, 0, Phase.RUNNING),
        (["one", "two", "three"], 6, 1, 1, Phase.SUCCEEDED),
    ),
    "blob": (KeepsBlob, [], [True]),
}

ONCE, AGAIN = 1, 2
"""How often the write is sent."""

FAULTS: Final[dict[str, tuple[Action, int]]] = {
    "delay before": (Delay(0.05), ONCE),
    "delay after": (Delay(0.05, after=True), ONCE),
    "409": (Reply(409, "ConditionalRequestConflict"), AGAIN),
    "412 that is not true": (Reply(412, "PreconditionFailed"), AGAIN),
    "412 to our own write": (Reply(412, "PreconditionFailed", after=True), ONCE),
    "429": (Reply(429, "TooManyRequests"), AGAIN),
    "400 RequestTimeout": (Reply(400, "RequestTimeout"), AGAIN),
    "400 RequestTimeout after it was applied": (Reply(400, "RequestTimeout", after=True), AGAIN),
    "ExpiredToken": (Reply(400, "ExpiredToken"), AGAIN),
    "500": (Reply(500, "InternalError"), AGAIN),
    "500 after it was applied": (Reply(500, "InternalError", after=True), AGAIN),
    "503": (Reply(503, "SlowDown"), AGAIN),
    "503 after it was applied": (Reply(503, "SlowDown", after=True), AGAIN),
    "reset before": (Drop(reset=True), AGAIN),
    "reset after": (Drop(after=True, reset=True), AGAIN),
    "dropped": (Drop(), AGAIN),
    "applied and dropped": (Drop(after=True), AGAIN),
    "body truncated": (Truncate(at=20, upload=True), AGAIN),
    "bit flipped": (Flip(at=20, upload=True), AGAIN),
    "clock skew": (Reply(403, "RequestTimeTooSkewed"), AGAIN),
}

REFUSALS: Final[dict[str, tuple[Action, str]]] = {
    "bucket missing": (Reply(404, "NoSuchBucket"), "BucketMissing"),
    "forbidden": (Reply(403, "AccessDenied"), "StoreForbidden"),
    "unknown key": (Reply(403, "InvalidAccessKeyId"), "CredentialsInvalid"),
    # The checksum is signed, so whoever mends it breaks the signature.
    "bit flipped and its checksum mended": (Flip(at=20, upload=True, mended=True), "CredentialsInvalid"),
}


def sent(ways: Ways, writing: Writing) -> list[tuple[str, bytes]]:
    """Return the writes of this kind that the proxy saw: each key and body."""
    mine = (passed for passed in ways.proxy.journal if f"/{writing.namespace}/" in passed.path)
    return [(each.key, each.body) for each in mine if each.method == "PUT" and writing.part in each.key]


@pytest.mark.req("C1", "C2", "C4", "F-D1", "F-D3", "F-D4", "F-D6", "F-D9")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_write_that_meets_a_fault_stands_once(ways: Ways, fault: str, kind: str) -> None:
    make, before, done = KINDS[kind]
    action, times = FAULTS[fault]
    writing = make(ways)
    ways.proxy.fail(Fault(action, method="PUT", key=writing.part))

    writing.write()

    assert writing.recorded() == done
    writes = sent(ways, writing)
    assert len(writes) == times
    assert len(set(writes)) == 1, "the same bytes under the same key"
    assert before != done


@pytest.mark.req("C2", "F-D9")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_write_that_is_refused_records_nothing_and_goes_on_once_it_is_mended(
    ways: Ways, refusal: str, kind: str
) -> None:
    make, before, done = KINDS[kind]
    action, reason = REFUSALS[refusal]
    writing = make(ways)
    ways.proxy.fail(Fault(action, method="PUT", key=writing.part, times=99))

    with pytest.raises(StoreRefused) as refused:
        writing.write()
    assert refused.value.reason == reason
    assert len(sent(ways, writing)) == ONCE
    assert writing.recorded() == before

    ways.proxy.heal()
    writing.write()
    assert writing.recorded() == done if kind != "name" else (Phase.PENDING, 2)
