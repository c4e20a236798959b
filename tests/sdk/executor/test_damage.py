"""An executor that meets damage says what is left, and goes on after a repair: real processes on a folder."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from milepost.api.names import StoreKeys
from milepost.api.resource import Phase
from milepost.checkpoint.sealed import segment_key
from milepost.checkpoint.store import Found
from milepost.cli.app import app
from milepost.executor.anchor import Anchor, parse_anchor
from tests.support.sessions import Ended, RunOnDisk

STEPS = 60


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> RunOnDisk:
    """A run whose pod was killed after step 50 of 60."""
    run = RunOnDisk(tmp_path_factory.mktemp("killed")).begin("long_lived:long_lived", steps=STEPS)
    assert run.go_on(WORLD=str(run.world), DIE_AFTER="50").code == -9
    return run


@pytest.fixture
def run(killed: RunOnDisk, tmp_path: Path) -> RunOnDisk:
    """The killed run, in a folder of the test's own."""
    run = RunOnDisk(tmp_path)
    for folder in ("store", "world"):
        shutil.copytree(killed.root / folder, tmp_path / folder, dirs_exist_ok=True)
    run.keys, run.attempt = killed.keys, killed.attempt
    return run


def go_on(run: RunOnDisk, **changes: str) -> Ended:
    return run.go_on(WORLD=str(run.world), **changes)


def store_command(command: str, run: RunOnDisk, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["store", command, run.store.uri, *arguments])


def lose_a_segment(run: RunOnDisk) -> tuple[str, tuple[int, int]]:
    """Remove the newest segment; return its key and its span."""
    head = run.head.head
    lost = head.segments[-1]
    key = segment_key(run.keys, lost)
    run.store.delete(key)
    return key, (lost.first, lost.last)


@pytest.mark.req("D3", "I3", "I4")
def test_damage_halts_and_after_a_repair_only_what_was_lost_runs_again(run: RunOnDisk) -> None:
    key, (first, last) = lose_a_segment(run)

    halted = go_on(run)

    assert (halted.code, halted.said["reason"]) == (83, "Missing")
    message = halted.said["message"]
    assert message == run.head.head.message
    assert message.startswith(f"{key}: the head names it for records {first} to {last}, and it is gone.")
    assert f"milepost store repair '{run.store.uri}' team/triage --dry-run" in message

    verified = store_command("verify", run, "team/triage", "--json")
    (told,) = json.loads(verified.stdout)
    assert (verified.exit_code, told["sound"]) == (1, False)
    ((first_lost, last_lost),) = told["lost"]
    assert (first_lost, last_lost) == (told["trusted_to"] + 1, last)
    assert first_lost > first, "what it was merged from is still there"

    before = (run.lines("ran"), run.head)
    dry = store_command("repair", run, "team/triage")
    assert (dry.exit_code, run.head) == (0, before[1])
    assert "nothing was written" in dry.stdout

    done = store_command("repair", run, "team/triage", "--apply", "--json")
    assert done.exit_code == 0, done.output
    old, run.keys = run.keys, StoreKeys("team", json.loads(done.stdout)["new_run_id"])
    ended = go_on(run)

    assert (ended.code, run.head.head.phase) == (0, Phase.SUCCEEDED)
    ran, again = before[0], run.lines("ran")[len(before[0]) :]
    repeated = [line for line in again if line in ran]
    assert len(repeated) == told["may_repeat_unnamed"] + len(told["may_repeat"])
    assert f"send {old.run_id}/send-last" in again, "the keys are those of the run that was damaged"
    assert store_command("verify", run, "team/triage").exit_code == 0
    assert len(run.state.completed) == STEPS + 2


@pytest.mark.req("D3")
def test_a_damaged_head_ends_the_executor_with_what_is_left(run: RunOnDisk) -> None:
    found = run.store.get(run.keys.head)
    assert isinstance(found, Found)
    sealed = run.head.head.segments[-1].last
    run.store.delete(run.keys.head)
    run.store.put_new(run.keys.head, found.body.replace(b'"attempt":1', b'"attempt":7'), {})

    halted = go_on(run)

    assert (halted.code, halted.said["reason"]) == (83, "Corrupt")
    assert f"Records 1 to {sealed} can be trusted" in halted.said["message"]
    command = f"milepost store repair '{run.store.uri}' --run team/{run.keys.run_id}"
    assert command in halted.said["message"]

    refused = store_command("repair", run, "--run", f"team/{run.keys.run_id}", "--apply")
    assert (refused.exit_code, "--nobody-writes" in refused.output) == (1, True)
    arguments = ("--run", f"team/{run.keys.run_id}", "--apply", "--nobody-writes", "--json")
    done = store_command("repair", run, *arguments)
    run.keys = StoreKeys("team", json.loads(done.stdout)["new_run_id"])
    assert go_on(run).code == 0


