from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest
from typing_extensions import override

from milepost.api.names import StoreKeys
from milepost.api.resource import DeletionPolicy, Phase
from milepost.checkpoint import inbox
from milepost.checkpoint.fold import State
from milepost.checkpoint.gates import AnswerType
from milepost.checkpoint.head import first_head
from milepost.checkpoint.history import load
from milepost.checkpoint.records import Event, Halted, Repaired, ToolCalled, Withdrawn
from milepost.checkpoint.repair import NotRepairable, Rescue, carry_out, plan_repair
from milepost.checkpoint.runs import HeadSeen, Stale
from milepost.checkpoint.sealed import seal, segment_key
from milepost.checkpoint.survey import survey
from tests.support.histories import (
    KEYS,
    a_claim,
    a_failure,
    a_start,
    a_step,
    after,
    an_end,
    begin,
    some_patience,
    take,
)
from tests.support.long_runs import (
    BLOB_STEP,
    SENT,
    a_long_run,
    agent,
    body_of,
    contents,
    copy_of,
    flip,
    head_of,
    name_of,
    overwrite,
    prune,
    runs_of,
    segments_of,
)
from tests.support.sessions import RunInMemory, now, records_of
from tests.support.store_doubles import Crashed, Fault, FaultyStore, Numbers

pytestmark = pytest.mark.req("D3", "I3", "I4")


@pytest.fixture
async def store() -> FaultyStore:
    """A long run's objects, as they are after a sweep."""
    run = await a_long_run()
    prune(run.store)
    return FaultyStore(copy_of(run.store))


def planned(store: FaultyStore) -> Rescue:
    return plan_repair(survey(store, KEYS), at=now(), entropy=os.urandom)


def repaired(store: FaultyStore, *, nobody_writes: bool = False) -> StoreKeys:
    """Repair the run, and return the keys of the new one."""
    name = name_of(store)
    patience = some_patience()
    run_id = carry_out(runs_of(store), planned(store), name, nobody_writes=nobody_writes, patience=patience)
    assert name_of(store).record.run_id == run_id
    return StoreKeys("team", run_id)


def state_of(store: FaultyStore, keys: StoreKeys) -> State:
    return load(store, head_of(store, keys))


class Begun(RunInMemory):
    """A run that is in the store already."""

    @override
    def __post_init__(self) -> None:
        pass


async def resumed(
    store: FaultyStore, keys: StoreKeys, *, attempt: int = 2
) -> tuple[Any, list[str], list[str]]:
    """Let the next pod work on the run; return the result, the steps that ran and the keys that were sent."""
    ran: list[str] = []
    SENT.clear()
    run = Begun(store, keys=keys, attempt=attempt)
    result = await run.go_on(agent(ran=ran))
    return result, ran, list(SENT)


async def test_a_lost_segment_costs_its_steps_and_no_others(store: FaultyStore) -> None:
    before = load(store, head_of(store))
    lost = head_of(store).segments[1]
    store.delete(segments_of(store)[1])
    gone = [step for step, place in before.completed.items() if lost.first <= place.seq <= lost.last]

    keys = repaired(store)
    after_repair = state_of(store, keys)

    assert set(after_repair.completed) == set(before.completed) - set(gone)
    result, ran, sent = await resumed(store, keys)
    assert result == 180
    assert ran == [step for step in gone if step.startswith("step-")]
    assert sent == [f"{KEYS.run_id}/{step}" for step in gone if step.startswith("send-")]
    assert len(sent) == 2, "an effect is among what is lost, and keeps its key"
    assert set(state_of(store, keys).completed) == set(before.completed)


def test_record_1_says_that_it_was_repaired_from_which_run_and_what_was_lost(store: FaultyStore) -> None:
    before = load(store, head_of(store))
    lost = head_of(store).segments[0]
    store.delete(segments_of(store)[0])

    keys = repaired(store)

    started, said = records_of(store, keys)[0].events
    assert started == before.started
    assert said == Repaired(
        run_id=KEYS.run_id,
        lost_records=((1, lost.last),),
        repeats=tuple(step for step, place in before.completed.items() if place.seq <= lost.last),
    )


async def test_a_lost_head_costs_the_newest_records(store: FaultyStore) -> None:
    before = load(store, head_of(store))
    sealed = head_of(store).segments[-1].last
    store.delete(KEYS.head)

    keys = repaired(store, nobody_writes=True)
    _, ran, _ = await resumed(store, keys)

    assert ran == [step for step, place in before.completed.items() if place.seq > sealed]
    assert set(state_of(store, keys).completed) == set(before.completed)


