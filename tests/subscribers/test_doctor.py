"""`muster doctor` as the administrator tells of the copies for subscribers; others may not see them."""

import asyncio
from pathlib import Path

import pytest

from muster.doctor import log as of_log
from shared.eventlog import api, inspection
from shared.eventlog.account import ADMIN, READER, STREAM
from tests.kit.nats import READY, connected
from tests.kit.subscribers import TEAM_A, a_log_for_subscribers, write

pytestmark = pytest.mark.nats


async def test_a_copy_that_is_fed_and_one_that_is_gone(tmp_path: Path):
    async with a_log_for_subscribers(tmp_path) as server:
        await write(server, 3, "team-a")
        async with connected(server, ADMIN) as log:
            async with asyncio.timeout(READY):
                while [each.status for each in of_log.subscribers(await inspection.copies(log) or {})] != ["ok"]:
                    await asyncio.sleep(0.2)
            await api.call(log.connection, f"STREAM.DELETE.{STREAM}", None, dict, prefix=TEAM_A.api)
            [finding] = of_log.subscribers(await inspection.copies(log) or {})
            assert (finding.status, TEAM_A.user in finding.message) == ("fail", True)
        async with connected(server, READER) as log:
            assert await inspection.copies(log) is None
