"""The list of guards: up to date, and able to tell a guard that is missed from one that is not."""

from pathlib import Path

import pytest

from tools.mutants.__main__ import NOTICED, verdict_on
from tools.mutants.guard import Guard, without
from tools.mutants.guards import GUARDS
from tools.mutants.page import PAGE, text

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name)
def test_a_guard_is_found_where_the_list_says(guard: Guard) -> None:
    compile(without(guard, ROOT), guard.file, "exec")
    assert all((ROOT / path.partition("::")[0]).exists() for path in guard.tests.split())


def test_names_are_unique() -> None:
    assert len({guard.name for guard in GUARDS}) == len(GUARDS)


def test_the_page_is_what_the_list_says() -> None:
    assert PAGE.read_text() == text(), "run `python -m tools.mutants.page`"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "sdk").mkdir()
    (tmp_path / "sdk" / "guarded.py").write_text(
        "def half(n: int) -> int:\n    if n % 2:\n        raise ValueError\n    return n // 2\n"
    )
    (tmp_path / "test_guarded.py").write_text(
        "import pytest\nfrom guarded import half\n\n\n"
        "def test_odd() -> None:\n    with pytest.raises(ValueError):\n        half(3)\n\n\n"
        "def test_even() -> None:\n    assert half(4) == 2\n"
    )
    return tmp_path


def a_guard(*, old: str = "if n % 2:", new: str = "if False:", tests: str = "test_guarded.py") -> Guard:
    return Guard("odd", "odd numbers are cut", "sdk/guarded.py", old, new, tests)


def test_a_guard_that_a_test_misses_is_noticed_and_put_back(tree: Path) -> None:
    before = (tree / "sdk" / "guarded.py").read_text()

    assert verdict_on(a_guard(), tree) == NOTICED
    assert (tree / "sdk" / "guarded.py").read_text() == before


def test_a_guard_that_no_test_misses_is_reported(tree: Path) -> None:
    assert verdict_on(a_guard(tests="test_guarded.py::test_even"), tree) == "no test failed"


def test_tests_that_do_not_run_prove_nothing(tree: Path) -> None:
    assert verdict_on(a_guard(new="if (:"), tree).startswith("the tests did not run")
    assert verdict_on(a_guard(tests="test_nothing.py"), tree).startswith("the tests did not run")


def test_a_guard_that_is_gone_is_reported(tree: Path) -> None:
    assert "stands 0 times" in verdict_on(a_guard(old="if n % 3:"), tree)
