"""Plain functions run in threads, as many at once as the agent asks for."""

import threading

from milepost import Run, agent
from milepost.testing import simulate

SIDE_BY_SIDE = 150
together = threading.Barrier(SIDE_BY_SIDE)


@agent(version="1")
async def many(run: Run) -> int:
    """Have each of its steps wait until all of them have begun."""
    steps = [run.step("meet", together.wait, 60, key=number) for number in range(SIDE_BY_SIDE)]
    return len(set(await run.parallel(steps, limit=SIDE_BY_SIDE)))


def test_no_step_waits_for_a_thread_of_another_one() -> None:
    assert simulate(many, {}).result == SIDE_BY_SIDE
