"""LLMAgents that are killed before and after each record, people's answers among them."""

from __future__ import annotations

import pytest

from milepost.testing import Approve, Asked, Deny, crash_everywhere
from tests.support.local_runs import AGENTS


@pytest.mark.req("G1", "E4", "E5")
@pytest.mark.timeout(600)
def test_a_model_that_asks_people_comes_to_the_same_wherever_it_is_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(AGENTS))

    def answer(asked: Asked) -> Approve | Deny:
        return Approve() if asked.request["arguments"] == {"number": 2} else Deny("3 is too much")

    report = crash_everywhere(
        "llm_agent:asking", goal="Send 2 and 3.", answers=answer, max_points=6, timeout=150
    )

    ran = report.undisturbed
    assert ran.result["summary"] == "the user refused: 3 is too much"
    assert (ran.phase, ran.result["steps"], ran.result["stopped"]) == ("Succeeded", 3, "Done")
    assert ran.effects == {
        "the ledger": ["aaaaaaaaaaaaaaaaaaaa/add: 1", 'aaaaaaaaaaaaaaaaaaaa/send: {"sent": 2}']
    }
    assert len(report.crashes) == 6
