"""Long agent runs on Kubernetes that survive the loss of their pod.

What an agent's author uses; everything else of the package is Milepost's own.
"""

from milepost.agent.agents import Agent, agent
from milepost.agent.calls import Call, Happened, NotHappened, PriorCall, Try, Unknown
from milepost.agent.facts import Fact
from milepost.agent.gates import Decision
from milepost.agent.run import Run
from milepost.agent.steps import Retry
from milepost.agent.tools import Bound, Tool, tool
from milepost.agent.usage import record_usage, this_try
from milepost.errors import (
    AgentError,
    ArgumentsInvalid,
    Denied,
    Expired,
    KeyNeeded,
    MilepostError,
    Misuse,
    NotApplied,
    NotStorable,
    Permanent,
    RequirementNotMet,
    StepFailed,
    TooFewInputs,
)

__all__ = [
    "Agent",
    "AgentError",
    "ArgumentsInvalid",
    "Bound",
    "Call",
    "Decision",
    "Denied",
    "Expired",
    "Fact",
    "Happened",
    "KeyNeeded",
    "MilepostError",
    "Misuse",
    "NotApplied",
    "NotHappened",
    "NotStorable",
    "Permanent",
    "PriorCall",
    "RequirementNotMet",
    "Retry",
    "Run",
    "StepFailed",
    "TooFewInputs",
    "Tool",
    "Try",
    "Unknown",
    "agent",
    "record_usage",
    "this_try",
    "tool",
]
