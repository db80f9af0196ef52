"""A store of NATS is a lone server's or that of one of a cluster: over the other kind the chart's NATS does not start.

Rollbacks and what applies a rendered chart change `nats.replicas` without asking the cluster what is there.
"""

import secrets
from pathlib import Path

import pytest

from shared.errors import Transient
from shared.eventlog import Stored
from shared.eventlog.account import ADMIN, USERS
from shared.eventlog.jetstream import JetStreamEventLog
from shared.eventlog.retry import insist
from shared.eventlog.setup import set_up
from tests.deploy.charts import require
from tests.deploy.nats import Nats, running
from tests.kit.nats import a_decision, read_to_end

pytestmark = pytest.mark.nats


@pytest.fixture(autouse=True)
def helm() -> None:
    require()


def servers(folder: Path, users: dict[str, str], number: int) -> Nats:
    return Nats(folder, users, "--set", f"nats.replicas={number},nats.tls.enabled=false")


async def events(nats: Nats, *, more: int = 0) -> tuple[str, list[Stored]]:
    """The log's identity and all that it holds, after as many events `more`."""
    password = nats.users["scheduler"]
    log = await JetStreamEventLog.connect(nats.url, name="test", user="scheduler", password=password)
    try:
        last = 0
        for number in range(more):
            last = await log.append(a_decision(number=number), expect=last)
        # Three servers that have just come up seek a leader first.
        identity = await insist(log.identity, what="read the genesis", patience=30)
        return identity, await read_to_end(log, "jobs.>")
    finally:
        await log.close()


@pytest.mark.parametrize(("number", "other"), [(1, 3), (3, 1)])
async def test_another_number_of_servers_finds_the_log_and_leaves_it(tmp_path: Path, number: int, other: int) -> None:
    users = {name: secrets.token_hex(16) for name in (*USERS, "route")}
    async with running(servers(tmp_path, users, number)) as nats:
        await set_up(nats.url, password=users[ADMIN], replicas=number)
        known = await events(nats, more=20)
        assert len(known[1]) == 20

    wrong = servers(tmp_path, users, other)
    first, *rest = wrong.nodes
    assert f"nats.replicas is {other} and the log in this volume is of {number}" in await wrong.refusal(first)
    # Those without a past may find a leader, but never the three copies that the set-up asks for: no other log begins.
    wrong.nodes = rest
    try:
        for node in rest:
            node.child.start()
        if rest:
            with pytest.raises(Transient):
                await set_up(wrong.url, password=users[ADMIN], replicas=other, patience=15)
    finally:
        for node in rest:
            await node.child.stop()

    async with running(servers(tmp_path, users, number)) as nats:
        assert await events(nats) == known
