"""Prints which test proves which requirement, by reading files only.

The ids come from the tables of `docs/requirements.md`, the marks (`@pytest.mark.req("C3")`) from the syntax
trees of the test files; no test is imported or run, so a test that needs the cluster counts like any other.
A mark is a claim that a test exists: whether it passes is for pytest to say.

An id that no row of the document has is an error, since it would look like proof of something. An id without
a test is not: it is work to do, and is listed.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

HEADING = re.compile(r"^## (?P<id>[A-Z](?:-[A-Z])?)\. (?P<title>.+)$")
ROW = re.compile(r"^\| (?P<id>(?:F-)?[A-Z]\d+b?) \| (?P<text>.+) \|$")


class BadDocument(Exception):
    """The document cannot be read as a list of requirements: somebody has to edit it."""


@dataclass(frozen=True)
class Section:
    """One table of the document: its letter, its title, and its ids in order."""

    id: str
    title: str
    ids: tuple[str, ...]


@dataclass(frozen=True)
class Mark:
    """One test's claim to prove one requirement; `id` is None where the argument is no literal string."""

    id: str | None
    test: str
    line: int


def read_sections(document: str) -> tuple[Section, ...]:
    """Return the sections of the document that hold requirements.

    Raises `BadDocument` when an id occurs twice or stands outside a section.
    """
    titles: dict[str, str] = {}
    ids: dict[str, list[str]] = {}
    seen: set[str] = set()
    current: str | None = None
    for line in document.splitlines():
        if heading := HEADING.match(line):
            current = heading["id"]
            titles[current] = heading["title"]
            ids.setdefault(current, [])
        elif row := ROW.match(line):
            if current is None:
                raise BadDocument(f"{row['id']} stands outside a section")
            if row["id"] in seen:
                raise BadDocument(f"{row['id']} occurs twice")
            seen.add(row["id"])
            ids[current].append(row["id"])
    return tuple(Section(letter, titles[letter], tuple(rows)) for letter, rows in ids.items() if rows)


def _marked(node: ast.AST) -> Iterator[ast.Call]:
    """Yield the calls of `….mark.req(…)` in a piece of a syntax tree."""
    for call in ast.walk(node):
        match call:
            case ast.Call(func=ast.Attribute(attr="req", value=ast.Attribute(attr="mark"))):
                yield call
            case _:
                pass


def _claims(call: ast.Call, test: str) -> Iterator[Mark]:
    for argument in call.args:
        match argument:
            case ast.Constant(value=str(identifier)):
                yield Mark(identifier, test, argument.lineno)
            case _:
                yield Mark(None, test, argument.lineno)


def read_marks(source: str, file: str) -> list[Mark]:
    """Return the marks of one test file, each under its nearest test: function, class, or the file itself."""

    def visit(body: Sequence[ast.stmt], owner: str) -> Iterator[Mark]:
        for statement in body:
            match statement:
                case ast.ClassDef(name=name, decorator_list=decorators, body=inner):
                    yield from (
                        m for d in decorators for c in _marked(d) for m in _claims(c, f"{owner}::{name}")
                    )
                    yield from visit(inner, f"{owner}::{name}")
                case (
                    ast.FunctionDef(name=name, decorator_list=decorators)
                    | ast.AsyncFunctionDef(name=name, decorator_list=decorators)
                ):
                    yield from (
                        m for d in decorators for c in _marked(d) for m in _claims(c, f"{owner}::{name}")
                    )
                case _:
                    yield from (m for c in _marked(statement) for m in _claims(c, owner))

    return list(visit(ast.parse(source, filename=file).body, file))


def collect(tests: Path, root: Path) -> list[Mark]:
    """Return the marks of all Python files under `tests`, named relative to `root`."""
    marks: list[Mark] = []
    for path in sorted(tests.rglob("*.py")):
        marks += read_marks(path.read_text(encoding="utf-8"), path.relative_to(root).as_posix())
    return marks


def covering(sections: Sequence[Section], marks: Sequence[Mark]) -> dict[str, list[str]]:
    """Return each id of the document with the tests that name it, in the document's order."""
    tests: dict[str, list[str]] = {identifier: [] for section in sections for identifier in section.ids}
    for mark in marks:
        if mark.id in tests and mark.test not in tests[mark.id]:
            tests[mark.id].append(mark.test)
    return tests


def mistakes(sections: Sequence[Section], marks: Sequence[Mark]) -> list[str]:
    """Return a sentence for each mark that the document cannot answer for."""
    known = {identifier for section in sections for identifier in section.ids}
    found: list[str] = []
    for mark in marks:
        if mark.id is None:
            found.append(f"{mark.test} (line {mark.line}): write the id as a literal string")
        elif mark.id not in known:
            found.append(f"{mark.test} (line {mark.line}): the document has no requirement {mark.id}")
    return found


def render(sections: Sequence[Section], tests: Mapping[str, Sequence[str]]) -> str:
    """Return the table, the ids that have no test, and the count of each section."""
    lines: list[str] = []
    for section in sections:
        lines.append(f"{section.id}. {section.title}")
        for identifier in section.ids:
            first, *others = tests[identifier] or ["-"]
            lines.append(f"  {identifier:<6} {first}")
            lines += [f"  {'':<6} {other}" for other in others]
        lines.append("")
    missing = [identifier for section in sections for identifier in section.ids if not tests[identifier]]
    lines.append(f"No test yet ({len(missing)})")
    lines += [
        f"  {section.id:<4} {' '.join(rows)}"
        for section in sections
        if (rows := [identifier for identifier in section.ids if not tests[identifier]])
    ]
    lines += ["", "Covered"]
    width = max((len(section.title) for section in sections), default=0)
    for section in sections:
        count = sum(1 for identifier in section.ids if tests[identifier])
        lines.append(f"  {section.id:<4} {section.title:<{width}}  {count:>3} of {len(section.ids)}")
    lines.append(f"  {'':<4} {'all':<{width}}  {len(tests) - len(missing):>3} of {len(tests)}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; return 1 for a mark that the document does not have, 2 for an unreadable document."""
    parser = argparse.ArgumentParser(description="Show which tests prove which requirements.")
    parser.add_argument("--document", type=Path, default=ROOT / "docs" / "requirements.md")
    parser.add_argument("--tests", type=Path, default=ROOT / "tests")
    options = parser.parse_args(arguments)
    try:
        sections = read_sections(options.document.read_text(encoding="utf-8"))
    except BadDocument as bad:
        print(f"{options.document}: {bad}", file=sys.stderr)
        return 2
    marks = collect(options.tests, options.tests.parent)
    print(render(sections, covering(sections, marks)))
    wrong = mistakes(sections, marks)
    for sentence in wrong:
        print(f"error: {sentence}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
