"""Breaks of what whole executors, and the people around them, do: each takes one guard away.

A break stands in the place of one of the product's functions, while one of the model's processes is in its
code.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Final
from unittest.mock import patch

from milepost.agent import gates, standing
from milepost.agent.attempt import Attempt
from milepost.agent.effects import Effect
from milepost.agent.events import Coming
from milepost.agent.journal import Journal
from milepost.agent.tools import Tool
from milepost.api.names import Entropy, idempotency_key
from milepost.checkpoint import inbox
from milepost.checkpoint.answers import Done, Lost, Write
from milepost.checkpoint.gates import Decided, event_gate_id
from milepost.checkpoint.records import Event, Intended
from milepost.checkpoint.sending import Patience
from milepost.checkpoint.sending import send as really_send
from milepost.checkpoint.store import Store
from tests.model import agents
from tests.model.code import Code
from tests.model.replay import Put, Reply, honest
from tests.model.scenario import Break

__all__ = ["LIFE_BREAKS", "ignores_if_none_match"]


def ignores_if_none_match(bucket: dict[str, int], put: Put) -> Reply:
    standing_there = bucket.get(put.key)
    if not put.etag and standing_there is not None:
        bucket[put.key] = put.body
        return Reply("stored", put.body)
    return honest(bucket, put)


def _with(*changes: tuple[Any, str, Any]) -> Code:
    """Return the product's code with these functions in the place of its own, by owner and name."""

    @contextmanager
    def bent() -> Iterator[None]:
        with ExitStack() as stack:
            for owner, name, other in changes:
                stack.enter_context(patch.object(owner, name, other))
            yield

    made: Callable[[], AbstractContextManager[None]] = bent
    return Code(bent=made)


_commit: Final = Journal.commit


def _all_but(kind: type[Event]) -> Callable[..., Awaitable[None]]:
    """Return a commit that loses events of a kind, where they are all that there is."""

    async def commit(self: Journal, *events: Event, deferrable: bool = False) -> None:
        left = [event for event in events if not isinstance(event, kind)]
        if left:
            await _commit(self, *left, deferrable=deferrable)

    return commit


async def _approves_by_itself(*_: object) -> None:
    """Ask nobody."""


async def _taken_for_undone(self: Effect, intent: Intended, error: BaseException | None) -> None:
    """Take a call whose end nobody has seen for one that did not happen."""
    del self, intent, error


async def _at_once(self: Journal) -> None:
    del self


def _surely(self: Journal, attempt: int) -> bool:
    del self, attempt
    return True


def _own_stands(store: Store, write: Write, patience: Patience) -> Done | Lost:
    """Take what somebody else has answered for the own answer."""
    really_send(store, write, patience)
    return Done("")


def _ever_the_first(self: Coming) -> Iterator[str]:
    while True:
        yield event_gate_id(self.name, self.key, 1)


def _key_of_generation(self: Attempt, tool: Tool[..., Any], number: int) -> str:
    del tool
    again = self.journal.state.generations.get(self.step, 0)
    return idempotency_key(
        self.journal.key_root, f"{self.step}~{again}" if again else self.step, max(number, 1)
    )


_withdraw: Final = standing._withdraw


async def _anew_each_time(journal: Journal, step: str, reason: str, *, anew: bool) -> None:
    del anew
    await _withdraw(journal, step, reason, anew=True)


async def _never_anew_beside(journal: Journal, step: str, reason: str, *, anew: bool) -> None:
    """Withdraw what follows as if it had the inputs that it had."""
    beside = reason.startswith("a step before it")
    await _withdraw(journal, step, reason, anew=anew and not beside)


def _facts_again(self: Journal, component: str) -> list[str]:
    return list(self._facts.get(component, ()))


def _any_fact(self: Journal, step: str) -> bool:
    del self, step
    return True


def _sweeps_inboxes(store: Store, now: float, entropy: Entropy) -> None:
    """Delete what was said to runs."""
    del now, entropy
    for each in list(store.list("")):
        if "/inbox/" in each.key:
            store.delete(each.key)


def _no_deadline(*_: object) -> bool:
    return False


LIFE_BREAKS: Final = (
    Break(
        "a call before its intent is stored",
        "an irreversible call",
        _with((Journal, "commit", _all_but(Intended))),
    ),
    Break(
        "a call of unknown outcome made again",
        "an irreversible call",
        _with((Effect, "_settle", _taken_for_undone)),
    ),
    Break(
        "a tool asked while its caller may be at work",
        "a verified call",
        _with((Journal, "surely_ended", _surely)),
    ),
    Break(
        "a tool asked before its calls have settled",
        "a verified call",
        _with((agents.deliver, "settles_within", 0.0)),
    ),
    Break(
        "a call before what was handed over is recorded", "handed over", _with((Journal, "settle", _at_once))
    ),
    Break("an answer without a condition", "two answers", Code(bucket=ignores_if_none_match)),
    Break(
        "an answer that was too late told as the one that stands",
        "two answers",
        _with((inbox, "send", _own_stands)),
    ),
    Break("a decision that is not recorded", "an approval", _with((Journal, "commit", _all_but(Decided)))),
    Break(
        "a call before its approval",
        "an approved call",
        _with((gates, "approve_call", _approves_by_itself)),
    ),
    Break("a deadline that nobody looks at", "a deadline", Code(look=_no_deadline), finish=True),
    Break("an event that is taken twice", "an early event", _with((Coming, "_ids", _ever_the_first))),
    Break("an inbox that is swept", "a sweep of what waits", Code(sweep=_sweeps_inboxes)),
    Break(
        "an irreversible call in a generation of its own",
        "begun anew",
        _with((Attempt, "_key", _key_of_generation)),
    ),
    Break("all that follows done anew", "checked again", _with((standing, "_withdraw", _anew_each_time))),
    Break(
        "other inputs under the old key",
        "checked and followed",
        _with((standing, "_withdraw", _never_anew_beside)),
    ),
    Break(
        "a fact adopted twice",
        "begun anew",
        _with((Journal, "facts_like", _facts_again), (Journal, "take_fact", _any_fact)),
    ),
)
