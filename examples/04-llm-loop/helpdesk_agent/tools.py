"""What the model may do: look into the notes at any time, and send a mail that a person has read before."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

from milepost import Call, Tool, tool

NOTES = {
    "eviction": "A pod that is evicted is replaced, and its run goes on after the last recorded step.",
    "approval": "While a run waits for a person no process of it is alive.",
    "keys": "A keyed tool gets the same key on every retry, so that its receiver applies it once.",
}


@tool(effect="none")
async def search(query: str) -> str:
    """Search the notes for words, and return those whose topic is one of them, a line each."""
    words = {word.strip("?.,").lower() for word in query.split()}
    return "\n".join(text for topic, text in NOTES.items() if topic in words)


@tool(effect="keyed", requires_approval=True)
async def send_mail(call: Call, to: str, body: str) -> str:
    """Send a mail. A person sees it before it is sent, and may refuse it."""
    await asyncio.to_thread(_put, call.key, json.dumps({"to": to, "body": body}))
    return f"sent to {to}"


TOOLS: dict[str, Tool[..., Any]] = {each.name: each for each in (search, send_mail)}


def _put(key: str, mail: str) -> None:
    # Stands for a mail service that takes an idempotency key: a mail is a file that is named by it.
    folder = Path(os.environ.get("MILEPOST_TEST_FOLDER") or os.environ.get("OUTBOX") or "outbox")
    folder.mkdir(parents=True, exist_ok=True)
    folder.joinpath(f"{key.replace('/', '.')}.json").write_text(mail, encoding="utf-8")
