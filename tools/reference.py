"""Write docs/reference.md, the names that an agent's author uses, from their signatures and docstrings.

What a name says of itself is copied and never reworded: other words would soon say something else.
Overloads are left to type checkers; shown is the signature that all of them stand for.
"""

from __future__ import annotations

import enum
import inspect
from collections.abc import Iterator
from dataclasses import is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final

__all__ = ["PAGE", "page"]

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "reference.md"

MODULES: Final = {
    "milepost": "The SDK. `run` is what an agent's function is given first.",
    "milepost.plan": "[Plans](plans.md) says how they are used.",
    "milepost.llm": "Needs the extra `llm`; [models](llm.md) says how it is used.",
    "milepost.testing": "[Testing](testing.md) says how it is used.",
}

_BEGINNING: Final = """\
# Reference

Every public name, as it describes itself; `python -m tools.reference` writes this page from the code. How
they work together is told by [writing steps](steps.md), [resuming](resuming.md) and [testing](testing.md).
"""

_ENGINES: Final = frozenset(
    {
        *("Agent.arguments", "Bound.encoded", "Retry.applies", "Retry.pause"),
        *("Tool.ask", "Tool.encoded", "Tool.has_effect", "Tool.has_intent", "Tool.invoke"),
    }
)
"""Members that are the engine's to call."""

_WIDTH: Final = 100


def page() -> str:
    """Return the page."""
    return "\n".join([_BEGINNING, *(line for name in MODULES for line in _module(name))])


def _module(name: str) -> Iterator[str]:
    module = import_module(name)
    yield from (f"## {name}", "", MODULES[name], "")
    for public in sorted(module.__all__, key=str.casefold):
        yield from _thing(public, getattr(module, public))


def _thing(name: str, thing: Any) -> Iterator[str]:
    if not (inspect.isclass(thing) or inspect.isfunction(thing)):
        # An alias of a type, which has no words of its own.
        yield from (f"### {name}", "", f"`{str(thing).replace('typing.', '')}`", "")
        return
    yield from (f"### {name}", "")
    signature = _signature(name, thing) if not inspect.isclass(thing) or _is_made_by_authors(thing) else ""
    if signature:
        yield from ("```text", signature, "```", "")
    yield from (_words(thing), "")
    if inspect.isclass(thing):
        yield from _members(thing)


def _is_made_by_authors(cls: type) -> bool:
    """Tell whether the class's own parameters are worth showing: it is data, or says what they are."""
    if issubclass(cls, BaseException | enum.Enum) or cls.__name__ in ("Agent", "Run", "Tool"):
        return False
    return is_dataclass(cls) or "__init__" in vars(cls)


def _members(cls: type) -> Iterator[str]:
    for name, member in vars(cls).items():
        inner = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        full = f"{cls.__name__}.{name}"
        if name.startswith("_") or full in _ENGINES or not inspect.getdoc(inner):
            continue
        if isinstance(inner, property):
            yield from (f"**{full}**", "", _words(inner), "")
        elif inspect.isfunction(inner):
            signature = _signature(full, inner, bound=not isinstance(member, staticmethod))
            yield from (f"**{full}**", "", "```text", signature, "```", "", _words(inner), "")


def _words(thing: Any) -> str:
    return inspect.cleandoc(thing.__doc__ or "")


def _signature(name: str, fn: Any, *, bound: bool = False) -> str:
    """Return how it is called, on one line if there is room."""
    signature = inspect.signature(fn)
    given = [each for each in signature.parameters.values() if not each.name.startswith("_")][int(bound) :]
    parts = [_parameter(each) for each in given]
    kinds = [each.kind for each in given]
    if inspect.Parameter.KEYWORD_ONLY in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds:
        parts.insert(kinds.index(inspect.Parameter.KEYWORD_ONLY), "*")
    if alone := kinds.count(inspect.Parameter.POSITIONAL_ONLY):
        parts.insert(alone, "/")
    ends = "" if inspect.isclass(fn) else _returned(signature)
    line = f"{name}({', '.join(parts)}){ends}"
    if len(line) <= _WIDTH:
        return line
    inside = "".join(f"    {part},\n" for part in parts)
    return f"{name}(\n{inside}){ends}"


def _returned(signature: inspect.Signature) -> str:
    found = signature.return_annotation
    return "" if found is signature.empty else f" -> {_annotation(found)}"


def _parameter(parameter: inspect.Parameter) -> str:
    kind = parameter.kind
    stars = "*" if kind is kind.VAR_POSITIONAL else "**" if kind is kind.VAR_KEYWORD else ""
    text = f"{stars}{parameter.name}"
    if parameter.annotation is not parameter.empty:
        text += f": {_annotation(parameter.annotation)}"
    return text if parameter.default is parameter.empty else f"{text} = {_default(parameter.default)}"


def _annotation(found: Any) -> str:
    return found if isinstance(found, str) else inspect.formatannotation(found)


def _default(value: Any) -> str:
    if isinstance(value, type):
        return value.__name__
    said = repr(value)
    # An object that has no short form, such as "not given".
    return "..." if said.startswith("<") else said


if __name__ == "__main__":
    PAGE.write_text(page())
