"""The operator's sweep of the stores, against an API server and a store that behave as real ones."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest
import structlog

from milepost.api.names import StoreKeys
from milepost.api.resource import DeletionPolicy, Phase
from milepost.api.summary import NameState
from milepost.checkpoint.memory import MemoryStore
from milepost.errors import RunDeleted, StoreUnavailable
from milepost_operator.core.observation import StoreProblem
from milepost_operator.shell.cluster import Cluster
from milepost_operator.shell.store_sweep import StoreSweep, swept_namespaces
from milepost_operator.shell.stores_file import StoreEntry
from tests.operator.conftest import Executor, World, head_of
from tests.support.fake_kubernetes import Fault
from tests.support.watched_store import WatchedStore

HOUR = 3600.0
NAME_KEY = "team/names/docs"


@pytest.fixture
def swept(world: World) -> World:
    """Return the world with a store that has the clock of the test."""
    world.store = MemoryStore(clock=lambda: 1e9 + world.seconds[0])
    return world


async def sweep(world: World, *namespaces: str) -> None:
    """Sweep once, as an operator that has just begun."""
    sweeper = StoreSweep(world.stores, world.cluster, namespaces, every=600)
    with ThreadPoolExecutor(1) as pool:
        await sweeper(pool)


async def a_started_run(world: World, **spec: object) -> Executor:
    world.apply(spec=dict(spec))
    await world.settle()
    world.kubelet.run(world.pod(1))
    return Executor(world, 1)


async def an_ended_run(world: World, **spec: object) -> None:
    executor = await a_started_run(world, **spec)
    executor.finish()
    world.kubelet.exit(world.pod(1), 0)
    await world.settle()
    assert world.status["phase"] == "Succeeded"


def keys(world: World, prefix: str = "") -> list[str]:
    return sorted(each.key for each in world.store.list(prefix))


def delete(world: World) -> None:
    world.api.remove("agentruns", "team", "docs")


@pytest.mark.req("C5")
async def test_an_ended_run_goes_when_its_retention_has_passed_and_its_name_tells_the_end(
    swept: World,
) -> None:
    await an_ended_run(swept, retentionSeconds=3600)
    swept.seconds[0] += HOUR - 1
    await sweep(swept)
    assert len(keys(swept)) == 2
    swept.seconds[0] += 1

    await sweep(swept)

    seen = swept.runs.look_up("team", "docs")
    assert keys(swept) == [NAME_KEY]
    assert seen is not None
    assert (seen.record.state, seen.record.outcome) == (NameState.EXPIRED, "Succeeded")


@pytest.mark.req("C5", "S6")
async def test_a_manifest_that_is_applied_again_after_that_runs_nothing(swept: World) -> None:
    await an_ended_run(swept, retentionSeconds=3600)
    delete(swept)
    swept.seconds[0] += HOUR
    await sweep(swept)
    await swept.settle()
    before = swept.pods

    swept.apply("uid-2", {"retentionSeconds": 3600})
    await swept.settle()

    assert (swept.status["phase"], swept.reason, swept.pods) == ("Succeeded", "Expired", before)
    assert "Adopted" in {part["type"] for part in swept.status["conditions"]}


@pytest.mark.req("K6")
async def test_the_checkpoints_of_a_deleted_resource_stay_under_retain(swept: World) -> None:
    await a_started_run(swept)
    delete(swept)
    before = keys(swept)

    await sweep(swept)

    assert keys(swept) == before


@pytest.mark.req("K6", "C3")
async def test_the_checkpoints_of_a_deleted_resource_go_under_delete_and_its_executor_is_refused(
    swept: World,
) -> None:
    executor = await a_started_run(swept, deletionPolicy="Delete")
    executor.step("list")
    delete(swept)

    await sweep(swept)

    assert keys(swept) == [NAME_KEY]
    assert swept.runs.look_up("team", "docs") is None
    with pytest.raises(RunDeleted):
        executor.step("extract")


@pytest.mark.req("K6")
async def test_the_name_begins_anew_after_that(swept: World) -> None:
    await a_started_run(swept, deletionPolicy="Delete")
    first = swept.run_id
    delete(swept)
    await sweep(swept)

    swept.apply("uid-2", {"deletionPolicy": "Delete"})
    await swept.settle()

    assert swept.run_id != first
    assert swept.status["runId"] == swept.run_id


@pytest.mark.req("K6")
async def test_a_resource_that_is_applied_before_the_sweep_comes_by_begins_anew_too(swept: World) -> None:
    executor = await a_started_run(swept, deletionPolicy="Delete")
    first = swept.run_id
    delete(swept)
    swept.apply("uid-2", {"deletionPolicy": "Delete"})
    await swept.settle()
    second = swept.run_id

    await sweep(swept)

    assert second != first
    assert keys(swept, "team/runs/") == [StoreKeys("team", second).head]
    assert head_of(swept).summary.phase is Phase.PENDING
    with pytest.raises(RunDeleted):
        executor.step("extract")


@pytest.mark.req("K6")
@pytest.mark.parametrize("ended", [False, True])
async def test_a_policy_that_was_changed_before_the_resource_was_deleted_counts(
    swept: World,
    ended: bool,  # noqa: FBT001  a case
) -> None:
    await (an_ended_run(swept) if ended else a_started_run(swept))
    swept.edit(deletionPolicy="Delete", retentionSeconds=60)
    await swept.settle()
    seen = swept.runs.look_up("team", "docs")
    delete(swept)

    await sweep(swept)

    assert seen is not None
    assert (seen.record.deletion_policy, seen.record.retention_s) == (DeletionPolicy.DELETE, 60)
    assert keys(swept) == [NAME_KEY]


async def test_a_change_after_the_end_is_written_once_the_store_answers(swept: World) -> None:
    await an_ended_run(swept)
    swept.barred["default"] = StoreProblem("StoreUnavailable", "503")
    swept.edit(deletionPolicy="Delete")
    await swept.settle()
    assert swept.status["phase"] == "Succeeded"
    del swept.barred["default"]

    await swept.after(120)

    seen = swept.runs.look_up("team", "docs")
    assert seen is not None
    assert seen.record.deletion_policy is DeletionPolicy.DELETE
    assert swept.status["observedGeneration"] == 2


@pytest.mark.parametrize(
    "fault",
    [
        Fault("GET", "/agentruns", 500),
        Fault("GET", "/agentruns", 410, "Expired"),
        Fault("GET", "/agentruns", 403, "Forbidden"),
        Fault("GET", "/agentruns/docs", 500),
    ],
)
async def test_no_run_goes_where_it_is_not_certain_that_its_resource_is_gone(
    swept: World, fault: Fault
) -> None:
    await a_started_run(swept, deletionPolicy="Delete")
    delete(swept)
    before = keys(swept)
    swept.api.faults.append(fault)

    await sweep(swept)

    assert keys(swept) == before


async def test_a_list_that_breaks_off_is_no_list(swept: World) -> None:
    await a_started_run(swept, deletionPolicy="Delete")
    swept.api.put("agentruns", {"metadata": {"name": "another", "namespace": "team"}, "spec": {}})
    swept.api.page_size = 1
    delete(swept)
    swept.api.put("agentruns", {"metadata": {"name": "more", "namespace": "team"}, "spec": {}})
    before = keys(swept)
    swept.api.faults.append(Fault("GET", "/agentruns", 410, "Expired", query="continue"))

    await sweep(swept)

    assert keys(swept) == before
    assert not swept.api.faults[0].times


async def test_a_question_that_a_stopping_operator_takes_back_is_no_answer_and_no_bug(swept: World) -> None:
    await a_started_run(swept, deletionPolicy="Delete")
    delete(swept)
    before = keys(swept)

    def taken_back() -> dict[str, str]:
        raise asyncio.CancelledError

    swept.cluster = Cluster(swept.session, swept.server, taken_back)
    with structlog.testing.capture_logs() as logs:
        await sweep(swept)

    assert keys(swept) == before
    assert {each["event"] for each in logs} == {"no run goes for want of its resource: the list failed"}


async def test_a_resource_that_came_back_since_the_list_keeps_its_run(swept: World) -> None:
    await a_started_run(swept, deletionPolicy="Delete")
    raw = swept.run
    delete(swept)
    store = swept.store
    run = StoreKeys("team", swept.run_id)

    def come_back(_: int, call: str) -> None:
        if call == f"get {run.head}" and swept.api.get("agentruns", "team", "docs") is None:
            swept.api.objects["agentruns", "team", "docs"] = raw

    swept.store = WatchedStore(store, after=come_back)
    swept.start_operator()

    await sweep(swept)

    assert head_of(swept).summary.phase is Phase.RUNNING


@pytest.mark.req("S7")
async def test_runs_of_another_clusters_resources_stay(swept: World) -> None:
    await a_started_run(swept, deletionPolicy="Delete")
    seen = swept.runs.look_up("team", "docs")
    assert seen is not None
    swept.runs.change_name("team", seen, cluster="lost")
    delete(swept)
    before = keys(swept)

    await sweep(swept)

    assert keys(swept) == before


async def test_a_store_that_must_not_be_used_is_not_swept(swept: World) -> None:
    await an_ended_run(swept, retentionSeconds=0)
    swept.barred["default"] = StoreProblem("StoreUnsafe", "no")
    before = keys(swept)

    await sweep(swept)

    assert keys(swept) == before


async def test_a_store_that_gives_no_answer_is_told_and_left_for_the_next_time(swept: World) -> None:
    await an_ended_run(swept, retentionSeconds=0)

    def silent(_: int, call: str) -> None:
        if call.startswith("list"):
            raise StoreUnavailable("team/", waited=1.0, cause="503")

    swept.store = WatchedStore(swept.store, before=silent)
    swept.start_operator()

    with structlog.testing.capture_logs() as logs:
        await sweep(swept)

    assert [(each["event"], each["store"]) for each in logs] == [
        ("store not swept", "default"),
        ("store not swept", "closed"),
    ]


async def test_each_deletion_is_logged_with_its_reason_and_size(swept: World) -> None:
    await an_ended_run(swept, retentionSeconds=0)
    run = StoreKeys("team", swept.run_id).run
    size = sum(each.size for each in swept.store.list(run))

    with structlog.testing.capture_logs() as logs:
        await sweep(swept)

    assert logs == [
        {
            "event": "run deleted",
            "log_level": "info",
            "store": "default",
            "key": run,
            "name": "docs",
            "cause": "Expired",
            "why": "it ended longer ago than its retention of 0 s",
            "objects": 1,
            "bytes": pytest.approx(size, abs=100),
        }
    ]


async def test_other_namespaces_than_those_watched_are_left_alone(swept: World) -> None:
    await an_ended_run(swept, retentionSeconds=0)
    before = keys(swept)

    await sweep(swept, "other")

    assert keys(swept) == before


def entry(*namespaces: str) -> StoreEntry:
    return StoreEntry(bucket="b", allowed_namespaces=namespaces)


@pytest.mark.parametrize(
    ("allowed", "watched", "swept"),
    [
        (("*",), (), ()),
        (("*",), ("a",), ("a",)),
        (("a", "b"), (), ("a", "b")),
        (("a", "b"), ("b", "c"), ("b",)),
        (("a",), ("c",), None),
    ],
)
def test_a_store_is_swept_where_it_may_be_used_and_its_runs_are_watched(
    allowed: tuple[str, ...], watched: tuple[str, ...], swept: tuple[str, ...] | None
) -> None:
    assert swept_namespaces(entry(*allowed), watched) == swept
