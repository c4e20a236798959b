"""How far a run is, while it goes on: a line for each thing that happens, and on a terminal one that stays.

The numbers come from the executor's log, which says them with every record, and from the run's head where an
attempt begins or the run waits. Everything goes to standard error: standard output is the result's.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from milepost.cli.show import counted, used
from milepost.cli.visible import visible
from milepost.local.answering import Said
from milepost.local.questions import Question
from milepost.local.runner import Standing
from milepost.local.waiting import Ask

__all__ = ["Counts", "Progress"]

_HIDDEN: Final = frozenset({"claimed", "end", "stopping", "released"})
"""Events of the executor that the runner tells in its own words."""

_OURS: Final = frozenset({"run", "attempt", "worker", "event", "logger", "level", "timestamp", "exception"})
"""What each line of the executor's log has beside what its writer gave."""

_BEGINS: Final = '{"run": "'
"""How each line of the executor's log begins."""

_FRAME: Final = re.compile(r'^  File "(.+)", line (\d+), in (.+)$', re.MULTILINE)
"""A line of a traceback that says where."""

_REDRAWN: Final = 2
"""Times a second that the line that stays is drawn anew."""

_MINUTE: Final = 60


@dataclass(frozen=True)
class Counts:
    """What the line that stays tells. Cost is in US dollars."""

    done: int = 0
    total: int | None = None
    tokens: int = 0
    cost_usd: float = 0.0
    attempt: int = 0
    waits_for: tuple[str, ...] = ()

    def line(self, elapsed: float) -> str:
        """Return it in words, after so many seconds."""
        steps = f"{self.done}/{self.total} steps" if self.total else counted(self.done, "step")
        parts = [steps, *used(self.tokens, self.cost_usd), _span(elapsed)]
        if self.attempt > 1:
            parts.append(f"attempt {self.attempt}")
        if self.waits_for:
            parts.append(f"waits for {', '.join(self.waits_for)}")
        return " · ".join(parts)


