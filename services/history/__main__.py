"""`muster-history`, or `python -m services.history`: the history service as a process."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import structlog

from services.history.access import Access
from services.history.answers import Answers
from services.history.core.trust import NAME, NAMESPACE, Trust
from services.history.probes import Figures
from services.history.server import Listening, Server
from shared.cluster.kube import KubeCluster
from shared.errors import Refused, Transient, Trouble
from shared.eventlog.account import HISTORY
from shared.installation import plugins
from shared.process.kept_connection import KeptConnection
from shared.process.main import run_process
from shared.process.serving import probes
from shared.process.settings import Settings
from shared.untrusted import MALFORMED

LOOK_SECONDS = 30.0
"""Seconds between two looks whether a certificate was renewed."""

log = structlog.get_logger()


def run() -> None:
    """The entry point: serve until SIGTERM or Ctrl-C; exit 0 then, 1 after a fault."""
    run_process(HISTORY, _forever)


async def _forever(settings: Settings) -> None:
    async with serving(settings):
        await asyncio.Event().wait()


@asynccontextmanager
async def serving(settings: Settings) -> AsyncIterator[Listening]:
    """Serve while the context lasts.  Raises `Trouble` if it cannot begin: the log may be away, the cluster may not."""
    cluster = await KubeCluster.connect(settings.kubeconfig)
    connection, figures = KeptConnection(HISTORY, settings), Figures()
    try:
        certificates = Certificates(cluster, settings)
        await certificates.read()
        answers = Answers(connection.log, plugins.kinds(), figures.folded)
        server = Server(answers, Access(cluster), lambda: certificates.trust, figures)
        async with server.serving(settings.history_host, settings.history_port, certificates.tls) as listening:
            certificates.note_use()
            log.info("serving", port=listening.port)
            figures.trouble = lambda: connection.turned_away if listening.open else "the port of the API is not open"
            figures.connected, figures.waiting = lambda: connection.connected, lambda: answers.waiting
            figures.streams = lambda: server.streams
            tasks = [asyncio.create_task(certificates.renew(listening)), asyncio.create_task(connection.keep())]
            try:
                async with probes(
                    lambda: [figures.report()], figures.series, settings.health_host, settings.health_port
                ):
                    yield listening
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
    finally:
        await connection.close()
        await cluster.close()


class _ConfigMap(msgspec.Struct):
    data: dict[str, str] = msgspec.field(default_factory=dict)


class Certificates:
    """The server's certificate, and the front proxy's authority."""

    def __init__(self, cluster: KubeCluster, settings: Settings) -> None:
        self._cluster = cluster
        self._certificate, self._key = settings.history_cert, settings.history_key
        self.trust = Trust("")
        self._read = self._used = (self.trust, b"", b"")

    async def read(self) -> bool:
        """Read both; True if one of them is another than those in use.  Raises `Trouble`."""
        what = f"read the front proxy's authority in the ConfigMap {NAMESPACE}/{NAME}"
        answer = await self._cluster.ask(f"/api/v1/namespaces/{NAMESPACE}/configmaps/{NAME}", what=what)
        try:
            trust = Trust.read(msgspec.json.decode(answer.body, type=_ConfigMap).data)
        except MALFORMED as error:
            raise Transient(f"{what}: {error}") from error
        if self._certificate is None:
            words = "name the certificate in MUSTER_HISTORY_CERT and its key in MUSTER_HISTORY_KEY"
            raise Refused(words, reason="NoCertificate")
        try:
            shown = self._certificate.read_bytes()
            key = self._key.read_bytes() if self._key is not None else b""
        except OSError as error:
            words = f"the certificate {error.filename} cannot be read: {error.strerror}; mount the Secret there"
            raise Refused(words, reason="NoCertificate") from error
        self.trust, self._read = trust, (trust, shown, key)
        return self._read != self._used

    def note_use(self) -> None:
        """Those that were read are in use now."""
        self._used = self._read

    def tls(self) -> ssl.SSLContext:
        """A client may show a certificate of the front proxy's authority; probes show none."""
        assert self._certificate is not None, "it was read"
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_verify_locations(cadata=self.trust.authority)
        context.load_cert_chain(self._certificate, self._key)
        context.verify_mode = ssl.CERT_OPTIONAL
        return context

    async def renew(self, listening: Listening) -> None:
        """Use a renewed certificate or authority soon after it is there."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                if await self.read():
                    await listening.begin()
                    self.note_use()
                    log.info("certificates renewed")
            except Trouble as trouble:
                log.warning("certificates not read", why=str(trouble))
            except Exception:
                log.exception("certificates not renewed")


if __name__ == "__main__":
    run()
