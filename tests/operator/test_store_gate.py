"""Which stores the operator uses: what it finds out of each, and what its runs show meanwhile."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from milepost.checkpoint.memory import MemoryStore
from milepost.checkpoint.owner import KEY, claim_prefix
from milepost.checkpoint.probe import Effort
from milepost.checkpoint.s3 import open_store
from milepost.checkpoint.sending import Patience
from milepost.checkpoint.store import Read, Store
from milepost.errors import StoreNotIsolated
from milepost.testing.fake_s3 import Fault, Reply
from milepost_operator.core.observation import StoreProblem
from milepost_operator.shell.store_gate import Often, StoreGate
from milepost_operator.shell.stores import NotYet
from milepost_operator.shell.stores_file import StoreEntry, StoresFile, read_stores
from tests.operator.conftest import World
from tests.support.bent_stores import Bent, CarelessS3

QUICK = Effort(writers=4, creations=1, replacements=1, samples=1)
SOON = Often(passed=3600, unsafe=0.05, otherwise=0.05, look=0.05, quiet=3600)
PATIENCE = Patience(os.urandom)


@pytest.fixture
def server() -> Iterator[CarelessS3]:
    with CarelessS3() as s3:
        s3.careful = True
        yield s3


@pytest.fixture
def credentials(server: CarelessS3, tmp_path: Path) -> Path:
    """Lay the operator's credentials out as the chart mounts them."""
    (tmp_path / "default").symlink_to(server.credentials)
    return tmp_path


def file_of(server: CarelessS3, more: str = "") -> StoresFile:
    return read_stores(
        "stores: {default: {bucket: milepost, prefix: p, allowedNamespaces: ['*'], "
        f"endpoint: '{server.endpoint}', credentials: {{secretName: keys}}{more}}}}}"
    )


def from_s3(entry: StoreEntry, folder: Path | None) -> Store:
    return open_store(entry.config(folder))


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110  (what changes is in other threads)
            await asyncio.sleep(0.01)


class Gates:
    """A gate at work, and what it told."""

    def __init__(
        self,
        file: StoresFile,
        credentials: Path,
        opening: Callable[[StoreEntry, Path | None], Store] = from_s3,
        often: Often = SOON,
        deadline: float = 60.0,
    ) -> None:
        self.changes: list[str] = []
        self._told: dict[str, object] = {}
        self.gate = StoreGate(
            file,
            credentials,
            opening,
            opening,
            cluster_id="cluster-1",
            entropy=os.urandom,
            monotonic=time.monotonic,
            on_change=self._tell,
            effort=QUICK,
            often=often,
            deadline=deadline,
        )

    def _tell(self, store: str) -> None:
        self.changes.append(store)
        self._told[store] = self.gate.barred(store)

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[Gates]:
        task = asyncio.create_task(self.gate.watch())
        try:
            yield self
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def reason(self, *wanted: str, store: str = "default") -> str:
        """Wait until the store's verdict is one of those wanted ("" for admitted), and return its message.

        A verdict is there once it was told, which a thread does after it has found it.
        """
        async with asyncio.timeout(60):
            while True:
                barred = self.gate.barred(store)
                reason = barred.reason if isinstance(barred, StoreProblem) else "" if barred is None else None
                # While it is being checked nobody is told anything.
                told = reason == "StoreBeingChecked" or self._told.get(store, self) == barred
                if told and reason in wanted:
                    return barred.message if isinstance(barred, StoreProblem) else ""
                await asyncio.sleep(0.01)


def probes(server: CarelessS3) -> int:
    """Return how many probes have run: each writes this object once."""
    return sum(
        "/once" in seen.line and seen.line.startswith("PUT") and seen.status == 200 for seen in server.journal
    )


@pytest.mark.req("S2")
async def test_a_store_that_passes_is_admitted_once_and_owned_and_left_empty(
    server: CarelessS3, credentials: Path
) -> None:
    gates = Gates(file_of(server), credentials)
    assert isinstance(gates.gate.barred("default"), NotYet)

    async with gates.watching():
        await gates.reason("")

        assert gates.changes == ["default"]
        assert list(server.objects()) == [f"p/{KEY}"]


