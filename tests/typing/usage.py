"""Agents as authors write them, for the type checker.

Each mistake carries the error that refuses it; a checker that let one pass would report an unused ignore.
"""

from __future__ import annotations

from functools import partial
from typing import assert_type

from pydantic import BaseModel

from milepost import Agent, Call, Retry, Run, StepFailed, agent, tool


class Page(BaseModel):
    words: list[str]


def pages_of(book: str, first: int = 1) -> list[str]:
    return [book] * first


async def scan(name: str, language: str = "en") -> Page:
    return Page(words=[name, language])


@tool(effect="keyed")
async def publish(call: Call, page: Page, *, hidden: bool = False) -> str:
    return f"{call.key} {page} {hidden}"


@tool(effect="repeatable", version="2")
async def warm_up(call: Call, name: str) -> int:
    return call.attempt + len(name)


@tool(effect="none")
async def look_up(word: str, limit: int = 3) -> list[str]:
    return [word] * limit


async def one_page(run: Run, name: str) -> Page:
    page = await run.step("scan", scan, name, key=name, attempts=5, retry=Retry(on=OSError, wait=2))
    told = await run.step("told", scan, name, summary=lambda page: page.words[0], meta={"shelf": 3})
    assert_type(told, Page)
    assert_type(page, Page)
    assert_type(await run.step("publish", publish, page), str)
    return page


@agent(version="7", tools=[publish, look_up])
async def library(run: Run, book: str, first: int = 1) -> dict[str, Page]:
    names = await run.step("pages", pages_of, book, first)
    assert_type(names, list[str])
    run.progress(total=len(names))
    found = await run.parallel({name: one_page(run, name) for name in names}, limit=4)
    assert_type(found, dict[str, Page])
    assert_type(await run.parallel([run.step("scan", scan, name, key=name) for name in names]), list[Page])
    some = await run.parallel([one_page(run, name) for name in names], return_exceptions=True)
    assert_type(some, list[Page | StepFailed])
    kept = await run.parallel({1: one_page(run, "a")}, return_exceptions=True)
    assert_type(kept, dict[int, Page | StepFailed])
    assert_type(await run.step("look-up", look_up, "word"), list[str])
    assert_type(await run.step("german", partial(scan, language="de"), "a"), Page)
    assert_type(await run.step("count", lambda: len(names)), int)
    assert_type(await look_up("word", limit=1), list[str])
    return found


declared: Agent[..., dict[str, Page]] = library


async def mistakes(run: Run, page: Page) -> None:
    run.step("not-awaited", scan, "a")  # type: ignore[unused-coroutine]
    run.parallel([one_page(run, "a")])  # type: ignore[unused-coroutine]
    await run.step("wrong-type", scan, 3)  # type: ignore[arg-type]
    await run.step("too-few", publish)  # type: ignore[call-arg, arg-type]
    await run.step("called", scan("a"))  # type: ignore[call-overload]
    await run.step("option", scan, "a", language="de")  # type: ignore[call-overload]
    await run.step(3, scan, "a")  # type: ignore[call-overload]
    await run.step("key", scan, "a", key=1.5)  # type: ignore[call-overload]
    await run.parallel([page])  # type: ignore[arg-type]
    await publish("a")  # type: ignore[arg-type]
    run.progress("three")  # type: ignore[call-arg, arg-type]


@tool(effect="keyed")  # type: ignore[arg-type]  # it takes no call
async def no_call(page: Page) -> str:
    return str(page)


@tool(effect="sometimes")  # type: ignore[call-overload, untyped-decorator]
async def no_effect(page: Page) -> str:
    return str(page)


@tool(effect="none")  # type: ignore[arg-type]  # it is not async
def not_async(page: Page) -> str:
    return str(page)


@agent  # type: ignore[call-arg, arg-type]  # it has no version
async def no_version(run: Run) -> None: ...


@agent(version="1")  # type: ignore[arg-type]  # it is not async
def plain(run: Run) -> None: ...


@agent(version="1")  # type: ignore[arg-type]  # it takes no run
async def no_run() -> None: ...
