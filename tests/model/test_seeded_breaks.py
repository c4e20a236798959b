"""The model is not blind: each guard that is taken away is missed, and the shortest way there is told."""

from __future__ import annotations

import pytest

from tests.model.breaks import BREAKS, Break
from tests.model.scenarios import scenario, walk

pytestmark = pytest.mark.timeout(600)


@pytest.mark.req("C2", "C3", "C4", "C6")
@pytest.mark.parametrize("each", BREAKS, ids=lambda each: each.name)
def test_a_guard_that_is_taken_away_is_missed(each: Break) -> None:
    model = scenario(each.scenario).model(each.code, **each.bound)

    found = walk(model, finish=each.finish)

    assert found.wrong
    assert len(found.trace) == found.depth > 0
