from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from milepost.api.resource import Phase
from milepost.checkpoint.answers import Done, Look, Lost, Purpose, SendAgain, Write, after_look, after_put
from milepost.checkpoint.head import Head
from milepost.checkpoint.store import (
    Absent,
    Answer,
    Clash,
    Expired,
    Found,
    Gone,
    Refused,
    Stored,
    Unchanged,
    Undecided,
    Unknown,
)
from milepost.errors import Corrupt, Fenced, FormatTooNew, ProtocolBreach, RunDeleted, StoreRefused
from tests.support.histories import KEYS, a_claim, a_new_head, a_step, after
from tests.support.store_doubles import Numbers

ENTROPY = Numbers()
CLAIMED = after(a_new_head(entropy=ENTROPY), a_claim(1), entropy=ENTROPY).head
OURS = after(CLAIMED, a_step("one"), entropy=ENTROPY).head
BLOB = Write(Purpose.CREATE, KEYS.blob("b" * 64), b"value")


def a_write(purpose: Purpose = Purpose.COMMIT, head: Head = OURS) -> Write:
    return Write(purpose, KEYS.head, head.body(), head.metadata(), etag='"ours"', head=head)


def a_name(**changes: Any) -> Write:
    return replace(Write(Purpose.NAME, KEYS.name("triage"), b"{}", etag='"ours"'), **changes)


def found(head: Head, etag: str = '"theirs"') -> Found:
    return Found(head.body(), etag)


@pytest.mark.req("C2", "C4")
@pytest.mark.parametrize(
    ("answer", "what_next"),
    [
        (Stored('"new"'), Done('"new"')),
        (Stored(""), Look()),
        (Clash(), Look()),
        (Undecided("409"), Look()),
        (Unknown("503"), SendAgain("503")),
        (Unknown("429", retry_after=3.0), SendAgain("429", 3.0)),
        (Expired("ExpiredToken"), SendAgain("ExpiredToken")),
    ],
)
@pytest.mark.parametrize("write", [a_write(), a_write(Purpose.CLAIM), a_name(), BLOB])
def test_what_follows_an_answer(write: Write, answer: Answer, what_next: object) -> None:
    assert after_put(write, answer) == what_next


@pytest.mark.req("C2")
@pytest.mark.parametrize("purpose", [Purpose.COMMIT, Purpose.CLAIM])
def test_a_head_that_is_gone_is_never_created_again(purpose: Purpose) -> None:
    with pytest.raises(RunDeleted):
        after_put(a_write(purpose), Gone())
    with pytest.raises(RunDeleted):
        after_look(a_write(purpose), Absent())


def test_a_create_cannot_have_met_an_object_that_is_gone() -> None:
    assert after_put(BLOB, Gone()) == Look()


def test_a_clear_no_is_said_with_its_advice() -> None:
    with pytest.raises(StoreRefused) as caught:
        after_put(a_write(), Refused("BucketMissing", "404 NoSuchBucket", "create the bucket"))
    assert (caught.value.reason, caught.value.advice) == ("BucketMissing", "create the bucket")


@pytest.mark.req("C4")
@pytest.mark.parametrize("write", [a_write(), a_write(Purpose.CLAIM), a_name(), BLOB])
def test_the_same_bytes_in_place_mean_it_was_me(write: Write) -> None:
    assert after_look(write, Found(write.body, '"new"')) == Done('"new"')


@pytest.mark.req("C4")
@pytest.mark.parametrize("write", [a_write(), a_write(Purpose.CLAIM), a_name()])
def test_the_etag_still_standing_means_nothing_was_decided(write: Write) -> None:
    assert after_look(write, found(CLAIMED, '"ours"')) == SendAgain("nothing was decided")


def test_nothing_in_place_of_a_create_means_nothing_was_written() -> None:
    assert after_look(BLOB, Absent()) == SendAgain("nothing was written")


@pytest.mark.req("C3")
def test_a_higher_epoch_has_fenced_this_writer() -> None:
    with pytest.raises(Fenced) as caught:
        after_look(a_write(), found(after(CLAIMED, a_claim(2), entropy=ENTROPY).head))
    assert (caught.value.held_epoch, caught.value.seen_epoch) == (1, 2)


@pytest.mark.req("C3")
def test_a_higher_epoch_fences_also_where_it_has_fewer_records() -> None:
    newer = replace(CLAIMED, epoch=9, seq=1)

    with pytest.raises(Fenced):
        after_look(a_write(), found(newer))


@pytest.mark.parametrize(
    "theirs",
    [
        replace(OURS, nonce="another"),
        replace(OURS, writer="pod-x"),
        replace(OURS, writer="pod-x", seq=OURS.seq - 1),
        replace(OURS, seq=OURS.seq + 1),
    ],
    ids=["same record, other bytes", "other writer", "other writer behind", "own writer ahead"],
)
def test_another_write_in_the_same_epoch_is_a_bug_and_said_so(theirs: Head) -> None:
    with pytest.raises(ProtocolBreach, match="epoch 1"):
        after_look(a_write(), found(theirs))


@pytest.mark.req("C1", "F-D8")
@pytest.mark.parametrize(
    "theirs",
    [replace(OURS, epoch=0), replace(OURS, seq=OURS.seq - 1, nonce="x"), replace(OURS, seq=1)],
    ids=["lower epoch", "the record before, under another ETag", "lower seq"],
)
def test_a_head_that_went_back_is_damage(theirs: Head) -> None:
    with pytest.raises(Corrupt, match="went back"):
        after_look(a_write(), found(theirs))


@pytest.mark.req("C1")
def test_a_head_with_a_bad_digest_is_damage() -> None:
    rotten = OURS.body().replace(b"done", b"gone")

    with pytest.raises(Corrupt, match="digest"):
        after_look(a_write(), Found(rotten, '"theirs"'))


def test_a_head_of_a_newer_format_is_not_judged() -> None:
    newer = OURS.body().replace(b'"format":3', b'"format":4', 1)

    with pytest.raises(FormatTooNew):
        after_look(a_write(), Found(newer, '"theirs"'))


@pytest.mark.req("C3")
def test_a_head_that_is_being_deleted_is_a_deleted_run() -> None:
    with pytest.raises(RunDeleted):
        after_look(a_write(), found(replace(OURS, phase=Phase.DELETING, epoch=2)))


@pytest.mark.parametrize(
    "theirs", [after(CLAIMED, a_claim(2), entropy=ENTROPY).head, replace(OURS, phase=Phase.DELETING), CLAIMED]
)
def test_a_claim_that_meets_another_head_has_lost_the_race(theirs: Head) -> None:
    assert after_look(a_write(Purpose.CLAIM), found(theirs)) == Lost(found(theirs))


@pytest.mark.parametrize("etag", ["", '"ours"'])
def test_a_name_that_somebody_else_wrote_is_handed_back(etag: str) -> None:
    theirs = Found(b'{"other":1}', '"theirs"')

    assert after_look(a_name(etag=etag), theirs) == Lost(theirs)


@pytest.mark.req("C1")
def test_other_bytes_under_a_name_that_is_written_once_are_damage() -> None:
    with pytest.raises(Corrupt, match="written once"):
        after_look(BLOB, Found(b"other", '"theirs"'))


def test_a_look_without_a_condition_cannot_be_unchanged() -> None:
    with pytest.raises(ProtocolBreach):
        after_look(a_write(), Unchanged())
