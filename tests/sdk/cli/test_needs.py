"""`milepost needs`: which open runs still need a tool, and why."""

import json

import pytest

from tests.support.gated_runs import bring, command
from tests.support.local_runs import Desk


def words(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


@pytest.mark.req("D11")
def test_the_open_runs_that_need_a_tool_are_listed_with_the_version_and_why(desk: Desk) -> None:
    bring(desk, "declares")
    bring(desk, "pay")

    declared = command(desk, "needs", "look")
    begun = command(desk, "needs", "wire")

    assert (declared.exit_code, words(declared.stdout)) == (
        1,
        ["namespace name status version why", "default declares Waiting 3 its agent declares it"],
    )
    assert words(begun.stdout)[1:] == [
        "default pay Halted 1 step wire has called it, and is open",
        "default pay Halted 1 step wire has begun a call whose outcome is not known",
    ]


@pytest.mark.req("D11")
def test_another_version_is_not_needed(desk: Desk) -> None:
    bring(desk, "declares")

    other = command(desk, "needs", "look", "--version", "2")

    assert (other.exit_code, other.stdout) == (0, "")
    assert other.stderr == f"no open run in {desk.store.uri} needs look in version 2\n"
    assert command(desk, "needs", "look", "--version", "3").exit_code == 1


@pytest.mark.req("D11")
def test_a_run_that_has_ended_needs_nothing(desk: Desk) -> None:
    bring(desk, "declares")
    command(desk, "decide", "declares", "cancel")

    assert command(desk, "needs", "look").exit_code == 0


def test_a_run_that_cannot_be_read_is_no_reason_to_say_that_nothing_is_needed(desk: Desk) -> None:
    outcome = bring(desk, "declares")
    head = desk.root / "store" / desk.keys(outcome).head
    head.write_bytes(head.read_bytes()[:-20])

    told = command(desk, "needs", "look", "--json")

    assert told.exit_code == 1
    (need,) = json.loads(told.stdout)
    assert (need["run_id"], need["status"]) == (outcome.run_id, "Corrupt")
    assert "does not match the digest" in need["problem"]


def test_scripts_get_json(desk: Desk) -> None:
    outcome = bring(desk, "declares")

    assert json.loads(command(desk, "needs", "look", "--json").stdout) == [
        {
            "namespace": "default",
            "name": "declares",
            "run_id": outcome.run_id,
            "status": "Waiting",
            "version": "3",
            "why": "its agent declares it",
            "problem": "",
        }
    ]
