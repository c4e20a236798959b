from __future__ import annotations

from itertools import pairwise

import pytest

from milepost.llm.asking import Patience, redacted

PATIENCE = Patience(600, "run/1", say=print)


def test_without_advice_the_pauses_grow_to_a_minute() -> None:
    pauses = [PATIENCE.pause(tries, None) for tries in range(1, 20)]

    for number, pause in enumerate(pauses):
        longest = min(60, 2**number)
        assert longest / 2 <= pause <= longest


@pytest.mark.req("G4")
@pytest.mark.parametrize("asked", [1.0, 30.0, 300.0])
def test_a_pause_is_never_shorter_than_was_asked_for(asked: float) -> None:
    assert asked <= PATIENCE.pause(1, asked) <= asked + min(1, asked / 10)


def test_a_provider_that_says_not_to_wait_is_waited_for_all_the_same() -> None:
    pauses = [PATIENCE.pause(tries, 0.0) for tries in range(1, 20)]

    assert all(later >= 2 * earlier or later == 60 for earlier, later in pairwise(pauses))


def test_runs_do_not_all_come_back_in_the_same_moment() -> None:
    assert len({Patience(600, f"run-{number}/1", say=print).pause(1, None) for number in range(10)}) > 5


@pytest.mark.parametrize(
    ("said", "left"),
    [
        ("key is quite-secret-1", "key is ***"),
        ("Bearer abcdefghijkl", "***"),
        ("sk-proj-abcdefghij0123456789", "***"),
        ("AIzaSyA0123456789abcdefghijklmnop", "***"),
        ("the risk-free-and-very-long-identifier", "the risk-free-and-very-long-identifier"),
        ("task sketch-of-something-quite-long", "task sketch-of-something-quite-long"),
        ("x" * 2000, "x" * 1000 + " ..."),
    ],
)
def test_what_looks_like_a_secret_is_taken_out(said: str, left: str) -> None:
    assert redacted(said, {"quite-secret-1"}) == left
