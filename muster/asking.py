"""Asks `history.muster.dev` with the kubeconfig: Kubernetes' rights decide, and no password at NATS is needed."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import TypeVar

from muster.following import Tell, warn
from shared.cluster import Resource
from shared.cluster.kube import KubeCluster
from shared.cluster.objects import Object
from shared.errors import Refused, Transient
from shared.eventlog import Stored
from shared.history_api import GROUP, KIND, PLURAL, VERSION, Question, path_of, query_of
from shared.job.fold import Histories
from shared.process.settings import Settings
from shared.telling.saved import event_of
from shared.telling.targets import Asked

HISTORIES = Resource(GROUP, VERSION, PLURAL, KIND, Object)

T = TypeVar("T")

LOOK_SECONDS = 2.0
"""Seconds between two streams while a command goes on with changes."""
IDLE_SECONDS = 90.0
"""Seconds without data after which a stream is given up: one of events ends by itself before, a watch has bookmarks."""
NDJSON = "application/x-ndjson"


def by_cluster(settings: Settings, *, nats: bool) -> bool:
    """True if the cluster is asked; false if the log itself is, by `--nats` or as the environment says where it is."""
    return not nats and not settings.names_log


async def ask(cluster: KubeCluster, question: Question) -> bytes:
    """The answer.  Raises `Trouble` with the words of the history service, or with what to do where there is none."""
    what = f"ask {cluster.url} for {path_of(question)}"
    try:
        return (await cluster.ask(path_of(question), what=what, query=query_of(question))).body
    except Refused as refusal:
        if refusal.reason == "NotFound" and not await cluster.serves(HISTORIES):
            raise Refused(
                f"{cluster.url} does not serve {GROUP}: install the history service (`history.enabled` of the chart), "
                "or say in NATS_URL, NATS_USER and NATS_PASSWORD where the log is",
                reason="NotServed",
            ) from refusal
        raise Refused(refusal.words or str(refusal), reason=refusal.reason) from refusal
    except Transient as trouble:
        raise Transient(f"{trouble}; an administrator asks the log itself, with --nats") from trouble


async def streamed(cluster: KubeCluster, question: Question) -> AsyncGenerator[bytes, None]:
    """The lines of a stream, to its end.  Raises as `ask`."""
    what, media = f"ask {cluster.url} for {path_of(question)}", NDJSON if question.part else "application/json"
    stream = cluster.lines(path_of(question), query_of(question), what=what, media=media, idle=IDLE_SECONDS)
    async with aclosing(stream) as lines:
        async for line in lines:
            yield line


async def patiently(look: Callable[[], AsyncGenerator[T, None]], tell: Tell = warn) -> AsyncGenerator[T, None]:
    """Everything that `look` finds, begun anew each time it ends; tells once if it cannot be had."""
    told = False
    while True:
        try:
            async with aclosing(look()) as found:
                async for each in found:
                    told = False
                    yield each
        except Transient as trouble:
            if not told:
                tell(f"muster: {trouble}; asking on")
            told = True
        await asyncio.sleep(LOOK_SECONDS)


async def events_of(
    cluster: KubeCluster, asked: Asked, namespace: str, *, uid: str = "", after: int = 0
) -> list[Stored]:
    """The events of the newest job of that name, or of the one with the uid, after a sequence."""
    question = Question(namespace, asked.word, "events", uid=uid, after=after)
    return [event_of(line) for line in (await ask(cluster, question)).splitlines()]


def folded(events: list[Stored]) -> Histories:
    histories = Histories()
    for stored in events:
        histories.fold(stored)
    return histories
