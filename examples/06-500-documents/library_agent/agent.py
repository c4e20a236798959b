"""An agent that reads 500 documents, ten side by side, and is killed once in the middle.

Each document is a branch of `run.parallel` with two steps: a note is taken of it, and the note is handed
over. What is recorded before the kill is never done again; of the rest the receiver knows the keys.
"""

import asyncio
import os
import signal

from milepost import Call, Run, agent, tool

from .outside import hand_over, report_start
from .texts import Note, find_texts, note_on, terms_of

AT_ONCE = 10


@tool(effect="none")
async def find(count: int) -> list[str]:
    return await asyncio.to_thread(find_texts, count)


@tool(effect="none")
async def read(call: Call, document: str, receiver: str) -> Note:
    await report_start(call, receiver)
    return await asyncio.to_thread(note_on, document)


@tool(effect="keyed")
async def save(call: Call, number: int, note: Note, receiver: str, killed_at: int) -> str:
    await report_start(call, receiver)
    answer = await hand_over(note, call.key, receiver)
    if number == killed_at and answer.applied:
        # The worst moment there is: the effect is there, and no record says so. The receiver knows the key
        # the next time, so that this happens once.
        os.kill(os.getpid(), signal.SIGKILL)
        # In a container the process is number 1, which no signal of its own kills.
        os._exit(128 + signal.SIGKILL)
    call.record(external_id=answer.identifier)
    return answer.identifier


async def one(run: Run, number: int, document: str, receiver: str, killed_at: int) -> Note:
    """Take one document through its two steps. A helper is an ordinary coroutine."""
    note = await run.step("read", read, document, receiver)
    await run.step("save", save, number, note, receiver, killed_at)
    return note


@agent(version="1")
async def digest(
    run: Run, count: int = 500, receiver: str = "file:notes", killed_at: int = 0
) -> dict[str, int]:
    """Return how often the most frequent terms of all documents occur.

    `receiver` is the URL of the receiver of the first example, or `file:` and a folder. The process is killed
    when the document of the number `killed_at` has been handed over; 0: never.
    """
    documents = await run.step("find", find, count)
    run.progress(total=1 + 2 * len(documents))
    notes = await run.parallel(
        {
            document: one(run, number, document, receiver, killed_at)
            for number, document in enumerate(documents, start=1)
        },
        limit=AT_ONCE,
    )
    return terms_of(notes.values())
