"""A way to the store that takes longer: each answer arrives so many milliseconds later than it was sent.

    python -m tests.bench.slow 127.0.0.1:8333 20

A process of its own, so that it takes no time from the one that is measured. It prints its port and goes on
until its standard input ends, with its parent at the latest. It knows nothing of HTTP: bytes pass as they
are, those to the server at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Iterator
from urllib.parse import urlsplit

from tests.bench.peer import ROOT

__all__ = ["slower"]

_CHUNK = 1 << 16


@contextlib.contextmanager
def slower(endpoint: str, milliseconds: int) -> Iterator[str]:
    """Yield an endpoint that leads to this one; the same one where nothing is to be added."""
    if milliseconds == 0:
        yield endpoint
        return
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.slow", urlsplit(endpoint).netloc, str(milliseconds)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.kill()
        process.communicate()


async def _serve(host: str, port: int, delay: float) -> None:
    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream_reader, upstream = await asyncio.open_connection(host, port)
        await asyncio.gather(_pass(reader, upstream, 0.0), _pass(upstream_reader, writer, delay))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.close()


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay: float) -> None:
    """Pass on what comes, each piece `delay` seconds after it came, in order."""
    loop = asyncio.get_running_loop()
    pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def write() -> None:
        while True:
            due, piece = await pieces.get()
            await asyncio.sleep(max(0.0, due - loop.time()))
            if not piece:
                writer.close()
                return
            writer.write(piece)
            await writer.drain()

    writing = asyncio.create_task(write())
    with contextlib.suppress(ConnectionError):
        while piece := await reader.read(_CHUNK):
            pieces.put_nowait((loop.time() + delay, piece))
    pieces.put_nowait((loop.time() + delay, b""))
    with contextlib.suppress(ConnectionError):
        await writing


if __name__ == "__main__":
    _host, _, _port = sys.argv[1].rpartition(":")
    asyncio.run(_serve(_host, int(_port), int(sys.argv[2]) / 1000))
