"""What an agent cannot be declared as, found out where it is declared."""

from __future__ import annotations

from typing import Any

import pytest

from milepost import Run, agent, tool


@tool(effect="none")
async def search(what: str) -> str:
    return what


async def research(run: Run) -> None:
    """Do nothing."""


def plain(run: Run) -> None:
    """Do nothing, and not as a coroutine."""


@pytest.mark.parametrize(
    ("fn", "options", "error", "says"),
    [
        (plain, {"version": "1"}, TypeError, "an agent is an async function"),
        (research, {"version": ""}, ValueError, "agent research needs a version, such as '1', and not ''"),
        (research, {"version": 1}, ValueError, "agent research needs a version, such as '1', and not 1"),
        (research, {"version": "2", "resumes": "10"}, TypeError, "is a list of versions, not '10'"),
        (research, {"version": "1", "tools": [search, search]}, ValueError, "two tools are named 'search'"),
    ],
    ids=["not async", "no version", "a number", "a text of versions", "two tools of a name"],
)
def test_what_could_not_be_resumed_is_refused(
    fn: Any, options: dict[str, Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        agent(**options)(fn)
