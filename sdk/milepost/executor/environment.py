"""What a resume finds around it: how today's environment differs from the recorded one, and today's policy.

Pure. What matters halts the run, so that a person decides; what does not is noted. An image that was built
anew, another Milepost or other code do not matter by themselves: the author says by the agent's version
whether the code does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from pydantic import BaseModel, ConfigDict
from typing_extensions import override

from milepost.agent.tools import Tool

__all__ = ["Difference", "Policy", "breaches", "differences", "image_breach", "told"]


class Policy(BaseModel):
    """The administrator's rules of today. None: anything goes.

    `images` are those that may run, `tools` the names that agents may have, `approval` those that must be
    approved call by call; all may hold `*` and `?`. A process outside of a container has no image.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    images: tuple[str, ...] | None = None
    tools: tuple[str, ...] | None = None
    approval: tuple[str, ...] = ()

    def recorded(self) -> dict[str, Any]:
        """Return what a claim says of it."""
        return self.model_dump(exclude_defaults=True, mode="json")


@dataclass(frozen=True)
class Difference:
    """One name whose value is another one today. None: there was, or is, none."""

    name: str
    before: str | None
    now: str | None
    matters: bool

    @override
    def __str__(self) -> str:
        return f"{self.name} was {_shown(self.before)} and is {_shown(self.now)}"


def differences(
    before: Mapping[str, str], now: Mapping[str, str], *, resumes: Sequence[str]
) -> list[Difference]:
    """Return what is different, in order. `resumes` are the agent's versions that this one goes on from."""
    found = []
    for name in sorted({*before, *now}):
        old, new = before.get(name), now.get(name)
        if old != new:
            found.append(Difference(name, old, new, _matters(name, old, resumes)))
    return found


def _matters(name: str, before: str | None, resumes: Sequence[str]) -> bool:
    if name == "agent version":
        return before not in resumes
    # What is new nothing recorded depends on.
    return name.startswith(("tool ", "environment ")) and before is not None


def told(found: Sequence[Difference]) -> str:
    """Return the differences as the rest of a sentence."""
    return "; ".join(map(str, found))


def image_breach(policy: Policy, image: str, before: Mapping[str, str]) -> list[str]:
    """Return how this image breaks today's rules, with the rule's value then and now."""
    if policy.images is None or not image or _fits(image, policy.images):
        return []
    return [f"image {image} is not allowed: {_rule('images', before, policy.images)}"]


def breaches(policy: Policy, tools: Sequence[Tool[..., Any]], before: Mapping[str, str]) -> list[str]:
    """Return how an agent with these tools breaks today's rules, each with the rule's value then and now."""
    said = []
    for tool in tools:
        if policy.tools is not None and not _fits(tool.name, policy.tools):
            said.append(f"tool {tool.name} is not allowed: {_rule('tools', before, policy.tools)}")
        if _fits(tool.name, policy.approval) and not tool.requires_approval:
            said.append(
                f"tool {tool.name} does not require approval: {_rule('approval', before, policy.approval)}; "
                "declare it with requires_approval=True"
            )
    return said


def _rule(name: str, before: Mapping[str, str], today: Sequence[str]) -> str:
    was, now = before.get(f"policy {name}", "none"), str(list(today))
    return f"the rule {name} is {now}" if was == now else f"the rule {name} was {was} and is {now}"


def _fits(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _shown(value: str | None) -> str:
    return "absent" if value is None else repr(value)
