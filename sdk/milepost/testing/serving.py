"""Serve one request under a fault: what reaches the server, and what the client is told.

The fake S3 server and proxies in front of real ones share it; they differ in how a request is forwarded.
It keeps no state, and it waits where a fault says so.

The surprise: what the server says and what the client is told are two things, and whoever keeps a journal
wants both. A write may be applied while its client is told that it was not.
"""

from __future__ import annotations

import base64
import hashlib
import threading
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from milepost.testing.faults import Action, Delay, Drop, Flip, Hold, Reply, Truncate
from milepost.testing.loopback import RESET, Raw, Wire
from milepost.testing.s3_messages import error

__all__ = ["Forward", "Served", "serve"]

Forward = Callable[[Raw], Wire | None]

_CHECKSUM = "x-amz-checksum-"
_DIGESTS: Mapping[str, Callable[[bytes], bytes]] = {
    "sha256": lambda body: hashlib.sha256(body).digest(),
    "sha1": lambda body: hashlib.sha1(body, usedforsecurity=False).digest(),
    "crc32": lambda body: zlib.crc32(body).to_bytes(4),
}


@dataclass(frozen=True)
class Served:
    """What the server `said`, None where it was not asked, and what the client is `told`, None: nothing."""

    said: Wire | None
    told: Wire | None


def serve(action: Action | None, raw: Raw, forward: Forward) -> Served:
    """Forward a request as far as the fault lets it through."""
    match action:
        case None:
            said = forward(raw)
            return Served(said, said)
        case Reply(after=after):
            return Served(forward(raw) if after else None, answer_of(action))
        case Drop(after, reset):
            return Served(forward(raw) if after else None, RESET if reset else None)
        case Hold(after, lost):
            return _held(action, raw, forward, after=after, lost=lost)
        case Delay(seconds, after):
            return _delayed(raw, forward, seconds, after=after)
        case Truncate() | Flip():
            return _damaged(action, raw, forward)


def answer_of(reply: Reply) -> Wire:
    """Return the answer that a reply stands for."""
    if not reply.code:
        return Wire(reply.status, reply.headers)
    said = error(reply.status, reply.code, reply.message, reply.headers)
    return Wire(said.status, said.headers, said.body)


def _held(hold: Hold, raw: Raw, forward: Forward, *, after: bool, lost: bool) -> Served:
    said: Wire | None = None
    if after:
        said = forward(raw)
        hold.wait()
    else:
        hold.wait()
        said = None if lost else forward(raw)
    return Served(said, None if lost else said)


def _delayed(raw: Raw, forward: Forward, seconds: float, *, after: bool) -> Served:
    pause = threading.Event()
    if not after:
        pause.wait(seconds)
    said = forward(raw)
    if after:
        pause.wait(seconds)
    return Served(said, said)


def _damaged(action: Truncate | Flip, raw: Raw, forward: Forward) -> Served:
    match action:
        case Flip(at, mended, upload=True):
            body = _flipped(raw.body, at)
            headers = _mended(raw.headers, body) if mended else raw.headers
            said = forward(replace(raw, headers=headers, body=body))
            return Served(said, said)
        case Flip(at, mended):
            said = forward(raw)
            if said is None:
                return Served(None, None)
            body = _flipped(said.body, at)
            headers = _mended(said.headers, body) if mended else said.headers
            return Served(said, replace(said, headers=headers, body=body))
        case Truncate(at, upload=True):
            said = forward(replace(raw, body=raw.body[:at]))
            return Served(said, said)
        case Truncate(at):
            said = forward(raw)
            return Served(said, replace(said, cut=at) if said else None)


def _flipped(body: bytes, at: int) -> bytes:
    return body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :] if at < len(body) else body


def _mended(headers: Mapping[str, str], body: bytes) -> dict[str, str]:
    """Return headers whose checksums fit the body; one that cannot be computed here is left out."""
    given = {name: value for name, value in headers.items() if not name.lower().startswith(_CHECKSUM)}
    kinds = [name.lower().removeprefix(_CHECKSUM) for name in headers if name not in given]
    known = [kind for kind in kinds if kind in _DIGESTS]
    return given | {f"{_CHECKSUM}{kind}": base64.b64encode(_DIGESTS[kind](body)).decode() for kind in known}
