"""What is public is listed, is there and is described: in `milepost`, and in modules that others build on."""

from __future__ import annotations

import inspect
import pkgutil
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest

import milepost
import milepost.api
import milepost.checkpoint
import milepost.errors
import milepost.testing
import milepost_operator.core

PACKAGES = (milepost.api, milepost.checkpoint, milepost.testing, milepost_operator.core)


def modules() -> list[ModuleType]:
    names = [
        found.name
        for package in PACKAGES
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    ]
    return [milepost, milepost.errors, milepost.testing, *map(import_module, names)]


def described(thing: Any) -> bool:
    """Tell whether somebody has written a description; a dataclass gives itself its signature as one."""
    text = inspect.cleandoc(vars(thing).get("__doc__") or "") if inspect.isclass(thing) else thing.__doc__
    return bool(text) and not text.startswith(f"{thing.__name__}(")


def undescribed(named: dict[str, Any]) -> list[str]:
    """Return the names of classes and functions; a constant cannot carry a description at run time."""
    return [
        name
        for name, thing in named.items()
        if (inspect.isclass(thing) or inspect.isfunction(thing)) and not described(thing)
    ]


@pytest.mark.parametrize("module", modules(), ids=lambda module: module.__name__)
def test_a_module_and_all_that_it_lists_are_described(module: ModuleType) -> None:
    listed = {name: getattr(module, name) for name in getattr(module, "__all__", ())}

    assert module.__doc__
    assert undescribed(listed) == []


def test_a_description_that_is_missing_or_made_up_is_noticed() -> None:
    @dataclass
    class Bare:
        size: int

    def silent() -> None: ...

    def told() -> None:
        """Say something."""

    assert undescribed({"Bare": Bare, "silent": silent, "told": told, "LIMIT": 3}) == ["Bare", "silent"]


@pytest.mark.parametrize("name", milepost.__all__)
def test_all_that_an_author_can_call_on_a_public_class_is_described(name: str) -> None:
    thing = getattr(milepost, name)
    members = vars(thing).items() if inspect.isclass(thing) else ()
    silent = [
        member
        for member, value in members
        if not member.startswith("_")
        and (inspect.isfunction(value) or isinstance(value, property))
        and not value.__doc__
    ]

    assert silent == []


def test_nothing_is_public_but_what_is_listed() -> None:
    found = {
        name
        for name, thing in vars(milepost).items()
        if not name.startswith("_") and not inspect.ismodule(thing)
    }

    assert found == set(milepost.__all__)
