"""A store of NATS is a lone server's or that of one of a cluster: over the other kind the chart's NATS does not start.

And it is of release 0.1 or of a later one, where the streams have an account: a lone server's is moved.
Rollbacks and what applies a rendered chart change `nats.replicas` without asking the cluster what is there.
"""

import asyncio
import secrets
from pathlib import Path

import pytest

from shared.errors import Transient
from shared.eventlog import Stored
from shared.eventlog.account import ADMIN, USERS
from shared.eventlog.jetstream import JetStreamEventLog
from shared.eventlog.retry import insist
from shared.eventlog.setup import set_up
from tests.deploy.charts import require_helm, require_nats
from tests.deploy.nats import Nats, running
from tests.kit.commands import run
from tests.kit.nats import a_decision, old_release, read_to_end

pytestmark = pytest.mark.nats


@pytest.fixture(autouse=True)
def helm() -> None:
    require_helm()


def servers(folder: Path, users: dict[str, str], number: int) -> Nats:
    return Nats(folder, users, "--set", f"nats.replicas={number},nats.tls.enabled=false")


async def events(nats: Nats, *, more: int = 0) -> tuple[str, list[Stored]]:
    """The log's identity and all that it holds, after as many events `more`."""
    return await events_of(nats.url, more=more, password=nats.users["scheduler"])


async def events_of(url: str, *, more: int = 0, password: str = "") -> tuple[str, list[Stored]]:
    log = await JetStreamEventLog.connect(url, name="test", user="scheduler", password=password)
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


async def test_a_lone_servers_log_of_release_01_gets_its_account_and_keeps_everything(tmp_path: Path) -> None:
    users = {name: secrets.token_hex(16) for name in (*USERS, "route")}
    nats = servers(tmp_path, users, 1)
    (node,) = nats.nodes
    async with old_release(node.folder / "data") as url:
        before = await events_of(url, more=20)
    async with running(nats):
        await set_up(nats.url, password=users[ADMIN])
        assert await events(nats) == before
    async with running(servers(tmp_path, users, 1)) as again:
        assert await events(again) == before


async def test_three_servers_log_of_release_01_moves_by_a_backup_and_keeps_everything(tmp_path: Path) -> None:
    program, backup = require_nats(), tmp_path / "backup"
    async with old_release(*(tmp_path / f"old-{number}" / "data" for number in range(3))) as url:
        before = await events_of(url, more=20)
        for stream in ("JOBS", "KV_HEADS"):
            done = await run(program, "--server", url, "stream", "backup", stream, str(backup / stream))
            assert not done.code, done.complaint

    users = {name: secrets.token_hex(16) for name in (*USERS, "route")}
    async with running(servers(tmp_path, users, 3)) as nats:
        admin = ("--server", nats.url, "--user", ADMIN, "--password", users[ADMIN])
        for stream in ("JOBS", "KV_HEADS"):
            words = (program, *admin, "stream", "restore", str(backup / stream), "--replicas", "3")
            while (await run(*words)).code:
                # They seek a leader first, as the runbook says.
                await asyncio.sleep(1)
        made = await set_up(nats.url, password=users[ADMIN], replicas=3)
        assert (made.created, made.differences) == (("KV_LEASES",), ())
        assert await events(nats) == before


@pytest.mark.parametrize("folder", ["$SYS/_js_/_meta_", "LOG/streams/JOBS"], ids=["three servers", "a log in both"])
async def test_a_log_of_release_01_that_cannot_be_moved_is_left_as_it_is(tmp_path: Path, folder: str) -> None:
    users = {name: secrets.token_hex(16) for name in (*USERS, "route")}
    nats = servers(tmp_path, users, 3 if "SYS" in folder else 1)
    store = nats.nodes[0].folder / "data" / "jetstream"
    for each in ("$G/streams/JOBS", folder):
        (store / each).mkdir(parents=True)
    before = sorted(store.rglob("*"))
    assert "this volume holds a log of release 0.1" in await nats.refusal(nats.nodes[0])
    assert sorted(store.rglob("*")) == before