@pytest.mark.req("S2")
async def test_an_unsafe_store_is_refused_by_its_failed_checks_until_it_passes(
    server: CarelessS3, credentials: Path
) -> None:
    server.careful = False
    gates = Gates(file_of(server), credentials)

    async with gates.watching():
        message = await gates.reason("StoreUnsafe")
        assert "create-race: 4 of 4 writers were told that they alone had written; " in message
        assert "stale-etag: " in message
        server.careful = True
        await gates.reason("")

    assert gates.changes == ["default", "default"]


@pytest.mark.req("S2")
async def test_a_store_that_gives_no_answer_is_unavailable_and_not_unsafe(
    server: CarelessS3, credentials: Path
) -> None:
    server.fail(Fault(Reply(503, "SlowDown"), key="/missing", times=10_000))
    gates = Gates(file_of(server), credentials, deadline=1.0)

    async with gates.watching():
        message = await gates.reason("StoreUnavailable", "StoreUnsafe", "")
        server.heal()
        await gates.reason("")

    assert message == (
        "the store gives no clear answer to the check that comes before its use, and is asked again; "
        "last: 503 SlowDown: as the test asked"
    )


async def test_credentials_that_are_refused_are_named_in_the_same_words_each_time(
    server: CarelessS3, credentials: Path
) -> None:
    server.fail(Fault(Reply(403, "AccessDenied"), method="PUT", key="/_probe/", times=10_000))
    gates = Gates(file_of(server), credentials)

    async with gates.watching():
        message = await gates.reason("StoreForbidden")
        tried = len(server.journal)
        await until(lambda: len(server.journal) >= tried + 10)

    assert "s3://milepost/p/_probe/: the store answered 403 AccessDenied" in message
    assert gates.changes == ["default"]


@pytest.mark.req("S2")
async def test_changed_credentials_are_a_reason_to_probe_again_and_the_daily_round_another(
    server: CarelessS3, credentials: Path
) -> None:
    gates = Gates(file_of(server), credentials)
    async with gates.watching():
        await gates.reason("")
        first = probes(server)
        (server.credentials / "access-key-id").write_text("another")
        await until(lambda: probes(server) > first)
    assert (first, probes(server)) == (1, 2)

    async with Gates(file_of(server), credentials, often=Often(passed=0.05, look=0.05)).watching():
        await until(lambda: probes(server) >= 4)


@pytest.mark.parametrize("reply", [Reply(403, "AccessDenied"), Reply(503, "SlowDown")], ids=["403", "503"])
async def test_an_admitted_store_that_gives_no_answer_stays_admitted(
    server: CarelessS3, credentials: Path, reply: Reply
) -> None:
    often = Often(passed=0.05, otherwise=0.05, look=0.05)
    gates = Gates(file_of(server), credentials, often=often, deadline=1.0)
    async with gates.watching():
        await gates.reason("")
        admitted = list(gates.changes)
        server.fail(Fault(reply, times=10_000))
        silent = len(server.journal)
        await until(lambda: len(server.journal) >= silent + 12)

        assert (gates.gate.barred("default"), gates.changes) == (None, admitted)


@pytest.mark.req("S7")
async def test_the_prefix_of_another_cluster_is_refused_and_nothing_is_written(
    server: CarelessS3, credentials: Path
) -> None:
    file = file_of(server)
    store = from_s3(file.stores["default"], credentials / "default")
    claim_prefix(store, "cluster-0", patience=PATIENCE)
    written = len(server.journal)
    gates = Gates(file, credentials)

    async with gates.watching():
        message = await gates.reason("StoreOwnedElsewhere")

    assert message.startswith(
        "s3://milepost/p belongs to cluster-0, and this is cluster-1; use another prefix"
    )
    assert {seen.request.method for seen in server.journal[written:]} == {"GET"}


