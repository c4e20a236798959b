from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest

from milepost.checkpoint.base import base_key
from milepost.checkpoint.damage import MOST, explain
from milepost.checkpoint.fold import Totals
from milepost.checkpoint.history import load
from milepost.checkpoint.memory import MemoryStore
from milepost.checkpoint.records import line_of
from milepost.checkpoint.sealed import seal
from milepost.checkpoint.survey import Problem, Survey, survey
from milepost.errors import Corrupt, Damaged, Missing
from tests.support.histories import KEYS, a_step, after, begin, take
from tests.support.long_runs import (
    BLOB_STEP,
    a_long_run,
    bases_of,
    body_of,
    contents,
    copy_of,
    flip,
    head_of,
    overwrite,
    prune,
    segments_of,
)
from tests.support.sessions import RunInMemory
from tests.support.store_doubles import Crashed, Fault, FaultyStore, Numbers

pytestmark = pytest.mark.req("D2", "D3", "I4")


@pytest.fixture
async def run() -> RunInMemory:
    return await a_long_run()


@pytest.fixture
def store(run: RunInMemory) -> MemoryStore:
    """The run's objects as they are after a sweep."""
    store = copy_of(run.store)
    prune(store)
    return store


def kinds(seen: Survey) -> list[tuple[str, str]]:
    return [(problem.kind, problem.key) for problem in seen.problems]


def test_an_undamaged_run_has_no_problem_and_is_left_as_it_is(store: MemoryStore) -> None:
    before = contents(store)
    head = head_of(store)

    seen = survey(store, KEYS)

    assert (seen.problems, seen.last, seen.trusted, seen.lost) == ((), head.seq, head.seq, ())
    assert (len(seen.steps), seen.repeats, seen.unnamed) == (head.totals.steps_done, (), 0)
    assert contents(store) == before


def test_what_was_merged_away_and_not_yet_removed_is_no_damage(run: RunInMemory) -> None:
    seen = survey(run.store, KEYS)

    assert seen.problems == ()
    assert len(seen.orphans) > 10


@pytest.mark.req("F-D7")
def test_a_lost_segment_is_named_with_what_is_before_and_after_it(store: MemoryStore) -> None:
    head = head_of(store)
    for segment, key in zip(head.segments, segments_of(store), strict=True):
        body = body_of(store, key)
        store.delete(key)

        seen = survey(store, KEYS)

        assert kinds(seen) == [("Missing", key)]
        assert seen.trusted == segment.first - 1
        assert seen.lost == ((segment.first, segment.last),)
        assert seen.readable == ((segment.last + 1, head.seq),)
        kept = sum(step.kept for step in seen.steps)
        assert kept + len(seen.repeats) + seen.unnamed == head.totals.steps_done
        store.put_new(key, body, {})


def test_steps_whose_records_are_lost_are_known_by_name_from_a_base(store: MemoryStore) -> None:
    head = head_of(store)
    state = load(store, head)
    first, *_ = head.segments
    store.delete(segments_of(store)[0])

    seen = survey(store, KEYS)

    assert seen.repeats == tuple(step for step, place in state.completed.items() if place.seq <= first.last)
    assert seen.unnamed == 0
    assert seen.started == state.started


def test_a_flipped_bit_costs_the_record_that_it_is_in(store: MemoryStore) -> None:
    for key in segments_of(store):
        whole = body_of(store, key)
        flip(store, key)

        seen = survey(store, KEYS)

        assert kinds(seen) == [("Corrupt", key)]
        assert [last - first for first, last in seen.lost] == [0]
        overwrite(store, key, whole)


def test_a_lost_segment_is_made_good_by_those_that_it_was_merged_from_but_for_what_it_sealed(
    run: RunInMemory,
) -> None:
    store = copy_of(run.store)
    key = segments_of(store)[1]
    store.delete(key)

    seen = survey(store, KEYS)

    assert kinds(seen) == [("Missing", key)]
    ((first, last),) = seen.lost
    assert last == head_of(store).segments[1].last
    assert last - first < 10


def test_without_a_head_the_segments_tell_the_history_but_for_the_newest_records(store: MemoryStore) -> None:
    sealed = head_of(store).segments[-1].last
    store.delete(KEYS.head)

    seen = survey(store, KEYS)

    assert kinds(seen) == [("Missing", KEYS.head)]
    assert (seen.head, seen.last, seen.trusted) == (None, sealed, sealed)
    assert seen.started is not None
    assert seen.repeats == ()


def test_of_a_damaged_head_the_records_that_others_vouch_for_can_be_trusted(store: MemoryStore) -> None:
    head = head_of(store)
    sealed = head.segments[-1].last
    assert len(head.tail) > 3
    body = head.body().replace(head.tail[1], head.tail[1].replace(b'"epoch":', b'"epock":'))
    overwrite(store, KEYS.head, body)

    seen = survey(store, KEYS)

    damaged = sealed + 2
    assert kinds(seen)[0] == ("Corrupt", KEYS.head)
    assert (seen.head, seen.trusted, seen.lost) == (None, damaged - 1, ((damaged, damaged),))
    # The header's own digest of the newest record vouches for that one.
    assert seen.readable == ((damaged + 1, head.seq),)


