"""The audit service on a real log: whom it believes, and what it writes into the histories of the jobs."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import aiohttp
import msgspec
import pytest

from devcluster.certificates import make_server
from services.audit import server
from services.audit.__main__ import serving
from services.audit.server import MOST_BYTES
from shared.errors import Refused
from shared.eventlog import Stored
from shared.eventlog.account import ADMIN, AUDIT
from shared.eventlog.jetstream import JetStreamEventLog
from shared.eventlog.server import NatsServer
from shared.eventlog.setup import set_up
from shared.job.events.catalog import AnyEvent
from shared.job.events.event import ChangeAttributed
from shared.job.events.watcher import JobObserved, ScaleRequested
from shared.job.fold import History
from shared.job.naming import JobKey, Uid
from shared.process.settings import HttpsPort, Settings
from tests.audit.conftest import GROUP, a_list, an_event
from tests.history.conftest import record
from tests.kit.builders import a_running_job
from tests.kit.nats import connected

TOKEN = "the token of the webhook"
PATIENCE_SECONDS = 30.0


class Site(NamedTuple):
    log: JetStreamEventLog
    nats: NatsServer
    history: History
    client: aiohttp.ClientSession
    url: str

    async def post(self, body: bytes, token: str = TOKEN) -> int:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with self.client.post(self.url, data=BytesIO(body), headers=headers) as response:
            return response.status

    async def see(self, *events: AnyEvent) -> int:
        """Record what the watcher saw; the sequence of the last event."""
        await record(self.log, events, self.history)
        return self.history.sequence

    async def attributed(self, number: int) -> list[tuple[Stored, ChangeAttributed]]:
        """So many facts, as soon as they are there."""
        found: list[tuple[Stored, ChangeAttributed]] = []
        async with asyncio.timeout(PATIENCE_SECONDS):
            async with aclosing(self.log.read(subjects=("facts.*.*.*.audit.>",))) as batches:
                async for batch in batches:
                    found += [(each, msgspec.json.decode(each.body, type=ChangeAttributed)) for each in batch.events]
                    if len(found) >= number:
                        break
        return found


def settings(folder: Path, nats: NatsServer, *, token: str = TOKEN, password: str = "") -> Settings:
    (folder / "token").write_text(f"{token}\n")
    make_server(folder, ["localhost"])
    return Settings(
        NATS_URL=nats.url,
        NATS_USER=AUDIT,
        NATS_PASSWORD=password or nats.users[AUDIT],
        audit=HttpsPort(cert=folder / "server.crt", key=folder / "server.key"),
        audit_token_file=folder / "token",
    )


@asynccontextmanager
async def a_client(folder: Path) -> AsyncIterator[aiohttp.ClientSession]:
    trust = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust)) as client:
        yield client


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with NatsServer(tmp_path / "nats") as nats:
        await set_up(nats.url, user=ADMIN, password=nats.users[ADMIN])
        async with (
            connected(nats, ADMIN) as log,
            serving(settings(tmp_path, nats)) as port,
            a_client(tmp_path) as client,
        ):
            history = History(JobKey("team-a", "resnet", Uid("uid-1")))
            await record(log, a_running_job(2), history)
            yield Site(log, nats, history, client, f"https://localhost:{port}/audit")


def an_edit(site: Site, *writes: int) -> JobObserved:
    job = site.history.job
    return JobObserved(
        kind=job.resource.kind,
        api_version=job.resource.api_version,
        generation=job.resource.generation + 1,
        version=writes[-1],
        spec=job.spec,
        writes=writes,
    )


async def test_an_edit_gets_its_author_whichever_is_there_first_and_no_service_is_stopped_by_it(site: Site):
    assert await site.post(a_list(an_event(version=900, user="alice", audit="a"))) == 200
    first = await site.see(an_edit(site, 900))
    second = await site.see(an_edit(site, 901, 902))
    late = [an_event(version=902, user="bob", audit="c"), an_event(version=901, user="alice", audit="b")]
    assert await site.post(a_list(*late, late[0])) == 200
    found = await site.attributed(3)
    told = sorted((event.of, event.write, event.user) for _, event in found)
    assert told == [(first, 900, "alice"), (second, 901, "alice"), (second, 902, "bob")]
    for stored, _ in found:
        assert stored.optional
        assert stored.subject == "facts.team-a.resnet.uid-1.audit.ChangeAttributed"
    before = site.history.job
    async with aclosing(site.log.read(after=site.history.sequence - 2)) as batches:
        async for batch in batches:
            for stored in batch.events:
                if stored.subject.endswith("ChangeAttributed"):
                    site.history.fold(stored)
            break
    assert (site.history.held, site.history.job) == ("", before)


async def test_a_request_gets_its_creator_in_the_history_of_its_job(site: Site):
    of = await site.see(ScaleRequested(kind="ScaleOut", name="more", uid=Uid("request-1"), owner=Uid("uid-1")))
    about = {"resource": "scaleouts", "namespace": "team-a", "name": "more", "apiGroup": GROUP}
    event = an_event("create", uid="request-1", code=201, objectRef=about)
    assert await site.post(a_list(event)) == 200
    [(stored, found)] = await site.attributed(1)
    assert (found.of, found.user, stored.subject.split(".")[3]) == (of, "alice", "uid-1")


async def test_who_does_not_know_the_token_is_not_heard(site: Site):
    forged = a_list(an_event(version=900, user="mallory", audit="forged"))
    for token in ("", "wrong", TOKEN[:-1], TOKEN.upper(), "ü"):
        assert await site.post(forged, token) == 401
    assert await site.post(a_list(an_event(version=900, audit="true"))) == 200
    await site.see(an_edit(site, 900))
    assert [event.user for _, event in await site.attributed(1)] == ["alice"]


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stranger has two seconds to say what it asks for."""
    monkeypatch.setattr(server, "HTTPS", msgspec.structs.replace(server.HTTPS, head_seconds=2.0))


