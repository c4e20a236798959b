"""Agents that end, or end their process, in unusual ways: `how` names one of the functions below."""

import asyncio
import os
import signal
import sys
import warnings
from typing import Any

from typing_extensions import override

from milepost import Run, agent


class Broken(Exception):
    """An error of the author's."""


class Unprintable(Exception):
    """An error that cannot be read."""

    @override
    def __str__(self) -> str:
        raise RuntimeError("no message")


def fail() -> None:
    """Fail the step."""
    raise Broken("no")


async def leave(_: Run, code: Any) -> None:
    sys.exit(code)


async def leave_in_a_step(run: Run, code: Any) -> None:
    await run.step("it", lambda: sys.exit(code))


async def leave_in_a_branch(run: Run, code: Any) -> None:
    await run.parallel([run.step("it", lambda: sys.exit(code)), asyncio.sleep(600)])


async def raise_surrogate(_: Run, __: Any) -> None:
    raise Broken("as \udcff asked")


async def raise_unprintable(_: Run, __: Any) -> None:
    raise Unprintable


async def raise_long(_: Run, __: Any) -> None:
    raise Broken("ä\n" * 9000)


async def raise_base(_: Run, __: Any) -> None:
    raise BaseException("beyond Exception")  # noqa: TRY002  (that is what it is for)


async def fail_a_step(run: Run, _: Any) -> None:
    await run.step("it", fail, attempts=1)


async def fail_in_a_group(run: Run, _: Any) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(run.step("it", fail, attempts=1))


async def return_what_is_not_storable(_: Run, __: Any) -> Any:
    return {"deep": [1, object()]}


async def record_what_is_not_storable(run: Run, _: Any) -> None:
    await run.step("it", lambda: {"deep": object()})


async def cancel_itself(_: Run, __: Any) -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(600)


async def cancel_everything(_: Run, __: Any) -> None:
    for task in asyncio.all_tasks():
        task.cancel()
    await asyncio.sleep(600)


async def fork_and_return(run: Run, _: Any) -> Any:
    def fork() -> str:
        child = os.fork()
        if child:
            os.waitpid(child, 0)
        return "in the parent" if child else "in the child"

    async def body() -> str:
        return fork()

    return await run.step("it", body)


async def stop_a_child(run: Run, _: Any) -> Any:
    def body() -> int:
        reads, writes = os.pipe()
        child = os.fork()
        if not child:
            os.write(writes, b"ready")
            signal.pause()
            os._exit(0)
        os.read(reads, 5)
        os.kill(child, signal.SIGTERM)
        return os.WTERMSIG(os.waitpid(child, 0)[1])

    return await run.step("it", body)


async def warn(_run: Run, _: Any) -> str:
    forgotten = asyncio.sleep(0)
    del forgotten
    warnings.warn("so be it", stacklevel=1)
    return "done"


@agent(version="1")
async def end(run: Run, how: str, code: Any = 0) -> Any:
    """Record a step, and end in the way asked for."""
    await run.step("first", lambda: None)
    return await globals()[how](run, code)
