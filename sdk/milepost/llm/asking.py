"""One request to a model, inside a `think` step: waits out rate limits, and lets no secret into an error.

A provider that is overloaded or limits the rate is asked again until the patience is used up, however often
that is; whatever else goes wrong is an error of the step's, which is tried again as any step is. What an
error says is recorded, and providers quote keys in what they answer, so errors are raised anew with what
looks like a secret taken out, and without the ones that led to them.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, TypeVar

from milepost import AgentError, Permanent

if TYPE_CHECKING:
    from pydantic_ai.models import Model

__all__ = ["ModelFailed", "Patience", "RateLimited", "redacted", "secrets_of"]

T = TypeVar("T")

MAX_MESSAGE: Final = 1000
"""Characters of a provider's own words that an error repeats."""

FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 60.0
"""Seconds between two requests where the provider does not say how long to wait."""

LEAST_PAUSE: Final = 0.02
"""Seconds after the first request of a provider that says not to wait, and says so again; it grows, too."""

MIN_SECRET: Final = 8
"""Characters; what is shorter stands in too many words that are no secret."""

_BUSY: Final = (429, 503, 529)
_BUSY_KINDS: Final = frozenset({"ModelRateLimitError", "ModelUnavailableError"})
_USED_UP: Final = "ModelQuotaExceededError"
_NAMES_A_SECRET: Final = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)
_LOOKS_SECRET: Final = re.compile(
    r"(?i:\b(?:bearer|basic)\s+)[\w.~+/=-]{8,}|\b(?:(?:sk|pk|rk|xai|gsk|hf)[-_]|AIza|ya29\.)[\w-]{16,}"
)


class ModelFailed(AgentError):
    """A request to the model failed. The message names the provider's own error; secrets are taken out."""


class RateLimited(Permanent):
    """The provider was overloaded, or limited the rate, for longer than the agent's patience."""


@dataclass(frozen=True)
class Patience:
    """How long a provider that is busy is waited for: `seconds` in all, and `say` tells until when.

    `seed` decides how the pauses of several runs differ.
    """

    seconds: float
    seed: str
    say: Callable[[str], None]

    async def ask(self, request: Callable[[], Awaitable[T]], secrets: Iterable[str]) -> T:
        """Return what `request` returns. Raises RateLimited and ModelFailed."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + self.seconds
        tries = 0
        while True:
            tries += 1
            try:
                return await request()
            except Exception as error:  # noqa: BLE001  (raised again as one of two errors, secrets taken out)
                said = redacted(_words(error), secrets)
                busy, asked = _busy(error)
            if not busy:
                raise ModelFailed(said)
            pause = self.pause(tries, asked)
            until = _in(pause)
            if clock() + pause > deadline:
                raise RateLimited(
                    f"the provider is busy until {until} at least, and after {self.seconds:g} s in all no "
                    f"further request is made; this was request {tries}: {said}"
                )
            self.say(f"RateLimited until {until}, after request {tries}: {said}")
            await asyncio.sleep(pause)

    def pause(self, tries: int, asked: float | None) -> float:
        """Return the seconds after so many requests; `asked` is what the provider asks for, if it does."""
        share: float = sha256(f"{self.seed}/{tries}".encode()).digest()[0] / 256
        if asked is not None:
            # Never earlier than was asked for, not all runs in the same moment, and never without any pause.
            least = min(LONGEST_PAUSE, LEAST_PAUSE * 2.0 ** min(tries - 1, 16))
            return max(asked + share * min(1.0, asked / 10), least)
        longest = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(tries - 1, 16))
        return longest * (1 - share / 2)


def _busy(error: BaseException) -> tuple[bool, float | None]:
    """Tell whether the provider says that waiting helps, and how many seconds it asks for, if it does."""
    if isinstance(error, BaseExceptionGroup):
        # Several models, one after the other.
        found = [_busy(each) for each in error.exceptions]
        waits = [wait for busy, wait in found if busy and wait is not None]
        return any(busy for busy, _ in found), min(waits, default=None)
    # By name: which of them there are depends on the version of Pydantic AI.
    kinds = {each.__name__ for each in type(error).__mro__}
    body = getattr(error, "body", None)
    if _USED_UP in kinds or (isinstance(body, dict) and body.get("code") == "insufficient_quota"):
        return False, None
    if not kinds & _BUSY_KINDS and getattr(error, "status_code", None) not in _BUSY:
        return False, None
    return True, _asked_for(error)


def _words(error: BaseException) -> str:
    """Return what the error says; a group says what its errors say, and not only how many there are."""
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(map(_words, error.exceptions))
    return f"{type(error).__name__}: {error}"


def _asked_for(error: BaseException) -> float | None:
    known = getattr(error, "retry_after", None)
    if known is not None:
        return float(known)
    headers = getattr(getattr(error.__cause__, "response", None), "headers", None) or {}
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        # Its other form, a date, is rare; the pauses are then as if nothing was asked for.
        with suppress(ValueError):
            return max(0.0, float(headers.get(name, "")) * unit)
    return None


def _in(seconds: float) -> str:
    # Shown to people, and decides nothing.
    now = datetime.now(UTC)  # noqa: TID251  (as said above)
    return (now + timedelta(seconds=seconds)).isoformat(timespec="seconds")


def redacted(text: str, secrets: Iterable[str]) -> str:
    """Return the text without the secrets, and without what looks like one, cut to MAX_MESSAGE characters."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "***")
    text = _LOOKS_SECRET.sub("***", text)
    return text if len(text) <= MAX_MESSAGE else text[:MAX_MESSAGE] + " ..."


def secrets_of(model: Model) -> set[str]:
    """Return what an error about this model must not repeat: its key, and the environment's secrets."""
    found = {value for name, value in os.environ.items() if _NAMES_A_SECRET.search(name)}
    for each in _models(model):
        key = getattr(getattr(each, "client", None), "api_key", None)
        if isinstance(key, str):
            found.add(key)
    return {secret for secret in found if len(secret) >= MIN_SECRET}


def _models(model: Any) -> Iterable[Any]:
    """Yield a model and those that it hands its requests to."""
    yield model
    if (inner := getattr(model, "wrapped", None)) is not None:
        yield from _models(inner)
    for each in getattr(model, "models", ()):
        yield from _models(each)
