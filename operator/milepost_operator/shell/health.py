"""The operator's own health page. Alive means that what it watches still arrives, not that a port answers."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

__all__ = ["serve"]


async def serve(port: int, ailing: Callable[[], str], ready: Callable[[], bool]) -> web.AppRunner:
    """Serve `/healthz` and `/readyz` on all addresses, and return what has to be cleaned up at the end.

    `ailing` says what is wrong, or "".
    """

    async def healthz(_: web.Request) -> web.Response:
        wrong = ailing()
        return web.Response(status=503 if wrong else 200, text=wrong or "ok")

    async def readyz(_: web.Request) -> web.Response:
        return web.Response(status=200 if ready() else 503, text="ok" if ready() else "starting")

    app = web.Application()
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, port=port).start()
    return runner
