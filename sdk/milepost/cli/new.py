"""`milepost new`: a project with an agent that works, and a test that kills it everywhere.

It writes into a folder that is new or empty, and nowhere else. What it writes lies beside this module, in
`project`, with the names left open.
"""

from __future__ import annotations

import keyword
import re
import sys
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Final

import typer

from milepost.api.names import MAX_NAME
from milepost.cli.failing import errors_console, fail
from milepost.cli.visible import visible
from milepost.errors import InvalidRun

__all__ = ["new"]

_NAME: Final = re.compile(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*")
_TAKEN: Final = sys.stdlib_module_names | {"milepost", "milepost_operator", "pytest", "tests"}

_FILES: Final = {
    "agent.py.in": "{package}/agent.py",
    "test_agent.py.in": "tests/test_agent.py",
    "pyproject.toml.in": "pyproject.toml",
    "run.yaml.in": "run.yaml",
    "Dockerfile.in": "Dockerfile",
    "gitignore.in": ".gitignore",
    "README.md.in": "README.md",
}


def new(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A new or empty folder; its name becomes the agent's.")
    ],
) -> None:
    """Write a project with a working agent: package, manifest, Dockerfile, and a test.

    The test kills the agent's process before and after each record, and sees that nothing changes by it.

    The folder's name is that of the run and, with _ for -, of the Python package.
    """
    errors = errors_console()
    try:
        name = _name(folder)
        _write(folder, name)
    except InvalidRun as error:
        fail(errors, error)
    told = f"{folder} holds an agent; in there `milepost run run.yaml` runs it, and `pytest` tests it"
    errors.print(visible(told), markup=False, soft_wrap=True)


def _name(folder: Path) -> str:
    called = folder.resolve().name
    if not _NAME.fullmatch(called) or len(called) > MAX_NAME:
        raise InvalidRun(
            "DIR",
            f"{called!r} must be of a-z and 0-9, with single - or _ in between, beginning with a letter, and "
            f"of at most {MAX_NAME} characters: it names the run and the Python package",
        )
    package = called.replace("-", "_")
    if keyword.iskeyword(package) or package in _TAKEN:
        raise InvalidRun("DIR", f"{package!r} is a name of Python's own, or of a package that is needed here")
    return called


def _write(folder: Path, called: str) -> None:
    package, name = called.replace("-", "_"), called.replace("_", "-")
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise InvalidRun("DIR", f"{folder} is there and is not an empty folder; nothing was written")
        for source, target in _FILES.items():
            text = (files("milepost.cli") / "project" / source).read_text(encoding="utf-8")
            for word, value in (("package", package), ("name", name), ("version", version("milepost"))):
                text = text.replace("{{" + word + "}}", value)
            file = folder / target.format(package=package)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        (folder / package / "__init__.py").touch()
    except OSError as error:
        raise InvalidRun("DIR", f"{folder} cannot be written: {error.strerror}") from error
