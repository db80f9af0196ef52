"""`muster-audit`, or `python -m services.audit`: the audit service as a process."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

import structlog

from services.audit.core import TYPES, Matcher, changes, claims
from services.audit.server import BYTES, WAITING, AuditFigures, Server, Writer
from shared.errors import Refused, Trouble
from shared.eventlog.account import AUDIT
from shared.eventlog.subject import of_type
from shared.frameworks.scale_requests import REQUESTS
from shared.installation import plugins
from shared.process.health import Reminder
from shared.process.kept_connection import KeptConnection
from shared.process.main import run_process
from shared.process.serving import Certificate, forever, meanwhile
from shared.process.settings import Settings

LOOK_BACK = 20_000
"""How many events of the log before its end are read at the start: claims may come late, and after a restart."""

PAUSE_SECONDS = 2.0
"""Seconds until the log is read anew after it could not be."""

log = structlog.get_logger()


def run() -> None:
    """The entry point: serve until SIGTERM or Ctrl-C; exit 0 then, 1 after a fault."""
    run_process(AUDIT, lambda settings: forever(serving(settings)))


@asynccontextmanager
async def serving(settings: Settings) -> AsyncIterator[int]:
    """Serve while the context lasts; yields the port.  Raises `Trouble` if it cannot begin; the log may be away."""
    if settings.audit_token_file is None:
        raise Refused("name the file with the webhook's token in MUSTER_AUDIT_TOKEN_FILE", reason="NoToken")
    kinds = {(kind.resource.group, kind.resource.plural) for kind in plugins.kinds()}
    kinds |= {(request.group, request.plural) for request in REQUESTS.values()}
    connection, figures, matcher = KeptConnection(AUDIT, settings), AuditFigures(), Matcher()
    writer = Writer(connection.log, figures)

    def take(body: bytes) -> None:
        found = [*claims(body, kinds, groups=settings.audit_groups)]
        figures.claims.add(by=len(found))
        for claim in found:
            for match in matcher.claim(claim, time.monotonic()):
                writer.add(match)

    certificate = Certificate(AUDIT, settings.audit)
    try:
        async with Server(take, settings.audit_token_file, figures).serving(certificate) as port:
            log.info("serving", port=port)
            figures.trouble, figures.connected = lambda: connection.turned_away, lambda: connection.connected
            figures.gauges |= {WAITING: lambda: writer.waiting, BYTES: lambda: matcher.bytes}
            figures.forced_out = lambda: matcher.forced_out
            following = _follow(connection, settings.namespace, matcher, writer, figures)
            async with meanwhile(following, writer.run(), connection.keep()), figures.probes(settings):
                yield port
    finally:
        await connection.close()


async def _follow(
    connection: KeptConnection, namespace: str, matcher: Matcher, writer: Writer, figures: AuditFigures
) -> None:
    """Read the changes that the watcher records, for ever."""
    subjects = tuple(of_type(namespace or "*", tag) for tag in TYPES)
    # The position, and the log that has it: None before the first, empty after a part of it was lost.
    after, of, reminder = 0, None, Reminder()
    while True:
        try:
            eventlog = await connection.log()
            if of != (found := await eventlog.identity()):
                end = await eventlog.end()
                if of is not None:
                    # What waits names events of the other log by their numbers.
                    matcher.clear()
                    writer.clear()
                after, of = max(0, end - LOOK_BACK), found
            async with aclosing(eventlog.read(after=after, subjects=subjects)) as batches:
                async for batch in batches:
                    figures.refused = ""
                    for stored in batch.events:
                        after = stored.sequence
                        for match in matcher.record(changes(stored), time.monotonic()):
                            writer.add(match)
        except Trouble as trouble:
            reminder.remind(str(trouble))
            figures.refused = str(trouble) if isinstance(trouble, Refused) else ""
            match trouble:
                case Refused(reason="LogReplaced"):
                    # The next turn connects to the other one.
                    await connection.close()
                case Refused(reason="LogTruncated"):
                    of = ""
        except Exception:
            log.exception("the log is not read")
            figures.refused = "the log is not read; the service's own log says why"
        await asyncio.sleep(PAUSE_SECONDS)


if __name__ == "__main__":
    run()
