"""The guards of what is recorded: whether it still stands, and how a run goes on from it."""

from __future__ import annotations

from typing import Final

from tools.mutants.guard import Guard

__all__ = ["STANDING_GUARDS"]

_AGENT: Final = "sdk/milepost/agent"
_STANDING: Final = f"{_AGENT}/standing.py"
_RESUMING: Final = "sdk/milepost/executor/resuming.py"
_TESTS: Final = "tests/sdk/agent/test_standing.py"
_PROCESSES: Final = "tests/sdk/executor/test_resuming.py"

STANDING_GUARDS: Final = (
    Guard(
        "the code comes to its steps in their order",
        "code that depends on time or chance goes on with results of another path",
        _STANDING,
        "    if branch.stale_before or place.after is None:\n        return\n",
        "    return\n",
        _TESTS,
    ),
    Guard(
        "a result is one for its inputs",
        "a step that is asked something else is given the old answer",
        _STANDING,
        "    if before == now:\n        return\n",
        "    return\n",
        _TESTS,
    ),
    Guard(
        "what follows a withdrawn step is withdrawn",
        "a result stays that was made from one that does not hold any more",
        _STANDING,
        "    if seq < stale_before:\n",
        "    if False:\n",
        _TESTS,
    ),
    Guard(
        "a failure stands unless what is before it was withdrawn after it",
        "a process tries a step again from whose failure the code has gone on",
        f"{_AGENT}/steps.py",
        "if state.failed_at.get(self.place.id, -1) >= stale_before:",
        "if state.failed_at.get(self.place.id, -1) >= 0 and not any(state.withdrawn):",
        _TESTS,
    ),
    Guard(
        "a step that was stopped while it was recorded is stopped again",
        "the code saw a cancellation and a resume sees a result",
        f"{_AGENT}/steps.py",
        'await unbroken(self.journal.commit(failure.model_copy(update={"usage": Usage()})))',
        "pass",
        "tests/sdk/agent/test_attempts.py",
    ),
    Guard(
        "a fact is adopted once",
        "two steps get one result, and the second is never made",
        _STANDING,
        "        if not journal.take_fact(fact):\n            continue\n",
        "",
        _TESTS,
    ),
    Guard(
        "a fact is one for its inputs",
        "a new plan gets results of the old one that were asked for something else",
        _STANDING,
        "!= _digests(inputs):\n            continue",
        "!= _digests(inputs):\n            pass",
        _TESTS,
    ),
    Guard(
        "what an adopted step used up is counted once",
        "a run that begins anew comes to its limit for what it did not use",
        _STANDING,
        ', "usage": Usage()}',
        "}",
        _TESTS,
    ),
    Guard(
        "branches that were begun are begun again",
        "on a resume a branch that has its records is left out, since another one fails at once",
        f"{_AGENT}/parallel.py",
        "if failed and not swallow and not begun_before()[index]:",
        "if failed and not swallow:",
        "tests/sdk/agent/test_replayed_values.py",
    ),
    Guard(
        "what is not durable yet counts against a limit",
        "a phase that is recorded as a whole uses up as much as it likes",
        f"{_AGENT}/journal.py",
        "totals, rules = self._committer.totals, self.rules",
        "totals, rules = self.state.totals, self.rules",
        "tests/sdk/agent/test_groups.py",
    ),
    Guard(
        "a run that waits is open only where it waits",
        "an answer to what nobody waits for starts processes one after the other that come no further",
        f"{_AGENT}/journal.py",
        "Waiting(gates=tuple(self._waits_at))",
        "Waiting()",
        "tests/sdk/agent/test_gates.py",
    ),
    Guard(
        "no run begins anew where it has waited",
        "a run that always begins anew never comes past a gate",
        _RESUMING,
        " and state.found in (Phase.WAITING, Phase.HALTED)",
        " and False",
        _PROCESSES,
    ),
    Guard(
        "no run begins anew while a call's outcome is not known",
        "an effect that may have happened is forgotten, and has nobody who finds out",
        _RESUMING,
        "if restarts and not journal.may_restart:",
        "if False:",
        _PROCESSES,
    ),
    Guard(
        "steps in flight end before a run begins anew",
        "what they record counts as a part of the new beginning, or is lost",
        f"{_AGENT}/journal.py",
        "        await self._switch.let_others_end()\n        remembered = await self._remembered_by_now()\n",
        "        self.stop()\n        remembered = await self._remembered_by_now()\n",
        _TESTS,
    ),
    Guard(
        "other inputs have other keys",
        "a keyed tool is called with a key that its receiver knows for other arguments",
        _STANDING,
        "        anew = _digests(recorded.inputs) != _digests(inputs())\n",
        "        anew = False\n",
        _TESTS,
    ),
    Guard(
        "what cannot be taken back is held to its inputs",
        "an irreversible step gives the result of another call, and nobody is told",
        _STANDING,
        "        if once:\n            await _check_inputs(journal, recorded, inputs())\n",
        "        if once:\n",
        _TESTS,
    ),
    Guard(
        "what was begun beside a withdrawn step stands",
        "what stood in one process is withdrawn in the next, though nothing has changed",
        f"{_AGENT}/steps.py",
        "            stale_before=self._stale_before,\n",
        "            stale_before=self.branch.stale_before,\n",
        _TESTS,
    ),
    Guard(
        "a check is made whatever ends beside it",
        "a result that does not hold any more is gone on with, since another step was quicker",
        _STANDING,
        "branch.path in journal.checked:",
        "branch.path in journal.state.revalidated:",
        _TESTS,
    ),
    Guard(
        "the code ends where it ended",
        "a resume that takes a shorter path leaves recorded steps out of its result, and succeeds",
        _STANDING,
        "    if branch.stale_before or not other or branch.has_come_to(other):\n",
        "    if True:\n",
        _TESTS,
    ),
    Guard(
        "memory is copied before a person decides",
        "a run that begins anew has forgotten what it was to remember",
        f"{_AGENT}/journal.py",
        '        if not self.memory.changed or (copied and self._ahead.in_branch("")):\n',
        "        if True:\n",
        _TESTS,
    ),
    Guard(
        "what nobody awaited is named at the end",
        "a step is left out without a word",
        "sdk/milepost/executor/session.py",
        "journal.left_open)",
        "[])",
        "tests/sdk/agent/test_attempts.py",
    ),
    Guard(
        "another environment halts",
        "another model or tool works on with the results of the old one, and nobody is asked",
        _RESUMING,
        "        if each.matters:\n",
        "        if False:\n",
        _PROCESSES,
    ),
)
