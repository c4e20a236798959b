"""The way to the receiver: what the agent tells the world outside.

`http://...` is the receiver of this example (receiver.py). `file:FOLDER` is for a laptop, where nobody wants
to start a service first: a note is a file named by its idempotency key, so writing it again changes nothing.
"""

import asyncio
import json
import os
import socket
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from milepost import Call

from .text import Note

PATIENCE_SECONDS = 10


class Refused(Exception):
    """The receiver understood the call and will not do it; the message is what it answered."""


async def report_start(call: Call, receiver: str) -> None:
    """Say that a step's body begins, so that anybody can count how often each one did."""
    start = {
        "step": call.key.split("/", 1)[-1],
        "key": call.key,
        "attempt": call.attempt,
        "pod": socket.gethostname(),
        "process": os.getpid(),
    }
    body = json.dumps(start)
    if receiver.startswith("file:"):
        await asyncio.to_thread(_append, Path(receiver.removeprefix("file:"), "starts.jsonl"), body)
    else:
        await asyncio.to_thread(_post, f"{receiver}/starts", body, {})


async def hand_over(note: Note, key: str, receiver: str) -> str:
    """Give the note to the receiver under its key; return the receiver's id for it."""
    body = note.model_dump_json()
    if receiver.startswith("file:"):
        return await asyncio.to_thread(_replace, Path(receiver.removeprefix("file:"), f"{key}.json"), body)
    answer = await asyncio.to_thread(_post, f"{receiver}/effects", body, {"Idempotency-Key": key})
    return answer["id"]


def _post(url: str, body: str, headers: dict[str, str]) -> dict[str, str]:
    # The URL is an input of the run, from whoever may start one.
    request = Request(url, body.encode(), {"Content-Type": "application/json", **headers})  # noqa: S310
    try:
        with urlopen(request, timeout=PATIENCE_SECONDS) as response:  # noqa: S310
            answer: dict[str, str] = json.load(response)
            return answer
    except HTTPError as refusal:
        with refusal:
            raise Refused(f"{refusal.code} {refusal.read().decode(errors='replace').strip()}") from None


def _append(path: Path, line: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(line + "\n")


def _replace(path: Path, content: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.unfinished")
    unfinished.write_text(content, encoding="utf-8")
    unfinished.replace(path)
    return str(path)
