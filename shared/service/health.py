"""What probes ask: alive (`/healthz`) and ready (`/readyz`), with the reasons as JSON."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from shared.service.run import Machine


def report(machine: Machine, *, owner: bool) -> dict[str, Any]:
    """How a machine stands; `ready` is false while it folds up to the log's end or cannot append."""
    held = machine.held()
    return {
        "service": machine.service.author,
        "ready": machine.current and not machine.trouble,
        "owner": owner,
        "position": machine.histories.position,
        "jobs": len(machine.histories),
        "held": held,
        "trouble": machine.trouble,
    }


@asynccontextmanager
async def serve(machine: Machine, owner: Callable[[], bool], host: str, port: int) -> AsyncIterator[None]:
    """Answer probes while the context lasts; port 0 opens none."""
    if not port:
        yield
        return

    async def healthz(_: web.Request) -> web.Response:
        return web.json_response(report(machine, owner=owner()))

    async def readyz(_: web.Request) -> web.Response:
        known = report(machine, owner=owner())
        return web.json_response(known, status=200 if known["ready"] else 503)

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        yield
    finally:
        await runner.cleanup()
