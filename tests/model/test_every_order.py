"""All interleavings of each scenario, up to its bound; `FULL=1` walks the deeper ones.

`python -m tests.model` prints the counts. What the scenarios cover, and what not, is in docs/protocol.md.
"""

from __future__ import annotations

import os
from typing import Final

import pytest

from tests.model.scenarios import SCENARIOS, Scenario, walk

FULL: Final = os.environ.get("FULL") == "1"

# Minutes that a walk may take on a machine that others use as well.
pytestmark = pytest.mark.timeout(3 * 3600 if FULL else 900)

PROVED: Final = {
    "two executors": ("C2", "C3", "C4", "I1", "I2", "I3", "I4", "I5", "I6", "F-D1", "F-D2"),
    "three executors": ("C3", "I1", "I2", "I5", "I6"),
    "a crash": ("D1", "I1", "I2", "I3", "I4", "I12", "F-A1", "F-A4", "F-A6"),
    "answers": ("C4", "I1", "I4", "F-D1", "F-D2", "F-D3"),
    "calls in flight": ("I3", "F-A3", "F-A4"),
    "every so many steps": ("I3",),
    "sealing": ("I1", "I4", "I12"),
    "merging": ("C6", "I1", "I4", "I12"),
    "reading": ("C1", "C6", "I1", "I4"),
    "bases": ("C5", "I12"),
    "pruning bases": ("C5", "C6", "I12"),
    "blobs": ("A6", "C6", "F-D12"),
    "adoption": ("D9", "F-C3", "F-C5"),
    "another spec": ("D9", "F-C3", "F-C5"),
    "deletion": ("C6", "I4", "I6", "F-D12"),
    "deleted and applied anew": ("C6", "F-C5"),
    "retention": ("C5", "C6", "K3"),
    "two sweepers": ("C6",),
    "unnamed heads": ("C6", "F-C3"),
    "an irreversible call": ("B2", "E3", "I3", "F-A2", "F-A3"),
    "a verified call": ("B2", "E3", "I3", "I3b", "F-A2", "F-A3"),
    "an approval": ("I9", "F-E4"),
    "an approved call": ("E3", "I3", "I9"),
    "gates side by side": ("I9", "F-E4"),
    "handed over": ("B2", "B3", "I3", "I3b"),
    "two answers": ("I9", "F-D1", "F-E1"),
    "a deadline": ("I9", "F-E2", "F-E4"),
    "two deadlines": ("I9", "F-C3", "F-E2"),
    "an early event": ("I9", "F-E4"),
    "two events": ("I9", "F-E1"),
    "a sweep of what waits": ("C6", "I9"),
    "checked again": ("D5", "I3", "I3b"),
    "checked and followed": ("D5", "I3", "I3b"),
    "begun anew": ("D6", "I3", "I3b"),
}


def _marked(each: Scenario) -> object:
    return pytest.param(each, id=each.name, marks=pytest.mark.req(*PROVED[each.name]))


@pytest.mark.parametrize("scenario", [_marked(each) for each in SCENARIOS])
def test_no_order_of_events_breaks_an_invariant(scenario: Scenario) -> None:
    found = walk(scenario.model(full=FULL))

    assert found.wrong == "", "\n".join((*found.trace, found.wrong))
    assert (found.states > 1_000, found.ends > 0) == (True, True), "the scenario has become an empty one"
