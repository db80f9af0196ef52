"""Answers to probes and scrapers of a process without the runtime of the four services."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec
from aiohttp import web

from shared.process.health import answering
from shared.process.report import Report
from shared.telemetry import prometheus
from shared.telemetry.metrics import Series


@asynccontextmanager
async def probes(
    report: Callable[[], Report], series: Callable[[], list[Series]], host: str, port: int
) -> AsyncIterator[None]:
    """Answer probes and scrapers while the context lasts; port 0 opens none."""
    if not port:
        yield
        return

    async def probed(request: web.Request) -> web.Response:
        found = report()
        status = 503 if request.path == "/readyz" and not found.ready else 200
        return web.Response(body=msgspec.json.encode(found), content_type="application/json", status=status)

    app = web.Application()
    scrape = prometheus.handler(series)
    app.add_routes([web.get("/healthz", probed), web.get("/readyz", probed), web.get("/metrics", scrape)])
    async with answering(app, host, port):
        yield
