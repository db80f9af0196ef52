"""The history service in the test's own process, on a log of its own, behind an API server."""

import asyncio
import sys
from base64 import b64encode
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from devcluster.binaries import kubectl
from devcluster.certificates import make_server
from devcluster.cluster import Devcluster, DevelopmentCluster
from muster import permissions
from services.history.__main__ import serving
from shared.eventlog import Entry, EventLog
from shared.eventlog.account import ADMIN, HISTORY
from shared.eventlog.server import NatsServer
from shared.eventlog.subject import Subject
from shared.history_api import GROUP, VERSION
from shared.job.events.catalog import AnyEvent
from shared.job.events.watcher import JobGone
from shared.job.fold import History
from shared.job.naming import JobKey, Uid
from shared.process.settings import HttpsPort, Settings
from tests.kit.builders import a_running_job, labelled
from tests.kit.commands import Ended, run
from tests.kit.histories import stored
from tests.kit.nats import a_server, connected, owners

HOME = "muster"
NAME = "muster-history"
API_SERVICE = f"{VERSION}.{GROUP}"
USERS = ("history", "viewer-a", "viewer-b", "nobody")
RESNET = "/apis/history.muster.dev/v1/namespaces/team-a/jobhistories/trainingjob.resnet"
PATIENCE_SECONDS = 60.0


async def record(log: EventLog, events: Sequence[AnyEvent], history: History) -> None:
    """Append a job's events as their authors would; `history` is the fold of those before, and of these."""
    key = history.job.key
    for event in events:
        known = stored(history, event)
        subject = Subject.parse(known.subject)
        scope = history.last_decision if subject.family == "jobs" else history.facts.get(subject.author, 0)
        event_id = f"{key.uid}-{known.event_id}"
        entry = Entry(subject=known.subject, event_id=event_id, time=known.time, body=known.body, basis=known.basis)
        await log.append(entry, expect=scope)
        kept = await log.last(known.subject)
        assert kept is not None
        history.fold(kept)
    assert not history.held, history.held


class Site:
    """A cluster with the service, which can be stopped and started, and users of it."""

    def __init__(self, cluster: DevelopmentCluster, nats: NatsServer, folder: Path) -> None:
        self.cluster = cluster
        self.nats = nats
        self.port = 0
        self.folder = folder
        self._certificates = folder / "history"
        self._service: AsyncExitStack | None = None

    @property
    def authority(self) -> bytes:
        """The authority of the service's certificate."""
        return (self._certificates / "ca.crt").read_bytes()

    def environment(self) -> dict[str, str]:
        """That of the service, as the cluster's account `history`."""
        self._certificates.mkdir(exist_ok=True)
        make_server(self._certificates, [f"{NAME}.{HOME}.svc"])
        return {
            "KUBECONFIG": str(self.cluster.kubeconfig("history")),
            "NATS_URL": self.nats.url,
            "NATS_USER": HISTORY,
            "NATS_PASSWORD": self.nats.users[HISTORY],
            "MUSTER_HISTORY_PORT": str(self.port),
            "MUSTER_HISTORY_CERT": str(self._certificates / "server.crt"),
            "MUSTER_HISTORY_KEY": str(self._certificates / "server.key"),
        }

    def settings(self, port: int = 0, **more: Any) -> Settings:
        """Those of the service in this process."""
        given = self.environment()
        return Settings(
            KUBECONFIG=given["KUBECONFIG"],
            NATS_URL=given["NATS_URL"],
            NATS_USER=given["NATS_USER"],
            NATS_PASSWORD=given["NATS_PASSWORD"],
            history=HttpsPort(
                port=port, cert=Path(given["MUSTER_HISTORY_CERT"]), key=Path(given["MUSTER_HISTORY_KEY"])
            ),
            **more,
        )

    async def start(self) -> None:
        """Start the service in this process."""
        settings = self.settings(self.port)
        self._service = AsyncExitStack()
        self.port = await self._service.enter_async_context(serving(settings))

    async def stop(self) -> None:
        if self._service is not None:
            await self._service.aclose()
            self._service = None

    async def kubectl(self, user: str, *words: str, given: str = "") -> Ended:
        """What `kubectl` says to a user."""
        return await run(str(kubectl()), "--kubeconfig", str(self.cluster.kubeconfig(user)), *words, given=given)

    async def muster(self, user: str, *words: str, nats: str = "") -> Ended:
        """What `muster` says to a user of the cluster, who is `nats` at the log or nobody there."""
        environment = {"KUBECONFIG": str(self.cluster.kubeconfig(user))}
        if nats:
            environment |= {"NATS_URL": self.nats.url, "NATS_USER": nats, "NATS_PASSWORD": self.nats.users[nats]}
        return await run(sys.executable, "-m", "muster", *words, environment=environment)

    async def until(self, user: str, *words: str, code: int = 0) -> Ended:
        """The answer once a command ends so: an API server learns of an API, a role or an outage a little later."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (ended := await self.kubectl(user, *words)).code != code:
                await asyncio.sleep(0.2)
        return ended

    async def apply(self, *manifests: dict[str, Any]) -> None:
        ended = await self.kubectl("admin", "apply", "--validate=false", "-f", "-", given=yaml.safe_dump_all(manifests))
        assert ended.code == 0, ended.complaint


def the_api(authority: bytes, port: int) -> list[dict[str, Any]]:
    """The API at a port of this machine."""
    named = {"name": NAME, "namespace": HOME}
    spec = {
        "group": GROUP,
        "version": VERSION,
        "service": {**named, "port": port},
        "caBundle": b64encode(authority).decode(),
        "groupPriorityMinimum": 1000,
        "versionPriority": 10,
    }
    here = {"type": "ExternalName", "externalName": "localhost"}
    return [
        {"apiVersion": "v1", "kind": "Service", "metadata": named, "spec": here},
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": API_SERVICE},
            "spec": spec,
        },
    ]


@asynccontextmanager
async def a_site(cluster: DevelopmentCluster, folder: Path) -> AsyncIterator[Site]:
    """A log with jobs of two teams, one of them gone, and the service in front of it, in a cluster."""
    async with a_server(folder / "nats") as nats, owners(nats):
        async with connected(nats, ADMIN) as log:
            gone = [*a_running_job(2), JobGone(version=9)]
            await record(log, labelled(a_running_job(2), team="a"), History(JobKey("team-a", "resnet", Uid("uid-1"))))
            await record(log, gone, History(JobKey("team-a", "bygone", Uid("uid-2"))))
            await record(log, a_running_job(2), History(JobKey("team-b", "other", Uid("uid-3"))))
        site = Site(cluster, nats, folder)
        spaces = [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in (HOME, "team-a", "team-b")
        ]
        await site.apply(*spaces, *permissions.history_rights(HOME))
        try:
            await site.start()
            await site.apply(*the_api(site.authority, site.port))
            await site.until("admin", "get", "--raw", "/apis/history.muster.dev/v1")
            yield site
        finally:
            await site.stop()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    """Behind the embedded API server."""
    folder = tmp_path_factory.mktemp("site")
    async with Devcluster(folder / "cluster", USERS, nodes=0) as cluster, a_site(cluster, folder) as site:
        yield site
