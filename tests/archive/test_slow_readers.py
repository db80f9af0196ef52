"""Events that the archiver purged before a slow replica read them: it reads on to the seal, and starts quickly."""

import asyncio
from contextlib import aclosing

import pytest

from shared.eventlog import Stored, reader
from shared.eventlog.account import ADMIN, ARCHIVER
from shared.eventlog.server import NatsServer
from shared.job.fold import Histories
from shared.job.naming import history_filters
from tests.archive.test_archiver import archive
from tests.kit.nats import a_namespace, connected
from tests.kit.sealed import Life, a_key, a_life

pytestmark = pytest.mark.nats


async def test_a_reader_that_was_paused_during_a_purge_goes_on_with_the_seal(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
):
    # Of what comes live it keeps nothing.
    monkeypatch.setattr(reader, "_WINDOW", 1)
    monkeypatch.setattr(reader, "BATCH", 1)
    key, troubles, read = a_key(namespace := a_namespace()), list[str](), list[Stored]()
    async with (
        connected(nats_server, ADMIN) as log,
        connected(nats_server, ARCHIVER) as mine,
        connected(nats_server, "scaler") as slow,
    ):
        life, events = Life(log, key), a_life()
        await life.live(events[:4])
        batches = slow.read(subjects=history_filters(key), trouble=troubles.append)
        async with aclosing(batches), asyncio.timeout(20):
            while len(read) < 4:
                read += (await anext(batches)).events
            await life.live(events[4:])
            seal = await life.seal()
            await archive(mine, namespace)
            while read[-1].sequence != seal.sequence:
                read += (await anext(batches)).events
    assert [stored.sequence for stored in read[:4]] == [stored.sequence for stored in life.events[:4]]
    # One or two may have been on their way.
    assert len(read) <= 8
    assert not troubles
    histories = Histories()
    for stored in read:
        histories.fold(stored)
    assert (len(histories), [*histories.held()], histories.sealed(key)) == (0, [], seal.sequence)
