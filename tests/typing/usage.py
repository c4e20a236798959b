"""Agents as authors write them, for the type checkers.

Each statement that would fail at run time says so with the word `refused`; every other one must pass.
"""

from __future__ import annotations

import random
from collections.abc import MutableMapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any, assert_type

from pydantic import BaseModel

from milepost import (
    Agent,
    AgentError,
    ArgumentsInvalid,
    Bound,
    Call,
    Decision,
    Denied,
    Expired,
    Fact,
    Happened,
    KeyNeeded,
    MilepostError,
    Misuse,
    NotApplied,
    NotHappened,
    NotStorable,
    Permanent,
    PriorCall,
    RequirementNotMet,
    Retry,
    Run,
    StepFailed,
    TooFewInputs,
    Tool,
    Try,
    Unknown,
    agent,
    record_usage,
    this_try,
    tool,
)


class Page(BaseModel):
    words: list[str]


class Edit(BaseModel):
    amount: int


def pages_of(book: str, first: int = 1) -> list[str]:
    return [book] * first


async def scan(name: str, language: str = "en") -> Page:
    record_usage(input_tokens=10, output_tokens=2, cost_usd=Decimal("0.01"), model="small")
    record_usage(cost_usd=0.1)
    assert_type(this_try(), Try)
    assert_type(this_try().calls, tuple[PriorCall, ...])
    return Page(words=[name, language])


async def is_there() -> bool:
    return True


async def is_a_page(page: Page) -> bool:
    return bool(page.words)


@tool(effect="keyed")
async def publish(call: Call, page: Page, *, hidden: bool = False) -> str:
    call.record(external_id="p-1", etag="abc", parts=[1, 2])
    return f"{call.key} {page} {hidden}"


@tool(effect="repeatable", version="2", deprecated=True)
async def warm_up(call: Call, name: str) -> int:
    return call.attempt + len(name)


@tool(effect="none")
async def look_up(word: str, limit: int = 3) -> list[str]:
    return [word] * limit


async def was_uploaded(call: Call, name: str, body: bytes) -> Happened[int] | NotHappened | Unknown:
    if not body:
        return Unknown("two objects match")
    return Happened(len(name), {"etag": call.key})


@tool(effect="verified", verify=was_uploaded, settles_within=timedelta(minutes=5), version="2")
async def upload(call: Call, name: str, body: bytes) -> int:
    if not body:
        raise NotApplied("there is nothing to upload")
    return len(call.key + name)


async def was_moved(call: Call, name: str) -> Happened[None] | NotHappened:
    return Happened(None) if call.key in name else NotHappened()


@tool(effect="verified", verify=was_moved, settles_within=1.5)
async def move(call: Call, name: str) -> None:
    raise Permanent(f"{call.key} {name}")


@tool(effect="none")
def count(word: str, limit: int = 3) -> list[str]:
    return [word] * limit


@tool(effect="keyed")
def insert(call: Call, row: str) -> int:
    return len(call.key + row)


def was_stored(call: Call, row: str) -> Happened[int] | NotHappened:
    return Happened(len(row)) if call.key else NotHappened()


@tool(effect="verified", verify=was_stored, settles_within=1)
def store(call: Call, row: str) -> int:
    return len(call.key + row)


@tool(effect="irreversible", requires_approval=True)
async def mail(to: str, subject: str = "") -> None:
    assert to, subject


assert_type(upload.name, str)
described: dict[str, Any] = look_up.schema()
bound: Bound[list[str]] = look_up.from_json({"word": "a", "limit": 300})
any_tools: list[Tool[..., Any]] = [publish, look_up, upload, mail]


async def one_page(run: Run, name: str) -> Page:
    assert_type(await run.step("count", count, name, 3), list[str])
    assert_type(await run.step("insert", insert, name), int)
    assert_type(await run.step("store", store, name), int)
    page = await run.step("scan", scan, name, key=name, attempts=5, retry=Retry(on=OSError, wait=2))
    told = await run.step("told", scan, name, summary=lambda page: page.words[0], meta={"shelf": 3})
    assert_type(told, Page)
    assert_type(page, Page)
    assert_type(await run.step("publish", publish, page), str)
    return page


@agent(
    version="7",
    name="library",
    resumes=["6"],
    tools=[publish, look_up],
    environment={"model": "small"},
    retry=Retry(attempts=5),
)
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
    checked = await run.step("checked", scan, "a", requires=is_there, valid=is_a_page, timeout=3)
    assert_type(checked, Page)
    await run.skip("sometimes", "there is nothing to do")
    return found


declared: Agent[..., dict[str, Page]] = library


@agent(version="1")
async def effects(run: Run) -> None:
    assert_type(await run.step("upload", upload, "n", b""), int)
    assert_type(await run.step("given", upload.from_json({"name": "n", "body": ""})), int)
    assert_type(await run.step("looked-up", bound, granularity="tool-call"), list[str])
    assert_type(await run.step("move", move, "n"), None)
    try:
        await run.step("mail", mail, "kim", "hello")
    except Denied as denied:
        run.log.info("denied", extra={"by": denied.decision.by})


