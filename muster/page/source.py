"""Where the page reads: `history.muster.dev` by the kubeconfig, or the log by a user of NATS, as commands do."""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager

import msgspec

from muster.asking import by_cluster, open_cluster, open_log
from muster.following import Tell
from muster.get import Options, texts, texts_by_cluster
from muster.history import known_by_cluster, known_by_log
from muster.terminal import Output
from shared.cluster.kube import KubeCluster
from shared.eventlog import Stored
from shared.eventlog.jetstream import JetStreamEventLog
from shared.frameworks.kinds import Kinds
from shared.process.settings import Settings
from shared.telling.shown import Shown
from shared.telling.targets import Asked, known_kinds


class Source:
    """What one person may read."""

    def __init__(self, source: KubeCluster | JetStreamEventLog) -> None:
        self.kinds: Kinds = known_kinds()
        self._source = source

    async def jobs(self, namespace: str, trouble: Tell) -> AsyncGenerator[Shown, None]:
        """The jobs of a namespace, or of all without one, those that are gone as well; then each change of one."""
        options = Options(namespace, output=Output.json, gone=True, watch=True)
        told = (
            texts_by_cluster(self._source, options, trouble)
            if isinstance(self._source, KubeCluster)
            else texts(self._source, options, self.kinds, trouble)
        )
        async with aclosing(told) as found:
            async for text in found:
                yield msgspec.json.decode(text, type=Shown)

    def events(self, asked: Asked, namespace: str, uid: str, trouble: Tell) -> AsyncGenerator[Sequence[Stored], None]:
        """The events of a job until now, then later ones."""
        if isinstance(self._source, KubeCluster):
            return known_by_cluster(self._source, asked, namespace, uid=uid, trouble=trouble)
        return known_by_log(self._source, asked, namespace, uid=uid, trouble=trouble)


@asynccontextmanager
async def open_source(settings: Settings, *, nats: bool) -> AsyncIterator[Source]:
    if by_cluster(settings, nats=nats):
        async with open_cluster(settings) as cluster:
            yield Source(cluster)
    else:
        async with open_log(settings) as log:
            yield Source(log)
