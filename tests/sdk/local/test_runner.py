"""The rules of names, limits and ends, with real executors on a store in a folder."""

import os
from pathlib import Path
from typing import Any

import pytest

from milepost.api.resource import DeletionPolicy, Phase
from milepost.checkpoint.deletion import Sweeper
from milepost.checkpoint.owner import claim_prefix
from milepost.checkpoint.sending import Patience
from milepost.errors import StoreOwnedElsewhere
from milepost.local.owner import Busy, only_one
from milepost.local.runner import Outcome
from tests.support.local_runs import Desk, a_manifest


def counting(desk: Desk, **spec: Any) -> dict[str, Any]:
    return {"inputs": {"world": str(desk.world), "until": 2}, **spec}


def write_agent(file: Path, returns: str) -> None:
    """Write a module with an agent `made` that returns this expression."""
    file.write_text(
        "import os\nfrom milepost import Run, agent\n\n\n"
        f"@agent(version='1')\nasync def made(run: Run) -> object:\n    return {returns}\n"
    )


def test_a_run_that_has_ended_is_reported_and_nothing_runs(desk: Desk) -> None:
    first = desk.run(a_manifest(**counting(desk)))
    again = desk.run(a_manifest(**counting(desk)))

    assert again == first
    assert len(desk.calls()) == 2
    assert desk.attempts() == 1
    assert desk.said[-1] == f"run {first.run_id} has ended already; nothing is run"


@pytest.mark.req("D9")
def test_other_inputs_supersede_a_run(desk: Desk) -> None:
    first = desk.run(a_manifest(**counting(desk)))
    second = desk.run(a_manifest(inputs={"world": str(desk.world), "until": 3}))

    assert second.run_id != first.run_id
    assert second.result == {"step-1": 2, "step-2": 4, "step-3": 6}
    assert (
        f"the manifest asks for something else than run {first.run_id}, which stays as it ended, Succeeded; "
        f"run {second.run_id} begins in its place"
    ) in desk.said


def test_a_run_in_progress_that_is_superseded_is_ended_first(desk: Desk) -> None:
    first = desk.run(a_manifest(**counting(desk, suspend=True)))
    desk.run(a_manifest(inputs={"world": str(desk.world), "until": 3}))

    ended = desk.state(first)
    assert (ended.phase, ended.outcome and ended.outcome.reason) == (Phase.CANCELLED, "Superseded")


@pytest.mark.req("C5")
def test_a_run_whose_checkpoints_have_expired_is_reported_and_nothing_runs(desk: Desk) -> None:
    first = desk.run(a_manifest(**counting(desk, retentionSeconds=0)))
    expire(desk)

    again = desk.run(a_manifest(**counting(desk, retentionSeconds=0)))

    assert again == Outcome(
        first.run_id,
        Phase.SUCCEEDED,
        "Expired",
        "it ended as Succeeded; its checkpoints were kept for as long as spec.retentionSeconds said, and its "
        "result is gone with them. To run it again, give it another spec.rerun",
    )
    assert len(desk.calls()) == 2


def test_a_run_whose_checkpoints_have_expired_is_followed_by_another_rerun(desk: Desk) -> None:
    first = desk.run(a_manifest(**counting(desk, retentionSeconds=0)))
    expire(desk)

    again = desk.run(a_manifest(**counting(desk, rerun="2")))

    assert again.phase is Phase.SUCCEEDED
    assert again.run_id != first.run_id
    assert len(desk.calls()) == 4


def expire(desk: Desk) -> None:
    sweeper = Sweeper(desk.runs())
    for finding in list(sweeper.look()):
        sweeper.carry_out(finding)
    assert [each.key for each in desk.store.list("default/runs/")] == []


def test_a_changed_retention_is_noted_at_the_name(desk: Desk) -> None:
    desk.run(a_manifest(**counting(desk)))

    desk.run(a_manifest(**counting(desk, retentionSeconds=60, deletionPolicy="Delete")))

    name = desk.runs().look_up("default", "counting")
    assert name is not None
    assert (name.record.retention_s, name.record.deletion_policy) == (60, DeletionPolicy.DELETE)


@pytest.mark.req("S7")
def test_a_store_of_somebody_else_is_left_alone(desk: Desk) -> None:
    desk.run(a_manifest(**counting(desk, suspend=True)), data="theirs")
    before = sorted((each.key, each.modified) for each in desk.store.list(""))

    with pytest.raises(StoreOwnedElsewhere) as refused:
        desk.run(a_manifest(**counting(desk)), data="mine")

    assert (refused.value.found, refused.value.ours) == (desk.owner("theirs"), desk.owner("mine"))
    assert sorted((each.key, each.modified) for each in desk.store.list("")) == before


@pytest.mark.req("S6", "S7")
def test_another_users_run_is_adopted_and_goes_on_once_the_store_is_taken_over(desk: Desk) -> None:
    first = desk.run(a_manifest(**counting(desk, suspend=True)), data="theirs")
    second = desk.run(a_manifest(**counting(desk)), data="mine", recover_from=(desk.owner("theirs"),))

    assert second == Outcome(
        first.run_id, Phase.SUCCEEDED, "Completed", "", {"step-1": 2, "step-2": 4}, steps=2
    )
    assert f"run {first.run_id} was begun by somebody else; it is adopted" in desk.said
    with pytest.raises(StoreOwnedElsewhere):
        desk.run(a_manifest(**counting(desk)), data="theirs")