async def test_a_flipped_bit_in_the_head_costs_the_record_that_it_is_in(store: FaultyStore) -> None:
    before = load(store, head_of(store))
    flip(store, KEYS.head)

    keys = repaired(store, nobody_writes=True)
    _, ran, _ = await resumed(store, keys)

    assert len(ran) == 1
    assert set(state_of(store, keys).completed) == set(before.completed)


async def test_a_lost_blob_costs_the_step_whose_result_it_was(store: FaultyStore) -> None:
    (blob,) = [key for key in contents(store) if "/blobs/" in key]
    flip(store, blob)

    keys = repaired(store)
    _, ran, _ = await resumed(store, keys)

    assert ran == [f"step-{BLOB_STEP}"]


def test_blobs_that_are_left_are_copied(store: FaultyStore) -> None:
    store.delete(segments_of(store)[1])
    (blob,) = [key for key in contents(store) if "/blobs/" in key]

    keys = repaired(store)

    assert body_of(store, keys.blob(blob.rpartition("/")[2])) == body_of(store, blob)


def test_the_damaged_run_keeps_its_bytes_and_is_ended(store: FaultyStore) -> None:
    store.delete(segments_of(store)[1])
    before = contents(store, KEYS.run)

    repaired(store)

    after_repair = contents(store, KEYS.run)
    changed = {key for key in before | after_repair if before.get(key) != after_repair.get(key)}
    assert KEYS.head in changed
    assert all(key == KEYS.head or key not in before for key in changed)
    head = head_of(store)
    assert (head.phase, head.reason) == (Phase.CANCELLED, "Repaired")


def test_the_executor_of_the_damaged_run_is_refused(store: FaultyStore) -> None:
    store.delete(segments_of(store)[1])
    epoch = head_of(store).epoch

    repaired(store)

    assert head_of(store).epoch > epoch
    with pytest.raises(AssertionError):
        take(store, 9, entropy=Numbers())  # it has ended, and cannot be claimed


def test_attempts_epochs_failures_and_calls_are_kept() -> None:
    store = FaultyStore()
    head = begin(store, entropy=Numbers()).head
    call = ToolCalled(
        step="two",
        call=1,
        tool="send",
        effect="keyed",
        arguments="0" * 64,
        attempt=1,
        started_at="",
        duration_s=0,
    )
    entropy = Numbers(50)
    for event in (
        a_claim(1),
        a_failure("one"),
        call,
        a_claim(4, previous_end=an_end(3, fault="agent"), image="agent:4"),
        Halted(reason="Corrupt", message="damaged"),
    ):
        head = after(head, event, entropy=entropy).head
    overwrite(store.inner, KEYS.head, head.body())
    before = load(store, head)

    rescue = planned(store)

    made = State()
    made.apply_all(rescue.head.records(), "k")
    assert (made.failed, made.calls) == (before.failed, before.calls)
    assert (made.totals, made.phase, made.outcome) == (before.totals, Phase.RUNNING, None)
    assert (rescue.head.attempt, rescue.head.image) == (4, "agent:4")
    assert (rescue.head.reason, rescue.head.message) == ("", "")
    epochs = [record.epoch for record, _ in rescue.head.records()]
    workers = [record.worker for record, _ in rescue.head.records()]
    assert epochs == [0, 1, 1, 1, 2, 3]
    assert workers == ["", "pod-1", "pod-1", "pod-1", "pod-4", "operator"]


def test_a_run_that_halted_for_another_reason_stays_halted() -> None:
    store = FaultyStore()
    head = begin(store, entropy=Numbers()).head
    for event in (a_claim(1), Halted(reason="InputsInvalid", message="limit")):
        head = after(head, event, entropy=Numbers(7)).head
    overwrite(store.inner, KEYS.head, head.body())

    made = planned(store).head

    assert (made.phase, made.reason, made.message) == (Phase.HALTED, "InputsInvalid", "limit")


def test_a_run_that_had_ended_has_ended_as_before(store: FaultyStore) -> None:
    at = runs_of(store).observe(KEYS)
    assert isinstance(at, HeadSeen)
    runs_of(store).end(at, phase=Phase.FAILED, reason="StepFailed", message="no")
    ended = head_of(store)
    store.delete(segments_of(store)[0])

    keys = repaired(store)

    made = head_of(store, keys)
    assert (made.phase, made.reason, made.message) == (Phase.FAILED, "StepFailed", "no")
    assert head_of(store) == ended
    load(store, made)


