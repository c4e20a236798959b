"""What the pages give a reader to type: links lead somewhere, code is code, commands and options exist."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from milepost.cli.app import app

PROJECT = Path(__file__).parents[2]
PAGES = sorted([*PROJECT.glob("*.md"), *PROJECT.glob("docs/**/*.md"), *PROJECT.glob("examples/*/README.md")])
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(PROJECT)))

LINK = re.compile(r"\]\((?!https?://|mailto:)([^)\s]+)\)")
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
TYPED = re.compile(r"^(?: {4}|\$ )+(?:\w+=\S+ )*(milepost (?:.*\\\n)*.*)$|`(milepost [^`]+)`", re.MULTILINE)
OPTION = re.compile(r"^--[a-z-]+")


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in headings}


def typed(page: Path) -> Iterator[str]:
    """Yield the commands of a page, without what follows in a comment."""
    for block, inline in TYPED.findall(page.read_text()):
        line = re.sub(r"\s+", " ", (block or inline).replace("\\\n", " "))
        yield re.split(r" #| &&|  ", line)[0]


def unknown_in(line: str) -> list[str]:
    """Return the words of a command that name no command or option of ours."""
    words = shlex.split(line)[1:]
    command: Any = typer.main.get_command(app)
    while hasattr(command, "commands") and words:
        name = words.pop(0)
        if name.startswith("-"):
            return []
        if name not in command.commands:
            return [name]
        command = command.commands[name]
    known = {option for each in command.params for option in each.opts} | {"--help"}
    return [found[0] for word in words if (found := OPTION.match(word)) and found[0] not in known]


@each_page
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    broken = []
    for link in LINK.findall(page.read_text()):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


@each_page
def test_the_python_of_a_page_is_python(page: Path) -> None:
    for code in PYTHON.findall(page.read_text()):
        compile(code, page.name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST)


@each_page
def test_the_commands_of_a_page_exist_with_their_options(page: Path) -> None:
    assert {line: unknown for line in typed(page) if (unknown := unknown_in(line))} == {}