@pytest.mark.usefixtures("soon")
async def test_a_client_without_the_token_is_not_kept(site: Site, tmp_path: Path):
    trust = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))
    port = int(site.url.split(":")[2].split("/")[0])
    body = a_list()
    head = f"POST /audit HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: {len(body)}\r\n\r\n"
    # The connection of a client that has it stays.
    reader, writer = await asyncio.open_connection("localhost", port, ssl=trust)
    writer.write(head.encode() + body)
    await reader.readuntil(b"\r\n\r\n")

    async def cut_off(head: bytes) -> None:
        reader, writer = await asyncio.open_connection("localhost", port, ssl=trust)
        writer.write(head)
        await writer.drain()
        await reader.read()
        writer.close()

    async def stays() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(4):
                await reader.read()
        writer.close()

    async with asyncio.timeout(PATIENCE_SECONDS):
        heads = (b"", b"POST /audit HTTP/1.1\r\nHost: x", b"GET /other HTTP/1.1\r\nHost: x\r\n\r\n")
        await asyncio.gather(stays(), *map(cut_off, heads))


async def test_what_cannot_be_read_or_is_too_large_is_refused_and_the_next_batch_counts(site: Site):
    assert await site.post(b"nonsense") == 400
    assert await site.post(b"x" * (MOST_BYTES + 1)) == 413
    async with site.client.get(site.url, headers={"Authorization": f"Bearer {TOKEN}"}) as response:
        assert response.status == 405
    await site.see(an_edit(site, 900))
    assert await site.post(a_list(an_event(version=900))) == 200
    assert len(await site.attributed(1)) == 1


