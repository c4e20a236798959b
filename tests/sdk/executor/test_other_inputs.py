"""Nothing can give an executor other inputs than those that its run was begun with."""

from __future__ import annotations

import pytest

from milepost.api.resource import Phase
from milepost.checkpoint.head import parse_head
from milepost.checkpoint.records import Finished
from milepost.checkpoint.store import Found
from tests.support.sessions import RunOnDisk

pytestmark = pytest.mark.req("D9")


def test_the_environment_holds_none(run: RunOnDisk) -> None:
    run.begin("stepping:typed", world=str(run.world), day="2026-03-01")

    run.go_on(MILEPOST_INPUTS='{"day": "2027-01-01"}', MILEPOST_DAY="2027-01-01", DAY="2027-01-01")

    outcome = run.state.outcome
    assert isinstance(outcome, Finished)
    assert (outcome.phase, outcome.result and outcome.result.inline) == (
        Phase.SUCCEEDED,
        "2026-03-01 (1,)",
    )


def test_record_1_with_other_inputs_is_damage_and_starts_nothing(run: RunOnDisk) -> None:
    run.begin("stepping:five", world=str(run.world), unknown="before").go_on(MILEPOST_ATTEMPT="1")
    found = run.store.get(run.keys.head)
    assert isinstance(found, Found)
    head = parse_head(found.body, run.keys)
    changed = found.body.replace(b'"unknown":"before"', b'"unknown":"after!"')
    assert changed != found.body
    run.store.put_if(run.keys.head, changed, {}, etag=found.etag)

    ended = run.go_on(MILEPOST_ATTEMPT=str(head.attempt + 1))

    assert (ended.code, ended.said["reason"]) == (83, "Corrupt")
    assert run.lines("ran") == []