def test_of_a_damaged_head_no_record_is_believed_that_was_changed_and_still_reads(store: MemoryStore) -> None:
    head = head_of(store)
    newest = head.tail[-1]
    changed = newest.replace(b'"ended_at":"2', b'"ended_at":"3')
    assert changed != newest
    overwrite(store, KEYS.head, head.body().replace(newest, changed))

    assert survey(store, KEYS).last == head.seq - 1


def test_of_a_head_that_is_another_runs_nothing_is_believed(store: MemoryStore) -> None:
    head = head_of(store)
    overwrite(store, KEYS.head, replace(head, run_id="b" * 20).body())

    assert survey(store, KEYS).last == head.segments[-1].last


def test_without_a_head_and_a_segment_the_bases_tell_which_steps_there_were(store: MemoryStore) -> None:
    head = head_of(store)
    state = load(store, head)
    store.delete(segments_of(store)[1])
    store.delete(KEYS.head)
    lost = head.segments[1]

    seen = survey(store, KEYS)

    assert seen.lost == ((lost.first, lost.last),)
    newest = head.bases[-1].seq
    assert seen.repeats == tuple(
        step for step, place in state.completed.items() if lost.first <= place.seq <= min(lost.last, newest)
    )


def test_a_lost_blob_is_named_with_the_step_whose_result_it_is(store: MemoryStore) -> None:
    (key,) = [key for key in contents(store) if "/blobs/" in key]
    store.delete(key)

    seen = survey(store, KEYS)

    step = f"step-{BLOB_STEP}"
    assert seen.problems == (Problem(key, "Missing", "a record names it, and it is gone", (step,)),)
    assert seen.repeats == (step,)
    assert [each.summary for each in seen.steps if not each.kept] == [f"worked on {BLOB_STEP}"]
    assert seen.trusted == seen.last


def test_a_changed_blob_is_damage(store: MemoryStore) -> None:
    (key,) = [key for key in contents(store) if "/blobs/" in key]
    flip(store, key)

    assert kinds(survey(store, KEYS)) == [("Corrupt", key)]


def test_bases_are_held_to_the_records(store: MemoryStore) -> None:
    first, second, third = bases_of(store)
    store.delete(first)
    flip(store, second)
    overwrite(store, third, body_of(store, third).replace(b'"steps_done":', b'"steps_done":1', 1))

    seen = survey(store, KEYS)

    assert sorted(kinds(seen)) == [("Corrupt", second), ("Corrupt", third), ("Missing", first)]
    assert seen.trusted == seen.last
    assert seen.damage == (), "readers pass over each of them"


def test_without_a_head_an_unreadable_base_is_damage(store: MemoryStore) -> None:
    overwrite(store, bases_of(store)[0], b"{}")
    store.delete(KEYS.head)

    seen = survey(store, KEYS)

    assert len(seen.damage) == 2


def test_a_base_with_a_right_digest_and_another_content_is_found(store: MemoryStore) -> None:
    head = head_of(store)
    *others, newest = head.bases
    body = body_of(store, base_key(KEYS, newest)).replace(b'["step-7",', b'["step-x",', 1)
    forged = replace(newest, digest=hashlib.sha256(body).hexdigest(), size=len(body))
    overwrite(store, base_key(KEYS, newest), body)
    overwrite(store, KEYS.head, replace(head, bases=(*others, forged)).body())

    seen = survey(store, KEYS)

    assert kinds(seen) == [("Corrupt", base_key(KEYS, newest))]
    assert seen.damage == seen.problems
    assert "step-x" in load(store, head_of(store)).completed, "readers believe it: it is not harmless"


def test_a_head_that_went_back_is_found_by_the_segments_that_follow_it(run: RunInMemory) -> None:
    store = copy_of(run.store)
    older = next(put for put in run.store.puts_to("/head") if put.body.count(b"\n") > 3)
    newest = head_of(store)
    overwrite(store, KEYS.head, older.body)

    seen = survey(store, KEYS)

    assert kinds(seen) == [("RolledBack", KEYS.head)]
    assert seen.last == newest.segments[-1].last
    assert (seen.trusted, seen.lost) == (seen.last, ())


def test_what_was_never_acknowledged_is_not_believed() -> None:
    store = FaultyStore()
    begin(store, entropy=Numbers())
    take(store, 1, entropy=Numbers(100))
    store.next_puts(None, Fault.crash(applied=False))
    with pytest.raises(Crashed):
        take(store, 2, entropy=Numbers(200), code_digest="x" * 50_000)
    cut_off = survey(store, KEYS)
    assert (cut_off.problems, cut_off.last) == ((), 2), "one record beyond the head is no head that went back"
    take(store, 3, entropy=Numbers(300))

    seen = survey(store, KEYS)

    assert (seen.problems, seen.last, seen.trusted) == ((), 3, 3)
    assert len(seen.orphans) == 1
    store.delete(KEYS.head)
    assert survey(store, KEYS).records[3].worker == "pod-2", "without a head it is all there is"


