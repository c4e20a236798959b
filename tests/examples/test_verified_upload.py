"""The example of a verified upload: found after a kill and not repeated; a mismatch stops the run."""

from __future__ import annotations

import hashlib
import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from milepost.api.resource import Phase
from milepost.checkpoint.records import Halted, Intended, ToolCalled
from milepost.testing import crash_everywhere
from milepost.testing.fake_s3 import FakeS3
from tests.support.example_runs import EXAMPLES, Example

# The example's folder is no package name, so it cannot stand in an import statement.
data = import_module("examples.03-verified-upload.release_agent.data")

pytestmark = pytest.mark.timeout(240)

EXAMPLE = EXAMPLES / "03-verified-upload"
BODY = data.build("station-7", 24)
SHA256 = hashlib.sha256(BODY.encode()).hexdigest()
THEIRS = "somebody else's\n"


def an_example(root: Path, **inputs: Any) -> Example:
    return Example("03-verified-upload", root, {"bucket": f"file:{root / 'world'}", **inputs})


def events(example: Example, kind: type[Any]) -> list[Any]:
    found = (event for record in example.records() for event in record.events)
    return [event for event in found if isinstance(event, kind)]


def in_bucket(example: Example) -> dict[str, str]:
    return {file.name: file.read_text() for file in example.world.iterdir()}


@pytest.mark.req("E3", "B2")
def test_killed_after_the_upload_and_before_its_record_it_is_found_and_not_repeated(tmp_path: Path) -> None:
    example = an_example(tmp_path)

    done = example.run()

    assert done.returncode == 0, done.stderr
    assert "attempt 1 was killed (SIGKILL)" in done.stderr
    (call,) = events(example, ToolCalled)
    result = json.loads(done.stdout)
    assert result == {"name": "station-7.csv", "id": result["id"], "sha256": SHA256}
    assert (call.outcome, call.evidence) == ("verified", {"id": result["id"], "sha256": SHA256})
    assert in_bucket(example) == {"station-7.csv": BODY}
    assert [intent.attempt for intent in events(example, Intended)] == [1]


@pytest.mark.req("E3", "B2")
def test_a_mismatch_stops_the_run_until_a_person_has_said_what_is_so(tmp_path: Path) -> None:
    example = an_example(tmp_path, mishap="overwritten")

    stopped = example.run()

    assert stopped.returncode != 0
    (halt,) = events(example, Halted)
    theirs = hashlib.sha256(THEIRS.encode()).hexdigest()
    assert halt.reason == "OutcomeUnknown"
    assert f"has SHA-256 {theirs[:12]}, and this run's has {SHA256[:12]}" in halt.message
    assert example.head().phase is Phase.HALTED
    assert in_bucket(example) == {"station-7.csv": THEIRS}

    # Running it again changes nothing: nobody has looked.
    assert example.run().returncode != 0
    assert in_bucket(example) == {"station-7.csv": THEIRS}

    decided = example.milepost("decide", "release", "not-done", "--reason", "theirs was a test")
    assert decided.returncode == 0, decided.stderr
    done = example.run()

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["sha256"] == SHA256
    assert in_bucket(example) == {"station-7.csv": BODY}


@pytest.mark.req("E3")
def test_what_a_person_says_is_there_is_the_result(tmp_path: Path) -> None:
    example = an_example(tmp_path, mishap="overwritten")
    example.run()
    said = {"name": "station-7.csv", "id": "theirs", "sha256": "not ours"}

    example.milepost("decide", "release", "done", "--result", json.dumps(said))
    done = example.run()

    assert json.loads(done.stdout) == said
    assert in_bucket(example) == {"station-7.csv": THEIRS}


@pytest.mark.req("E3")
def test_in_s3_the_object_is_found_by_its_etag_and_checksum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("ACCESS_KEY_ID", "a"), ("SECRET_ACCESS_KEY", "b"), ("DEFAULT_REGION", "us-east-1")):
        monkeypatch.setenv(f"AWS_{name}", value)
    with FakeS3(("readings",)) as s3:
        example = an_example(tmp_path, bucket=f"s3://readings/sets?endpoint={s3.endpoint}")
        done = example.run()

        assert done.returncode == 0, done.stderr
        puts = [seen.line for seen in s3.journal if seen.request.method == "PUT"]
        assert puts == ["PUT sets/station-7.csv 200"]
        assert s3.body("sets/station-7.csv") == BODY.encode()
    (call,) = events(example, ToolCalled)
    assert (call.outcome, call.evidence["sha256"]) == ("verified", SHA256)


@pytest.mark.req("D1")
def test_it_comes_to_the_same_wherever_it_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLE))

    report = crash_everywhere(
        "release_agent.agent:release",
        {"name": "station-7", "bucket": "file:$MILEPOST_TEST_FOLDER"},
        effects=lambda folder: {file.name: file.read_text() for file in folder.glob("*.csv")},
        max_points=8,
    )

    assert report.undisturbed.effects == {"station-7.csv": BODY}
