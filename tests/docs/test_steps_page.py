"""The mistakes of docs/steps.md: what is called wrong is found to be wrong, and what is called right passes.

The page's code is put behind what it takes for granted: imports, and services that remember.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from milepost.api.resource import Phase
from milepost.testing import Ledger, crash_everywhere
from tests.support.local_runs import Desk, a_manifest

pytestmark = [pytest.mark.timeout(240), pytest.mark.req("E1", "E3", "S5")]

PAGE = Path(__file__).parents[2] / "docs" / "steps.md"
BEFORE = Path(__file__).with_name("services.py").read_text()

AS_AGENT = """

made = agent(version="1")(work)
"""

FOUND = {
    1: re.escape('its effects was ["pay 4711"], and is ["pay 4711", "pay 4711"]'),
    2: re.escape("its effects was [10], and is [20]"),
    3: re.escape('its effects was ["ann", "bob", "eve"], and is ["ann", "ann", '),
    4: re.escape('its effects was ["a desk"], and is ["a desk", "a desk"]'),
    5: "IndexError",
    6: "two runs to which nothing happens come to something else:",
}
"""What is said of each mistake."""

TAKES_TIME = 4
"""The mistake whose right code waits, which pauses in the test kit do not."""


def pairs() -> dict[int, tuple[str, str]]:
    """Return the wrong and the right code of each mistake, by its number."""
    sections = re.split(r"^### (\d)\. .*$", PAGE.read_text(), flags=re.MULTILINE)
    found = {}
    for number, text in zip(sections[1::2], sections[2::2], strict=True):
        section = re.split(r"^## ", text, maxsplit=1, flags=re.MULTILINE)[0]
        wrong, right = re.findall(r"^```python\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
        found[int(number)] = (wrong, right)
    return found


def outside(folder: Path) -> Any:
    """Return what was applied outside: the points of the account, or else all that was received."""
    points = folder / "points"
    return [int(points.read_text())] if points.exists() else sorted(Ledger.in_folder(folder).applied())


def written(folder: Path, code: str) -> str:
    """Write the code as a module, and return the entrypoint of its agent."""
    name = f"steps_page_{re.sub(r'[^a-z0-9]', '_', folder.name)}"
    (folder / f"{name}.py").write_text(BEFORE + code + AS_AGENT)
    return f"{name}:made"


@pytest.fixture
def tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Kill the agent of this code everywhere."""

    def try_it(code: str, most: int | None = None) -> None:
        entrypoint = written(tmp_path, code)
        monkeypatch.syspath_prepend(str(tmp_path))
        importlib.invalidate_caches()
        crash_everywhere(entrypoint, effects=outside, spec={"retry": {"stepAttempts": 1}}, max_points=most)

    return try_it


def test_there_are_four_mistakes_and_two() -> None:
    assert sorted(pairs()) == sorted(FOUND)


@pytest.mark.parametrize("number", sorted(FOUND))
def test_what_the_page_calls_wrong_is_found_to_be_wrong(number: int, tried: Callable[..., None]) -> None:
    with pytest.raises(AssertionError, match=FOUND[number]):
        tried(pairs()[number][0])


@pytest.mark.parametrize("number", sorted(set(FOUND) - {TAKES_TIME}))
def test_what_the_page_calls_right_comes_to_the_same_wherever_it_is_killed(
    number: int, tried: Callable[..., None]
) -> None:
    tried(pairs()[number][1], 6)


@pytest.mark.parametrize(
    ("code", "shown_after", "orders"), [(0, "inf", 2), (1, "1.5", 1)], ids=["wrong", "right"]
)
def test_an_order_that_is_not_shown_yet_is_made_once_where_the_shop_is_asked_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, shown_after: str, orders: int
) -> None:
    """It is asked 4 seconds after the order at the earliest: the page's 10 are for shops, not for tests."""
    desk = Desk(tmp_path, folder=tmp_path)
    monkeypatch.setenv("SERVICES_FOLDER", str(desk.world))
    monkeypatch.setenv("KILLED_BY_SHOP", "1")
    monkeypatch.setenv("SHOWN_AFTER", shown_after)
    text = pairs()[TAKES_TIME][code].replace("settles_within=10", "settles_within=4")

    ended = desk.run(a_manifest(written(tmp_path, text)))

    assert ended.phase is Phase.SUCCEEDED
    assert desk.attempts() == 2
    assert outside(desk.world) == ["a desk"] * orders
