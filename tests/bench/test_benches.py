"""The benches themselves, at sizes that take no time: what they write has the documented shape."""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from typing_extensions import override

from tests.bench import conversation, load, overhead, page, storage, two_writers
from tests.bench.__main__ import BENCHES
from tests.bench.ours import Bucket
from tests.bench.peer import ROOT, Peer, Unavailable, figures
from tests.bench.scene import warm_bucket
from tests.bench.slow import slower

pytestmark = pytest.mark.s3


@pytest.fixture(scope="module")
def bucket() -> Iterator[Bucket]:
    with warm_bucket() as made:
        yield made


def test_every_bench_of_stores_has_a_table_on_the_page() -> None:
    text = (ROOT / "docs" / "benchmarks.md").read_text()

    assert set(page.TABLES) <= set(BENCHES)
    assert [name for name in page.TABLES if f"<!-- figures: {name} -->" not in text] == []


def test_a_table_replaces_what_stands_between_its_markers_and_nothing_else() -> None:
    row = {
        "steps": 10,
        "requests": 3,
        "seconds": 0.1,
        "process_seconds": 1.0,
        "objects": 2,
        "stored_bytes": 5000,
    }
    on = {"date": "2030-01-01", "cpu": "a", "cpus": 2, "memory_gib": 4, "python": "3.11", "load": 0.5}
    rest = "after\n<!-- figures: storage -->\nkept\n<!-- end -->\n"
    text = f"before\n<!-- figures: load -->\nold\n<!-- end -->\n{rest}"

    found = {"requests_1000": 13, "seconds_1000": 0.5, "requests_10000": 20, "goals": load.GOALS}
    filled = page.filled(text, {"load": {**found, "rows": [row], "machine": on}, "storage": {}})

    assert "old" not in filled
    assert "| 10 | 3 | 0.10 | 1.00 | 2 | 0.01 MB |" in filled
    assert "**Goal missed**: 13, of at most 12 requests at 1,000 steps." in filled
    assert "Goal met: 0.5, of at most 1 s at 1,000 steps." in filled
    assert filled.endswith(f"<!-- end -->\n{rest}")


def test_stored_bytes_are_those_of_all_objects_once_the_run_is_pruned(bucket: Bucket) -> None:
    found = storage.measure(bucket, 40, 5120)

    # Without pruning it would be nearly twice the payload: segments were merged by then.
    assert 40 * 5120 < found["stored_bytes"] < 1.3 * 40 * 5120
    assert found["objects"] >= 2


def test_slope_is_one_for_equal_steps_and_three_for_whole_states() -> None:
    assert storage.slope({50: 100, 100: 200}, 100) == 1.0
    assert storage.slope({50: 100, 100: 400}, 100) == 3.0


def test_a_conversation_is_stored_and_timed(bucket: Bucket) -> None:
    found = conversation.measure(bucket, 40_000, 2, 5120)

    assert found["stored_bytes"] > 40_000 + 2 * 5120
    assert found["ms_per_step"] > 0


def test_every_step_is_timed_but_those_of_the_warm_up(bucket: Bucket) -> None:
    assert len(overhead.measure(bucket, "overhead-test", 3, 2)) == 3


def test_a_delay_reaches_every_step(bucket: Bucket) -> None:
    with slower(bucket.server.endpoint, 50) as endpoint:
        place = bucket.place("delayed", endpoint)
        place.begin("collect", total=3, size=10, times=str(place.file("times")))
        place.carry_out()

    assert min(place.times()) >= 0.05


def test_one_of_two_executors_is_refused_and_no_step_is_recorded_twice(bucket: Bucket) -> None:
    # So many that neither is at its end before the other has begun.
    found = two_writers.race(bucket, "test", (1, 1), 200)

    assert (sorted(found["exit_codes"]), found["recorded_twice"], found["applied_twice"]) == ([0, 81], 0, 0)


def test_of_two_answers_at_once_one_is_acted_on_and_the_other_is_told(bucket: Bucket) -> None:
    found = two_writers.answer_twice(bucket, "test-answers")

    assert (len(found["acted_on"]), found["told"]) == (1, 1)


def test_loading_is_counted_up_to_the_agents_first_instruction(bucket: Bucket) -> None:
    row = load.measure(bucket, 5)

    assert row["requests"] == sum(row["calls"].values())
    assert 0 < row["seconds"] < row["process_seconds"]


def test_a_peer_that_cannot_be_had_is_a_figure_with_its_reason() -> None:
    def missing() -> dict[str, object]:
        raise Unavailable("there is none\nof it here")

    assert figures(missing) == {"unavailable": "there is none of it here"}


@dataclass(frozen=True)
class Here(Peer):
    """A peer in this environment, which has none of the peers' packages."""

    @override
    def python(self) -> Path:
        return Path(sys.executable)


def test_a_peers_last_error_is_the_reason() -> None:
    peer = Here("dbos", "tests.bench.peers.dbos_workflow")

    assert figures(lambda: peer.ask("steps", total=1)) == {
        "unavailable": "its process ended with 1 and said: ModuleNotFoundError: No module named 'dbos'"
    }


@pytest.mark.parametrize("name", ["langgraph", "dbos", "plots"])
def test_peers_are_pinned_with_hashes_and_without_hosts(name: str) -> None:
    text = (Path(page.__file__).parent / "peers" / f"{name}.txt").read_text()

    assert text.count("==") <= text.count("--hash=sha256:")
    assert "://" not in text
    assert json.dumps(Peer(name, "").versions()) != "{}" or name == "plots"
