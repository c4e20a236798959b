"""What a model has to be told before it can write a plan: the form of one, and the tools that it may use.

It says what `milepost.plan.data` reads, in as few words as a prompt should have, and nothing of what a plan
is for: that is the author's to say.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from milepost import Tool

__all__ = ["instructions"]

_FORM: Final = """\
A plan is a JSON object and nothing else:
{"steps": [{"name": "page", "tool": "...", "arguments": {"...": "..."}},
           {"name": "words", "tool": "...", "arguments": {"...": "$page"}, "after": ["..."]}]}
- name: unique; letters, digits, - and _; begins with a letter.
- tool: one of those below. arguments: its arguments by name.
- A text that is "$" and the name of a step, and nothing more, stands for that step's result, wherever it is
  in the arguments. {"$some": ["a", "b"], "at_least": 1} stands for an object of those of the results that are
  there, by name. Any other text that begins with "$" is written with "$$". There are no other expressions.
- after: steps that must be done first and whose results are not needed; may be left out.
A step runs once all steps that it refers to are done. Steps must not wait for each other in a circle.

Tools, with the JSON Schema of their arguments:
"""


def instructions(tools: Mapping[str, Tool[..., Any]]) -> str:
    """Return the form of a plan and the tools, by the names that the model is to use for them."""
    return _FORM + "".join(_said(name, tool) for name, tool in tools.items())


def _said(name: str, tool: Tool[..., Any]) -> str:
    schema = json.dumps(tool.schema(), ensure_ascii=False)
    return f"- {name}: {tool.description or 'not described'}\n  {schema}\n"
