"""What probes ask: alive (`/healthz`) and ready (`/readyz`), with the reasons as JSON.

They are answered from the first moment of a process: one that waits for its log is alive and not ready.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from shared.errors import Refused
from shared.job.events import Author
from shared.service.run import Machine


class Health:
    """How one service of this process stands."""

    def __init__(self, service: Author) -> None:
        self.service = service
        self.trouble = "starting"
        """Why it is not ready, in one sentence, as far as it was looked at; empty when all is well."""
        self.warnings: tuple[str, ...] = ()
        """What could go wrong with the log, a sentence each; it is no reason not to be ready."""
        self.machine: Machine | None = None
        """None until it runs."""
        self.failing: Callable[[], str] = lambda: ""
        """What the log refused last, of all that this service has to write."""
        self.owner: Callable[[], bool] = lambda: False
        self.connected: Callable[[], bool] = lambda: True
        """To the log."""

    def report(self) -> dict[str, Any]:
        """`ready` is false while it waits for what it needs, folds up to the log's end, or cannot append."""
        machine = self.machine
        trouble = self.trouble or self.failing() or ("" if self.connected() else "no connection")
        return {
            "service": self.service,
            "ready": machine is not None and machine.current and not trouble,
            "owner": self.owner(),
            "position": machine.histories.position if machine else 0,
            "jobs": len(machine.histories) if machine else 0,
            "held": machine.held() if machine else {},
            "trouble": trouble,
            "warnings": list(self.warnings),
        }


@asynccontextmanager
async def serve(services: Sequence[Health], host: str, port: int) -> AsyncIterator[None]:
    """Answer probes while the context lasts; port 0 opens none.  Raises `Refused` when the port is taken.

    Of several services in one process the answer is that of all: ready when each of them is.
    """
    if not port:
        yield
        return

    def answer(status: int) -> web.Response:
        known = [service.report() for service in services]
        body = known[0] if len(known) == 1 else {"ready": all(each["ready"] for each in known), "services": known}
        return web.json_response(body, status=200 if body["ready"] else status)

    async def healthz(_: web.Request) -> web.Response:
        return answer(200)

    async def readyz(_: web.Request) -> web.Response:
        return answer(503)

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            raise Refused(
                f"answer probes on {host}:{port}: {error.strerror}; set MUSTER_HEALTH_PORT and MUSTER_HEALTH_HOST",
                reason="NoPort",
            ) from error
        yield
    finally:
        await runner.cleanup()