@agent(version="1")
async def gates(run: Run, to: str) -> datetime:
    decision = await run.approval("edit", request=to, answer=Edit, expires=timedelta(days=3))
    assert_type(decision, Decision[Edit])
    assert_type(decision.answer, Edit)
    assert_type(decision.by, str)
    assert_type((await run.approval("plain", request={"to": to})).answer, None)
    assert_type(await run.event("paid", Edit, key=to), Edit)
    await run.sleep(3)
    await run.sleep(until=datetime(2030, 1, 1, tzinfo=UTC))
    async with run.phase("read", inputs={"a": 1, "b": None}, at_least=1) as phase:
        assert_type(phase.inputs, dict[str, int])
        assert_type(phase.missing, dict[str, StepFailed | None])
    assert_type(run.memory, MutableMapping[str, Any])
    assert_type(run.random("dice"), random.Random)
    assert_type(run.replaying, bool)
    facts = await run.facts()
    assert_type(facts, list[Fact])
    assert_type(facts[0].key, str | None)
    return run.now()


@agent(version="1")
async def handles(run: Run, given: dict[str, Any]) -> str:
    try:
        found = await run.step("look-up", look_up.from_json(given))
    except ArgumentsInvalid as invalid:
        assert_type(invalid.faults, tuple[tuple[str, str], ...])
        return str(invalid)
    except StepFailed as failed:
        assert_type(failed.of(RequirementNotMet), bool)
        return failed.message
    except Expired as expired:
        return expired.gate
    except TooFewInputs as few:
        assert_type(few.missing, tuple[str, ...])
        return few.group
    except NotStorable as refused:
        return refused.path
    except (KeyNeeded, Misuse) as mistake:
        error: AgentError = mistake
        above: MilepostError = error
        return str(above)
    else:
        return found[0]


async def mistakes(run: Run, page: Page) -> None:
    run.step("not-awaited", scan, "a")  # refused
    run.parallel([one_page(run, "a")])  # refused
    await run.step("wrong-type", scan, 3)  # refused
    await run.step("too-few", publish)  # refused
    await run.step("no-call", publish, Call("mine", 1), page)  # refused
    await run.step("called", scan("a"))  # refused
    await run.step("option", scan, "a", language="de")  # refused
    await run.step(3, scan, "a")  # refused
    await run.step("key", scan, "a", key=1.5)  # refused
    await run.step("valid", scan, "a", valid=is_there)  # refused
    await run.step("summary", scan, "a", summary=lambda page: page.pages)  # refused
    await run.step("granularity", scan, "a", granularity="phase")  # refused
    await run.step("bound", bound, "more")  # refused
    await run.step("bytes", upload, "a", "text")  # refused
    await run.parallel([page])  # refused
    await publish("a")  # refused
    run.progress("three")  # refused
    run.now()()  # refused
    run.sleep(3)  # refused
    await run.sleep("soon")  # refused
    await run.approval("no-request")  # refused
    await run.approval("answer", request=1, answer="yes")  # refused
    number: int = (await run.approval("edit", request=1, answer=Edit)).answer  # refused
    await run.event("no-type")  # refused
    run.random(3)  # refused
    run.memory[3] = "a number is no name"  # refused
    run.replaying = True  # refused
    record_usage(10, 20)  # refused
    record_usage(input_tokens="many")  # refused
    look_up.from_json('{"word": "a"}')  # refused
    text: Bound[str] = look_up.from_json({"word": "a"})  # refused
    assert number, text


wrong_result: Agent[..., int] = library  # refused


@tool(effect="keyed")  # refused: it takes no call
async def no_call(page: Page) -> str:
    return str(page)


@tool(effect="sometimes")  # refused
async def no_effect(page: Page) -> str:
    return str(page)


@tool(version="1")  # refused: no effect is assumed
async def effect_left_out(page: Page) -> str:
    return str(page)


@tool(effect="verified")  # refused: nothing verifies it
async def not_verified(call: Call, name: str) -> int:
    return len(call.key + name)


@tool(effect="verified", verify=was_uploaded)  # refused: nobody knows when it shows
async def never_settles(call: Call, name: str, body: bytes) -> int:
    return len(call.key + name) + len(body)


@tool(effect="verified", verify=was_uploaded, settles_within=1)  # refused: its parameters are others
async def other_parameters(call: Call, name: int, body: bytes) -> int:
    return len(call.key) + name + len(body)


@tool(effect="verified", verify=was_uploaded, settles_within=1)  # refused: its result is another
async def other_result(call: Call, name: str, body: bytes) -> str:
    return call.key + name + str(body)


@tool(effect="verified", verify=was_moved, settles_within=1)  # refused: it takes no call
async def moved_without_call(name: str) -> None:
    assert name


@tool(effect="irreversible", verify=was_moved, settles_within=1)  # refused: it cannot be asked
async def verified_and_irreversible(call: Call, name: str) -> None:
    assert call.key, name


async def says_yes(call: Call, name: str) -> bool:
    return call.key == name


@tool(effect="verified", verify=says_yes, settles_within=1)  # refused: yes or no is not enough
async def verified_by_yes(call: Call, name: str) -> None:
    assert call.key, name


@agent  # refused: it has no version
async def no_version(run: Run) -> None: ...


@agent(version="1")  # refused: it is not async
def plain(run: Run) -> None: ...


@agent(version="1")  # refused: it takes no run
async def no_run() -> None: ...
