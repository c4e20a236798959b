"""The calls to the API server, and what keeps the cache true when a watch does not."""

from __future__ import annotations

from typing import Any

import pytest

from milepost_operator.shell.cache import Cache, RunKey
from milepost_operator.shell.cluster import AlreadyExists, Cluster, Conflict, Forbidden, NotFound, Unreachable
from milepost_operator.shell.sweep import Sweep
from tests.operator.conftest import KEY, World
from tests.support.fake_kubernetes import Fault


def a_raw_pod(name: str, run: str = "docs") -> dict[str, Any]:
    labels = {
        "app.kubernetes.io/managed-by": "milepost",
        "milepost.dev/run": run,
        "milepost.dev/attempt": "1",
    }
    return {"metadata": {"name": name, "namespace": "team", "labels": labels}, "spec": {}, "status": {}}


async def test_lists_are_read_page_by_page_and_by_label(world: World) -> None:
    world.api.page_size = 2
    for index in range(5):
        world.api.put("pods", a_raw_pod(f"docs-{index}"))
    world.api.put("pods", a_raw_pod("other", run="other"))
    world.api.put("pods", {"metadata": {"name": "foreign", "namespace": "team"}, "spec": {}, "status": {}})

    names = [raw["metadata"]["name"] for raw in await world.cluster.list_pods("team", "docs")]
    assert names == [f"docs-{index}" for index in range(5)]
    assert len([raw async for raw in world.cluster.list_all_pods("")]) == 6


async def test_a_pod_is_deleted_only_by_its_own_uid(world: World) -> None:
    pod = world.api.put("pods", a_raw_pod("docs-1"))
    await world.cluster.delete_pod("team", "docs-1", "another")
    assert world.api.get("pods", "team", "docs-1") is not None

    await world.cluster.delete_pod("team", "docs-1", pod["metadata"]["uid"])
    await world.cluster.delete_pod("team", "docs-1", pod["metadata"]["uid"])
    assert world.api.get("pods", "team", "docs-1") is None


async def test_a_status_is_written_only_over_the_version_that_it_was_made_from(world: World) -> None:
    world.apply()
    version = world.run["metadata"]["resourceVersion"]
    await world.cluster.write_status("team", "docs", version, {"phase": "Pending"})

    with pytest.raises(Conflict):
        await world.cluster.write_status("team", "docs", version, {"phase": "Running"})
    assert world.status == {"phase": "Pending"}


async def test_refusals_have_names(world: World) -> None:
    world.api.put("pods", a_raw_pod("docs-1"))
    world.api.forbidden.add("leases")

    with pytest.raises(AlreadyExists):
        await world.cluster.create_pod("team", a_raw_pod("docs-1"))
    with pytest.raises(NotFound):
        await world.cluster.write_status("team", "none", "1", {})
    with pytest.raises(Forbidden):
        await world.cluster.list_leases()
    assert await world.cluster.get_run("team", "none") is None


async def test_an_api_server_that_does_not_answer_is_unreachable(world: World) -> None:
    gone = Cluster(world.session, "http://127.0.0.1:1", dict)

    with pytest.raises(Unreachable, match="GET /api/v1/namespaces/kube-system"):
        await gone.namespace_uid("kube-system")


def test_an_older_version_never_takes_the_place_of_a_newer_one() -> None:
    cache = Cache()
    run = {"metadata": {"name": "docs", "namespace": "team", "uid": "u", "resourceVersion": "10"}}
    older = {"metadata": {**run["metadata"], "resourceVersion": "9"}}
    another = {"metadata": {**older["metadata"], "uid": "v"}}

    assert (cache.put_run(run), cache.put_run(older), cache.put_run(run)) == (True, False, False)
    assert cache.put_run(another)


def test_a_pod_that_is_gone_does_not_come_back_with_a_late_event() -> None:
    cache = Cache()
    cache.put_run({"metadata": {"name": "docs", "namespace": "team", "uid": "u"}})
    pod = a_raw_pod("docs-1")
    pod["metadata"] |= {"uid": "p", "resourceVersion": "10"}
    cache.put_pod(pod)
    cache.drop_pod(pod)

    assert cache.put_pod({**pod, "metadata": {**pod["metadata"], "resourceVersion": "11"}}) is False
    assert [gone for _, gone in cache.pods(KEY)] == [True]


async def test_a_sweep_finds_what_a_watch_has_missed(world: World) -> None:
    sweep = Sweep(world.cluster, world.cache, world.queue, (), world.monotonic)
    world.apply()
    await world.settle()
    world.kubelet.run(world.pod(1))
    await world.settle()
    world.watching = False
    world.kubelet.lose(world.pod(1))
    await sweep()
    await world.settle()

    assert [name[-1] for name in world.pods] == ["2"]


async def test_a_sweep_forgets_a_run_whose_deletion_was_missed(world: World) -> None:
    sweep = Sweep(world.cluster, world.cache, world.queue, (), world.monotonic)
    world.apply()
    await world.settle()
    world.watching = False
    world.api.remove("agentruns", "team", "docs")
    await sweep()
    await world.settle()

    assert world.cache.runs() == []


async def test_a_watch_lags_only_if_it_still_lacks_what_the_sweep_before_has_seen(world: World) -> None:
    sweep = Sweep(world.cluster, world.cache, world.queue, (), world.monotonic)
    world.apply()
    await sweep()
    await sweep()
    assert not sweep.lagging

    world.watching = False
    world.edit(suspend=True)
    await sweep()
    assert not sweep.lagging
    await sweep()
    assert sweep.lagging


async def test_the_api_server_being_away_loses_nothing(world: World) -> None:
    for method in ("GET", "POST", "PATCH"):
        world.api.faults.append(Fault(method, "", 503, "ServiceUnavailable", times=2))
    world.apply()
    for _ in range(8):
        await world.settle()
        world.pass_time(60)
    await world.settle()

    assert [name[-1] for name in world.pods] == ["1"]
    assert world.cache.run(RunKey("team", "docs")) is not None
    assert KEY in world.cache.runs()
