"""An agent that digests a folder of documents, one after the other, and outlives its pod.

For each document it extracts terms and links, and hands a note to a receiver outside. What a step returned
is recorded before the next step begins, so the pod that runs this function after a loss gets the recorded
results back, and goes on at the first step that has none. Nothing below has to know about that.
"""

import asyncio
from pathlib import Path

from milepost import Call, Run, agent, tool

from .outside import hand_over, report_start
from .text import Note, find_documents, index_of, take_notes

# The first try of this document fails, as real services do now and then; tries are counted, also across pods.
RATE_LIMITED = 5


class RateLimited(Exception):
    """The term service asks for patience."""


@tool(effect="none")
async def list_documents(call: Call, folder: str, receiver: str) -> list[str]:
    await report_start(call, receiver)
    return await asyncio.to_thread(find_documents, folder)


@tool(effect="none")
async def extract(call: Call, path: str, number: int, receiver: str, pause: float) -> Note:
    await report_start(call, receiver)
    await asyncio.sleep(pause)
    if number == RATE_LIMITED and call.attempt == 1:
        raise RateLimited("429 from the term service")
    return await asyncio.to_thread(take_notes, path)


@tool(effect="keyed")
async def save(call: Call, note: Note, receiver: str) -> str:
    await report_start(call, receiver)
    identifier = await hand_over(note, call.key, receiver)
    call.record(external_id=identifier)
    return identifier


@agent(version="1")
async def digest(
    run: Run, folder: str = "documents", receiver: str = "file:notes", pause: float = 0.0
) -> dict[str, list[str]]:
    """Return the terms that documents share, each with the documents it occurs in.

    `receiver` is the URL of receiver.py, or `file:` and a folder; `pause` is how many seconds each extraction
    takes longer than it has to, so that a person can watch.
    """
    paths = await run.step("list", list_documents, folder, receiver)
    run.progress(total=1 + 2 * len(paths))
    notes = []
    for number, path in enumerate(paths, start=1):
        name = Path(path).name
        note = await run.step("extract", extract, path, number, receiver, pause, key=name)
        await run.step("save", save, note, receiver, key=name)
        notes.append(note)
    return index_of(notes)
