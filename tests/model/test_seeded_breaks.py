"""The model is not blind: each guard that is taken away is missed, and the shortest way there is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.model.breaks import BREAKS, Break
from tests.model.scenarios import SCENARIOS, scenario, walk

PAGE = Path(__file__).parents[2] / "docs/protocol.md"

pytestmark = pytest.mark.timeout(600)


@pytest.mark.req("C2", "C3", "C4", "C6")
@pytest.mark.parametrize("each", BREAKS, ids=lambda each: each.name)
def test_a_guard_that_is_taken_away_is_missed(each: Break) -> None:
    model = scenario(each.scenario).model(each.code, **each.bound)

    found = walk(model, finish=each.finish)

    assert found.wrong
    assert len(found.trace) == found.depth > 0


def test_the_page_on_the_protocol_names_every_scenario_and_every_break() -> None:
    page = PAGE.read_text()

    assert [each.name for each in SCENARIOS if f"| {each.name} |" not in page] == []
    assert [each.name for each in BREAKS if f"- {each.name}\n" not in page] == []
