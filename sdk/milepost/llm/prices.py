"""What an answer cost, by the price list of genai-prices that is installed. Nothing is fetched."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from genai_prices.types import PriceCalculation
    from pydantic_ai.messages import ModelResponse

__all__ = ["cost_of"]


def cost_of(response: ModelResponse) -> int | None:
    """Return the cost of a response in 10^-9 USD; None where the price of its model is not known."""
    # What a gateway says, where there is one; older versions of Pydantic AI do not have it.
    reported: Decimal | None = getattr(response.usage, "cost", None)
    if reported is not None:
        return round(reported * 10**9)
    for priced in _ways(response):
        try:
            return round(priced().total_price * 10**9)
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