def test_what_governs_the_run_is_kept() -> None:
    store = FaultyStore()
    configuration = {"deletionPolicy": "Delete", "retentionSeconds": 60}
    started = a_start(goal="be kept", configuration=configuration, key_root="r" * 20, resource_uid="uid-2")
    head = first_head(
        KEYS,
        name="triage",
        resource_uid="uid-2",
        cluster="cluster-1",
        spec_digest="spec-1",
        key_root="r" * 20,
        events=(started,),
        at=now(),
        entropy=Numbers(),
    ).head
    store.put_new(KEYS.head, head.body(), {})
    made = planned(store).head
    assert (made.deletion_policy, made.retention_s) == (DeletionPolicy.RETAIN, 2592000), "as its head says"

    store.delete(KEYS.head)
    _, segment = seal(KEYS.run_id, epoch=0, last=1, nonce="n", lines=head.tail)
    store.put_new(KEYS.segment(0, 1, 1, "n"), segment, {})
    made = planned(store).head

    assert (made.name, made.resource_uid, made.key_root) == ("triage", "uid-2", "r" * 20)
    assert (made.goal, made.deletion_policy, made.retention_s) == ("be kept", DeletionPolicy.DELETE, 60)
    assert made.created == head.created


def test_a_dry_run_writes_nothing(store: FaultyStore) -> None:
    store.delete(segments_of(store)[0])
    before = contents(store)

    planned(store)

    assert contents(store) == before


def test_a_head_that_cannot_be_claimed_needs_the_word_of_a_person(store: FaultyStore) -> None:
    store.delete(KEYS.head)
    before = contents(store)

    with pytest.raises(NotRepairable, match="--nobody-writes"):
        repaired(store)
    assert contents(store) == before


def test_a_run_that_goes_on_meanwhile_is_not_repaired_from_what_was_seen(store: FaultyStore) -> None:
    store.delete(segments_of(store)[0])
    rescue, name = planned(store), name_of(store)
    take(store, 3, entropy=Numbers(900))

    with pytest.raises(Stale):
        carry_out(runs_of(store), rescue, name, nobody_writes=False, patience=some_patience())

    assert name_of(store).record.run_id == KEYS.run_id


def test_a_pod_that_claims_between_is_refused_before_the_repair_ends(store: FaultyStore) -> None:
    store.delete(segments_of(store)[0])
    rescue, name = planned(store), name_of(store)
    claimed = []

    store.next_puts(
        Fault(before=lambda: claimed.append(take(store, 3, entropy=Numbers(900)))), only="/names/"
    )
    carry_out(runs_of(store), rescue, name, nobody_writes=False, patience=some_patience())

    assert head_of(store).phase is Phase.CANCELLED
    assert head_of(store).epoch > claimed[0].head.epoch


async def test_a_repair_that_is_cut_off_anywhere_is_repaired_by_another(store: FaultyStore) -> None:
    before = load(store, head_of(store))
    store.delete(segments_of(store)[1])
    cut = 0
    while True:
        tried = FaultyStore(copy_of(store))
        tried.next_puts(*[None] * cut, Fault.crash(applied=True))
        try:
            repaired(tried)
        except Crashed:
            tried.next_puts()
        else:
            break
        cut += 1
        if name_of(tried).record.run_id == KEYS.run_id:
            keys = repaired(tried)
        else:
            keys = StoreKeys("team", name_of(tried).record.run_id)
        state = state_of(tried, keys)
        assert state.phase is Phase.RUNNING
        assert 0 < len(state.completed) < len(before.completed)
    assert cut > 5


def test_a_repaired_run_can_be_repaired_again(store: FaultyStore) -> None:
    store.delete(segments_of(store)[1])
    once = repaired(store)
    head = head_of(store, once)
    store.delete(segment_key(once, head.segments[0]))
    rescue = plan_repair(survey(store, once), at=now(), entropy=os.urandom)

    assert rescue.said.run_id == once.run_id
    assert rescue.head.key_root == KEYS.run_id


def test_without_record_1_and_without_a_base_there_is_nothing_to_go_on_from() -> None:
    store = FaultyStore()
    store.put_new(KEYS.segment(1, 5, 5, "n"), b"nothing\n", {})

    with pytest.raises(NotRepairable, match=r"spec\.rerun"):
        planned(store)


