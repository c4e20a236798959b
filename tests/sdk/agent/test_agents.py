"""What an agent cannot be declared as, found out where it is declared."""

from __future__ import annotations

from typing import Any

import pytest

from milepost import Misuse, Run, agent, tool


@tool(effect="none")
async def search(what: str) -> str:
    return what


async def research(run: Run) -> None:
    """Do nothing."""


def plain(run: Run) -> None:
    """Do nothing, and not as a coroutine."""


async def lonely() -> None: ...


@pytest.mark.parametrize(
    ("fn", "options", "error", "says"),
    [
        (plain, {"version": "1"}, TypeError, "an agent is an async function"),
        (research, {"version": ""}, ValueError, "agent research needs a version, such as '1', and not ''"),
        (research, {"version": 1}, ValueError, "agent research needs a version, such as '1', and not 1"),
        (research, {"version": "2", "resumes": "10"}, TypeError, "is a list of versions, not '10'"),
        (lonely, {"version": "1"}, TypeError, "agent lonely has no parameter for its Run"),
        (
            research,
            {"version": "1", "tools": [research]},
            TypeError,
            "are made by @tool, which <function research",
        ),
        (research, {"version": "1", "environment": ["a"]}, TypeError, "a mapping of values by their names"),
        (research, {"version": "1", "retry": 3}, TypeError, "cannot have retry=3"),
        (research, {"version": "1", "memory_every": 0}, ValueError, "cannot copy its memory each 0 steps"),
        (research, {"version": "1", "tools": [search, search]}, ValueError, "two tools are named 'search'"),
    ],
    ids=[
        "not async",
        "no version",
        "a number",
        "a text of versions",
        "no parameter",
        "no tool",
        "an environment without names",
        "no Retry",
        "memory that is never copied",
        "two tools of a name",
    ],
)
def test_what_could_not_be_resumed_is_refused(
    fn: Any, options: dict[str, Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        agent(**options)(fn)


def test_an_agent_that_is_called_by_hand_says_how_it_is_started() -> None:
    by_hand: Any = agent(version="1")(research)

    with pytest.raises(
        Misuse, match=r"agent research is started with a manifest, by `milepost run run\.yaml`"
    ):
        by_hand(topic="tests")
