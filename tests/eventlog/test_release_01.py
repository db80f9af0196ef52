"""The log of release 0.1, whose streams are in no account, at the start of a server of this release."""

from pathlib import Path

import pytest

from shared.eventlog.jetstream import JetStreamEventLog
from shared.eventlog.server import NatsServer
from shared.eventlog.setup import set_up
from tests.kit.nats import a_decision, connected, old_release, read_to_end

pytestmark = pytest.mark.nats


async def test_it_gets_its_account_and_keeps_identity_sequences_and_events(tmp_path: Path):
    async with old_release(tmp_path / "store") as url:
        log = await JetStreamEventLog.connect(url, name="test", user="status", password="")
        last = 0
        for number in range(20):
            last = await log.append(a_decision(number=number), expect=last)
        await (await log.bucket("HEADS")).put("a", b"7:abc")
        before = await log.identity(), await log.end(), await read_to_end(log)
        await log.close()
    server = NatsServer(tmp_path)
    for start in range(2):
        async with server:
            made = await set_up(server.url, password=server.users["admin"])
            assert (made.created, made.differences) == ((), ())
            assert any("republish" in sentence for sentence in made.grown) is (start == 0), "it is mended once"
            async with connected(server, "status") as log:
                assert (await log.identity(), await log.end(), await read_to_end(log)) == before
                head = await (await log.bucket("HEADS")).get("a")
                assert head is not None
                assert head.value == b"7:abc"
