from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools.requirements import (
    ROOT,
    BadDocument,
    Mark,
    Section,
    collect,
    covering,
    main,
    mistakes,
    read_marks,
    read_sections,
    render,
)

DOCUMENT = """# Requirements

## C. How it is written

| id | requirement |
|---|---|
| C1 | Whole or not at all. |
| C2 | Conditional. |

## F-D. Faults of the store

| id | requirement |
|---|---|
| F-D1 | Answer lost. |
"""

SECTIONS = (
    Section("C", "How it is written", ("C1", "C2")),
    Section("F-D", "Faults of the store", ("F-D1",)),
)


def a_project(folder: Path, test_source: str) -> list[str]:
    """Write a document and one test file; return the command line that reads them."""
    (folder / "tests").mkdir()
    (folder / "tests" / "test_head.py").write_text(test_source)
    (folder / "requirements.md").write_text(DOCUMENT)
    return ["--document", str(folder / "requirements.md"), "--tests", str(folder / "tests")]


def test_sections_and_ids_come_in_the_order_of_the_document() -> None:
    assert read_sections(DOCUMENT) == SECTIONS


def test_an_id_that_occurs_twice_is_refused() -> None:
    with pytest.raises(BadDocument, match="C1 occurs twice"):
        read_sections(DOCUMENT + "| C1 | Again. |\n")


def test_an_id_outside_a_section_is_refused() -> None:
    with pytest.raises(BadDocument, match="A1 stands outside a section"):
        read_sections("| A1 | Lost. |\n" + DOCUMENT)


def test_marks_are_found_on_functions_classes_parameters_and_whole_files() -> None:
    source = """
import pytest

pytestmark = [pytest.mark.req("S1")]

@pytest.mark.req("C1", "C2")
def test_plain(): ...

@pytest.mark.asyncio
@pytest.mark.req("E4")
async def test_async(): ...

@pytest.mark.parametrize("n", [pytest.param(1, marks=pytest.mark.req("F-D1"))])
def test_many(n): ...

@pytest.mark.req("I3b")
class TestHead:
    @pytest.mark.req("I5")
    def test_inside(self): ...
"""

    assert read_marks(source, "t.py") == [
        Mark("S1", "t.py", 4),
        Mark("C1", "t.py::test_plain", 6),
        Mark("C2", "t.py::test_plain", 6),
        Mark("E4", "t.py::test_async", 10),
        Mark("F-D1", "t.py::test_many", 13),
        Mark("I3b", "t.py::TestHead", 16),
        Mark("I5", "t.py::TestHead::test_inside", 18),
    ]


def test_a_mark_in_a_string_is_no_claim() -> None:
    assert read_marks("""SOURCE = '@pytest.mark.req("C1")'""", "t.py") == []


def test_a_test_that_names_an_id_twice_is_listed_once() -> None:
    marks = [Mark("C1", "t.py::test_a", 1), Mark("C1", "t.py::test_a", 2), Mark("C1", "t.py::test_b", 3)]

    assert covering(SECTIONS, marks) == {"C1": ["t.py::test_a", "t.py::test_b"], "C2": [], "F-D1": []}


def test_unknown_and_computed_ids_are_mistakes() -> None:
    marks = [Mark("C1", "t.py::test_a", 1), Mark("C9", "t.py::test_b", 2), Mark(None, "t.py::test_c", 3)]

    assert mistakes(SECTIONS, marks) == [
        "t.py::test_b (line 2): the document has no requirement C9",
        "t.py::test_c (line 3): write the id as a literal string",
    ]


def test_the_table_ends_with_what_is_missing_and_a_count_per_section() -> None:
    table = render(SECTIONS, {"C1": ["t.py::test_a", "t.py::test_b"], "C2": [], "F-D1": ["t.py::test_c"]})

    assert (
        table
        == """\
C. How it is written
  C1     t.py::test_a
         t.py::test_b
  C2     -

F-D. Faults of the store
  F-D1   t.py::test_c

No test yet (1)
  C    C2

Covered
  C    How it is written      1 of 2
  F-D  Faults of the store    1 of 1
       all                    2 of 3"""
    )


def test_a_requirement_without_a_test_is_no_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = a_project(tmp_path, "import pytest\n\n@pytest.mark.req('C1')\ndef test_a(): ...\n")

    assert main(command) == 0
    assert "C1     tests/test_head.py::test_a" in capsys.readouterr().out


def test_an_id_that_the_document_does_not_have_is_a_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = a_project(tmp_path, "import pytest\n\n@pytest.mark.req('C7')\ndef test_a(): ...\n")

    assert main(command) == 1
    assert capsys.readouterr().err == (
        "error: tests/test_head.py::test_a (line 3): the document has no requirement C7\n"
    )


def test_a_document_that_cannot_be_read_is_told_apart_from_a_wrong_mark(tmp_path: Path) -> None:
    command = a_project(tmp_path, "")
    (tmp_path / "requirements.md").write_text(DOCUMENT + "| C1 | Again. |\n")

    assert main(command) == 2


def test_every_row_of_the_real_document_is_understood() -> None:
    text = (ROOT / "docs" / "requirements.md").read_text(encoding="utf-8")
    rows = [
        line for line in text.splitlines() if re.match(r"\|[^-]", line) and line != "| id | requirement |"
    ]

    ids = [identifier for section in read_sections(text) for identifier in section.ids]

    assert [row.split(" | ")[0].removeprefix("| ") for row in rows] == ids


def test_the_tests_of_this_project_name_only_ids_that_exist() -> None:
    sections = read_sections((ROOT / "docs" / "requirements.md").read_text(encoding="utf-8"))

    assert mistakes(sections, collect(ROOT / "tests", ROOT)) == []