def test_a_header_that_differs_from_its_records_is_damage(store: MemoryStore) -> None:
    head = head_of(store)
    overwrite(store, KEYS.head, replace(head, totals=Totals(steps_done=3)).body())

    assert kinds(survey(store, KEYS)) == [("Corrupt", KEYS.head)]


def test_a_head_of_a_newer_format_is_no_damage_to_repair(store: MemoryStore) -> None:
    body = body_of(store, KEYS.head)
    overwrite(store, KEYS.head, body.replace(b'{"format":3', b'{"format":9', 1))

    seen = survey(store, KEYS)

    assert kinds(seen) == [("FormatTooNew", KEYS.head)]
    assert seen.too_new


def test_a_run_of_which_nothing_is_left_is_reported() -> None:
    seen = survey(MemoryStore(), KEYS)

    assert (kinds(seen), seen.last, seen.started) == ([("Missing", KEYS.head)], 0, None)


def test_the_message_names_the_object_what_is_trusted_what_repeats_and_the_command(
    store: MemoryStore,
) -> None:
    head = head_of(store)
    key = segments_of(store)[0]
    store.delete(key)
    error = _error_of(store)

    said = explain(store, KEYS, error, where="s3://bucket/p", name="triage")

    assert said.startswith(
        f"{key}: the head names it for records 1 to {head.segments[0].last}, and it is gone. "
    )
    assert f"Of the records 1 to {head.seq} none can be trusted; records" in said
    assert "milepost store repair 's3://bucket/p' team/triage --dry-run" in said
    assert "These steps are lost and run again: step-0, send-0, step-1" in said
    assert len(said) <= MOST


def _error_of(store: MemoryStore) -> Damaged:
    try:
        load(store, head_of(store))
    except Damaged as error:
        return error
    raise AssertionError("it is damaged")


def test_the_message_is_bounded_however_long_the_names_are(store: MemoryStore) -> None:
    said = explain(store, KEYS, Corrupt(KEYS.head, "x" * 5000), where="file:/f")

    assert len(said) == MOST


def test_a_store_that_cannot_be_read_leaves_the_message_short() -> None:
    store = FaultyStore()
    store.next_gets_fail(9)

    said = explain(store, KEYS, Missing("k", "it is gone"), where="file:/f")

    assert said == (
        "k: it is gone. To see what is left, and go on from it: "
        f"milepost store repair 'file:/f' --run team/{KEYS.run_id} --dry-run"
    )


def test_a_damaged_line_of_a_head_that_is_sound_otherwise_is_reported() -> None:
    store = MemoryStore()
    begun = begin(store, entropy=Numbers())
    bent = replace(begun.head, tail=(b'{"format":3}\n',), chain="0" * 64)
    overwrite(store, KEYS.head, bent.body())

    seen = survey(store, KEYS)

    assert [kind for kind, _ in kinds(seen)] == ["Corrupt"]
    assert (seen.last, seen.trusted) == (1, 0)


def test_an_event_that_cannot_follow_ends_what_is_trusted() -> None:
    store = MemoryStore()
    begun = begin(store, entropy=Numbers())
    head = after(begun.head, a_step("one"), entropy=Numbers(5)).head
    head = after(head, a_step("one"), entropy=Numbers(6)).head
    overwrite(store, KEYS.head, head.body())

    seen = survey(store, KEYS)

    assert (seen.trusted, seen.last, seen.readable) == (2, 3, ((3, 3),))
    assert [problem.what for problem in seen.problems] == ["step one is recorded as completed twice"]


@pytest.mark.parametrize("without_head", [True, False])
def test_a_number_that_no_run_ever_had_costs_nothing(*, without_head: bool) -> None:
    store = MemoryStore()
    begun = begin(store, entropy=Numbers())
    far = 10**15
    record, _ = begun.head.records()[0]
    line = line_of(record.model_copy(update={"seq": far}))
    _, segment = seal(KEYS.run_id, epoch=0, last=far, nonce="n", lines=(line,))
    store.put_new(KEYS.segment(0, far, far, "n"), segment, {})
    if without_head:
        store.delete(KEYS.head)
    else:
        overwrite(store, KEYS.head, replace(begun.head, seq=far).body())

    seen = survey(store, KEYS)

    assert (seen.last, seen.trusted) == (far, 0 if without_head else 1)
    assert seen.lost == (((1, far - 1),) if without_head else ((2, far),))


def test_another_runs_segment_is_not_taken_for_this_ones() -> None:
    store = MemoryStore()
    begun = begin(MemoryStore(), entropy=Numbers())
    _, segment = seal("b" * 20, epoch=0, last=1, nonce="n", lines=begun.head.tail)
    key = KEYS.segment(0, 1, 1, "n")
    store.put_new(key, segment, {})

    seen = survey(store, KEYS)

    assert kinds(seen) == [("Missing", KEYS.head), ("Corrupt", key)]
    assert seen.records == {}
