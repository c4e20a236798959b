"""A model that works towards a goal, one durable step at a time. Needs `pip install milepost[llm]`.

It stands on what any author can use, `milepost` itself, and on Pydantic AI, which is loaded with the first
request that is really made: a run whose answers are all recorded does not need it.
"""

from importlib.util import find_spec

if missing := [name for name in ("pydantic_ai", "genai_prices") if find_spec(name) is None]:
    raise ImportError(f"milepost.llm needs {' and '.join(missing)}, so: pip install 'milepost[llm]'")

from milepost.llm.agent import LLMAgent, LLMResult
from milepost.llm.asking import ModelFailed, RateLimited
from milepost.llm.history import History
from milepost.llm.limits import LimitReached, Limits
from milepost.llm.loop import NoUsableAnswer

__all__ = [
    "History",
    "LLMAgent",
    "LLMResult",
    "LimitReached",
    "Limits",
    "ModelFailed",
    "NoUsableAnswer",
    "RateLimited",
]
