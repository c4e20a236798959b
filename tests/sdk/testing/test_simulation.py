"""`simulate`: the real engine in the test's own process, with a clock that stands still."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest

from milepost import Retry, Run, StepFailed, agent
from milepost.checkpoint.memory import MemoryStore
from milepost.testing import Approve, Clock, Deny, Ledger, Passed, simulate

pytestmark = pytest.mark.req("S5")


def double(number: int) -> int:
    return 2 * number


@agent(version="1")
async def counting(run: Run, *, steps: int) -> dict[str, int]:
    """Count."""
    total = 1
    for _ in range(steps):
        total = await run.step("double", double, total)
    run.log.info("counted to %d", total)
    return {"total": total}


def test_an_agent_is_run_to_its_end() -> None:
    ran = simulate(counting, {"steps": 2})

    assert (ran.phase, ran.result, ran.steps) == ("Succeeded", {"total": 4}, {"double": 2, "double#2": 4})
    assert (ran.attempts, ran.log, ran.effects) == (1, ("counted to 4",), {})
    assert ran.records == ("", "attempt 1 begins", "step double", "step double#2", "the end")


@agent(version="1")
async def patient(run: Run) -> int:
    """Wait for a person, and a month."""
    said = await run.approval("go", request={"to": "the moon"}, answer=int)
    began = run.now()
    await run.sleep(timedelta(days=30))
    return said.answer * (run.now() - began).days


def test_days_pass_in_no_time() -> None:
    clock = Clock(datetime(2030, 1, 1, tzinfo=UTC))

    ran = simulate(patient, answers={"go": Approve(2, by="ann", reason="why not")}, clock=clock)

    assert (ran.result, ran.attempts) == (60, 3)
    assert ran.gates == {
        "@go": Passed("Approve", "ann", "why not", 2),
        "@sleep": Passed("Due", "", "", None),
    }
    assert clock() == datetime(2030, 1, 31, tzinfo=UTC)


def test_an_agent_that_fails_is_run_to_its_end_too(capsys: pytest.CaptureFixture[str]) -> None:
    ran = simulate(patient, answers={"go": Deny("no")})

    assert (ran.phase, ran.reason) == ("Failed", "AgentRaised")
    assert "milepost.errors.Denied: gate go was denied by test: no" in ran.message
    assert "raise Denied" in capsys.readouterr().err


def test_a_gate_that_nobody_answers_is_an_error() -> None:
    with pytest.raises(AssertionError, match=r"nobody answers approval go: give answers=\{'go': \.\.\.\}"):
        simulate(patient)


def test_the_outside_world_is_a_folder_of_the_tests() -> None:
    @agent(version="1")
    async def posting(run: Run) -> None:
        await run.step("post", lambda: Ledger.from_environment().apply("k", {"sum": 1}))

    assert simulate(posting).effects == {"the ledger": ['k: {"sum": 1}']}
    assert "MILEPOST_TEST_FOLDER" not in os.environ


def test_the_outside_world_may_be_given(tmp_path: Path) -> None:
    Ledger.in_folder(tmp_path).apply("before", 1)

    simulate(counting, {"steps": 1}, world=tmp_path)

    assert Ledger.in_folder(tmp_path).applied() == [1]


def test_pauses_between_tries_take_no_time() -> None:
    tries: list[int] = []

    def third_time() -> int:
        tries.append(1)
        if len(tries) < 3:
            raise OSError
        return 3

    @agent(version="1")
    async def stubborn(run: Run) -> int:
        return await run.step("try", third_time, retry=Retry(wait=600))

    assert simulate(stubborn).result == 3


def test_inputs_that_do_not_fit_halt_the_run_as_anywhere() -> None:
    with pytest.raises(AssertionError, match=r"it halted as InputsInvalid: spec\.inputs\.steps is missing"):
        simulate(counting)


def test_code_that_passes_over_everything_does_not_go_on_once_the_run_has_halted() -> None:
    went_on = threading.Event()

    @agent(version="1")
    async def greedy(run: Run) -> None:
        try:
            for number in range(10):
                await run.step("double", double, number)
        except BaseException:  # noqa: BLE001  (the author's code may be like that)
            went_on.set()
        finally:
            went_on.set()

    with pytest.raises(AssertionError, match="it halted as LimitReached"):
        simulate(greedy, spec={"limits": {"steps": 3}})
    assert not went_on.is_set()


_WAITS: Final = """
from milepost import agent
from milepost.testing import Approve, simulate

@agent(version="1")
async def patient(run):
    async def branch():
        await run.approval("go", request=1)
    try:
        async with run.phase("wait"):
            await run.parallel([branch()])
    finally:
        print("unwound")

print(simulate(patient, answers={"go": Approve()}).phase)
"""


def test_what_waits_at_a_gate_is_not_unwound_when_the_interpreter_ends() -> None:
    ended = subprocess.run([sys.executable, "-c", _WAITS], capture_output=True, text=True, check=True)

    # The process that came to the gate has left it there; the one after it has ended.
    assert (ended.stdout, ended.stderr) == ("unwound\nSucceeded\n", "")


def test_an_agent_that_ends_its_process_is_said_to() -> None:
    @agent(version="1")
    async def leaving(_run: Run) -> None:
        raise SystemExit(7)

    with pytest.raises(AssertionError, match="would have ended with exit code 7, AgentExited"):
        simulate(leaving)


def test_an_agent_that_does_not_end_is_said_not_to() -> None:
    @agent(version="1")
    async def waiting(run: Run) -> None:
        await run.step("wait", threading.Event().wait, 1)

    with pytest.raises(AssertionError, match=r"the agent has not ended after 0\.2 s"):
        simulate(waiting, timeout=0.2)


def test_a_step_that_fails_raises_in_the_agent() -> None:
    @agent(version="1")
    async def careful(run: Run) -> str:
        try:
            await run.step("fail", int, "x", attempts=1)
        except StepFailed as error:
            return error.kind
        return ""

    assert simulate(careful).result == "builtins.ValueError"


def test_a_store_may_be_given_and_holds_the_run() -> None:
    store = MemoryStore()

    simulate(counting, {"steps": 1}, store=store)

    assert {each.key.split("/")[1] for each in store.list("")} == {"names", "runs"}
