"""The history service in the test's own process, on a log of its own, behind an API server."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from devcluster.certificates import make_server
from devcluster.cluster import ADMIN, DevelopmentCluster
from muster import aggregation
from services.history.__main__ import serving
from shared.eventlog import Entry, EventLog
from shared.eventlog.account import HISTORY
from shared.eventlog.server import NatsServer
from shared.eventlog.subject import Subject
from shared.job.events.catalog import AnyEvent
from shared.job.fold import History
from shared.job.naming import JobKey
from shared.process.settings import Settings
from tests.kit.commands import Ended, run
from tests.kit.histories import stored

HOME = "muster"
PATIENCE_SECONDS = 60.0


async def record(log: EventLog, key: JobKey, events: Sequence[AnyEvent]) -> History:
    """Append a job's events as their authors would."""
    history = History(key)
    for event in events:
        known = stored(history, event)
        subject = Subject.parse(known.subject)
        scope = history.last_decision if subject.family == "jobs" else history.facts.get(subject.author, 0)
        event_id = f"{key.uid}-{known.event_id}"
        entry = Entry(subject=known.subject, event_id=event_id, time=known.time, body=known.body, basis=known.basis)
        place = await log.append(entry, expect=scope)
        history.fold(msgspec.structs.replace(known, sequence=place, event_id=event_id))
    assert not history.held, history.held
    return history


class Site:
    """A cluster with the service, and users of it."""

    def __init__(self, cluster: DevelopmentCluster) -> None:
        self.cluster = cluster

    async def kubectl(self, user: str, *words: str) -> Ended:
        """What `kubectl` says to a user."""
        from devcluster.binaries import kubectl

        return await run(str(kubectl()), "--kubeconfig", str(self.cluster.kubeconfig(user)), *words)

    async def until(self, user: str, *words: str, code: int = 0) -> Ended:
        """The answer once a command ends so: an API server learns of an API, a role or an outage a little later."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (ended := await self.kubectl(user, *words)).code != code:
                await asyncio.sleep(0.2)
        return ended


@asynccontextmanager
async def the_service(cluster: DevelopmentCluster, nats: NatsServer, folder: Path, port: int = 0) -> AsyncIterator[int]:
    """The service as the cluster's account `history`; gives its port."""
    certificates = folder / "history"
    certificates.mkdir(exist_ok=True)
    make_server(certificates, [aggregation.server_name(HOME)])
    settings = Settings(
        kubeconfig=cluster.kubeconfig("history"),
        history_port=port,
        nats_url=nats.url,
        nats_user=HISTORY,
        nats_password=nats.users[HISTORY],
        history_cert=certificates / "server.crt",
        history_key=certificates / "server.key",
    )
    async with serving(settings) as listening:
        yield listening.port


def authority(folder: Path) -> bytes:
    """The authority of the service's certificate."""
    return (folder / "history" / "ca.crt").read_bytes()


def administrator(cluster: DevelopmentCluster) -> Path:
    return cluster.kubeconfig(ADMIN)
