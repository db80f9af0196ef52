"""The archiver as a process: two replicas, probes, a log that is away for a while."""

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from services.archive.__main__ import serve
from services.archive.archiving import ArchiveFigures
from shared.errors import Transient
from shared.eventlog import api
from shared.eventlog.account import ADMIN, ARCHIVE, ARCHIVER, READER
from shared.eventlog.jetstream import JetStreamEventLog
from shared.eventlog.subject import archived_under
from shared.job.naming import key_archived
from shared.process.serving import meanwhile
from shared.process.settings import Settings
from shared.telling.reading import line_of
from tests.archive.test_archiver import kept, left
from tests.kit.nats import READY, NatsCluster, a_server, connected, read_to_end, until
from tests.kit.sealed import a_key, a_sealed_life

pytestmark = pytest.mark.nats


async def test_two_replicas_archive_what_is_sealed_while_the_log_comes_and_goes(tmp_path: Path):
    async with a_server(tmp_path) as server:
        settings = Settings(NATS_URL=server.url, NATS_USER=ARCHIVER, NATS_PASSWORD=server.users[ARCHIVER])
        figures = ArchiveFigures(), ArchiveFigures()
        async with meanwhile(*(serve(settings, each) for each in figures)):
            for uid in ("u-1", "u-2"):
                async with connected(server, ADMIN) as log:
                    key = a_key("team-a", uid=uid)
                    await a_sealed_life(log, key)

                    async def done(log=log, key=key) -> bool:  # type: ignore[no-untyped-def]
                        return len(await left(log, key)) == 1

                    await until(done)
                await server.restart()
            async with connected(server, ADMIN) as log:
                assert await kept(log, "team-a") == 2
            async with asyncio.timeout(30):
                while not all(each.report().ready for each in figures):
                    await asyncio.sleep(0.1)
        assert "muster_archive_waiting" in {series.metric.name for series in figures[0].series()}


async def test_an_archiver_whose_user_may_take_no_lease_says_so(tmp_path: Path):
    async with a_server(tmp_path) as server:
        settings = Settings(NATS_URL=server.url, NATS_USER=READER, NATS_PASSWORD=server.users[READER])
        figures = ArchiveFigures()
        with capture_logs() as lines:
            async with meanwhile(serve(settings, figures)), asyncio.timeout(READY):
                while "has no permission for publish to $kv.leases" not in (report := figures.report()).trouble:
                    await asyncio.sleep(0.1)
        assert not report.ready
        [line] = [line for line in lines if line["event"] == "lease not renewed" and line["log_level"] == "warning"]
        assert line["why"] == report.trouble


async def test_on_three_servers_the_death_of_the_archives_leader_loses_and_doubles_no_history(tmp_path: Path):
    keys = [a_key("team-a", f"job-{number}") for number in range(40)]
    async with NatsCluster(tmp_path) as cluster:
        async with connected(cluster, ADMIN) as log:
            await asyncio.gather(*(a_sealed_life(log, key) for key in keys))
            before = [line_of(event) for event in await read_to_end(log)]

        async def archived(least: int) -> None:
            async with connected(cluster, ADMIN) as log:
                await until(lambda: _at_least(log, least))

        settings = Settings(NATS_URL=cluster.url, NATS_USER=ARCHIVER, NATS_PASSWORD=cluster.users[ARCHIVER])
        async with meanwhile(serve(settings)):
            await archived(5)
            async with connected(cluster, ADMIN) as log:
                leading = (await api.stream_info(log.connection, ARCHIVE)).cluster.leader
            cluster.servers[leading].kill()
            await archived(len(keys))
            async with connected(cluster, ADMIN) as log, asyncio.timeout(READY):
                while max([len(await left(log, key)) for key in keys]) > 1:
                    await asyncio.sleep(0.1)
        async with connected(cluster, ADMIN) as log:
            parts = [part async for part in log.archive.parts(archived_under())]
        assert sorted(key_archived(part.subject) for part in parts) == sorted(keys)
        # The first one is the log's own.
        assert sorted(line.decode() for part in parts for line in part.lines) == sorted(before[1:])


async def _at_least(log: JetStreamEventLog, number: int) -> bool:
    with suppress(Transient):
        return (await log.archive.extent()).messages >= number
    return False


async def test_settings_that_cannot_be_meant_end_the_process():
    with pytest.raises(Exception, match="MUSTER_ARCHIVE_DAYS: 'soon' is neither"):
        await serve(Settings(archive_days=("soon",)))
