"""An agent whose annotations name what is not there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from milepost import Run, agent

if TYPE_CHECKING:
    from datetime import date


@agent(version="1")
async def dated(run: Run, day: date) -> None: ...
