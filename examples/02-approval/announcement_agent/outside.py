"""The way to the receiver: `http://...` is that of the first example, `file:FOLDER` a folder of this machine.

In a folder a page is a file that is named by its idempotency key, so writing it again changes nothing. A
folder may name environment variables, as in `file:$MILEPOST_TEST_FOLDER`.
"""

import asyncio
import json
import os
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

PATIENCE_SECONDS = 10


class Refused(Exception):
    """The receiver understood the call and will not do it; the message is what it answered."""


async def hand_over(page: dict[str, Any], key: str, receiver: str) -> str:
    """Give the page to the receiver under its key; return the receiver's id for it."""
    body = json.dumps(page)
    if receiver.startswith("file:"):
        folder = Path(os.path.expandvars(receiver.removeprefix("file:")))
        await asyncio.to_thread(_replace, folder / f"{key}.json", body)
        return key
    return await asyncio.to_thread(_post, f"{receiver}/effects", body, {"Idempotency-Key": key})


def _post(url: str, body: str, headers: dict[str, str]) -> str:
    # The URL is an input of the run, from whoever may start one.
    request = Request(url, body.encode(), {"Content-Type": "application/json", **headers})  # noqa: S310
    try:
        with urlopen(request, timeout=PATIENCE_SECONDS) as response:  # noqa: S310
            identifier: str = json.load(response)["id"]
            return identifier
    except HTTPError as refusal:
        with refusal:
            raise Refused(f"{refusal.code} {refusal.read().decode(errors='replace').strip()}") from None


def _replace(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    unfinished.write_text(content, encoding="utf-8")
    unfinished.replace(path)
