from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from milepost.checkpoint.sealed import (
    FANOUT,
    MAX_SEGMENT,
    Segment,
    lines_of,
    merging,
    seal,
    segment_key,
)
from milepost.errors import Corrupt
from tests.support.histories import KEYS

pytestmark = pytest.mark.req("S8", "I1")


def a_segment(first: int, last: int, level: int = 0, size: int = 100) -> Segment:
    return Segment(1, first, last, f"n{first}", size, "0" * 64, level)


def sealed_run(counts: list[int], sizes: list[int]) -> tuple[list[Segment], dict[Segment, tuple[bytes, ...]]]:
    """Seal one part after another, as commits do; return what the head names, and each one's lines."""
    named: list[Segment] = []
    held: dict[Segment, tuple[bytes, ...]] = {}
    last = 0
    for number, (count, size) in enumerate(zip(counts, sizes, strict=True)):
        lines = tuple(b"%d " % (last + each + 1) + b"x" * size + b"\n" for each in range(count))
        last += count
        taken = merging(named, sum(map(len, lines)))
        segment, body = seal(
            KEYS.run_id,
            epoch=1,
            last=last,
            nonce=str(number),
            lines=lines,
            merged=[(older, held[older]) for older in taken],
        )
        named = [*named[: len(named) - len(taken)], segment]
        held[segment] = lines_of(body, segment, KEYS)
    return named, held


parts = st.lists(st.tuples(st.integers(1, 5), st.integers(0, 300)), min_size=1, max_size=150)


@settings(max_examples=60, deadline=None)
@given(parts)
def test_a_head_names_at_most_three_segments_a_level_and_the_whole_history(
    parts: list[tuple[int, int]],
) -> None:
    named, held = sealed_run([count for count, _ in parts], [size for _, size in parts])

    assert max(Counter(segment.level for segment in named).values()) <= FANOUT - 1
    levels = [segment.level for segment in named]
    assert levels == sorted(levels, reverse=True), "the oldest are the largest"
    assert named[0].first == 1
    assert all(before.last + 1 == after.first for before, after in pairwise(named))
    every = [int(line.split(b" ")[0]) for segment in named for line in held[segment]]
    assert every == list(range(1, sum(count for count, _ in parts) + 1))


def test_every_record_is_rewritten_a_bounded_number_of_times() -> None:
    written = 0
    named: list[Segment] = []
    for number in range(4000):
        taken = merging(named, 100)
        size = 100 + sum(segment.size for segment in taken)
        level = 1 + max((segment.level for segment in taken), default=-1)
        written += size
        named = [
            *named[: len(named) - len(taken)],
            a_segment(taken[0].first if taken else number, number, level, size),
        ]

    assert len(named) <= 3 * 7
    assert written / (4000 * 100) <= 7


@pytest.mark.parametrize("room", [-1, 0, 1])
def test_no_segment_grows_beyond_its_bound_by_merging(room: int) -> None:
    third = (MAX_SEGMENT - 100) // 3
    named = [a_segment(number, number, size=third) for number in range(1, 4)]
    left = MAX_SEGMENT - 3 * third

    taken = merging(named, left + room)

    assert taken == (tuple(named) if room <= 0 else ())


def test_segments_that_are_too_large_to_merge_stay_beside_each_other() -> None:
    half = MAX_SEGMENT // 2
    named: list[Segment] = []
    for number in range(1, 41):
        assert merging(named, half) == ()
        named.append(a_segment(number, number, size=half))


def test_a_head_of_version_1_with_many_small_segments_takes_them_all_in_at_once() -> None:
    named = [a_segment(number, number) for number in range(1, 200)]

    taken = merging(named, 100)

    assert taken == tuple(named)


def test_a_cascade_takes_several_levels_in_one_write() -> None:
    named = [
        *(a_segment(number, number, level=2) for number in (1, 2)),
        *(a_segment(number, number, level=1) for number in (3, 4, 5)),
        *(a_segment(number, number, level=0) for number in (6, 7, 8)),
    ]

    assert merging(named, 100) == tuple(named[2:])
    assert merging(named[:-1], 100) == ()


def test_a_segment_says_what_it_is_and_is_held_to_it() -> None:
    segment, body = seal(KEYS.run_id, epoch=2, last=4, nonce="n", lines=(b"a\n", b"b\n"))

    assert segment == Segment(2, 3, 4, "n", len(body), hashlib.sha256(body).hexdigest(), 0)
    assert segment_key(KEYS, segment) == KEYS.segment(2, 3, 4, "n")
    assert lines_of(body, segment, KEYS) == (b"a\n", b"b\n")


@pytest.mark.parametrize(
    "changes", [{"epoch": 1}, {"first": 2}, {"last": 5}, {"nonce": "m"}, {"first": 3, "last": 3}]
)
def test_a_segment_in_anothers_place_is_corrupt(changes: dict[str, int]) -> None:
    segment, body = seal(KEYS.run_id, epoch=2, last=4, nonce="n", lines=(b"a\n", b"b\n"))

    with pytest.raises(Corrupt):
        lines_of(body, replace(segment, **changes), KEYS)  # type: ignore[arg-type]  # fields by their names


def test_a_segment_of_another_run_is_corrupt() -> None:
    segment, body = seal("b" * 20, epoch=2, last=4, nonce="n", lines=(b"a\n",))

    with pytest.raises(Corrupt, match="of itself"):
        lines_of(body, segment, KEYS)


def test_a_segment_that_holds_fewer_records_than_it_says_is_corrupt() -> None:
    segment, body = seal(KEYS.run_id, epoch=2, last=4, nonce="n", lines=(b"a\n", b"b\n"))
    short = body.removesuffix(b"b\n")
    named = replace(segment, digest=hashlib.sha256(short).hexdigest())

    with pytest.raises(Corrupt, match="holds 1 records, not 3 to 4"):
        lines_of(short, named, KEYS)
