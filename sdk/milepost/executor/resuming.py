"""How a claimed run goes on: as it is, checked once more, or anew, and what halts it before its first step.

Whatever is decided here is a record before the agent's code runs.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from milepost.agent.agents import Agent
from milepost.agent.asking import ask
from milepost.agent.journal import Journal
from milepost.api.resource import OnEnvironmentChange, Phase, ResumeSpec, Strategy
from milepost.checkpoint import codec
from milepost.checkpoint.fold import State
from milepost.checkpoint.gates import AnswerType
from milepost.checkpoint.inbox import Answer
from milepost.checkpoint.records import Resumed
from milepost.executor.environment import Difference, Policy, breaches, differences, image_breach, told

__all__ = ["resume"]

_PLACE: Final = "!environment"
"""No step or gate of an agent's has this place."""

_ABOUT_THE_RUN: Final = (AnswerType.REVALIDATE, AnswerType.RESTART_WITH_CONTEXT)

_log: Final = logging.getLogger("milepost.resume")


async def resume(journal: Journal, agent: Agent[..., Any], policy: Policy) -> None:
    """Return once the agent's code may run; where it may not the run halts, and this does not return."""
    state, today = journal.state, journal.rules.environment
    before = state.environment or {}
    image = image_breach(policy, today.get("image", ""), before)
    if broken := [*image, *breaches(policy, agent.tools, before)]:
        await journal.halt("PolicyChanged", "; ".join(broken))
    # An author need not declare a tool, and it is held to the rules where it is called.
    journal.breaches = lambda tool: breaches(policy, (tool,), before)
    if await _ordered(journal):
        return
    matter = []
    for each in differences(before, today, resumes=agent.resumes):
        if each.matters:
            matter.append(each)
        else:
            _log.warning("environment-changed", extra={"what": str(each)})
    assert state.started is not None, "record 1 is `started`"
    spec = ResumeSpec.model_validate(state.started.configuration.get("resume", {}))
    strategy, gate = await _decided(journal, spec, matter) if matter else (_at_a_resume(state, spec), "")
    restarts = strategy is Strategy.RESTART_WITH_CONTEXT
    if restarts and not journal.may_restart:
        _log.warning("restart-put-off", extra={"why": "whether a call had its effect is not known yet"})
    elif matter or restarts:
        await journal.commit(Resumed(strategy=strategy.value, environment=today, gate=gate))
    elif strategy is not Strategy.EXACT:
        await journal.commit(Resumed(strategy=strategy.value))


async def _ordered(journal: Journal) -> bool:
    """Carry out what a person has answered to the last halt, if it is about the whole run; tell whether.

    Whatever this process would come to: what is different each time may not be met again.
    """
    gate = journal.state.halted_at
    if not gate or gate in journal.state.decisions:
        return False
    answer = await journal.answer(gate)
    if not isinstance(answer, Answer) or answer.type not in _ABOUT_THE_RUN:
        return False
    strategy = Strategy(answer.type.value)
    if strategy is Strategy.RESTART_WITH_CONTEXT and not journal.may_restart:
        return False
    decided = await journal.decided(answer, _PLACE)
    resumed = Resumed(strategy=strategy.value, environment=journal.rules.environment, gate=gate)
    await journal.commit(decided, resumed)
    return True


def _at_a_resume(state: State, spec: ResumeSpec) -> Strategy:
    """Return how the manifest wants the run to go on, in the environment that it had."""
    if not state.completed:
        return Strategy.EXACT
    # Begun anew it would come to another gate than the one that has its answer, and never past any.
    if spec.strategy is Strategy.RESTART_WITH_CONTEXT and state.found in (Phase.WAITING, Phase.HALTED):
        return Strategy.EXACT
    return spec.strategy


async def _decided(journal: Journal, spec: ResumeSpec, matter: list[Difference]) -> tuple[Strategy, str]:
    """Return how to go on in another environment, and the gate at which a person decided so, if one did."""
    if spec.on_environment_change is not OnEnvironmentChange.HALT:
        return _strategy(spec.on_environment_change.value), ""
    message = f"what is recorded depends on another environment: {told(matter)}"
    options = [AnswerType.ACCEPT, AnswerType.REVALIDATE]
    if journal.may_restart:
        options.append(AnswerType.RESTART_WITH_CONTEXT)
    about: codec.JSON = {each.name: [each.before, each.now] for each in matter}
    answer = await ask(journal, "EnvironmentChanged", message, place=_PLACE, about=about, options=options)
    return _strategy(answer.type.value), answer.gate


def _strategy(decided: str) -> Strategy:
    return Strategy.EXACT if decided == AnswerType.ACCEPT else Strategy(decided)
