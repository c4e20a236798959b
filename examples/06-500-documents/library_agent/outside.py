"""The way to the receiver: `http://...` is that of the first example, `file:FOLDER` a folder of this machine.

In a folder a note is a file that is named by its idempotency key, and made only once. A folder may name
environment variables, as in `file:$MILEPOST_TEST_FOLDER`.
"""

import asyncio
import json
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from milepost import Call

from .texts import Note

PATIENCE_SECONDS = 10


class Refused(Exception):
    """The receiver understood the call and will not do it; the message is what it answered."""


@dataclass(frozen=True)
class Answer:
    """What the receiver calls the note, and whether this call applied it: not where it knew the key."""

    identifier: str
    applied: bool


async def report_start(call: Call, receiver: str) -> None:
    """Say that a step's body begins, so that anybody can count how often each one did."""
    start = {
        "step": call.key.split("/", 1)[-1],
        "key": call.key,
        "attempt": call.attempt,
        "pod": socket.gethostname(),
        "process": os.getpid(),
    }
    line = json.dumps(start)
    if receiver.startswith("file:"):
        await asyncio.to_thread(_append, _folder(receiver) / "starts.jsonl", line)
    else:
        await asyncio.to_thread(_post, f"{receiver}/starts", line, {})


async def hand_over(note: Note, key: str, receiver: str) -> Answer:
    """Give the note to the receiver under its key."""
    body = note.model_dump_json()
    if receiver.startswith("file:"):
        return await asyncio.to_thread(_create, _folder(receiver), key, body)
    answer = await asyncio.to_thread(_post, f"{receiver}/effects", body, {"Idempotency-Key": key})
    return Answer(answer["id"], answer["applied"])


def _folder(receiver: str) -> Path:
    return Path(os.path.expandvars(receiver.removeprefix("file:")))


def _post(url: str, body: str, headers: dict[str, str]) -> dict[str, Any]:
    # The URL is an input of the run, from whoever may start one.
    request = Request(url, body.encode(), {"Content-Type": "application/json", **headers})  # noqa: S310
    try:
        with urlopen(request, timeout=PATIENCE_SECONDS) as response:  # noqa: S310
            answer: dict[str, Any] = json.load(response)
            return answer
    except HTTPError as refusal:
        with refusal:
            raise Refused(f"{refusal.code} {refusal.read().decode(errors='replace').strip()}") from None


def _append(path: Path, line: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(line + "\n")


def _create(folder: Path, key: str, content: str) -> Answer:
    path = folder / f"{key}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    unfinished.write_text(content, encoding="utf-8")
    try:
        # Unlike a rename this fails where the file is there already.
        os.link(unfinished, path)
    except FileExistsError:
        return Answer(key, applied=False)
    finally:
        unfinished.unlink()
    return Answer(key, applied=True)
