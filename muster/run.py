"""`muster run`: all four services in one process, and with `--nats embedded` a NATS server."""

import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import structlog
import typer

from services.scaler.shell import build as scaler
from services.scheduler.shell import build as scheduler
from services.status.shell import build as status
from services.watcher.shell import build as watcher
from shared.cluster.scope import EVERY_NAMESPACE, SELECTOR
from shared.eventlog.account import ADMIN, READER
from shared.eventlog.server import CopiesServer, NatsServer
from shared.eventlog.setup import set_up
from shared.installation.plugins import log_frameworks
from shared.job.events.event import Author
from shared.process.health import Health, warn_unmonitored
from shared.process.health import serve as probes
from shared.process.main import Build, opened, serve
from shared.process.serving import first_of
from shared.process.settings import Settings
from shared.telemetry.logs import configure

SERVICES: dict[Author, Build] = {"watcher": watcher, "scheduler": scheduler, "scaler": scaler, "status": status}

log = structlog.get_logger()


async def run_all(settings: Settings, embedded: Path | None, *, wait: bool) -> None:
    """Run until cancelled; `embedded` is the folder of an embedded NATS server.

    Without `wait`, trouble at the start is printed and ends the command, because a person is watching.
    """
    configure("muster", style=settings.log_format, level=settings.log_level)
    log_frameworks()
    async with contextlib.AsyncExitStack() as stack:
        settings_of = await stack.enter_async_context(_users(settings, embedded))
        for author in () if wait else SERVICES:
            async with opened(author, settings_of[author]):
                pass
        if embedded is None:
            warn_unmonitored(settings.nats_monitor)
        health = {author: Health(author) for author in SERVICES}
        await stack.enter_async_context(probes([*health.values()], settings.health_host, settings.health_port))
        # The NATS server stops last: the services release their leases before.
        await first_of(
            *(_one(author, build, settings_of[author], health[author]) for author, build in SERVICES.items())
        )


async def _one(author: Author, build: Build, settings: Settings, health: Health) -> None:
    structlog.contextvars.bind_contextvars(service=author)
    await serve(author, build, settings, health)


@asynccontextmanager
async def _users(settings: Settings, embedded: Path | None) -> AsyncIterator[dict[Author, Settings]]:
    """The settings of each service: with the embedded server, or a folder of passwords, each has its own user."""
    if embedded is None:
        yield {author: _as_itself(author, settings) for author in SERVICES}
        return
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(NatsServer(embedded))
        await stack.enter_async_context(CopiesServer(server))
        await set_up(server.url, user=ADMIN, password=server.users[ADMIN])
        log.info("log is up", url=server.url, data=str(embedded))
        # Commands in another terminal need these; the log lines go to standard error.
        served = () if settings.namespace else settings.namespace_selector
        exports = {"NATS_URL": server.url, "NATS_USER": READER, "NATS_PASSWORD": server.users[READER]}
        for name, value in (exports | {SELECTOR: ",".join(served) or EVERY_NAMESPACE}).items():
            typer.echo(f"export {name}={value}")
        yield {
            author: settings.model_copy(
                update={"nats_url": server.url, "nats_user": author, "nats_password": server.users[author]}
            )
            for author in SERVICES
        }


def _as_itself(author: Author, settings: Settings) -> Settings:
    if settings.nats_passwords is None:
        return settings
    file = settings.nats_passwords / author
    return settings.model_copy(update={"nats_user": author, "nats_password_file": file})