def test_a_newer_format_is_left_to_the_newer_milepost(store: FaultyStore) -> None:
    body = body_of(store, KEYS.head)
    overwrite(store.inner, KEYS.head, body.replace(b'{"format":3', b'{"format":9', 1))

    with pytest.raises(NotRepairable, match="newer Milepost"):
        planned(store)


def test_records_keep_their_epochs_and_writers_where_a_claim_is_lost() -> None:
    store = FaultyStore()
    head = begin(store, entropy=Numbers()).head
    for event in (a_claim(1), a_claim(2), a_step("one")):
        head = after(head, event, entropy=Numbers(9)).head
    overwrite(store.inner, KEYS.head, head.body())
    left = survey(store, KEYS)
    without = {seq: record for seq, record in left.records.items() if seq != 3}

    made = plan_repair(replace(left, records=without), at=now(), entropy=os.urandom).head

    told = [(record.epoch, record.worker) for record, _ in made.records()]
    assert told == [(0, ""), (1, "pod-1"), (2, "pod-2"), (3, "operator")]


def test_a_step_that_is_recorded_twice_is_kept_once() -> None:
    store = FaultyStore()
    head = begin(store, entropy=Numbers()).head
    for event in (a_claim(1), a_step("one", "first"), a_step("one", "second"), a_step("two")):
        head = after(head, event, entropy=Numbers(9)).head
    overwrite(store.inner, KEYS.head, head.body())

    made = planned(store).head

    results = [
        event.result.inline
        for record, _ in made.records()
        for event in record.events
        if event.kind == "step_completed"
    ]
    assert results == ["first", "done"]


def written(*events: Event) -> FaultyStore:
    """Return a store with a run of these events."""
    store = FaultyStore()
    head = begin(store, entropy=Numbers()).head
    for number, event in enumerate(events, start=20):
        head = after(head, event, entropy=Numbers(number)).head
    overwrite(store.inner, KEYS.head, head.body())
    return store


def without(store: FaultyStore, *lost: int) -> State:
    """Return the state of the run that a repair makes once these records are lost."""
    left = survey(store, KEYS)
    kept = {seq: record for seq, record in left.records.items() if seq not in lost}
    left = replace(left, records=kept, lost=tuple((seq, seq) for seq in lost))
    made = plan_repair(left, at=now(), entropy=os.urandom).head
    state = State()
    state.apply_all(made.records(), "k")
    return state


@pytest.mark.parametrize(
    ("lost", "where"),
    [((), 5), ((3,), 3), ((4,), 4), ((5,), None), ((3, 4), 3)],
    ids=["nothing", "what was withdrawn", "the withdrawal", "the second result", "the first two"],
)
def test_a_step_that_was_withdrawn_has_the_result_that_it_had_last(
    lost: tuple[int, ...], where: int | None
) -> None:
    store = written(
        a_claim(1), a_step("one", "first"), Withdrawn(step="one", reason="gone"), a_step("one", "second")
    )
    state = without(store, *lost)
    assert (state.completed["one"].seq if "one" in state.completed else None) == where


def test_a_survey_shows_the_steps_that_stand() -> None:
    store = written(
        a_claim(1),
        a_step("one", "first"),
        a_step("two"),
        Withdrawn(step="one", reason="gone"),
        a_step("one", "second"),
    )
    assert [(step.id, step.seq) for step in survey(store, KEYS).steps] == [("two", 4), ("one", 6)]


def test_what_was_said_to_the_run_and_not_heard_is_said_to_the_new_one(store: FaultyStore) -> None:
    said = inbox.Answer("g" * 20, AnswerType.APPROVE, by="ann", at=now().isoformat())
    inbox.give(store, KEYS, said, some_patience())
    store.delete(segments_of(store)[1])
    assert inbox.read(store, repaired(store), said.gate) == said


def test_what_is_said_to_the_run_while_it_is_repaired_is_said_to_the_new_one(store: FaultyStore) -> None:
    said = inbox.Answer("g" * 20, AnswerType.APPROVE, by="ann", at=now().isoformat())
    store.delete(segments_of(store)[1])

    def answers() -> None:
        inbox.give(store.inner, KEYS, said, some_patience())

    store.next_puts(Fault(before=answers), only="/names/")

    assert inbox.read(store, repaired(store), said.gate) == said


def test_a_run_that_a_repair_ended_can_be_the_source_of_another(store: FaultyStore) -> None:
    store.delete(segments_of(store)[1])
    repaired(store)
    assert head_of(store).phase is Phase.CANCELLED

    assert planned(store).head.phase is Phase.RUNNING
