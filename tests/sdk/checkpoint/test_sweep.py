"""What may be deleted: each rule by itself, and their order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from milepost.api.names import StoreKeys
from milepost.api.resource import DeletionPolicy, Phase
from milepost.api.summary import NameRecord, NameState
from milepost.checkpoint import sweep
from milepost.checkpoint.base import Base, base_key
from milepost.checkpoint.head import Head, deleting_head, draft, parse_head
from milepost.checkpoint.sealed import Segment, lines_of, segment_key
from milepost.checkpoint.store import Listed
from milepost.checkpoint.sweep import (
    RULES,
    Ages,
    Cause,
    Keep,
    Living,
    Prune,
    Remove,
    Sight,
    Trouble,
    Unreadable,
    Useless,
    judge,
)
from milepost.errors import ProtocolBreach
from tests.support.histories import KEYS, NOON, a_claim, a_new_head, a_step, after, an_outcome
from tests.support.store_doubles import Numbers

pytestmark = pytest.mark.req("C6")

NOW = 1_000_000_000.0
HOUR = 3600.0
DAY = 24 * HOUR


def a_segment(first: int, last: int, *, nonce: str = "n", level: int = 0) -> Segment:
    return Segment(1, first, last, nonce, 100, "0" * 64, level)


def a_base(seq: int, *, nonce: str = "n") -> Base:
    return Base(1, seq, nonce, 100, "0" * 64)


def a_live_head(**changes: Any) -> Head:
    entropy = Numbers()
    head = after(a_new_head(entropy=entropy), a_claim(), entropy=entropy).head
    return replace(head, **changes)


def an_ended_head(**changes: Any) -> Head:
    entropy = Numbers()
    return replace(after(a_live_head(), an_outcome(), entropy=entropy).head, **changes)


def an_unclaimed_head(**changes: Any) -> Head:
    return replace(a_new_head(entropy=Numbers()), **changes)


def a_record(**changes: Any) -> NameRecord:
    return NameRecord(
        **{
            "name": "triage",
            "run_id": KEYS.run_id,
            "resource_uid": "uid-1",
            "spec_digest": "spec-1",
            "cluster": "cluster-1",
            **changes,
        }
    )


def listed(key: str, age: float = DAY) -> Listed:
    return Listed(key, 100, NOW - age)


def a_sight(
    head: Head | Unreadable | None,
    *objects: Listed,
    head_age: float = HOUR,
    keys: StoreKeys = KEYS,
    **more: Any,
) -> Sight:
    """Return a run to which a name leads, with its head among its objects."""
    of_head = () if head is None else (Listed(keys.head, 1000, NOW - head_age),)
    return Sight(keys=keys, now=NOW, objects=(*of_head, *objects), head=head, **{"named": a_record(), **more})


def segments_of(*named: Segment, age: float = DAY) -> Iterable[Listed]:
    return (listed(segment_key(KEYS, each), age) for each in named)


def gone(verdict: sweep.Verdict) -> set[str]:
    assert isinstance(verdict, Prune)
    return {each.object.key for each in verdict.objects}


class TestALiveRun:
    def test_a_segment_whose_records_were_merged_into_another_goes(self) -> None:
        merged, into = a_segment(1, 4), a_segment(1, 16, nonce="m", level=1)
        sight = a_sight(a_live_head(segments=(into,)), *segments_of(merged, into))

        assert judge(sight) == Prune(
            (Useless(listed(segment_key(KEYS, merged)), "its records are in a segment that the head names"),)
        )

    def test_a_segment_that_the_head_names_stays(self) -> None:
        named = (a_segment(1, 4), a_segment(5, 8))

        assert gone(judge(a_sight(a_live_head(segments=named), *segments_of(*named)))) == set()

    def test_a_segment_beyond_what_the_head_covers_waits_for_its_head(self) -> None:
        named, ahead = a_segment(1, 4), a_segment(1, 8, nonce="ahead")

        assert gone(judge(a_sight(a_live_head(segments=(named,)), *segments_of(named, ahead)))) == set()

    def test_a_segment_stays_while_the_head_names_none(self) -> None:
        assert gone(judge(a_sight(a_live_head(), *segments_of(a_segment(1, 4))))) == set()

    def test_a_segment_stays_until_what_replaced_it_has_been_there_for_long(self) -> None:
        merged, into = a_segment(1, 4), a_segment(1, 16, nonce="m", level=1)
        sight = a_sight(
            a_live_head(segments=(into,)),
            *segments_of(merged),
            *segments_of(into, age=Ages().passed_over - 1),
        )

        assert gone(judge(sight)) == set()

    def test_a_segment_stays_while_the_listing_does_not_show_what_replaced_it(self) -> None:
        merged, into = a_segment(1, 4), a_segment(1, 16, nonce="m", level=1)

        assert gone(judge(a_sight(a_live_head(segments=(into,)), *segments_of(merged)))) == set()

    def test_what_a_fenced_writer_left_over_a_border_of_segments_goes(self) -> None:
        left, named = a_segment(3, 6, nonce="fenced"), (a_segment(1, 4), a_segment(5, 8))
        sight = a_sight(a_live_head(segments=named), *segments_of(left, *named))

        assert gone(judge(sight)) == {segment_key(KEYS, left)}

    def test_what_has_no_segments_name_stays(self) -> None:
        named, odd = a_segment(1, 4), f"{KEYS.run}segments/1-x-2-n"
        sight = a_sight(a_live_head(segments=(named,)), *segments_of(named), listed(odd))

        assert gone(judge(sight)) == set()

    def test_a_base_at_or_before_the_newest_named_one_goes(self) -> None:
        old, beside, newest = a_base(3), a_base(9, nonce="fenced"), a_base(9)
        objects = [listed(base_key(KEYS, each)) for each in (old, beside, newest)]

        verdict = judge(a_sight(a_live_head(bases=(newest,)), *objects))

        assert gone(verdict) == {base_key(KEYS, old), base_key(KEYS, beside)}

    def test_the_bases_that_the_head_names_and_newer_ones_stay(self) -> None:
        bases = (a_base(3), a_base(6), a_base(9))
        objects = [listed(base_key(KEYS, each)) for each in (*bases, a_base(12))]

        assert gone(judge(a_sight(a_live_head(bases=bases), *objects))) == set()

    def test_a_base_stays_until_the_newest_has_been_there_for_long(self) -> None:
        old, newest = a_base(3), a_base(9)
        objects = [listed(base_key(KEYS, old)), listed(base_key(KEYS, newest), Ages().passed_over - 1)]

        assert gone(judge(a_sight(a_live_head(bases=(newest,)), *objects))) == set()

    def test_no_blob_is_even_looked_at(self) -> None:
        sight = a_sight(a_live_head(), listed(KEYS.blob("a" * 64), 100 * DAY))

        assert judge(sight) == Prune(())

    def test_it_stays_for_ever_whatever_its_age(self) -> None:
        assert judge(a_sight(a_live_head(), head_age=1000 * DAY, named=a_record(retention_s=0))) == Prune(())


class TestARunThatHasEnded:
    def test_what_its_head_does_not_name_goes(self) -> None:
        named, ahead, base = a_segment(1, 4), a_segment(1, 8, nonce="ahead"), a_base(9)
        blob = listed(KEYS.blob("b" * 64))
        sight = a_sight(
            an_ended_head(segments=(named,)), *segments_of(named, ahead), listed(base_key(KEYS, base)), blob
        )
        why = "the run has ended, and its head does not name it"

        assert judge(sight) == Prune(
            (
                Useless(listed(segment_key(KEYS, ahead)), why),
                Useless(listed(base_key(KEYS, base)), why),
            ),
            blobs=(blob,),
        )

    def test_nothing_goes_before_all_have_heard_of_the_end(self) -> None:
        sight = a_sight(an_ended_head(), *segments_of(a_segment(1, 4)), head_age=Ages().passed_over - 1)

        assert judge(sight) == Keep()

    @pytest.mark.req("C5")
    def test_it_stays_until_its_retention_has_passed(self) -> None:
        head = an_ended_head(retention_s=0)

        assert judge(a_sight(head, head_age=30 * DAY - 1)) == Prune(())

    @pytest.mark.req("C5")
    def test_it_goes_once_its_retention_has_passed(self) -> None:
        head = an_ended_head(retention_s=999 * 24 * 3600)

        assert judge(a_sight(head, head_age=30 * DAY)) == Remove(
            Cause.EXPIRED, "it ended longer ago than its retention of 30 days"
        )

    def test_it_stays_until_its_resource_has_been_told_the_end(self) -> None:
        there, gone = Living("cluster-1", frozenset({"uid-1"})), Living("cluster-1", frozenset())
        late = 31 * DAY

        assert judge(a_sight(an_ended_head(), living=there, head_age=late)) == Prune(())
        for sight in (
            a_sight(an_ended_head(), living=there, named=a_record(outcome="Succeeded"), head_age=late),
            a_sight(an_ended_head(), living=gone, head_age=late),
            a_sight(an_ended_head(), head_age=late),
        ):
            assert isinstance(judge(sight), Remove)

    def test_of_a_run_that_no_name_leads_to_its_head_says_for_how_long_it_is_kept(self) -> None:
        sight = a_sight(an_ended_head(retention_s=60), named=None, head_age=61)

        assert judge(sight) == Remove(Cause.EXPIRED, "it ended longer ago than its retention of 60 s")

    def test_it_goes_where_its_name_says_so_already(self) -> None:
        verdict = judge(a_sight(an_ended_head(), named=a_record(state=NameState.EXPIRED), head_age=1))

        assert isinstance(verdict, Remove)
        assert verdict.cause is Cause.EXPIRED

    def test_it_stays_where_the_listing_does_not_show_when_it_ended(self) -> None:
        sight = replace(a_sight(an_ended_head(), named=a_record(retention_s=0)), objects=())

        assert judge(sight) == Keep()


class TestAResourceThatIsGone:
    deleted = a_record(deletion_policy=DeletionPolicy.DELETE)

    @pytest.mark.req("K6")
    @pytest.mark.parametrize("head", [a_live_head(), an_ended_head()])
    def test_its_run_goes_where_the_policy_is_delete(self, head: Head) -> None:
        sight = a_sight(head, named=self.deleted, living=Living("cluster-1", frozenset({"uid-2"})))

        assert judge(sight) == Remove(
            Cause.RESOURCE_GONE, "its AgentRun was deleted, and deletionPolicy is Delete"
        )

    @pytest.mark.req("K6")
    def test_its_run_stays_where_the_policy_is_retain(self) -> None:
        head = an_ended_head(deletion_policy=DeletionPolicy.DELETE)

        assert judge(a_sight(head, living=Living("cluster-1", frozenset()))) == Prune(())

    def test_its_run_stays_while_it_is_there(self) -> None:
        living = Living("cluster-1", frozenset({"uid-1"}))

        assert judge(a_sight(a_live_head(), named=self.deleted, living=living)) == Prune(())

    def test_its_run_stays_where_nobody_knows_which_resources_there_are(self) -> None:
        assert judge(a_sight(a_live_head(), named=self.deleted)) == Prune(())

    @pytest.mark.req("S6")
    def test_a_lost_clusters_runs_wait_for_their_manifests(self) -> None:
        living = Living("cluster-2", frozenset())

        assert judge(a_sight(a_live_head(), named=self.deleted, living=living)) == Prune(())

    def test_of_a_run_that_no_name_leads_to_its_head_says_what_becomes_of_it(self) -> None:
        head = an_ended_head(deletion_policy=DeletionPolicy.DELETE)
        sight = a_sight(head, named=None, living=Living("cluster-1", frozenset()))

        verdict = judge(sight)

        assert isinstance(verdict, Remove)
        assert verdict.cause is Cause.RESOURCE_GONE


class TestAHeadThatNoNameLeadsTo:
    def test_it_goes_after_an_hour_where_nobody_claimed_it(self) -> None:
        assert judge(a_sight(an_unclaimed_head(), named=None, head_age=HOUR)) == Remove(
            Cause.NEVER_BEGUN, "no name leads to it, and nobody ever claimed it"
        )

    def test_it_stays_while_its_maker_may_be_about_to_name_it(self) -> None:
        assert judge(a_sight(an_unclaimed_head(), named=None, head_age=HOUR - 1)) == Keep()

    def test_it_stays_where_somebody_claimed_it(self) -> None:
        assert judge(a_sight(a_live_head(), named=None, head_age=100 * DAY)) == Prune(())

    def test_it_stays_where_a_name_leads_to_it(self) -> None:
        assert judge(a_sight(an_unclaimed_head(), head_age=100 * DAY)) == Prune(())

    def test_a_name_that_has_given_it_up_leads_to_nothing(self) -> None:
        sight = a_sight(an_unclaimed_head(), named=a_record(state=NameState.FREE), head_age=HOUR)

        verdict = judge(sight)

        assert isinstance(verdict, Remove)
        assert verdict.cause is Cause.NEVER_BEGUN


class TestObjectsWithoutAHead:
    def test_under_a_name_that_leads_to_them_they_are_damage(self) -> None:
        assert judge(a_sight(None, listed(KEYS.blob("a" * 64), 100 * DAY))) == Trouble(
            "a name leads to it, and its head is gone; nothing is deleted from what is left"
        )

    @pytest.mark.parametrize("state", [NameState.EXPIRED, NameState.FREE])
    def test_under_a_name_that_gave_the_run_up_they_go(self, state: NameState) -> None:
        verdict = judge(a_sight(None, listed(KEYS.blob("a" * 64), 0), named=a_record(state=state)))

        assert verdict == Remove(
            Cause.LEFT_OVER, "written after the run was deleted, by a writer that had not noticed"
        )

    def test_under_no_name_they_are_orphans_after_a_day(self) -> None:
        old, new = listed(KEYS.blob("a" * 64), 2 * DAY), listed(KEYS.blob("b" * 64), DAY)

        assert judge(a_sight(None, old, new, named=None)) == Remove(
            Cause.ORPHANED, "objects without a head, to which no name leads"
        )

    def test_under_no_name_they_stay_while_one_of_them_is_young(self) -> None:
        old, new = listed(KEYS.blob("a" * 64), 2 * DAY), listed(KEYS.blob("b" * 64), DAY - 1)

        assert judge(a_sight(None, old, new, named=None)) == Keep()

    def test_an_expired_runs_name_alone_is_as_it_should_be(self) -> None:
        assert judge(a_sight(None, named=a_record(state=NameState.EXPIRED))) == Keep()


class TestWhatCannotBeRead:
    def test_a_run_stays_as_it_is_under_a_head_that_cannot_be_read(self) -> None:
        sight = a_sight(Unreadable("format 9"), listed(KEYS.blob("a" * 64), 100 * DAY), named=None)

        assert judge(sight) == Trouble("the head cannot be read: format 9")

    @pytest.mark.parametrize("head", [None, an_unclaimed_head(), an_ended_head(retention_s=0)])
    def test_a_run_stays_as_it_is_where_a_name_cannot_be_read(self, head: Head | None) -> None:
        sight = a_sight(
            head, listed(KEYS.blob("a" * 64), 100 * DAY), named=None, doubt="names/triage", head_age=100 * DAY
        )

        assert judge(sight) == Trouble("a name that may lead to it cannot be read: names/triage")


class TestADeletionThatWasInterrupted:
    def test_it_is_finished(self) -> None:
        head = deleting_head(an_ended_head(), at=NOON, entropy=Numbers())

        assert judge(a_sight(head, head_age=0)) == Remove(
            Cause.INTERRUPTED, "its deletion was begun and not finished"
        )


class TestTheDeletingHead:
    def test_it_takes_the_run_from_every_writer_and_adds_no_record(self) -> None:
        before = an_ended_head()

        head = deleting_head(before, at=NOON, entropy=Numbers(count=1000))

        assert head == replace(
            before,
            epoch=before.epoch + 1,
            writer="operator",
            phase=Phase.DELETING,
            nonce=head.nonce,
            updated=NOON.isoformat(),
        )
        assert head.nonce != before.nonce
        assert parse_head(head.body(), KEYS) == head

    def test_there_is_one_only(self) -> None:
        head = deleting_head(a_live_head(), at=NOON, entropy=Numbers())

        with pytest.raises(ProtocolBreach):
            deleting_head(head, at=NOON, entropy=Numbers())


class TestBlobs:
    def test_those_that_no_record_names_go(self) -> None:
        named, unnamed = listed(KEYS.blob("a" * 64)), listed(KEYS.blob("b" * 64))
        lines = [b'{"result":{"blob":"' + b"a" * 64 + b'"}}']

        assert sweep.unnamed_blobs([named, unnamed], sweep.named_blobs(lines)) == (
            Useless(unnamed, "the run has ended, and no record names it"),
        )


def test_no_head_that_follows_the_one_judged_names_what_went() -> None:
    entropy, heads, lines = Numbers(), [a_live_head()], dict[str, tuple[bytes, ...]]()
    for number in range(80):
        planned = draft(heads[-1], (a_step(f"s{number}", "x" * 12_000),), at=NOON, entropy=entropy)
        merged = [(named, lines[segment_key(KEYS, named)]) for named in planned.merging]
        commit = planned.commit(merged)
        heads.append(commit.head)
        for key, body in commit.objects:
            lines[key] = lines_of(body, commit.head.segments[-1], KEYS)
    objects = [listed(key) for key in lines]

    useless = [gone(judge(a_sight(head, *objects))) for head in heads]

    for number, went in enumerate(useless):
        assert not went & {segment_key(KEYS, named) for head in heads[number:] for named in head.segments}
    assert len(useless[-1]) == len(lines) - len(heads[-1].segments) > 3


def test_the_order_of_the_rules() -> None:
    assert [rule.__name__ for rule in RULES] == [
        "unreadable",
        "doubtful",
        "headless",
        "being_deleted",
        "never_begun",
        "resource_gone",
        "expired",
        "ended",
        "live",
    ]
