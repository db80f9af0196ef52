"""`muster-history`, or `python -m services.history`: the history service as a process."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog

from services.history.answers import Answers
from services.history.core import AUTHENTICATION, Trust
from services.history.probes import STREAMS, WAITING, HistoryFigures
from services.history.server import Access, Server
from shared.cluster.decoding import read_answer
from shared.cluster.kube import KubeCluster
from shared.cluster.objects import ConfigMap
from shared.eventlog.account import HISTORY
from shared.installation import plugins
from shared.process.kept_connection import KeptConnection
from shared.process.main import freeze_after, run_process
from shared.process.serving import Certificate, forever, meanwhile
from shared.process.settings import HttpsPort, Settings

log = structlog.get_logger()


def run() -> None:
    """The entry point: serve until SIGTERM or Ctrl-C; exit 0 then, 1 after a fault."""
    run_process(HISTORY, lambda settings: forever(serving(settings)))


@asynccontextmanager
async def serving(settings: Settings) -> AsyncIterator[int]:
    """Serve while the context lasts; yields the port.

    Raises `Trouble` if it cannot begin: the log may be away, the cluster may not.
    """
    cluster = await KubeCluster.connect(settings.kubeconfig)
    connection, figures = KeptConnection(HISTORY, settings), HistoryFigures()
    answers = Answers(connection.log, plugins.kinds(), figures.folded)
    try:
        front_proxy = FrontProxy(cluster, settings.history)
        server = Server(answers, Access(cluster), lambda: front_proxy.trust, figures)
        async with server.serving(front_proxy) as port:
            log.info("serving", port=port)
            figures.trouble = lambda: connection.turned_away or (answers.view.folding if connection.connected else "")
            figures.connected = lambda: connection.connected
            figures.gauges |= {WAITING: lambda: server.waiting, STREAMS: lambda: server.streams}
            answers.view.start()
            async with meanwhile(connection.keep(), freeze_after(answers.view.folded)), figures.probes(settings):
                yield port
    finally:
        await answers.view.stop()
        await connection.close()
        await cluster.close()


class FrontProxy(Certificate):
    """The authority of the front proxy, beside the server's own certificate."""

    def __init__(self, cluster: KubeCluster, where: HttpsPort) -> None:
        """Raises `Refused` without a certificate."""
        super().__init__("history", where)
        self._cluster = cluster
        self.trust = Trust("")

    async def read(self) -> object:
        what = f"read the front proxy's authority in the ConfigMap {AUTHENTICATION}"
        namespace, _, name = AUTHENTICATION.partition("/")
        answer = await self._cluster.ask(f"/api/v1/namespaces/{namespace}/configmaps/{name}", what=what)
        trust = Trust.read(read_answer(ConfigMap, answer.body, what).data or {})
        found = trust, await super().read()
        self.trust = trust
        return found

    def context(self) -> ssl.SSLContext:
        """A client may show a certificate of the front proxy's authority; probes show none."""
        context = super().context()
        context.load_verify_locations(cadata=self.trust.authority)
        context.verify_mode = ssl.CERT_OPTIONAL
        return context


if __name__ == "__main__":
    run()