@pytest.mark.req("S6", "S7")
async def test_a_prefix_is_taken_over_on_the_administrators_word_and_closed_to_the_owner_before(
    server: CarelessS3, credentials: Path
) -> None:
    file = file_of(server)
    first = Gates(file, credentials)
    async with first.watching():
        await first.reason("")
        store = from_s3(file.stores["default"], credentials / "default")
        claim_prefix(store, "cluster-2", recover_from=("cluster-1",), patience=PATIENCE)
        await first.reason("StoreOwnedElsewhere")

    back = Gates(file_of(server, ", recoverFrom: [cluster-2]"), credentials)
    async with back.watching():
        await back.reason("")


async def test_a_store_is_opened_once_for_all_looks_at_its_owner(
    server: CarelessS3, credentials: Path
) -> None:
    opened: list[str] = []

    def opening(entry: StoreEntry, folder: Path | None) -> Store:
        opened.append(entry.bucket)
        return from_s3(entry, folder)

    def looks() -> int:
        return sum("/_owner" in seen.line and seen.line.startswith("GET") for seen in server.journal)

    gates = Gates(file_of(server), credentials, opening)
    async with gates.watching():
        await gates.reason("")
        await until(lambda: looks() >= 5)

    assert opened == ["milepost"] * 2, "once to look, once to probe"


class Stuck(Bent):
    """Answers nothing until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.released = threading.Event()
        self.asked = 0

    def get(self, key: str, *, unless_etag: str = "") -> Read:  # type: ignore[explicit-override]
        self.asked += 1
        self.released.wait(60)
        return super().get(key, unless_etag=unless_etag)


@pytest.mark.req("S2")
async def test_a_store_whose_probe_takes_long_holds_up_no_other_and_is_probed_once_at_a_time() -> None:
    file = read_stores(
        "stores: {slow: {bucket: slow, allowedNamespaces: ['*']}, "
        "quick: {bucket: quick, allowedNamespaces: ['*']}}"
    )
    slow = Stuck()
    stores: dict[str, Store] = {"slow": slow, "quick": MemoryStore()}
    gates = Gates(file, Path("/nowhere"), lambda entry, _: stores[entry.bucket], Often(look=0.01, quiet=0.2))

    async with gates.watching():
        await gates.reason("", store="quick")
        message = await gates.reason("StoreBeingChecked", store="slow")
        asked = slow.asked
        slow.released.set()
        await gates.reason("", store="slow")

    assert (asked, message.partition(",")[0]) == (1, "store 'slow' is being checked before its first use")


async def test_a_run_waits_for_its_store_and_goes_on_by_itself(world: World) -> None:
    world.barred["default"] = StoreProblem("StoreUnsafe", "create-race: two won")
    world.apply()
    await world.settle()

    shown = (world.status["phase"], world.reason, world.pods)
    del world.barred["default"]
    await world.after(60)

    assert shown == ("Pending", "StoreUnsafe", [])
    assert len(world.pods) == 1
    assert "StoreUnsafe: create-race: two won" in world.events


async def test_while_nothing_is_known_of_its_store_a_run_shows_nothing_new(world: World) -> None:
    world.barred["default"] = NotYet("default")
    world.apply()
    await world.settle()
    shown = (world.status["phase"], world.reason, world.events)
    del world.barred["default"]
    await world.after(5)

    assert shown == ("Pending", "Accepted", [])
    assert len(world.pods) == 1


@pytest.mark.req("S3")
async def test_a_run_whose_keys_open_other_namespaces_says_so_and_is_tried_again(world: World) -> None:
    world.apply()
    await world.settle()
    env = world.env(world.pod(1))
    error = StoreNotIsolated("s3://b", "team", ["list team-sibling/"])
    world.kubelet.run(world.pod(1))
    world.kubelet.exit(
        world.pod(1), 84, message=json.dumps({"reason": error.reason, "message": str(error), "step": ""})
    )
    await world.settle()
    shown = (world.status["phase"], world.reason)
    await world.after(30)

    assert env["MILEPOST_ISOLATION"] == "required"
    assert shown == ("Pending", "StoreNotIsolated")
    assert any(
        event.startswith("StoreNotIsolated: ") and "isolation: none" in event for event in world.events
    )
    assert len(world.pods) == 2
