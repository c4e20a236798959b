"""An agent that builds a data set and uploads it, where an upload must not be repeated blindly.

The bucket knows no idempotency keys: a second upload replaces whatever is there, also what somebody else has
put there meanwhile. So the tool is `verified`. That it is about to upload is on record first; a process that
finds that record and no outcome looks into the bucket before it does anything.
"""

import asyncio
import os
import signal
from dataclasses import asdict, dataclass
from typing import Any, Literal

from milepost import Call, Happened, NotHappened, Run, Unknown, agent, tool

from .bucket import open_bucket
from .data import build, checksum

Mishap = Literal["none", "killed", "overwritten"]


@dataclass(frozen=True)
class Uploaded:
    """What is in the bucket: the object's id there, and the SHA-256 of what was uploaded."""

    name: str
    id: str
    sha256: str


async def was_uploaded(
    _call: Call,
    bucket: str,
    name: str,
    body: str,
    mishap: Mishap,  # noqa: ARG001  (it takes what the upload takes)
) -> Happened[Uploaded] | NotHappened | Unknown:
    """Look whether what this call was to upload is in the bucket."""
    found = await asyncio.to_thread(open_bucket(bucket).get, name)
    if found is None:
        return NotHappened()
    there, ours = checksum(found.body), checksum(body)
    if there != ours:
        return Unknown(
            f"object {name} (id {found.id}) has SHA-256 {there[:12]}, and this run's has {ours[:12]}: "
            "somebody else has uploaded it"
        )
    return Happened(Uploaded(name, found.id, there), {"id": found.id, "sha256": there})


# How long an upload that was cut off may take to appear: longer than its client waits for an answer.
@tool(effect="verified", verify=was_uploaded, settles_within=3)
async def upload(call: Call, bucket: str, name: str, body: str, mishap: Mishap) -> Uploaded:
    """Upload the data set."""
    place = open_bucket(bucket)
    is_new = await asyncio.to_thread(place.get, name) is None
    identifier = await asyncio.to_thread(place.put, name, body)
    if mishap != "none" and is_new:
        await _lose_this_process(mishap, bucket, name)
    uploaded = Uploaded(name, identifier, checksum(body))
    call.record(external_id=identifier, sha256=uploaded.sha256)
    return uploaded


@agent(version="1", tools=[upload])
async def release(
    run: Run, name: str, rows: int = 24, bucket: str = "file:bucket", mishap: Mishap = "none"
) -> dict[str, Any]:
    """Build the data set `name` and upload it; return the object's name, id and checksum.

    With the mishap `killed` the process is lost between the upload and its record, once; with `overwritten`
    somebody else uploads another object of that name just before.
    """
    run.progress(total=2)
    body = await run.step("build", build, name, rows)
    uploaded = await run.step("upload", upload, bucket, f"{name}.csv", body, mishap)
    return asdict(uploaded)


async def _lose_this_process(mishap: Mishap, bucket: str, name: str) -> None:
    """Stand in for bad luck: the effect is there, and no record says so."""
    if mishap == "overwritten":
        await asyncio.to_thread(open_bucket(bucket).put, name, "somebody else's\n")
    os.kill(os.getpid(), signal.SIGKILL)
    # In a container the process is number 1, which no signal of its own kills.
    os._exit(128 + signal.SIGKILL)
