"""The guards of runs on one's own machine, and of answers from the command line."""

from __future__ import annotations

from typing import Final

from tools.mutants.guard import Guard

__all__ = ["LOCAL_GUARDS"]

_LOCAL: Final = "sdk/milepost/local"
_CLI: Final = "sdk/milepost/cli"
_PROOF: Final = f"{_LOCAL}/proof.py"
_ANSWERING: Final = f"{_LOCAL}/answering.py"
_PROVED: Final = "tests/sdk/local/test_proof.py"
_WAITS: Final = "tests/sdk/local/test_waiting.py"
_ANSWERS: Final = "tests/sdk/cli/test_answers.py"
_PROMPT: Final = "tests/sdk/cli/test_prompt.py"

LOCAL_GUARDS: Final = (
    Guard(
        "only this machine proves an end",
        "an executor on another machine counts as gone, since this one has no such process",
        _PROOF,
        "if _machine() != trace.machine:\n            return False",
        "if False:\n            return False",
        _PROVED,
    ),
    Guard(
        "only this container proves an end",
        "an executor in another container counts as gone, since this one has no such process",
        _PROOF,
        "_boot() != trace.boot or (_space() == trace.space and _group_gone(trace))",
        "_boot() != trace.boot or _group_gone(trace)",
        _PROVED,
    ),
    Guard(
        "a number that is in use again is told from the process",
        "the end of an executor is not seen where another process has its number",
        _PROOF,
        "        if _fields(trace.pid)[_STARTED] != trace.started:\n            return True\n",
        "        _fields(trace.pid)\n",
        _PROVED,
    ),
    Guard(
        "the whole group has to be gone",
        "what an executor started, and left at work, counts as gone",
        _PROOF,
        "    return _all_dead(str(trace.pid))\n",
        "    return True\n",
        _PROVED,
    ),
    Guard(
        "the end of one writer proves nothing of another",
        "a colleague's executor counts as gone because one's own, of the same number, is",
        _PROOF,
        'return kept["writer"] == writer and _gone(Trace(**kept["trace"]))',
        'return _gone(Trace(**kept["trace"]))',
        _PROVED,
    ),
    Guard(
        "what an executor started ends with it",
        "a program that a step started goes on beside the next attempt's",
        f"{_LOCAL}/process.py",
        "                os.killpg(self._process.pid, signal.SIGKILL)\n",
        "                pass\n",
        _PROVED,
    ),
    Guard(
        "an attempt that never held the run tells no end",
        "the end of the attempt that held it is lost, and what it did stays unproved",
        f"{_LOCAL}/ending.py",
        'return before if unclaimed and before is not None and end.fault == "disruption" else end',
        "return end",
        "tests/sdk/local/test_ending.py",
    ),
    Guard(
        "a run that waits starts nothing",
        "executors are started one after the other that can only wait",
        f"{_LOCAL}/runner.py",
        "while head.summary.phase is Phase.WAITING:",
        "while False:",
        f"{_WAITS}::test_no_executor_is_started_for_a_run_that_still_waits",
    ),
    Guard(
        "a timer is over when its time has come",
        "an approval expires while there is time to give it",
        "sdk/milepost/checkpoint/gates.py",
        "or now < datetime.fromisoformat(gate.until):",
        "or False:",
        f"{_WAITS}::test_an_approval_is_open_until_its_time_is_over",
    ),
    Guard(
        "of two answers from the command line the first stands",
        "who answers second is told that it counts",
        _ANSWERING,
        "    if not ours:\n",
        "    if False:\n",
        f"{_ANSWERS}::test_a_second_decision_is_refused_with_who_decided_first_and_when",
    ),
    Guard(
        "an ended run takes no answers",
        "an answer is taken that nobody will ever read",
        _ANSWERING,
        "    if head.phase.terminal:\n        raise InvalidRun(",
        "    if False:\n        raise InvalidRun(",
        f"{_ANSWERS}::test_a_gate_of_a_run_that_has_ended_takes_no_answer",
    ),
    Guard(
        "an answer fits before it is written",
        "an answer that cannot be taken stands, and halts the run",
        f"{_LOCAL}/fitting.py",
        "        if not _unfit(schema, each):\n",
        "        if True:\n",
        "tests/sdk/local/test_fitting.py",
    ),
    Guard(
        "a schema fetches nothing",
        "a run's log makes whoever answers it call an address of its choice",
        f"{_LOCAL}/fitting.py",
        "registry=referencing.Registry(), ",
        "",
        "tests/sdk/local/test_fitting.py::test_what_a_schema_refers_to_is_not_fetched",
    ),
    Guard(
        "a halt takes the decisions that it offers",
        "a decision is written that the run cannot follow, and no other can be given",
        _ANSWERING,
        "    if type_ not in question.gate.options:\n",
        "    if False:\n",
        f"{_ANSWERS}::test_a_way_out_that_a_halt_does_not_offer_is_refused_with_those_it_does",
    ),
    Guard(
        "what is shown has no control characters",
        "a request moves the cursor, and people approve what they were not shown",
        f"{_CLI}/visible.py",
        'each if each.isprintable() or each == "\\n" else',
        "each if True else",
        _ANSWERS,
    ),
    Guard(
        "what was typed before a question is no answer to it",
        "an approval is given by a key that was pressed for something else",
        f"{_CLI}/prompt.py",
        "termios.tcflush(self.source, termios.TCIFLUSH)",
        "pass",
        f"{_PROMPT}::test_what_was_typed_before_the_question_is_no_answer_to_it",
    ),
    Guard(
        "a folder that holds something is left alone",
        "a new project overwrites what lies there",
        f"{_CLI}/new.py",
        "if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):",
        "if False:",
        "tests/sdk/cli/test_new.py::test_a_folder_that_holds_something_is_left_alone",
    ),
)
