"""What requests used up: tokens as providers report them, and their cost by the installed price list.

The list is that of genai-prices; nothing is fetched.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from genai_prices.types import PriceCalculation
    from pydantic_ai.messages import ModelResponse

__all__ = ["Used", "cost_of", "used_by", "used_in_vain"]


@dataclass(frozen=True)
class Used:
    """What one request used up. `cost` is in 10^-9 USD; None: its price is not known."""

    model: str
    input_tokens: int
    output_tokens: int
    cost: int | None


def used_by(response: ModelResponse) -> list[Used]:
    """Return what was used up for a response, other models that were asked in vain first."""
    own = Used(
        response.model_name or "",
        response.usage.input_tokens,
        response.usage.output_tokens,
        cost_of(response),
    )
    return [*_attempts(getattr(response, "failed_attempts", None)), own]


def used_in_vain(error: Exception) -> list[Used]:
    """Return what is known to be used up by requests that have come to nothing but this error."""
    return _attempts(getattr(error, "attempts", None))


def _attempts(attempts: Any) -> list[Used]:
    known = [attempt for attempt in attempts or () if getattr(attempt, "usage", None) is not None]
    return [
        Used(each.model_name, each.usage.input_tokens, each.usage.output_tokens, _nano(each.usage.cost))
        for each in known
    ]


def _nano(cost: Decimal | None) -> int | None:
    return None if cost is None else round(cost * 10**9)


def cost_of(response: ModelResponse) -> int | None:
    """Return the cost of a response in 10^-9 USD; None where the price of its model is not known."""
    # What a gateway says, where there is one; older versions of Pydantic AI do not have it.
    reported = _nano(getattr(response.usage, "cost", None))
    if reported is not None:
        return reported
    for priced in _ways(response):
        try:
            return _nano(priced().total_price)
        except (LookupError, ValueError):
            # Unknown there, or a usage that the list cannot read.
            continue
    return None


def _ways(response: ModelResponse) -> list[Callable[[], PriceCalculation]]:
    from genai_prices import calc_price  # noqa: PLC0415  (slow to import)

    if not response.model_name:
        return []
    asked = partial(
        calc_price, response.usage, response.model_name, genai_request_timestamp=response.timestamp
    )
    ways: list[Callable[[], PriceCalculation]] = []
    # The address says best whose model it is: several providers sell one name at several prices.
    if response.provider_url:
        ways.append(partial(asked, provider_api_url=response.provider_url))
    if response.provider_name:
        ways.append(partial(asked, provider_id=response.provider_name))
    return ways