@pytest.mark.req("S7")
def test_the_store_of_a_cluster_is_left_alone_too(desk: Desk) -> None:
    claim_prefix(desk.store, "uid-of-kube-system", patience=Patience(os.urandom))

    with pytest.raises(StoreOwnedElsewhere, match="belongs to uid-of-kube-system"):
        desk.run(a_manifest(**counting(desk)))
    assert desk.attempts() == 0


def test_a_name_knows_how_its_run_ended(desk: Desk) -> None:
    outcome = desk.run(a_manifest(**counting(desk)))

    known = desk.runs().look_up("default", "counting")
    assert known is not None
    assert (known.record.run_id, known.record.outcome) == (outcome.run_id, "Succeeded")


def test_failures_of_the_agents_own_end_the_run_at_their_limit(desk: Desk) -> None:
    outcome = desk.run(
        a_manifest(
            inputs={"world": str(desk.world), "end": "crash-always", "until": 3},
            retry={"executorFailures": 2},
        )
    )

    assert outcome == Outcome(
        outcome.run_id,
        Phase.FAILED,
        "ExecutorFailed",
        "2 attempts failed by the agent's own fault, which spec.retry.executorFailures allows no more; "
        "attempt 2 failed with exit code 7",
        steps=2,
    )
    assert desk.pauses == [1.0]
    assert len(desk.calls()) == 2


def test_exit_code_0_without_an_outcome_is_a_failure_and_no_success(desk: Desk) -> None:
    outcome = desk.run(
        a_manifest(inputs={"world": str(desk.world), "end": "exit-0-after-record-2", "until": 3})
    )

    assert (outcome.phase, outcome.steps) == (Phase.SUCCEEDED, 3)
    assert desk.state(outcome).totals.ends == {"ExitedWithoutOutcome": 1}
    assert "attempt 1 exited with code 0 and recorded no outcome; the next one starts in 1 s" in desk.said


def test_a_halted_run_is_reported_and_goes_on_once_the_cause_is_gone(desk: Desk, tmp_path: Path) -> None:
    desk.folder = tmp_path
    manifest = a_manifest("later:made")
    halted = desk.run(manifest)

    assert (halted.phase, halted.reason) == (Phase.HALTED, "EntrypointNotFound")
    assert "later" in halted.message

    write_agent(tmp_path / "later.py", "1")
    assert desk.run(manifest) == Outcome(halted.run_id, Phase.SUCCEEDED, "Completed", "", 1)
    assert (
        "attempt 2 goes on after 0 recorded steps; before, the run halted as EntrypointNotFound" in desk.said
    )


def test_inputs_that_do_not_fit_halt_the_run(desk: Desk) -> None:
    outcome = desk.run(a_manifest(inputs={"wurld": "x"}))

    assert (outcome.phase, outcome.reason) == (Phase.HALTED, "InputsInvalid")
    assert "wurld" in outcome.message


def test_a_suspended_run_starts_nothing(desk: Desk) -> None:
    outcome = desk.run(a_manifest(**counting(desk, suspend=True)))

    assert (outcome.phase, outcome.reason) == (Phase.PENDING, "Suspended")
    assert desk.attempts() == 0


def test_a_cancelled_run_is_ended_and_stays_so(desk: Desk) -> None:
    outcome = desk.run(a_manifest(**counting(desk, suspend=True, cancel=True)))
    after = desk.run(a_manifest(**counting(desk)))

    assert outcome == Outcome(outcome.run_id, Phase.CANCELLED, "Cancelled", "spec.cancel is true")
    assert after == outcome
    assert desk.attempts() == 0


def test_a_result_too_large_for_the_log_is_read_from_its_blob(desk: Desk, tmp_path: Path) -> None:
    desk.folder = tmp_path
    write_agent(tmp_path / "large.py", "'x' * 100_000")

    assert desk.run(a_manifest("large:made")).result == "x" * 100_000


def test_the_manifests_variables_and_the_users_own_reach_the_agent(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.folder = tmp_path
    monkeypatch.setenv("THEIRS", "kept")
    write_agent(tmp_path / "reads.py", "[os.environ['OURS'], os.environ['THEIRS']]")
    env = [
        {"name": "OURS", "value": "set"},
        {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
    ]

    sources = [{"secretRef": {"name": "mail"}}, {"configMapRef": {"name": "flags"}}]

    assert desk.run(a_manifest("reads:made", pod={"env": env, "envFrom": sources})).result == ["set", "kept"]
    assert (
        "a cluster would set TOKEN, the keys of Secret mail, the keys of ConfigMap flags; "
        "export what the agent needs of it" in desk.said
    )


def test_two_runners_of_one_run_are_refused(desk: Desk) -> None:
    what = f"default/counting in {desk.store.uri}"

    with only_one(desk.root / "data", what), pytest.raises(Busy, match="default/counting"):
        desk.run(a_manifest(**counting(desk)))

    assert desk.run(a_manifest(**counting(desk))).phase is Phase.SUCCEEDED
