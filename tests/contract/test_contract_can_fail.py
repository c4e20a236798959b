"""The contract itself is under test: a store that breaks one rule does not pass."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import ClassVar

import pytest

from milepost.testing.store_contract import StoreContract
from tests.support.bent_stores import Bent
from tests.support.broken_stores import BROKEN, LARGE, PAGE

pytestmark = pytest.mark.req("C2")

TESTS = [
    name for name, _ in inspect.getmembers(StoreContract, inspect.isfunction) if name.startswith("test_")
]


class Small(StoreContract):
    """The contract with figures that suit a dictionary."""

    contenders: ClassVar[int] = 8
    rounds: ClassVar[int] = 3
    large: ClassVar[int] = 2 * LARGE
    many: ClassVar[int] = PAGE + 5


def failed(make: Callable[[], Bent]) -> set[str]:
    """Return the names of the tests that a store does not pass, each with a store of its own."""
    names = set()
    for name in TESTS:
        try:
            getattr(Small(), name)(make())
        except Exception:  # noqa: BLE001  whatever a test raises is its failure
            names.add(name)
    return names


def test_a_store_that_keeps_all_rules_passes() -> None:
    assert failed(Bent) == set()


@pytest.mark.parametrize(("make", "test"), BROKEN.items(), ids=[each.__name__ for each in BROKEN])
def test_a_store_that_breaks_a_rule_fails(make: Callable[[], Bent], test: str) -> None:
    assert f"test_{test}" in failed(make)


def test_each_test_of_the_contract_finds_something_to_object_to() -> None:
    noticed = set().union(*(failed(make) for make in BROKEN))

    assert set(TESTS) - noticed == set()
