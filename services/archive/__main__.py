"""`muster-archiver`, or `python -m services.archive`: the archiver as a process."""

import asyncio
import socket
from uuid import uuid4

from services.archive.archiving import DAY_SECONDS, ArchiveFigures, Archiver
from services.archive.core import of_namespaces
from shared.errors import Refused, Trouble
from shared.eventlog.account import ARCHIVER, LEASES
from shared.installation import plugins
from shared.process.health import Reminder
from shared.process.kept_connection import KeptConnection
from shared.process.main import run_process
from shared.process.serving import first_of, meanwhile
from shared.process.settings import Settings
from shared.runtime.lease import Lease

PAUSE_SECONDS = 2.0
"""Seconds until the work begins anew after the log was lost or replaced."""


def run() -> None:
    """The entry point: serve until SIGTERM or Ctrl-C; exit 0 then, 1 after a fault."""
    run_process(ARCHIVER, serve)


async def serve(settings: Settings, figures: ArchiveFigures | None = None) -> None:
    """Archive until cancelled.  Raises `Refused` for settings that cannot be meant."""
    try:
        days = of_namespaces(settings.archive_days, "MUSTER_ARCHIVE_DAYS")
        most = of_namespaces(settings.archive_histories, "MUSTER_ARCHIVE_HISTORIES")
    except ValueError as error:
        raise Refused(str(error), reason="Invalid") from error
    figures = figures or ArchiveFigures()
    connection, reminder = KeptConnection(ARCHIVER, settings), Reminder()
    figures.connected = lambda: connection.connected
    figures.trouble = lambda: connection.turned_away or ("" if connection.connected else "the log is not reached")
    figures.names = settings.tell_names
    try:
        async with meanwhile(connection.keep()), figures.probes(settings):
            while True:
                try:
                    await _archive(connection, settings, figures, days, most)
                except Trouble as trouble:
                    reminder.remind(str(trouble))
                    if isinstance(trouble, Refused):
                        figures.refused = str(trouble)
                        # Another log may be in its place.
                        await connection.close()
                await asyncio.sleep(PAUSE_SECONDS)
    finally:
        await connection.close()


async def _archive(
    connection: KeptConnection,
    settings: Settings,
    figures: ArchiveFigures,
    days: dict[str, int],
    most: dict[str, int],
) -> None:
    eventlog = await connection.log()
    key = f"{ARCHIVER}.{settings.namespace}" if settings.namespace else ARCHIVER
    lease = Lease(await eventlog.bucket(LEASES), key, f"{socket.gethostname()}/{uuid4().hex[:8]}")
    figures.refused = ""
    figures.trouble = lambda: (
        connection.turned_away or (lease.trouble if connection.connected else "the log is not reached")
    )

    async def working() -> None:
        # A standby replica keeps nothing in memory.
        archiver = Archiver(
            eventlog,
            plugins.kinds(),
            figures,
            namespace=settings.namespace,
            seals=settings.archive_seals.total_seconds(),
            days=days,
            most=most,
            people=settings.audit_days * DAY_SECONDS,
        )
        await first_of(archiver.follow(), archiver.work(lease.held))

    try:
        await lease.keep(working)
    finally:
        await lease.release()


if __name__ == "__main__":
    run()
