"""The example of 500 documents: killed at document 347, and in the end each of them is there once."""

from __future__ import annotations

import json
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from milepost.api.names import idempotency_key
from milepost.testing import crash_everywhere
from tests.support.example_runs import EXAMPLES, Example

# The example's folder is no package name, so it cannot stand in an import statement.
texts = import_module("examples.06-500-documents.library_agent.texts")

pytestmark = pytest.mark.timeout(240)

DOCUMENTS = 500
KILLED_AT = 347
AT_ONCE = 10


def an_example(root: Path, **inputs: Any) -> Example:
    return Example("06-500-documents", root, {"receiver": f"file:{root / 'world'}", **inputs})


def starts(example: Example) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (example.world / "starts.jsonl").read_text().splitlines()]


def notes(example: Example) -> Counter[str]:
    """Return how often each document was noted by the receiver, which has a file for each key."""
    return Counter(json.loads(file.read_text())["document"] for file in example.world.rglob("*.json"))


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Example:
    """A run of all 500 documents, as the example's manifest has it, that has come to its end."""
    example = an_example(tmp_path_factory.mktemp("killed"))
    done = example.run()
    assert done.returncode == 0, done.stderr
    assert "attempt 1 was killed (SIGKILL)" in done.stderr
    return example


@pytest.mark.req("G7", "E5", "F-A3")
def test_500_documents_with_a_kill_at_347_are_each_noted_once(killed: Example) -> None:
    assert sorted(notes(killed).values()) == [1] * DOCUMENTS
    # A step that lists, and two for each document.
    assert (killed.head().totals.steps_done, killed.head().attempt) == (1 + 2 * DOCUMENTS, 2)
    by_attempt = killed.completed_by_attempt()
    first, second = by_attempt[1], by_attempt[2]
    assert (len(first) + len(second), first & second) == (1 + 2 * DOCUMENTS, set())
    # Ten documents are under way at once, and they end in about the order in which they begin.
    assert 2 * (KILLED_AT - 2 * AT_ONCE) <= len(first) <= 2 * (KILLED_AT + 2 * AT_ONCE)


@pytest.mark.req("G7", "I2")
def test_nothing_that_was_recorded_before_the_kill_is_started_again(killed: Example) -> None:
    run_id = killed.head().run_id
    by_attempt = killed.completed_by_attempt()
    recorded_first = {idempotency_key(run_id, step) for step in by_attempt[1]}
    document = texts.find_texts(DOCUMENTS)[KILLED_AT - 1]
    (at_the_kill,) = (
        idempotency_key(run_id, step) for step in by_attempt[2] if step.endswith(f":{document}/save")
    )

    begun = starts(killed)

    _, second = dict.fromkeys(start["process"] for start in begun)
    assert {start["key"] for start in begun if start["process"] == second} & recorded_first == set()
    twice = {key: times for key, times in Counter(start["key"] for start in begun).items() if times > 1}
    assert set(twice.values()) == {2}
    assert len(twice) <= AT_ONCE
    assert at_the_kill in twice


@pytest.mark.req("G3")
def test_without_a_kill_the_result_is_the_same(tmp_path: Path) -> None:
    killed, quiet = tmp_path / "killed", tmp_path / "quiet"
    killed.mkdir()
    quiet.mkdir()

    results = [
        json.loads(an_example(killed, count=60, killed_at=31).run().stdout),
        json.loads(an_example(quiet, count=60, killed_at=0).run().stdout),
    ]

    assert results[0] == results[1]


@pytest.mark.req("E6")
def test_it_comes_to_the_same_wherever_it_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES / "06-500-documents"))

    report = crash_everywhere(
        "library_agent.agent:digest",
        {"count": 3, "receiver": "file:$MILEPOST_TEST_FOLDER"},
        effects=lambda folder: sorted(file.name for file in folder.glob("**/*.json")),
        max_points=4,
    )

    assert len(report.undisturbed.effects) == 3
    assert len(report.crashes) == 4
