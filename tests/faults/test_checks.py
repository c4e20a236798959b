"""The checks of runs that were disturbed: each of them finds what it is for."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from milepost.api.resource import Phase
from milepost.checkpoint.gates import Decided
from milepost.checkpoint.head import Head, parse_head
from tests.faults.campaign import Clean
from tests.faults.checks import Effects, Seen, judge
from tests.faults.points import Blow, How, When
from tests.faults.scene import Disturbed, Scene
from tests.support.fault_proxy import Passed

pytestmark = pytest.mark.s3


@pytest.fixture(scope="module")
def killed(scene: Scene) -> Disturbed:
    """A run that was killed once, and in which nothing is wrong."""
    return scene.run("small", Blow(12, When.AFTER))


@pytest.fixture
def seen(scene: Scene, killed: Disturbed, tmp_path: Path) -> Seen:
    """The run, for one test to change what is known of it."""
    world = shutil.copytree(killed.world, tmp_path / "world")
    run = replace(
        killed,
        world=world,
        requests=list(killed.requests),
        loaded=dict(killed.loaded),
        attempts=[replace(attempt) for attempt in killed.attempts],
    )
    return Seen(run, scene.store, Effects.read(scene.ledger, run.keys.run_id))


def is_head_write(seen: Seen, passed: Passed) -> bool:
    return passed.method == "PUT" and passed.applied and passed.key.endswith(seen.run.keys.head)


def head_writes(seen: Seen) -> list[int]:
    """Return where in the journal the applied writes of the head stand."""
    return [place for place, passed in enumerate(seen.run.requests) if is_head_write(seen, passed)]


def forge(seen: Seen, place: int, change: Callable[[Head], Head]) -> None:
    """Let the write at this place have been one of another head."""
    passed = seen.run.requests[place]
    head = change(parse_head(passed.body, seen.run.keys))
    seen.run.requests[place] = replace(passed, body=head.body())


def found(seen: Seen, clean: dict[str, Clean]) -> str:
    return "\n".join(judge(seen, clean["small"].expected).violations)


def test_a_run_in_which_nothing_is_wrong_passes(seen: Seen, clean: dict[str, Clean]) -> None:
    assert found(seen, clean) == ""


def test_two_writes_that_replaced_one_version(seen: Seen, clean: dict[str, Clean]) -> None:
    twice = seen.run.requests[head_writes(seen)[3]]
    seen.run.requests.append(replace(twice, etag='"another"'))

    assert "2 writes replaced one version of the head" in found(seen, clean)


def test_an_acknowledged_write_that_is_not_in_the_chain(seen: Seen, clean: dict[str, Clean]) -> None:
    place = head_writes(seen)[3]
    seen.run.requests[place] = replace(seen.run.requests[place], etag='"lost"')

    assert "were applied to no version of the chain" in found(seen, clean)


def test_a_record_of_an_old_epoch_after_a_claim(seen: Seen, clean: dict[str, Clean]) -> None:
    forge(seen, head_writes(seen)[-2], lambda head: replace(head, epoch=head.epoch - 1))

    assert "has epoch 1 after epoch 2" in found(seen, clean)


def test_a_record_that_another_than_its_epochs_owner_wrote(seen: Seen, clean: dict[str, Clean]) -> None:
    forge(seen, head_writes(seen)[-1], lambda head: replace(head, writer="pod-1"))

    assert "of pod-1 was written in the epoch of pod-2" in found(seen, clean)


def test_a_record_after_the_end(seen: Seen, clean: dict[str, Clean]) -> None:
    forge(seen, head_writes(seen)[-2], lambda head: replace(head, phase=Phase.FAILED))

    assert "follows the end of the run" in found(seen, clean)


def test_a_state_that_was_loaded_otherwise_than_it_was_written(seen: Seen, clean: dict[str, Clean]) -> None:
    between = min(seen.run.loaded)
    seen.run.loaded[between] = seen.state

    assert f"the state loaded at record {between} is not the one" in found(seen, clean)


def test_a_write_without_a_condition(seen: Seen, clean: dict[str, Clean]) -> None:
    last = seen.run.requests[head_writes(seen)[-1]]
    seen.run.requests.append(replace(last, condition={}, server=500))

    assert "an unconditional write of" in found(seen, clean)


def test_a_write_whose_digest_is_another_bodys(seen: Seen, clean: dict[str, Clean]) -> None:
    place = head_writes(seen)[-1]
    seen.run.requests[place] = replace(seen.run.requests[place], checksum="")

    assert "without its digest" in found(seen, clean)


def test_a_step_that_was_started_though_it_was_recorded(seen: Seen, clean: dict[str, Clean]) -> None:
    first = "branch-0-begin"
    with (seen.run.world / "started").open("a") as notes:
        notes.write(json.dumps({"step": first, "pod": "pod-2"}) + "\n")
    verdict = judge(seen, clean["small"].expected)

    assert f"pod-2 started the step {first}, which it had loaded as recorded" in verdict.violations
    assert verdict.recorded_steps_repeated > 0


def test_a_step_that_ran_twice_in_one_pod(seen: Seen, clean: dict[str, Clean]) -> None:
    with (seen.run.world / "started").open("a") as notes:
        notes.write(json.dumps({"step": "count-4", "pod": "pod-2"}) + "\n")

    assert "pod-2 started the step count-4 2 times and recorded 1" in found(seen, clean)


def test_an_effect_under_another_key(seen: Seen, clean: dict[str, Clean]) -> None:
    twice = {**seen.effects.applied, "/pay/9": ('{"amount": 10}', "effect-0")}
    doubled = replace(seen, effects=replace(seen.effects, applied=twice))
    verdict = judge(doubled, clean["small"].expected)

    assert verdict.violations == ['the effect /pay/9 {"amount": 10} is not one of a clean run']
    assert verdict.effects_duplicated == 1


def test_an_effect_that_is_missing_and_a_key_with_another_body(seen: Seen, clean: dict[str, Clean]) -> None:
    less = {key: effect for key, effect in seen.effects.applied.items() if key != "/settle"}
    wrong = found(replace(seen, effects=Effects(Counter(), less, refused=1)), clean)

    assert 'the effect /settle {"amount": 20} did not happen' in wrong
    assert "1 calls were refused" in wrong


def test_another_result_and_other_steps_than_in_a_clean_run(seen: Seen, clean: dict[str, Clean]) -> None:
    expected = replace(clean["small"].expected, result="another", steps=frozenset({"another"}))
    wrong = judge(seen, expected).violations

    assert any(text.startswith("the result is") for text in wrong)
    assert any(text.startswith("other steps are recorded") for text in wrong)


def test_a_process_that_ended_with_a_code_that_says_nothing(seen: Seen, clean: dict[str, Clean]) -> None:
    seen.run.attempts[1].code = 70

    assert "attempt 2 ended with 70" in found(seen, clean)


def test_a_process_that_woke_and_was_not_refused(scene: Scene, clean: dict[str, Clean]) -> None:
    run = scene.run("small", Blow(9, When.AFTER, how=How.PAUSE))
    run.attempts[0].code = 0
    seen = Seen(run, scene.store, Effects.read(scene.ledger, run.keys.run_id))

    assert "attempt 1 woke and ended with 0, not 81" in found(seen, clean)


@pytest.fixture(scope="module")
def waited(scene: Scene) -> Disturbed:
    """A run that has passed gates, and in which nothing is wrong."""
    return scene.run("waiting")


def test_a_gate_that_was_decided_otherwise_than_it_was_answered(
    scene: Scene, waited: Disturbed, clean: dict[str, Clean]
) -> None:
    effects = Effects.read(scene.ledger, waited.keys.run_id)
    seen = Seen(replace(waited, answers=dict(waited.answers)), scene.store, effects)
    gate, answer = next((gate, each) for gate, each in waited.answers.items() if each.by == "ann")
    other = replace(answer, by="bob")

    assert judge(seen, clean["waiting"].expected).violations == []
    seen.run.answers[gate] = other
    assert "was answered with" in "\n".join(judge(seen, clean["waiting"].expected).violations)


def test_a_gate_that_was_decided_twice_and_another_decision_than_in_a_clean_run(
    scene: Scene, waited: Disturbed, clean: dict[str, Clean]
) -> None:
    seen = Seen(waited, scene.store, Effects.read(scene.ledger, waited.keys.run_id))
    records = [record for record in seen.records if any(isinstance(e, Decided) for e in record.events)]
    seen.records.extend(records)
    expected = replace(clean["waiting"].expected, decisions=frozenset())
    wrong = "\n".join(judge(seen, expected).violations)

    assert "gates decided more than once" in wrong
    assert "other decisions are recorded than in a clean run" in wrong


def test_a_call_that_was_made_twice_and_must_not_be_repeated(scene: Scene, clean: dict[str, Clean]) -> None:
    run = scene.run("careful")
    effects = Effects.read(scene.ledger, run.keys.run_id)
    effects.calls["/tell"] += 1
    verdict = judge(Seen(run, scene.store, effects), clean["careful"].expected)

    assert verdict.violations == [f"the irreversible call {run.keys.run_id}/tell was made 2 times"]
