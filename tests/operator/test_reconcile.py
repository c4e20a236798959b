"""Whole passes against an API server and a store that behave as real ones."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import pytest

from milepost.api.digest import spec_digest
from milepost.api.names import StoreKeys
from milepost.api.resource import Phase
from milepost.api.summary import NameState
from milepost.checkpoint.records import Halted
from milepost.checkpoint.repair import carry_out, plan_repair
from milepost.checkpoint.runs import NewRun, Runs
from milepost.checkpoint.store import Answer, Found, Listed, Read, Store
from milepost.checkpoint.survey import survey
from milepost_operator.core.reading import read_run
from milepost_operator.shell.stores import Recorded
from tests.operator.conftest import KEY, Executor, World, head_of
from tests.support.fake_kubernetes import Fault
from tests.support.histories import some_patience
from tests.support.store_doubles import Fault as StoreFault
from tests.support.store_doubles import FaultyStore


@dataclass
class Racing:
    """A store in which somebody else is quicker: there are things to do before writes, and before reads."""

    store: Store
    before_writes: list[Callable[[], object]]
    before_names: list[Callable[[], object]] = field(default_factory=list)
    before_heads: list[Callable[[], object]] = field(default_factory=list)

    @property
    def uri(self) -> str:
        return self.store.uri

    def get(self, key: str, *, unless_etag: str = "") -> Read:
        if "/names/" in key and self.before_names:
            self.before_names.pop(0)()
        if key.endswith("/head") and self.before_heads:
            self.before_heads.pop(0)()
        return self.store.get(key, unless_etag=unless_etag)

    def put_new(self, key: str, body: bytes, metadata: Mapping[str, str]) -> Answer:
        return self.store.put_new(key, body, metadata)

    def put_if(self, key: str, body: bytes, metadata: Mapping[str, str], *, etag: str) -> Answer:
        if self.before_writes:
            self.before_writes.pop(0)()
        return self.store.put_if(key, body, metadata, etag=etag)

    def list(self, prefix: str) -> Iterator[Listed]:
        return self.store.list(prefix)

    def delete(self, key: str) -> None:
        self.store.delete(key)


async def started(world: World) -> Executor:
    """Bring the run to where its first pod has claimed it and recorded a step."""
    world.apply()
    await world.settle()
    world.kubelet.run(world.pod(1))
    executor = Executor(world, 1)
    executor.step("list")
    await world.settle()
    return executor


async def test_a_new_run_is_accepted_then_recorded_then_given_a_pod(world: World) -> None:
    world.apply()
    await world.settle()

    writes = [(method, path.rsplit("/", 1)[-1]) for method, path in world.api.requests if method != "GET"]
    assert writes == [("PATCH", "status"), ("POST", "pods"), ("PATCH", "status")]
    assert world.pods == ["docs-jje2z-1"]
    assert (world.status["phase"], world.reason, world.status["attempt"]) == ("Pending", "Starting", 1)
    assert world.status["runId"] == world.run_id
    assert world.env(world.pod(1))["MILEPOST_RUN_ID"] == world.run_id


@pytest.mark.req("K1", "K2")
async def test_an_evicted_pod_is_followed_by_one_that_knows_why(world: World) -> None:
    await started(world)
    world.kubelet.announce_eviction(world.pod(1))
    await world.settle()
    assert (world.reason, len(world.pods)) == ("PodTerminating", 1)

    world.kubelet.exit(world.pod(1), 80)
    await world.settle()

    assert [name[-1] for name in world.pods] == ["2"]
    assert json.loads(world.env(world.pod(2))["MILEPOST_PREVIOUS_END"]) == {
        "attempt": 1,
        "cause": "Evicted",
        "fault": "disruption",
        "exit_code": 80,
        "message": "",
        "proved": True,
    }
    assert (world.status["attempt"], world.status["disruptions"]) == (2, {"Evicted": 1})

    world.kubelet.run(world.pod(2), "node-2")
    Executor(world, 2).step("extract")
    await world.settle()
    assert world.status["pod"] == {"name": world.pod(2), "node": "node-2"}
    assert world.events == [
        "Started: attempt 1 has started on node-1",
        "Disrupted: the pod of attempt 1 on node-1 was evicted; the run goes on in another",
        "Resumed: attempt 2 on node-2 goes on after 1 steps; the previous pod was evicted",
    ]


@pytest.mark.req("K1")
async def test_a_pod_that_was_removed_with_force_is_replaced(world: World) -> None:
    await started(world)
    world.kubelet.lose(world.pod(1))
    await world.settle()

    assert [name[-1] for name in world.pods] == ["2"]
    assert world.status["disruptions"] == {"Deleted": 1}


@pytest.mark.req("K5")
async def test_an_operator_that_died_after_making_a_pod_makes_no_other_and_counts_once(world: World) -> None:
    await started(world)
    world.kubelet.exit(world.pod(1), 3)
    await world.settle()
    world.api.faults.append(Fault("PATCH", "status", 500, times=99))
    await world.after(1)
    assert (world.status["attempt"], world.status["failures"]) == (1, {})
    assert [name[-1] for name in world.pods] == ["1", "2"]

    world.api.faults.clear()
    world.start_operator()
    await world.settle()

    assert [name[-1] for name in world.pods] == ["1", "2"]
    assert (world.status["attempt"], world.status["failures"]) == (2, {"AgentFailed": 1})


@pytest.mark.req("K5")
async def test_a_pod_whose_creation_was_not_acknowledged_is_not_made_again(world: World) -> None:
    world.api.faults.append(Fault("POST", "pods", 500, acts=True))
    world.apply()
    await world.settle()
    await world.after(60)

    assert [name[-1] for name in world.pods] == ["1"]
    assert world.status["attempt"] == 1


@pytest.mark.req("K5")
async def test_an_operator_that_sees_nothing_of_the_watch_makes_no_second_pod(world: World) -> None:
    world.watching = False
    world.apply()
    world.cache.put_run(world.run)
    world.queue.put(KEY)
    await world.settle()
    world.kubelet.run(world.pod(1))
    for _ in range(3):
        world.queue.put(KEY)
        await world.settle()

    assert len(world.pods) == 1


@pytest.mark.req("K5")
async def test_a_pod_that_the_watch_has_not_shown_yet_is_found_before_another_is_made(world: World) -> None:
    await started(world)
    world.watching = False
    world.start_operator()
    world.cache.put_run(world.run)
    world.queue.put(KEY)
    await world.settle()

    assert [name[-1] for name in world.pods] == ["1"]
    assert (world.status["phase"], world.status["attempt"]) == ("Running", 1)


@pytest.mark.req("K5")
async def test_an_operator_that_was_away_finds_the_run_finished(world: World) -> None:
    executor = await started(world)
    world.watching = False
    executor.finish()
    world.kubelet.exit(world.pod(1), 0)
    world.watching = True
    world.start_operator()
    await world.settle()

    assert (world.status["phase"], world.reason) == ("Succeeded", "Succeeded")
    assert len(world.pods) == 1


async def test_a_run_that_recorded_its_end_has_succeeded_although_its_container_was_killed(
    world: World,
) -> None:
    executor = await started(world)
    executor.finish()
    world.kubelet.exit(world.pod(1), 137)
    await world.settle()

    assert (world.status["phase"], world.status["failures"]) == ("Succeeded", {})
    name = world.runs.look_up("team", "docs")
    assert name is not None
    assert name.record.outcome == "Succeeded"


@pytest.mark.req("K1")
async def test_exit_code_0_without_an_outcome_is_no_success(world: World) -> None:
    await started(world)
    world.kubelet.exit(world.pod(1), 0)
    await world.settle()
    await world.after(1)

    assert world.status["phase"] == "Pending"
    assert world.status["failures"] == {"ExitedWithoutOutcome": 1}
    assert [name[-1] for name in world.pods] == ["1", "2"]


@pytest.mark.req("K1")
async def test_pods_that_keep_failing_fail_the_run_with_the_last_reason(world: World) -> None:
    world.apply()
    await world.settle()
    for attempt in (1, 2, 3):
        world.kubelet.run(world.pod(attempt))
        Executor(world, attempt)
        world.kubelet.exit(world.pod(attempt), 3, message='{"reason": "AgentRaised", "message": "no disk"}')
        await world.settle()
        await world.after(10)

    assert (world.status["phase"], world.reason) == ("Failed", "ExecutorFailed")
    assert world.status["failures"] == {"AgentFailed": 3}
    assert head_of(world).summary.phase is Phase.FAILED
    ready = next(part for part in world.status["conditions"] if part["type"] == "Ready")
    assert ready["message"] == (
        "3 pods failed by the agent's own fault; attempt 3 failed with exit code 3: no disk"
    )


async def test_a_cancelled_run_is_closed_to_its_executor_at_once(world: World) -> None:
    executor = await started(world)
    world.edit(cancel=True)
    await world.settle()

    assert world.status["phase"] == "Cancelled"
    assert executor.step("extract") is False
    assert "deletionTimestamp" in world.api.all("pods")[0]["metadata"]

    world.kubelet.exit(world.pod(1), 81)
    await world.settle()
    assert (world.pods, world.status["phase"]) == ([], "Cancelled")


async def test_an_executor_that_records_all_the_time_can_be_cancelled(world: World) -> None:
    executor = await started(world)
    names = iter(range(12))
    race = Racing(world.store, [lambda: executor.step(f"step-{next(names)}")] * 12)
    world.store = race
    world.start_operator()
    world.edit(cancel=True)
    await world.settle(passes=8)

    assert (world.status["phase"], race.before_writes) == ("Cancelled", [])
    assert head_of(world).summary.steps_done == 13


async def test_a_suspended_run_holds_and_goes_on_without_a_loss(world: World) -> None:
    await started(world)
    world.edit(suspend=True)
    await world.settle()
    world.kubelet.exit(world.pod(1), 80)
    await world.settle()
    assert (world.status["phase"], world.reason, world.pods) == ("Suspended", "Suspended", [])

    world.edit(suspend=False)
    await world.settle()
    assert [name[-1] for name in world.pods] == ["2"]
    assert (world.status["attempt"], world.status["disruptions"]) == (2, {})


@pytest.mark.req("K3")
async def test_the_same_manifest_applied_again_goes_on_with_the_run(world: World) -> None:
    await started(world)
    first = world.run_id
    world.kubelet.lose(world.pod(1))
    world.api.remove("agentruns", "team", "docs")
    await world.settle()

    world.apply("uid-2")
    await world.settle()

    assert world.run_id == first
    assert [name[-1] for name in world.pods] == ["2"]
    assert head_of(world).summary.resource_uid == "uid-2"
    assert "Adopted" in {part["type"] for part in world.status["conditions"]}


@pytest.mark.req("K3")
async def test_the_same_manifest_applied_after_the_end_only_reports_it(world: World) -> None:
    executor = await started(world)
    executor.finish()
    world.kubelet.exit(world.pod(1), 0)
    await world.settle()
    world.api.remove("agentruns", "team", "docs")
    world.kubelet.lose(world.pod(1))
    await world.settle()

    world.apply("uid-2")
    await world.settle()

    assert (world.status["phase"], world.pods) == ("Succeeded", [])
    assert "Adopted" in {part["type"] for part in world.status["conditions"]}


@pytest.mark.req("D9")
async def test_another_spec_under_the_name_ends_the_old_run_first(world: World) -> None:
    executor = await started(world)
    first = world.run_id
    world.api.remove("agentruns", "team", "docs")
    world.apply("uid-2", {"inputs": {"folder": "other"}})
    await world.settle()

    assert executor.step("extract") is False
    assert world.run_id != first
    assert world.env(world.pod(1))["MILEPOST_RUN_ID"]


@pytest.mark.req("D9", "F-C3", "F-C5")
async def test_a_slow_operator_does_not_end_the_run_of_a_resource_that_came_while_it_read(
    world: World,
) -> None:
    await started(world)
    begun: list[str] = []

    def others_are_quicker() -> None:
        name, head = world.runs.look_up("team", "docs"), head_of(world)
        assert name is not None
        world.api.remove("agentruns", "team", "docs")
        world.apply("uid-2", {"inputs": {"folder": "other"}})
        run, _ = read_run(world.run)
        new = NewRun("team", "docs", "uid-2", "cluster-1", run.spec, spec_digest(run.spec))
        begun.append(world.runs.supersede(name, head, new))

    world.open_store = lambda _entry, _folder: Racing(
        world.store, [], before_names=[lambda: None, others_are_quicker]
    )
    world.start_operator()
    world.kubelet.lose(world.pod(1))
    await world.settle()

    assert [world.run_id] == begun
    assert head_of(world).summary.phase is Phase.PENDING


async def test_a_pod_of_an_older_attempt_is_removed_when_it_comes_back(world: World) -> None:
    await started(world)
    world.dark.add("node-1")
    world.queue.put(KEY)
    await world.after(40)
    assert [name[-1] for name in world.pods] == ["1", "2"]
    old, new = world.api.all("pods")
    assert "deletionTimestamp" in old["metadata"]
    terms = new["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert terms["nodeSelectorTerms"][0]["matchFields"][0]["values"] == ["node-1"]
    assert (world.status["attempt"], world.status["disruptions"]) == (2, {"NodeSilent": 1})


async def test_a_halted_run_waits_for_another_image(world: World) -> None:
    executor = await started(world)
    executor.record(Halted(reason="EntrypointNotFound", message="no module named docs"))
    world.kubelet.exit(world.pod(1), 83)
    await world.settle()
    await world.after(600)
    assert (world.status["phase"], world.reason, len(world.pods)) == ("Halted", "EntrypointNotFound", 1)

    world.edit(agent={"image": "agent:2", "entrypoint": "documents.agent:index"})
    await world.settle()
    assert [name[-1] for name in world.pods] == ["1", "2"]
    assert world.status["failures"] == {}


async def test_a_store_that_refuses_is_a_condition_and_is_tried_again(world: World) -> None:
    store = FaultyStore()
    world.store = store
    world.start_operator()
    store.next_puts(StoreFault.refused())
    world.apply()
    await world.settle()
    assert (world.status["phase"], world.pods) == ("Pending", [])
    assert world.reason.startswith("Store")

    await world.after(60)
    assert [name[-1] for name in world.pods] == ["1"]
    assert world.reason == "Starting"


async def test_a_store_that_does_not_answer_keeps_the_phase(world: World) -> None:
    store = FaultyStore()
    world.store = store
    world.start_operator()
    await started(world)
    store.next_gets_fail(1)
    world.kubelet.lose(world.pod(1))
    await world.settle()
    assert (world.status["phase"], world.reason, world.pods) == ("Running", "StoreUnavailable", [])

    await world.after(60)
    assert [name[-1] for name in world.pods] == ["2"]


@pytest.mark.parametrize(("store", "reason"), [("nowhere", "StoreUnknown"), ("closed", "StoreNotAllowed")])
async def test_a_store_that_the_run_cannot_have_is_said(world: World, store: str, reason: str) -> None:
    world.apply(spec={"store": {"name": store}})
    await world.settle()

    assert (world.status["phase"], world.reason, world.pods) == ("Pending", reason, [])


async def test_a_record_that_is_gone_halts_the_run(world: World) -> None:
    await started(world)
    world.store.delete(f"team/runs/{world.run_id}/head")
    world.kubelet.lose(world.pod(1))
    await world.settle()

    assert (world.status["phase"], world.reason, world.pods) == ("Halted", "Missing", [])


async def test_a_run_that_is_deleted_between_its_name_and_its_head_is_not_taken_for_damaged(
    world: World,
) -> None:
    await started(world)
    runs = Runs(world.store, world.clock, world.entropy)
    name = runs.read_name("team", "docs")
    assert name is not None

    def sweep() -> None:
        world.store.delete(f"team/runs/{name.record.run_id}/head")
        runs.change_name("team", name, state=NameState.FREE)

    world.store = Racing(world.store, [], before_heads=[sweep])
    world.start_operator()
    run, _ = read_run(world.run)
    recorded = await world.stores.read(run, afresh=True)

    assert recorded == Recorded()


async def test_a_pod_that_the_cluster_refuses_is_said_and_tried_again(world: World) -> None:
    world.api.faults.append(Fault("POST", "pods", 403, "Forbidden", "exceeded quota: pods"))
    world.apply()
    await world.settle()
    assert (world.reason, world.pods) == ("PodRefused", [])

    await world.after(60)
    assert world.reason == "Starting"


async def test_a_name_that_a_strangers_pod_has_taken_is_said(world: World) -> None:
    name = "docs-jje2z-1"
    world.api.put("pods", {"metadata": {"name": name, "namespace": "team"}, "spec": {}, "status": {}})
    world.apply()
    await world.settle()

    assert world.reason == "PodNameTaken"


async def test_an_image_that_does_not_exist_is_said_and_makes_no_more_pods(world: World) -> None:
    world.apply()
    await world.settle()
    world.kubelet.wait(world.pod(1), "ErrImagePull", "agent:1: not found")
    await world.settle()
    await world.after(3600)

    assert (world.status["phase"], world.reason, len(world.pods)) == ("Pending", "ErrImagePull", 1)


async def test_progress_is_written_late_and_everything_else_at_once(world: World) -> None:
    executor = await started(world)
    for index in range(4):
        executor.step(f"step-{index}")
        await world.after(10)
        world.queue.put(KEY)
        await world.settle()
    writes = [path for method, path in world.api.requests if method == "PATCH"]
    before = len(writes)
    executor.finish()
    world.kubelet.exit(world.pod(1), 0)
    await world.settle()

    assert before <= 6
    assert (world.status["phase"], world.status["progress"]) == ("Succeeded", "5")


async def test_a_run_at_rest_costs_nothing(world: World) -> None:
    executor = await started(world)
    executor.finish()
    world.kubelet.exit(world.pod(1), 0)
    await world.settle()
    await world.after(60)
    world.api.requests.clear()
    world.queue.put(KEY)
    await world.settle()

    assert world.api.requests == []


async def test_a_status_that_somebody_else_wrote_meanwhile_is_looked_at_again(world: World) -> None:
    world.api.faults.append(Fault("PATCH", "status", 409, "Conflict", "modified"))
    world.apply()
    await world.settle()

    assert world.reason == "Starting"


async def test_an_older_version_that_arrives_late_changes_nothing(world: World) -> None:
    executor = await started(world)
    stale = dict(world.run)
    executor.finish()
    world.kubelet.exit(world.pod(1), 0)
    await world.settle()
    world._watch("MODIFIED", "agentruns", stale)
    await world.settle()

    assert world.status["phase"] == "Succeeded"
    assert len(world.pods) == 1


async def test_a_run_that_was_deleted_is_forgotten(world: World) -> None:
    await started(world)
    world.api.remove("agentruns", "team", "docs")
    world.kubelet.lose(world.pod(1))
    await world.settle()
    await world.after(600)

    assert (world.pods, world.cache.runs()) == ([], [])


async def test_inputs_that_cannot_be_kept_exactly_are_refused(world: World) -> None:
    world.apply(spec={"inputs": {"number": 2**60}})
    await world.settle()

    assert (world.status["phase"], world.reason, world.pods) == ("Halted", "InvalidSpec", [])
    ready = next(part for part in world.status["conditions"] if part["type"] == "Ready")
    assert ready["message"].startswith("spec.inputs.number: ")


@pytest.mark.req("I4", "I6")
async def test_a_store_that_went_back_halts_the_run_until_it_is_put_right(world: World) -> None:
    executor = await started(world)
    older = found(world)
    executor.step("read")
    await world.after(60)
    newest, known = found(world), world.status["checkpoint"]
    world.store.delete(head_key(world))
    world.store.put_new(head_key(world), older.body, older.metadata)
    world.kubelet.lose(world.pod(1))

    await world.after(60)

    assert (world.status["phase"], world.reason, world.pods) == ("Halted", "RolledBack", [])
    assert world.status["checkpoint"] == known
    world.store.delete(head_key(world))
    world.store.put_new(head_key(world), newest.body, newest.metadata)
    await world.after(120)
    assert world.env(world.pod(2))["MILEPOST_ANCHOR"] == json.dumps(
        {part: known[part] for part in ("seq", "epoch", "digest")}, separators=(",", ":")
    )


async def test_a_head_that_was_read_before_the_status_is_no_store_that_went_back(world: World) -> None:
    executor = await started(world)
    executor.step("read")
    ahead = {**world.status, "checkpoint": {**world.status["checkpoint"], "seq": head_of(world).summary.seq}}
    await world.cluster.write_status(*KEY, world.run["metadata"]["resourceVersion"], ahead)
    world.queue.put(KEY)

    await world.settle()

    assert (world.status["phase"], world.reason) == ("Running", "Running")
    assert "RolledBack" not in " ".join(world.events)


def head_key(world: World) -> str:
    return f"team/runs/{world.run_id}/head"


def found(world: World) -> Found:
    head = world.store.get(head_key(world))
    assert isinstance(head, Found)
    return head


@pytest.mark.req("D3", "I3")
@pytest.mark.parametrize("halted", [True, False])
async def test_a_run_that_was_repaired_goes_on_under_its_new_id(world: World, *, halted: bool) -> None:
    executor = await started(world)
    old = world.run_id
    if halted:
        executor.record(Halted(reason="Corrupt", message="a segment is gone"))
        world.kubelet.exit(world.pod(1), 83, message='{"reason": "Corrupt", "message": "a segment is gone"}')
        await world.settle()
        assert (world.status["phase"], world.reason) == ("Halted", "Corrupt")
    left = survey(world.store, StoreKeys("team", old))
    rescue = plan_repair(left, at=world.clock(), entropy=world.entropy)
    name = world.runs.look_up("team", "docs")

    new = carry_out(world.runs, rescue, name, nobody_writes=False, patience=some_patience())
    await world.after(60)
    if not halted:
        assert not executor.step("too late")
        world.kubelet.exit(world.pod(1), 81)
    world.queue.put(KEY)  # as the sweep does
    await world.after(60)

    assert (world.status["phase"], world.status["runId"]) == ("Pending", new)
    env = world.env(world.pod(2))
    assert env["MILEPOST_RUN_ID"] == new
    assert Executor(world, 2).step("read")
