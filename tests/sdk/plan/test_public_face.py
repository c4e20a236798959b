"""What plans are to those who write them: described, typed, and loaded only by who asks for them."""

from __future__ import annotations

import inspect
import subprocess
import sys
from typing import assert_type

import pytest

import milepost.plan
from milepost import Call, Run, tool
from milepost.plan import Plan, Planned, PlanResult, Some, some_of


def test_importing_milepost_loads_no_plans() -> None:
    code = "import sys, milepost, milepost.executor.__main__; print('milepost.plan' in sys.modules)"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("name", milepost.plan.__all__)
def test_every_public_name_and_all_that_can_be_called_on_it_is_described(name: str) -> None:
    thing = getattr(milepost.plan, name)
    members = vars(thing).items() if inspect.isclass(thing) else ()

    assert inspect.getdoc(thing)
    assert [
        member
        for member, value in members
        if not member.startswith("_")
        and (inspect.isfunction(value) or isinstance(value, property))
        and not value.__doc__
    ] == []


def test_nothing_is_public_but_what_is_listed() -> None:
    found = {
        name
        for name, thing in vars(milepost.plan).items()
        if not name.startswith("_") and not inspect.ismodule(thing)
    }

    assert found == set(milepost.plan.__all__)


async def fetch(url: str) -> bytes:
    return url.encode()


def count(page: bytes, least: int) -> int:
    return len(page) + least


def add(counts: dict[str, int]) -> int:
    return sum(counts.values())


@tool(effect="keyed")
async def publish(call: Call, total: int) -> str:
    return f"{call.key} {total}"


async def typed(run: Run) -> None:
    """Hold the types of a plan to what its functions say; run by a type checker only."""
    plan = Plan()
    page = assert_type(plan.step("fetch", fetch, "a.example"), Planned[bytes])
    one = assert_type(plan.step("one", count, page, 1), Planned[int])
    two = assert_type(plan.step("two", count, b"a page", 2, after=["one"]), Planned[int])
    both = assert_type(some_of(one, two, at_least=1), Some[int])
    total = assert_type(plan.step("total", add, both), Planned[int])
    told = assert_type(plan.step("tell", publish, total, attempts=2, timeout=5), Planned[str])

    plan.step("wrong-result", count, one, 1)  # type: ignore[arg-type]
    plan.step("wrong-literal", fetch, 3)  # type: ignore[arg-type]
    plan.step("wrong-some", add, some_of(page))  # type: ignore[arg-type]
    plan.step("too-few", count, page)  # type: ignore[arg-type]
    plan.step("wrong-option", fetch, "a", retries=2)  # type: ignore[call-overload]
    result = assert_type(await plan.run(run, parallel=2), PlanResult)
    assert_type(result[told], str)
