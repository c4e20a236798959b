"""Find the agent that the manifest names, and say what of it the log has to know."""

from __future__ import annotations

import hashlib
import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from milepost.agent.agents import Agent
from milepost.agent.failures import message_of
from milepost.errors import CannotStart

__all__ = ["code_digest", "find_agent"]


def find_agent(entrypoint: str, version: str) -> Agent[..., Any]:
    """Return the agent at `package.module:name`.

    Raises CannotStart where it cannot be imported, is no agent, or is not of the version that the manifest
    asks for (empty: any).
    """
    module_name, _, name = entrypoint.partition(":")
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        raise CannotStart(
            "EntrypointNotFound",
            f"spec.agent.entrypoint: importing {module_name} failed: "
            f"{type(error).__name__}: {message_of(error)}; "
            f"looked in {', '.join(part for part in dict.fromkeys(sys.path) if part) or 'nothing'}",
        ) from error
    found = getattr(module, name, None)
    if found is None:
        agents = sorted(key for key, value in vars(module).items() if isinstance(value, Agent))
        raise CannotStart(
            "EntrypointNotFound",
            f"spec.agent.entrypoint: {module_name} has no {name!r}; "
            f"its agents are {', '.join(agents) or 'none'}",
        )
    if not isinstance(found, Agent):
        raise CannotStart(
            "EntrypointNotAgent",
            f"spec.agent.entrypoint: {entrypoint} is a {type(found).__name__}; decorate it with "
            '@agent(version="1")',
        )
    if version and found.version != version:
        raise CannotStart(
            "VersionMismatch",
            f"spec.agent.version asks for {version!r}, but the image has version {found.version!r}",
        )
    return found


def code_digest(agent: Agent[..., Any]) -> str:
    """Return a digest of the source of the agent's top-level package or module, empty where it has none."""
    module = sys.modules.get(agent.fn.__module__.partition(".")[0])
    sources = _sources(module) if module else {}
    if not sources:
        return ""
    digest = hashlib.sha256()
    for name, path in sorted(sources.items()):
        digest.update(name.encode("utf-8", "surrogateescape") + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _sources(module: ModuleType) -> dict[str, Path]:
    """Return the module's files by their names below it. A module that is in no folder has none."""
    folders = [Path(part) for part in getattr(module, "__path__", ())]
    if folders:
        found = {str(path.relative_to(folder)): path for folder in folders for path in folder.rglob("*.py")}
    else:
        path = Path(getattr(module, "__file__", None) or "")
        found = {path.name: path}
    return {name: path for name, path in found.items() if path.is_file()}
