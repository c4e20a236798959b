"""A slice of `make faults`: some points of each agent's run, each kind of fault once, and a soak."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from milepost.api.exits import Exit
from milepost.testing.faults import Fault, Flip
from tests.faults.campaign import Clean, Outcome, SoakRun, Task, judged, perform
from tests.faults.points import Blow, How, Line, Point, When
from tests.faults.scene import Door, Scene
from tests.faults.soak import DEADLINE_S, KINDS
from tests.faults.workers import scenes
from tools.cluster.interface import S3Server

pytestmark = pytest.mark.s3

KILLED = -9
WHERE = [
    *(("everything", share) for share in (0.0, 0.25, 0.5, 0.75, 0.95)),
    ("deferred", 0.4),
    ("deferred", 0.8),
]


SHORTER_BY = 8
"""Requests that a run may save against the clean one, where steps that end together share a commit."""


def index_of(share: float, requests: int) -> int:
    """Return the request that is so far into a run of so many, counted from 1."""
    return max(1, round(share * requests))


def struck(outcome_of: Callable[[Task], Outcome], agent: str, blow: Blow) -> Outcome:
    """Return what comes of a run that the blow befalls, or one a little earlier if the run is over before."""
    for index in range(blow.index, max(0, blow.index - SHORTER_BY), -1):
        outcome = outcome_of(Point(agent, (replace(blow, index=index),)))
        assert outcome.verdict.violations == []
        if outcome.hits:
            return outcome
    pytest.fail(f"{agent} was over before {blow}, {SHORTER_BY} times")


@pytest.mark.req("C1", "C2", "C4", "D1", "D4", "F-A1", "F-A5", "F-A6", "I1", "I4", "I6", "I12")
@pytest.mark.parametrize("when", list(When))
@pytest.mark.parametrize(("agent", "share"), WHERE)
def test_killed_at_any_request_to_its_store_a_run_ends_as_if_it_had_not_been(
    clean: dict[str, Clean], outcome_of: Callable[[Task], Outcome], agent: str, share: float, when: When
) -> None:
    index = index_of(share, clean[agent].requests.store)

    outcome = struck(outcome_of, agent, Blow(index, when))

    assert (outcome.hits, outcome.codes) == (1, {KILLED: 1, Exit.COMMITTED: 1})


@pytest.mark.req("E1", "E5", "F-A3", "F-A4", "I3", "I3b")
@pytest.mark.parametrize("when", list(When))
@pytest.mark.parametrize("share", [0.0, 0.6])
def test_killed_around_an_effect_it_happens_once_under_one_key(
    clean: dict[str, Clean], outcome_of: Callable[[Task], Outcome], share: float, when: When
) -> None:
    index = index_of(share, clean["small"].requests.receiver)

    outcome = struck(outcome_of, "small", Blow(index, when, Line.RECEIVER))

    if when is When.AFTER:
        assert outcome.verdict.calls_repeated > 0, "the effect was called for again, and not applied again"


@pytest.mark.req("B2", "E3", "F-A2", "F-A3", "F-A4", "I3")
@pytest.mark.parametrize("when", list(When))
@pytest.mark.parametrize("share", [0.2, 0.4, 0.6, 0.8, 1.0])
@pytest.mark.parametrize("line", list(Line))
def test_killed_anywhere_a_call_that_must_not_be_repeated_is_made_once(
    clean: dict[str, Clean], outcome_of: Callable[[Task], Outcome], line: Line, share: float, when: When
) -> None:
    requests = clean["careful"].requests
    index = index_of(share, requests.store if line is Line.STORE else requests.receiver)

    outcome = struck(outcome_of, "careful", Blow(index, when, line))

    assert outcome.verdict.calls_repeated == 0


@pytest.mark.req("B2", "I9", "F-E1", "F-E4")
@pytest.mark.parametrize("when", list(When))
@pytest.mark.parametrize("share", [0.2, 0.45, 0.7, 0.9])
def test_killed_anywhere_around_its_gates_a_run_goes_on_by_the_answers_that_stand(
    clean: dict[str, Clean], outcome_of: Callable[[Task], Outcome], share: float, when: When
) -> None:
    index = index_of(share, clean["waiting"].requests.store)

    outcome = struck(outcome_of, "waiting", Blow(index, when))

    # Keyed calls behind the gates may be made again, under their keys. That irreversible ones are not is one
    # of the things that `struck` asks.
    assert (outcome.hits, outcome.ended) == (1, True)


@pytest.mark.req("C3", "I5", "I9", "F-A7", "F-E4")
@pytest.mark.parametrize("when", list(When))
@pytest.mark.parametrize("share", [0.4, 0.8])
def test_an_executor_that_sleeps_at_a_gate_while_others_pass_it_decides_nothing(
    clean: dict[str, Clean], outcome_of: Callable[[Task], Outcome], share: float, when: When
) -> None:
    index = index_of(share, clean["waiting"].requests.store)

    outcome = struck(outcome_of, "waiting", Blow(index, when, how=How.PAUSE))

    assert (outcome.paused, outcome.ended) == (1, True)


@pytest.mark.req("E3", "F-A7", "I3", "I5")
@pytest.mark.parametrize("when", list(When))
@pytest.mark.parametrize(("line", "share"), [(Line.STORE, 0.5), (Line.RECEIVER, 0.0), (Line.RECEIVER, 0.25)])
def test_a_call_of_an_executor_that_sleeps_is_not_made_by_another_before_it_has_ended(
    clean: dict[str, Clean], outcome_of: Callable[[Task], Outcome], line: Line, share: float, when: When
) -> None:
    # Of the receiver's requests the first is of a verified call, the second of an irreversible one.
    requests = clean["careful"].requests
    index = index_of(share, requests.store if line is Line.STORE else requests.receiver)

    outcome = struck(outcome_of, "careful", Blow(index, when, line, How.PAUSE))

    assert (outcome.paused, outcome.verdict.calls_repeated) == (1, 0)


@pytest.mark.req("D1", "D2", "I2", "I12")
@pytest.mark.parametrize(("index", "when"), [(2, When.AFTER), (4, When.BEFORE), (7, When.AFTER)])
def test_killed_again_while_it_resumes_a_run_goes_on(
    clean: dict[str, Clean], outcome_of: Callable[[Task], Outcome], index: int, when: When
) -> None:
    middle = Blow(index_of(0.6, clean["everything"].requests.store), When.AFTER)

    outcome = outcome_of(Point("everything", (middle, Blow(index, when))))

    assert outcome.verdict.violations == []
    assert (outcome.hits, outcome.attempts) == (2, 3)


@pytest.mark.req("C3", "F-A7", "F-D2", "I5")
@pytest.mark.parametrize("when", list(When))
@pytest.mark.parametrize("agent", ["everything", "heavy"])
def test_an_executor_that_wakes_after_its_run_has_ended_without_it_is_refused(
    clean: dict[str, Clean], outcome_of: Callable[[Task], Outcome], agent: str, when: When
) -> None:
    index = index_of(0.7, clean[agent].requests.store)

    outcome = struck(outcome_of, agent, Blow(index, when, how=How.PAUSE))

    assert (outcome.paused, outcome.codes) == (1, {Exit.FENCED: 1, Exit.COMMITTED: 1})


@pytest.mark.req("C4", "F-D1", "F-D3", "F-D4", "F-D6", "F-D9")
@pytest.mark.parametrize("kind", KINDS)
def test_faults_of_each_kind_change_nothing_that_is_recorded(
    scene: Scene, clean: dict[str, Clean], kind: str
) -> None:
    chance = random.Random(kind)  # noqa: S311  (it is to be repeatable)
    _, make = KINDS[kind]

    faults = [Fault(make(chance), nth=nth) for nth in range(chance.randrange(2, 5), 20, 5)]

    def arm(door: Door) -> None:
        # One that an executor ends of is mended before the next one starts.
        door.store.fail(*faults)
        faults.clear()

    run = scene.run_among_faults("small", arm, deadline=DEADLINE_S)

    assert judged(scene, run, clean["small"].expected).violations == []
    assert any(passed.fault for passed in run.requests)


@pytest.mark.req("D2", "F-D6", "I4")
@pytest.mark.parametrize("part", ["/head", "/segments/"])
def test_a_read_that_lies_under_a_matching_checksum_is_corrupt_and_nothing_else(
    scene: Scene, clean: dict[str, Clean], part: str
) -> None:
    middle = Blow(index_of(0.6, clean["everything"].requests.store), When.AFTER)
    lie = Fault(Flip(at=900, mended=True), method="GET", key=part)
    attempts = iter([((), middle), ((lie,), None), ((), None)])

    def arm(door: Door) -> Blow | None:
        faults, blow = next(attempts)
        door.store.fail(*faults)
        return blow

    run = scene.run_among_faults("everything", arm, deadline=DEADLINE_S)

    assert judged(scene, run, clean["everything"].expected).violations == []
    assert [attempt.code for attempt in run.attempts] == [KILLED, Exit.HALTED, Exit.COMMITTED]
    said = json.loads((run.world / "last-words-2").read_text())
    assert (said["reason"], part in said["message"]) == ("Corrupt", True)


@pytest.mark.req("F-D4", "F-D5", "I1", "I2", "I3", "I4", "I6")
@pytest.mark.parametrize("number", range(2))
def test_a_soaked_run_ends_as_if_nothing_had_been(outcome_of: Callable[[Task], Outcome], number: int) -> None:
    outcome = outcome_of(SoakRun("everything", number))

    assert outcome.verdict.violations == []
    assert outcome.ended
    assert sum(outcome.faults.values()) > 0


def test_forked_executors_are_as_good_as_started_ones(
    server: S3Server, clean: dict[str, Clean], tmp_path: Path
) -> None:
    with scenes({"seaweedfs": server}, spawn=True) as spawning:
        outcome = perform(
            spawning.on("seaweedfs"),
            Point("small", (Blow(8, When.AFTER),)),
            clean["small"],
            seed=1,
            journals=tmp_path,
        )

    assert outcome.verdict.violations == []
    assert outcome.codes == {KILLED: 1, Exit.COMMITTED: 1}


def test_a_point_is_repeated_by_its_command() -> None:
    blows = (Blow(17, When.AFTER), Blow(3, When.BEFORE, Line.RECEIVER, How.PAUSE))

    command = Point("small", blows, "versitygw").command(seed=5)

    assert command == (
        "python -m tests.faults --seed 5 --agent small --store versitygw "
        "--point 17 --when after --line store --how kill "
        "--point 3 --when before --line receiver --how pause"
    )
