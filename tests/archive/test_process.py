"""The archiver as a process: two replicas, probes, a log that is away for a while."""

import asyncio
from pathlib import Path

import pytest

from services.archive.__main__ import serve
from services.archive.archiving import ArchiveFigures
from shared.eventlog.account import ADMIN, ARCHIVER
from shared.process.serving import meanwhile
from shared.process.settings import Settings
from tests.archive.test_archiver import kept, left
from tests.kit.nats import a_server, connected, until
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


async def test_settings_that_cannot_be_meant_end_the_process():
    with pytest.raises(Exception, match="MUSTER_ARCHIVE_DAYS: 'soon' is neither"):
        await serve(Settings(archive_days=("soon",)))
