"""What a step's code can say and learn of its try: what models used up in it, and what was called before.

Usage is counted with the try, a failed one too.
"""

from __future__ import annotations

from decimal import ROUND_CEILING, Decimal, InvalidOperation
from typing import Final

from milepost.agent.calls import Try
from milepost.agent.tools import ToolCaller, current_caller
from milepost.checkpoint.records import Usage
from milepost.errors import Misuse

__all__ = ["record_usage", "this_try"]

_NANO: Final = 10**9


def record_usage(
    *,
    input_tokens: int = 0,
    output_tokens: int = 0,
    cost_usd: Decimal | float | str = 0,
    model: str = "",
) -> None:
    """Count what a model has used up to the step in which this is called, and to the run.

    `cost_usd` is in US dollars; the log keeps billionths of one, rounded up. What a process that is lost had
    counted since its last record is lost with it. Raises Misuse outside of a step, and where an amount is
    none.
    """
    _caller("usage is counted to a step").use(
        Usage(
            input_tokens=_tokens(input_tokens),
            output_tokens=_tokens(output_tokens),
            cost_nano_usd=_nano(cost_usd),
            models=(model,) if model else (),
        )
    )


def this_try() -> Try:
    """Return which try of the running step this is, with the calls that earlier tries have made.

    Raises Misuse outside of a step.
    """
    return _caller("a try is one of a step").seen()


def _caller(why: str) -> ToolCaller:
    caller = current_caller.get()
    if caller is None:
        raise Misuse(f"{why}, and this is called where none is running: it belongs inside a step")
    return caller


def _tokens(number: int) -> int:
    if type(number) is not int or number < 0:
        raise Misuse(f"a number of tokens is a whole number from 0 on, not {number!r}")
    return number


def _nano(cost: Decimal | float | str) -> int:
    try:
        # A float says what it prints as: 0.1 is a tenth.
        dollars = Decimal(str(cost))
    except InvalidOperation:
        dollars = Decimal("NaN")
    if not dollars.is_finite() or dollars < 0:
        raise Misuse(f"a cost is an amount of US dollars, from 0 on, not {cost!r}")
    return int((dollars * _NANO).to_integral_value(ROUND_CEILING))