@dataclass
class Progress:
    """Prints what happens as it happens. Entering the context begins the line that stays, on a terminal.

    `folder` is where the author's code is: an error of a step is said with the line there that it came from.
    """

    console: Console
    folder: Path = field(default_factory=Path.cwd)
    monotonic: Callable[[], float] = time.monotonic
    _counts: Counts = field(default_factory=Counts)
    _began: float = 0.0
    _live: Live | None = None

    def __enter__(self) -> Self:
        self._began = self.monotonic()
        if self.console.is_terminal:
            self._live = Live(
                get_renderable=self._shown,
                console=self.console,
                refresh_per_second=_REDRAWN,
                redirect_stdout=False,
                redirect_stderr=False,
                transient=True,
            )
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def _shown(self) -> Text:
        line = self._counts.line(self.monotonic() - self._began)
        return Text(visible(line), style="dim", no_wrap=True, overflow="ellipsis")

    def asking(self, ask: Ask) -> Ask:
        """Return an `ask` before which the line that stays is taken away, so that the prompt is the last."""

        def quietly(question: Question, interrupted: Callable[[], str]) -> Said | None:
            if self._live is None:
                return ask(question, interrupted)
            self._live.stop()
            try:
                return ask(question, interrupted)
            finally:
                self._live.start()

        return quietly

    def standing(self, standing: Standing) -> None:
        """Take over how far the run is, from its head."""
        totals = standing.totals
        self._counts = Counts(
            totals.steps_done,
            totals.steps_total,
            totals.tokens,
            totals.cost_nano_usd / 1e9,
            standing.attempt,
            standing.waits_for,
        )

    def say(self, text: str) -> None:
        """Print a line of the runner's."""
        self.console.print(Text(visible(text), style="bold"), soft_wrap=True)

    def line(self, raw: str) -> None:
        """Print a line of the executor's: a checkpoint as its steps, a log's in words, any other as it is."""
        event = _event(raw)
        before, _, _ = raw.partition(_BEGINS)
        if not event and before and _event(raw[len(before) :]):
            # What the agent has printed without a line feed.
            self.line(before)
            self.line(raw[len(before) :])
        elif _is_authors(event):
            self._log(event)
        else:
            self._told(event, raw)

    def _told(self, event: dict[str, Any], raw: str) -> None:
        match event:
            case {"event": "checkpoint", "worker": str(), "steps": list(steps), "done": int(done)}:
                self._counts = replace(
                    self._counts,
                    done=done,
                    total=event.get("total"),
                    tokens=event.get("tokens", 0),
                    cost_usd=event.get("cost_usd", 0.0),
                )
                for step in steps:
                    self.console.print(
                        Text(f"  {_count(event)}  {step}{self._used()}", style="green"), soft_wrap=True
                    )
            case {"event": "step-failed", "step": step, "attempt_of_step": n, "attempts": of, "error": error}:
                where = _origin(event.get("exception"), self.folder)
                self._warn(f"{step} failed, try {n} of {of}: {error}{where}")
            case {"event": "store-trouble", "cause": str(cause), "waited_s": waited, "gives_up_after_s": end}:
                self._warn(f"the store has given no clear answer for {waited} s (until {end:.0f} s): {cause}")
            case {"event": "base-damaged", "worker": str(), "error": str(error)}:
                self._warn(f"{error}; it is a cache, and nothing is lost")
            case (
                {"event": str(name), "worker": str(), "note": str(why)}
                | {"event": str(name), "worker": str(), "what": str(why)}
                | {"event": str(name), "worker": str(), "why": str(why)}
            ):
                self._warn(f"{name}: {why}")
            case {"event": "deprecated-tool", "step": str(step), "tool": str(tool)}:
                self._warn(f"step {step} calls {tool}, which is deprecated")
            case {"event": "agent-failed", "worker": str(), "exception": str(trace)}:
                self.console.print(Text(trace, style="yellow"), soft_wrap=True)
            case {"event": str(name), "worker": str()} | {"event": "end" as name, "code": int()} if (
                name in _HIDDEN
            ):
                pass
            case _:
                self.console.print(Text.from_ansi(raw), soft_wrap=True)

    def _log(self, event: dict[str, Any]) -> None:
        given = [f"{name}={_text(value)}" for name, value in event.items() if name not in _OURS]
        lines = [
            "  " + "  ".join([_text(event.get("event")), *given]),
            *event.get("exception", "").splitlines(),
        ]
        style = "yellow" if event.get("level") in ("warning", "error", "critical") else ""
        self.console.print(Text(visible("\n".join(lines)), style=style), soft_wrap=True)

    def _used(self) -> str:
        told = used(self._counts.tokens, self._counts.cost_usd)
        return f"  ({', '.join(told)})" if told else ""

    def _warn(self, text: str) -> None:
        self.console.print(Text(f"  {text}", style="yellow"), soft_wrap=True)


def _event(raw: str) -> dict[str, Any]:
    try:
        event = json.loads(raw) if raw.startswith("{") else {}
    except ValueError:
        return {}
    return event if isinstance(event, dict) else {}


def _is_authors(event: dict[str, Any]) -> bool:
    """Tell whether this is a line of the agent's own log, or of that of a package which it uses."""
    logger = event.get("logger") if isinstance(event.get("worker"), str) else None
    return isinstance(logger, str) and (logger == "milepost.agent" or not logger.startswith("milepost."))


def _origin(trace: object, folder: Path) -> str:
    """Return the last place in the author's code that an error came through; nothing if there is none."""
    found = _FRAME.findall(trace) if isinstance(trace, str) else []
    for file, line, function in reversed(found):
        path = Path(file)
        if path.is_relative_to(folder) and "site-packages" not in path.parts:
            return f" ({path.relative_to(folder)}, line {line}, in {function})"
    return ""


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _count(event: dict[str, Any]) -> str:
    total = event.get("total")
    return f"{event.get('done')}/{total}" if total else f"{event.get('done')}"


def _span(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), _MINUTE)
    return f"{minutes}:{rest:02d} min" if minutes else f"{rest} s"