@pytest.mark.req("D3")
def test_a_blob_that_is_gone_halts_when_it_is_needed_and_its_step_runs_again(run: RunOnDisk) -> None:
    (blob,) = [listed.key for listed in run.store.list(run.keys.run) if "/blobs/" in listed.key]
    run.store.delete(blob)

    halted = go_on(run)

    assert (halted.code, halted.said["reason"]) == (83, "Missing")
    assert halted.said["message"].startswith(f"{blob}: ")
    assert "These steps are lost and run again: work-7" in halted.said["message"]
    done = store_command("repair", run, "team/triage", "--apply", "--json")
    run.keys = StoreKeys("team", json.loads(done.stdout)["new_run_id"])
    before = run.lines("ran")
    assert go_on(run).code == 0
    assert [line for line in run.lines("ran")[len(before) :] if line in before] == ["work 7"]


def anchor_of(run: RunOnDisk, **changes: object) -> str:
    head = run.head.head
    return json.dumps({"seq": head.seq, "epoch": head.epoch, "digest": head.chain, **changes})


@pytest.mark.req("I4", "D2")
def test_an_anchor_that_the_history_holds_lets_the_run_go_on(run: RunOnDisk) -> None:
    assert go_on(run, MILEPOST_ANCHOR=anchor_of(run)).code == 0


@pytest.mark.req("I4", "D2", "F-D8")
def test_a_store_that_went_back_halts_the_run_and_names_both_positions(run: RunOnDisk) -> None:
    head = run.head.head
    older = contents_of(run)
    assert go_on(run, DIE_AFTER="55").code == -9
    anchor = anchor_of(run)
    newest = run.head.head
    put_back(run, older)

    halted = go_on(run, MILEPOST_ANCHOR=anchor)

    assert (halted.code, halted.said["reason"]) == (83, "RolledBack")
    message = halted.said["message"]
    assert f"it ends with record {head.seq + 1} of epoch {head.epoch + 1}" in message
    assert f"the cluster has seen record {newest.seq} of epoch {newest.epoch}" in message
    assert "--as-it-is" in message
    assert run.head.head.phase is Phase.HALTED

    done = store_command("repair", run, "team/triage", "--apply", "--as-it-is", "--json")
    run.keys = StoreKeys("team", json.loads(done.stdout)["new_run_id"])
    assert go_on(run).code == 0


@pytest.mark.req("I4", "D2", "F-D8")
def test_a_store_that_went_back_and_was_written_to_since_is_noticed_too(run: RunOnDisk) -> None:
    older = contents_of(run)
    assert go_on(run, DIE_AFTER="52").code == -9
    anchor = anchor_of(run)
    put_back(run, older)
    assert go_on(run, DIE_AFTER="58").code == -9

    halted = go_on(run, MILEPOST_ANCHOR=anchor)

    assert (halted.code, halted.said["reason"]) == (83, "RolledBack")
    assert "which was another one" in halted.said["message"]


def test_an_anchor_that_is_none_starts_nothing(run: RunOnDisk) -> None:
    refused = go_on(run, MILEPOST_ANCHOR="{")

    assert (refused.code, refused.said["reason"]) == (84, "EnvironmentInvalid")
    assert refused.said["message"].startswith("MILEPOST_ANCHOR: ")


@pytest.mark.parametrize("text", ["{", "[]", '{"seq": 1}', '{"seq": "1", "epoch": 1, "digest": ""}', "7"])
def test_an_anchor_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_anchor(text)


def test_an_anchor_is_read_as_it_is_written() -> None:
    assert parse_anchor("") is None
    assert parse_anchor('{"seq":7,"epoch":2,"digest":"abc"}') == Anchor(7, 2, "abc")


def contents_of(run: RunOnDisk) -> dict[str, bytes]:
    found = {}
    for listed in run.store.list(run.keys.run):
        each = run.store.get(listed.key)
        assert isinstance(each, Found)
        found[listed.key] = each.body
    return found


def put_back(run: RunOnDisk, older: dict[str, bytes]) -> None:
    """Let the run's objects be what they were, as a restored backup does."""
    for listed in list(run.store.list(run.keys.run)):
        run.store.delete(listed.key)
    for key, body in older.items():
        run.store.put_new(key, body, {})
