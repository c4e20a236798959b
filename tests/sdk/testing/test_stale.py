"""`overtake_everywhere`: a worker that was taken for dead is refused, and what it still does is seen."""

from __future__ import annotations

import pytest

from milepost.testing import Overtaken, Received, overtake_everywhere

pytestmark = pytest.mark.req("S5", "B1")


def test_a_worker_that_was_overtaken_is_refused_and_does_no_harm_where_its_tools_are_keyed() -> None:
    report = overtake_everywhere("kit_agents:plain")

    post = Received("aaaaaaaaaaaaaaaaaaaa/post", "2", applied=False)
    step = "the call of post in step post, step post"
    assert report.overtaken == (
        # It had not begun, and found that all was over.
        Overtaken(2, "before", "attempt 1 begins", 0, ()),
        Overtaken(2, "after", "attempt 1 begins", 81, ()),
        Overtaken(3, "before", "step double", 81, ()),
        # The zombie's reach: the one step that it goes on with before its next commit is refused.
        Overtaken(3, "after", "step double", 81, (post,)),
        Overtaken(4, "before", step, 81, ()),
        Overtaken(4, "after", step, 81, ()),
        Overtaken(5, "before", "the end", 81, ()),
    )


def test_what_a_stale_worker_does_again_is_found() -> None:
    with pytest.raises(AssertionError) as found:
        overtake_everywhere("kit_agents:unkeyed", max_points=2)

    assert str(found.value).startswith(
        "stopped after record 3 (step prepare), and overtaken, the stale worker does harm:\n"
        '    outside, sent was "a letter\\n", and is "a letter\\na letter\\n"\n'
    )


def test_a_stale_worker_that_is_not_refused_is_found() -> None:
    with pytest.raises(AssertionError) as found:
        overtake_everywhere("kit_agents:escaping", max_points=2)

    assert str(found.value).startswith(
        "stopped after record 3 (step prepare), and overtaken, the stale worker was not refused: "
        "it ended with exit code 3"
    )
