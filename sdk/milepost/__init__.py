"""Long agent runs on Kubernetes that survive the loss of their pod.

What an agent's author uses; everything else of the package is Milepost's own.
"""

from milepost.agent.agents import Agent, agent
from milepost.agent.facts import Fact
from milepost.agent.run import Run
from milepost.agent.steps import Retry
from milepost.agent.tools import Call, Tool, tool
from milepost.errors import (
    AgentError,
    Denied,
    Expired,
    KeyNeeded,
    MilepostError,
    Misuse,
    NotStorable,
    Permanent,
    RequirementNotMet,
    StepFailed,
    TooFewInputs,
)

__all__ = [
    "Agent",
    "AgentError",
    "Call",
    "Denied",
    "Expired",
    "Fact",
    "KeyNeeded",
    "MilepostError",
    "Misuse",
    "NotStorable",
    "Permanent",
    "RequirementNotMet",
    "Retry",
    "Run",
    "StepFailed",
    "TooFewInputs",
    "Tool",
    "agent",
    "tool",
]
