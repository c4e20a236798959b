"""What an error of a store means for a run."""

from __future__ import annotations

import pytest

from milepost.errors import Fenced, MilepostError, Missing, StoreRefused, StoreUnavailable
from milepost_operator.core.observation import StoreProblem
from milepost_operator.shell.stores import as_problem


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        (
            StoreRefused("BucketMissing", "no bucket b", advice="create it"),
            StoreProblem("BucketMissing", "no bucket b; create it"),
        ),
        (
            Missing("ns/head", "it is gone"),
            StoreProblem(
                "Missing",
                "ns/head: it is gone; milepost store verify tells what is left, "
                "and store repair goes on from it",
                halts=True,
            ),
        ),
        (Fenced("run", held_epoch=1, seen_epoch=2), None),
    ],
)
def test_only_damage_halts_and_only_the_stores_errors_are_its_problem(
    error: MilepostError, problem: StoreProblem | None
) -> None:
    assert as_problem(error) == problem


def test_a_store_that_stays_silent_is_the_same_problem_in_each_pass() -> None:
    first, second = (StoreUnavailable("ns/head", waited=waited, cause="500") for waited in (2.1, 13.9))

    assert as_problem(first) == as_problem(second)