async def test_batches_that_do_not_arrive_are_given_up_and_the_next_one_counts(
    site: Site, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(server, "READ_SECONDS", 0.5)

    async def half() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.Event().wait()

    async def stuck() -> int:
        async with site.client.post(site.url, data=half(), headers={"Authorization": f"Bearer {TOKEN}"}) as answer:
            return answer.status

    async with asyncio.timeout(PATIENCE_SECONDS):
        assert await asyncio.gather(*(stuck() for _ in range(server.AT_ONCE))) == [408] * server.AT_ONCE
        assert await site.post(a_list(an_event(version=900))) == 200


async def test_its_user_at_the_log_writes_nothing_else(site: Site):
    async with connected(site.nats, AUDIT) as log:
        for subject in ("facts.a.b.c.audit.JobGone", "facts.a.b.c.watcher.ChangeAttributed", "jobs.a.b.c.audit.X"):
            with pytest.raises(Refused):
                await log.connection.request(subject, b"{}", timeout=5)


async def test_changes_from_before_its_start_are_known_and_a_log_that_comes_later_is_waited_for(tmp_path: Path):
    nats = NatsServer(tmp_path / "nats")
    history = History(JobKey("team-a", "resnet", Uid("uid-1")))
    async with nats:
        await set_up(nats.url, user=ADMIN, password=nats.users[ADMIN])
        async with connected(nats, ADMIN) as log:
            await record(log, a_running_job(2), history)
            before = Site(log, nats, history, aiohttp.ClientSession(), "")
            await before.client.close()
            of = await before.see(an_edit(before, 900))
    async with serving(settings(tmp_path, nats)) as port, a_client(tmp_path) as client:
        site = before._replace(client=client, url=f"https://localhost:{port}/audit")
        assert await site.post(a_list(an_event(version=900))) == 200
        again = NatsServer(tmp_path / "nats", port=nats.port, users=nats.users)
        async with again, connected(again, ADMIN) as log:
            [(_, found)] = await site._replace(log=log).attributed(1)
            assert (found.of, found.user) == (of, "alice")


async def test_another_log_in_its_place_gets_its_own_authors_and_none_of_the_old_ones(tmp_path: Path):
    nats, old = NatsServer(tmp_path / "nats"), History(JobKey("team-a", "resnet", Uid("uid-1")))
    async with nats:
        await set_up(nats.url, user=ADMIN, password=nats.users[ADMIN])
        async with serving(settings(tmp_path, nats)) as port, a_client(tmp_path) as client:
            url = f"https://localhost:{port}/audit"
            async with connected(nats, ADMIN) as log:
                await record(log, a_running_job(2), old)
                site = Site(log, nats, old, client, url)
                await site.see(an_edit(site, 900))
                assert await site.post(a_list(an_event(version=899), an_event(version=901, audit="b"))) == 200
                await site.see(an_edit(site, 901))
                await site.attributed(1)
            nats.stop()
            other = NatsServer(tmp_path / "other", port=nats.port, users=nats.users)
            async with other:
                await set_up(other.url, user=ADMIN, password=other.users[ADMIN])
                async with connected(other, ADMIN) as log:
                    new = Site(log, other, History(JobKey("team-a", "other", Uid("uid-1"))), client, url)
                    await record(log, a_running_job(2), new.history)
                    of = await new.see(an_edit(new, 950))
                    # Claims that came before it noticed are forgotten.
                    async with asyncio.timeout(2 * PATIENCE_SECONDS):
                        for number in range(100):
                            assert await new.post(a_list(an_event(version=950, audit=f"n{number}"))) == 200
                            if await log.last("facts.*.*.*.audit.>") is not None:
                                break
                            await asyncio.sleep(0.5)
                    found = await new.attributed(1)
                    assert {(event.of, event.user) for _, event in found} == {(of, "alice")}


@pytest.mark.parametrize("token", ["", "short"])
async def test_without_a_long_token_it_does_not_begin(tmp_path: Path, token: str):
    with pytest.raises(Refused, match="make one of at least 16"):
        async with serving(settings(tmp_path, NatsServer(tmp_path / "nats"), token=token)):
            pass
