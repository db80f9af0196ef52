"""`muster get`: the jobs in the log, as a table, as JSON or as YAML."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing

import msgspec

from muster.asking import ask, by_cluster, patiently, streamed
from muster.formats import Output
from muster.listing import every
from muster.reading import open_cluster, open_log
from muster.rows import Wish, renderer_of
from muster.terminal import say
from shared.cluster.kube import KubeCluster
from shared.errors import Transient
from shared.eventlog import EventLog
from shared.frameworks.kinds import Kinds
from shared.history_api import Question
from shared.job.fold import Histories
from shared.job.naming import NO_UID, JobKey, Uid, history_filters, namespace_filters
from shared.process.settings import Settings
from shared.telling.kinds import known_kinds
from shared.telling.reading import everything
from shared.telling.shown import Shown, listed
from shared.telling.targets import find, subjects_of

GONE = 410
"""The code of a watch that cannot go on from its sequence; who watches lists anew."""


async def get(settings: Settings, wish: Wish, *, nats: bool = False, selector: str = "") -> None:
    """Print jobs, and with a watch each change; with a selector those whose resources have these labels now."""
    async with AsyncExitStack() as stack:
        if selector:
            cluster = await stack.enter_async_context(open_cluster(settings))
            chosen = await every(cluster, known_kinds(), wish.namespace, selector)
            wish = msgspec.structs.replace(wish, uids=frozenset(job.metadata.uid for _, job in chosen))
        if by_cluster(settings, nats=nats):
            told = texts_by_cluster(await stack.enter_async_context(open_cluster(settings)), wish)
        else:
            told = texts(await stack.enter_async_context(open_log(settings)), wish, known_kinds())
        async for text in await stack.enter_async_context(aclosing(told)):
            say(text, exact=wish.output is Output.json, coloured=wish.colours)


async def texts_by_cluster(cluster: KubeCluster, wish: Wish) -> AsyncGenerator[str, None]:
    """The pieces of the output as `texts` gives them, from `history.muster.dev`."""
    found = await _found(cluster, wish)
    shown = [one for one in found.shown if _chosen(one, wish) and (wish.asked or wish.gone or not one.gone)]
    renderer = renderer_of(wish, shown)
    for text in renderer.all(shown):
        yield text
    before = {one.uid: renderer.state(one) for one in shown}
    if not wish.watch:
        return

    async def later() -> AsyncGenerator[Shown, None]:
        nonlocal found
        async with aclosing(_changes(cluster, wish, found)) as changes:
            async for one in changes:
                yield one
        found = await _found(cluster, wish)
        for one in found.shown:
            yield one

    async with aclosing(patiently(later)) as changes:
        async for one in changes:
            state, seen = renderer.state(one), one.uid in before or wish.gone or not one.gone
            if before.get(one.uid) != state and _chosen(one, wish) and seen:
                before[one.uid] = state
                yield renderer.one(one)


async def _changes(cluster: KubeCluster, wish: Wish, found: "_Found") -> "AsyncGenerator[Shown, None]":
    """Each change after a list, to the end of the stream."""
    question = Question(wish.namespace, only=found.name, after=found.version, watch=True, bookmarks=True)
    async with aclosing(streamed(cluster, question)) as lines:
        async for line in lines:
            change = msgspec.json.decode(line, type=_Change)
            match change.type:
                case "ADDED" | "MODIFIED":
                    yield msgspec.json.decode(change.object, type=_Item).job
                case "ERROR":
                    said = msgspec.json.decode(change.object, type=_Said)
                    if said.code == GONE:
                        return
                    raise Transient(said.message)


async def _found(cluster: KubeCluster, wish: Wish) -> "_Found":
    """The jobs to show, from `history.muster.dev`, those that are gone as well."""
    if wish.asked:
        item = msgspec.json.decode(await ask(cluster, Question(wish.namespace, wish.asked.word)), type=_Item)
        return _Found([item.job], item.job.sequence, item.metadata.name)
    items = msgspec.json.decode(await ask(cluster, Question(wish.namespace, every=True)), type=_Items)
    return _Found([item.job for item in items.items], int(items.metadata.resource_version), "")


async def texts(log: EventLog, wish: Wish, kinds: Kinds) -> AsyncGenerator[str, None]:
    """The pieces of the output; with a watch there is no end.

    Raises `Refused` if the log does not have the job.
    """
    histories, shown = await shown_by_log(log, wish, kinds)
    renderer = renderer_of(wish, shown)
    for text in renderer.all(shown):
        yield text
    if not wish.watch:
        return
    before = {one.uid: renderer.state(one) for one in shown}
    subjects = (
        history_filters(JobKey(wish.namespace, wish.asked.name, Uid(shown[0].uid)))
        if wish.asked
        else namespace_filters(wish.namespace)
    )
    async with aclosing(log.read(after=histories.position, subjects=subjects)) as batches:
        async for batch in batches:
            changed = {id(known): known for stored in batch.events if (known := histories.fold(stored)) is not None}
            for history in changed.values():
                one = Shown.of(history, kinds)
                state = renderer.state(one)
                if one.uid != NO_UID and before.get(one.uid) != state and _chosen(one, wish):
                    before[one.uid] = state
                    yield renderer.one(one)


async def shown_by_log(log: EventLog, wish: Wish, kinds: Kinds) -> "tuple[Histories, list[Shown]]":
    """The fold of what is asked for, and the jobs to show.  Raises `Refused` if the log does not have the job."""
    subjects = subjects_of(wish.asked, wish.namespace) if wish.asked else namespace_filters(wish.namespace)
    histories, _ = await everything(log, subjects)
    chosen = [find(histories, wish.asked, wish.namespace)[1]] if wish.asked else listed(histories, gone=wish.gone)
    shown = [Shown.of(history, kinds) for history in chosen]
    return histories, [one for one in shown if _chosen(one, wish)]


def _chosen(one: "Shown", wish: Wish) -> bool:
    return wish.uids is None or one.uid in wish.uids


class _Meta(msgspec.Struct, rename="camel"):
    name: str = ""
    resource_version: str = "0"


class _Item(msgspec.Struct):
    """A history as `history.muster.dev` shows it."""

    metadata: _Meta
    job: Shown


class _Items(msgspec.Struct):
    metadata: _Meta
    items: list[_Item]


class _Change(msgspec.Struct):
    """A line of a watch."""

    type: str
    object: msgspec.Raw


class _Said(msgspec.Struct):
    """The Status with which a watch ends."""

    message: str = ""
    code: int = 0


class _Found(msgspec.Struct):
    """What was shown, up to which sequence, and the name of the one history in the API."""

    shown: list[Shown]
    version: int
    name: str
