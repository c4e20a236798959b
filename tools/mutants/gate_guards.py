"""The guards of gates and of the waiting for them, each with the edit that takes it out."""

from __future__ import annotations

from typing import Final

from tools.mutants.guard import Guard

__all__ = ["GATE_GUARDS"]

_SDK: Final = "sdk/milepost"
_GATES: Final = f"{_SDK}/agent/gates.py"
_EVENTS: Final = f"{_SDK}/agent/events.py"
_LANES: Final = f"{_SDK}/agent/parallel.py"
_STILL: Final = f"{_SDK}/agent/stillness.py"
_JOURNAL: Final = f"{_SDK}/agent/journal.py"
_SESSION: Final = f"{_SDK}/executor/session.py"
_AT_GATES: Final = "tests/sdk/agent/test_gates.py"
_BESIDE: Final = "tests/sdk/agent/test_gates_in_parallel.py"
_PROCESSES: Final = "tests/sdk/executor/test_waiting.py"

GATE_GUARDS: Final = (
    Guard(
        "a decision is one about what was shown",
        "an approval of one request lets another one pass",
        _GATES,
        "self.passed(self.ids(codec.digest(request)), request)",
        'self.passed(self.ids(""), request)',
        _AT_GATES,
    ),
    Guard(
        "the digest that was shown is compared",
        "an answer that was given for another request is taken where somebody put it by hand",
        _GATES,
        "if answer.request_digest and answer.request_digest != codec.digest(request):",
        "if False:",
        _AT_GATES,
    ),
    Guard(
        "a decision that is on record stands",
        "a gate asks the inbox again each time, and a resume may take another answer",
        _GATES,
        "if gate in self.journal.state.decisions:\n                return await self._recorded(gate)",
        "if False:\n                return await self._recorded(gate)",
        _AT_GATES,
    ),
    Guard(
        "a decision is recorded before it is applied",
        "nobody can tell who decided, and a resume may be told otherwise",
        _GATES,
        "        await self.journal.commit(decided)\n",
        "",
        _AT_GATES,
    ),
    Guard(
        "a gate takes the answers of its kind",
        "an event opens an approval",
        _GATES,
        "if answer.type not in _TAKES[self.type]:",
        "if False:",
        _AT_GATES,
    ),
    Guard(
        "an answer is of the type that was asked for",
        "text arrives where the author's code has declared a number",
        f"{_SDK}/agent/wanted.py",
        "return adapter.validate_json(text, strict=True)",
        "return adapter.validate_json(text, strict=False)",
        _AT_GATES,
    ),
    Guard(
        "an answer that was left out is passed over",
        "a run halts for ever at an answer that a person has said to leave out",
        _GATES,
        "if not self._is_left_out(gate):",
        "if True:",
        _AT_GATES,
    ),
    Guard(
        "a gate is opened once",
        "its deadline moves on each time that a process comes to it",
        _GATES,
        "        if gate in self.journal.state.gates:\n            return\n",
        "",
        _AT_GATES,
    ),
    Guard(
        "a gate is on record before the run waits at it",
        "nobody is asked, and the run waits for ever",
        _GATES,
        "            await self._open(gate, request)\n",
        "",
        _AT_GATES,
    ),
    Guard(
        "what is approved anew has a gate of its own",
        "one approval lets a call be made twice, where the first one was declared to stand no more",
        _GATES,
        'f"{component}~{anew}" if anew else component',
        "component",
        _AT_GATES,
    ),
    Guard(
        "an event is consumed once",
        "the second gate of its name takes the first event again",
        _GATES,
        "            coming.number += 1\n",
        "",
        _AT_GATES,
    ),
    Guard(
        "an event in a branch has a key",
        "which branch an event is for depends on timing",
        _GATES,
        "if branch.path and place.key is None:",
        "if False:",
        _AT_GATES,
    ),
    Guard(
        "an event is waited for in one branch",
        "which of two branches gets an event depends on timing",
        _EVENTS,
        "if found.branch != branch.path:",
        "if False:",
        _AT_GATES,
    ),
    Guard(
        "an event is waited for by one gate at a time",
        "one event is given to two gates",
        _EVENTS,
        "        if self._at:\n",
        "        if False:\n",
        _AT_GATES,
    ),
    Guard(
        "a branch that waits gives its slot back",
        "branches that could go on wait for whoever answers at another branch's gate",
        _LANES,
        "    def freeze(self) -> None:\n"
        '        """Note that nothing of the branch can go on but by a gate that opens."""\n'
        "        self._give_back()\n",
        "    def freeze(self) -> None:\n"
        '        """Note that nothing of the branch can go on but by a gate that opens."""\n',
        f"{_BESIDE} {_PROCESSES}",
    ),
    Guard(
        "a branch of branches that wait gives its slot back",
        "as before, one parallel further out",
        _LANES,
        "            self.inside.freeze()\n",
        "            pass\n",
        _BESIDE,
    ),
    Guard(
        "slots are given back before a run waits",
        "branches behind one that waits in tasks of its own never begin",
        _STILL,
        "elif self._something_begins():",
        "elif False:",
        _BESIDE,
    ),
    Guard(
        "a process stays for what is under way",
        "work is cut off because another branch has come to a gate",
        _STILL,
        "        if not self._frozen or self._under_way:\n            return\n        if begun",
        "        if not self._frozen:\n            return\n        if begun",
        f"{_BESIDE} {_PROCESSES}",
    ),
    Guard(
        "a process stays for what has just begun",
        "as before, for code between two steps",
        _STILL,
        "if begun != self._begun:",
        "if False:",
        f"{_BESIDE} {_PROCESSES}",
    ),
    Guard(
        "a pause before another try is under way",
        "a step that is to be tried again waits for whoever answers at another branch's gate",
        f"{_SDK}/agent/steps.py",
        "            with self.journal.under_way():\n"
        "                await self.journal.pause(self.options.retry.pause(attempt, chance))\n",
        "            await self.journal.pause(self.options.retry.pause(attempt, chance))\n",
        f"{_BESIDE} {_PROCESSES}",
    ),
    Guard(
        "a run that waits is recorded as waiting",
        "the process ends, and whoever looks after the run takes that for a failure",
        _SESSION,
        "asyncio.create_task(journal.record_waiting(), name",
        "asyncio.create_task(asyncio.sleep(0), name",
        _PROCESSES,
    ),
    Guard(
        "an end that comes meanwhile is the end",
        "a run whose agent has returned waits for an answer that nobody needs",
        _SESSION,
        "        if self._returned:\n",
        "        if False:\n",
        _PROCESSES,
    ),
    Guard(
        "nothing begins once a run is about to wait",
        "a step begins in a process that is ending",
        _JOURNAL,
        "    def _wait(self) -> None:\n        self.stop()\n",
        "    def _wait(self) -> None:\n",
        _BESIDE,
    ),
    Guard(
        "what was never awaited is an error",
        "steps that an author forgot to await are silently not part of the run",
        _SESSION,
        "failure = _never_awaited(journal.never_awaited())",
        "failure = _never_awaited([])",
        _PROCESSES,
    ),
    Guard(
        "what was closed was not forgotten",
        "a run whose parallel failed, and that went on, fails in the end for steps that it did not begin",
        _JOURNAL,
        "if inspect.getcoroutinestate(made) == inspect.CORO_CREATED",
        "if True",
        _BESIDE,
    ),
    Guard(
        "the first answer in an inbox stands",
        "of two who answer at once the later one wins, and the first one acted on what does not hold",
        f"{_SDK}/checkpoint/inbox.py",
        "        return _parsed(outcome.found, key, answer.gate)\n",
        "        return answer\n",
        f"tests/sdk/checkpoint/test_inbox.py {_AT_GATES}",
    ),
)
