"""The approval example: nobody is alive while it waits, and what the editor says is what happens, once."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from milepost.api.resource import Phase
from milepost.testing import Approve, Deny, Expire, crash_everywhere
from tests.support.example_runs import EXAMPLES, Example
from tests.support.sessions import wait_until

pytestmark = pytest.mark.timeout(300)

YES = {"title": "New in July", "audience": "everybody"}


def an_example(root: Path, **inputs: Any) -> Example:
    return Example("02-approval", root, {"receiver": f"file:{root / 'world'}", **inputs})


def pages(folder: Path) -> list[Any]:
    return [json.loads(file.read_text()) for file in folder.rglob("*.json")]


def waits_for(example: Example, gate: str) -> None:
    wait_until(lambda: f"waits for approval {gate}" in example.said(), patience=100)


def executors(example: Example) -> list[int]:
    return [int(pid) for pid in re.findall(r"executor pid (\d+)", example.said())]


@pytest.mark.req("F1", "F2", "F3")
def test_a_draft_is_denied_and_the_next_one_published_as_it_was_approved(tmp_path: Path) -> None:
    example = an_example(tmp_path)
    with example.running() as process:
        waits_for(example, "publish=1")
        assert (example.head().phase, Path(f"/proc/{executors(example)[-1]}").exists()) == (
            Phase.WAITING,
            False,
        )
        example.milepost("deny", "announcement", "publish=1", "--reason", "without parser")
        waits_for(example, "publish=2")
        refused = example.milepost(
            "approve", "announcement", "publish=2", "--answer", '{"title": "x", "audience": "all"}'
        )
        example.milepost("approve", "announcement", "publish=2", "--answer", json.dumps(YES))
        assert process.wait(timeout=100) == 0

    assert refused.returncode != 0
    assert "answer.audience: 'all' is not one of ['everybody', 'customers']" in refused.stderr
    (page,) = pages(example.world)
    assert page == {
        "heading": "What is new: 2 changes",
        "lines": [
            "Runs wait for people, and no process is alive meanwhile",
            "Checkpoints take less space",
        ],
        **YES,
        "approved_by": page["approved_by"],
    }
    assert example.result()["said"] == f"approved by {page['approved_by']} as draft 2"


@pytest.mark.req("F2")
def test_an_answer_that_came_while_nothing_was_alive_is_found_by_the_next_process(tmp_path: Path) -> None:
    example = an_example(tmp_path)
    with example.running() as process:
        waits_for(example, "publish=1")
        os.kill(process.pid, signal.SIGKILL)
    answered = example.milepost("approve", "announcement", "publish=1", "--answer", json.dumps(YES))

    again = example.run()

    assert (answered.returncode, again.returncode) == (0, 0), again.stderr
    assert len(pages(example.world)) == 1


@pytest.mark.req("F1")
def test_where_nobody_answers_in_time_nothing_is_published(tmp_path: Path) -> None:
    example = an_example(tmp_path, patience_hours=0.0005)

    done = example.run()

    assert json.loads(done.stdout) == {"page": None, "said": "nobody answered within 0.0005 hours"}
    assert pages(example.world) == []


@pytest.mark.req("E6", "F2")
@pytest.mark.parametrize(
    ("answers", "published"),
    [
        ({"publish=1": Deny("without parser"), "publish": Approve(YES, by="ann")}, 1),
        ({"publish": Expire()}, 0),
    ],
    ids=["denied and approved", "expired"],
)
def test_it_comes_to_the_same_wherever_it_is_killed(
    monkeypatch: pytest.MonkeyPatch, answers: dict[str, Any], published: int
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES / "02-approval"))

    report = crash_everywhere(
        "announcement_agent.agent:announce",
        {"changes": ["Faster", "The parser is new"], "receiver": "file:$MILEPOST_TEST_FOLDER"},
        answers=answers,
        effects=pages,
        max_points=4,
    )

    assert len(report.undisturbed.effects) == published
