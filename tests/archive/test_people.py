"""Who made a change leaves the log and the archive after a stated time, and every history is as whole as before."""

import contextlib
import json
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from muster import archive as commands
from muster.history import forget
from services.archive.archiving import ArchiveFigures
from shared.errors import Transient
from shared.eventlog import api, wire
from shared.eventlog.account import ADMIN, ARCHIVE, ARCHIVER
from shared.eventlog.archive import Archive
from shared.eventlog.jetstream import JetStreamEventLog
from shared.eventlog.server import NatsServer
from shared.eventlog.subject import archived_under, names_people, people, people_of
from shared.job.events.event import ChangeAttributed
from shared.job.naming import JobKey
from shared.telling.targets import parse_target
from tests.archive.test_archiver import Killed, an_archiver, archive, figure, kept, kill_at, left, settings_of, told
from tests.kit.nats import a_namespace, a_server, connected, read_to_end, until
from tests.kit.sealed import Life, a_key, a_life, a_sealed_life

pytestmark = pytest.mark.nats
DAY = 86_400.0
USERS = ("alice", "bob")


async def a_named_life(
    log: JetStreamEventLog, key: JobKey, users: Sequence[str] = USERS, *, sealed: bool = True
) -> Life:
    """One whose changes these users made."""
    life = Life(log, key)
    first, *others = a_life()
    await life.live([first, *(ChangeAttributed(of=1, user=user) for user in users), *others])
    if sealed:
        await life.seal()
    return life


async def named(log: JetStreamEventLog, namespace: str) -> list[str]:
    """Who made changes, as the log says."""
    return [json.loads(stored.body)["user"] for stored in await read_to_end(log, people(namespace))]


async def named_in_archive(log: JetStreamEventLog, namespace: str) -> list[api.Message]:
    """The messages of the archive that say who made changes."""
    found, after = list[api.Message](), 0
    while (
        message := await api.message(
            log.connection, ARCHIVE, seq=after + 1, next_by_subj=people_of(archived_under(namespace))
        )
    ) is not None:
        after = message.seq
        found.append(message)
    return found


def users_in(lines: Sequence[str]) -> list[str]:
    bodies = [json.loads(line)["body"] for line in lines]
    return [body["user"] for body in bodies if body["type"] == "ChangeAttributed"]


async def test_the_log_loses_the_names_that_are_too_old_and_those_alone(nats_server: NatsServer):
    key = a_key(namespace := a_namespace())
    async with connected(nats_server, ADMIN) as log, connected(nats_server, ARCHIVER) as mine:
        life = await a_named_life(log, key, sealed=False)
        await a_named_life(log, a_key(other := a_namespace()), sealed=False)
        made = await archive(mine, namespace, people=90 * DAY, figures=(figures := ArchiveFigures()))
        first, second = (
            datetime.fromisoformat(event.logged).timestamp() for event in life.events if names_people(event.subject)
        )
        for moment, rest in ((first - 1, [*USERS]), ((first + second) / 2, ["bob"]), (second + 1, [])):
            mine.now = lambda moment=moment: moment + 90 * DAY  # type: ignore[method-assign, misc]
            await made.retain()
            assert await named(log, namespace) == rest
            assert figure(figures, "purged_events_total") == 2 - len(rest)
        assert len(await left(log, key)) == len(life.events) - 2
        assert await named(log, other) == [*USERS]


async def test_names_are_kept_for_ever_on_request(nats_server: NatsServer):
    namespace = a_namespace()
    async with connected(nats_server, ADMIN) as log, connected(nats_server, ARCHIVER) as mine:
        await a_named_life(log, a_key(namespace, "lives"), sealed=False)
        await a_named_life(log, a_key(namespace))
        made, now = await archive(mine, namespace, people=0.0), time.time()
        mine.now = lambda: now + 1_000 * DAY  # type: ignore[method-assign]
        await made.retain()
        assert await named(log, namespace) == [*USERS]
        [message] = await named_in_archive(log, namespace)
        assert wire.header(message.hdrs, wire.TTL) == ""


async def test_an_archived_history_has_its_names_for_the_rest_of_their_time(nats_server: NatsServer):
    key = a_key(namespace := a_namespace())
    async with connected(nats_server, ADMIN) as log, connected(nats_server, ARCHIVER) as mine:
        await a_named_life(log, key)
        before = await told(log, namespace)
        assert users_in(before) == [*USERS]
        now = time.time()
        mine.now = lambda: now + 30 * DAY  # type: ignore[method-assign]
        await archive(mine, namespace, people=90 * DAY, seals=0)
        assert await left(log, key) == []
        [message] = await named_in_archive(log, namespace)
        assert int(wire.header(message.hdrs, wire.TTL).removesuffix("s")) == pytest.approx(60 * DAY, abs=60)
        assert await told(log, namespace) == before
        [part] = [part async for part in log.archive.parts(archived_under(namespace))]
        assert users_in([line.decode() for line in part.lines]) == []


async def test_the_server_removes_names_from_the_archive_and_the_history_is_what_its_seal_says(
    nats_server: NatsServer, capsys: pytest.CaptureFixture[str]
):
    namespace = a_namespace()
    async with connected(nats_server, ADMIN) as log, connected(nats_server, ARCHIVER) as mine:
        await a_named_life(log, a_key(namespace))
        before = await told(log, namespace)
        now = time.time()
        mine.now = lambda: now  # type: ignore[method-assign]
        await archive(mine, namespace, people=8.0)
        assert await named_in_archive(log, namespace)

        async def gone() -> bool:
            return not await named_in_archive(log, namespace)

        await until(gone, within=30.0)
        after = await told(log, namespace)
        assert (users_in(after), len(after)) == ([], len(before) - 2)
        await commands.verify(settings_of(nats_server, "reader"), None, namespace)
        assert "are what their seals say: 1, different: 0" in capsys.readouterr().out
        assert {sealed.trouble for sealed in (await archive(mine, namespace)).sealed.values()} == {""}


async def test_names_that_were_too_old_already_are_not_archived(nats_server: NatsServer):
    key = a_key(namespace := a_namespace())
    async with connected(nats_server, ADMIN) as log, connected(nats_server, ARCHIVER) as mine:
        await a_named_life(log, key)
        now = time.time()
        mine.now = lambda: now + 91 * DAY  # type: ignore[method-assign]
        await archive(mine, namespace, people=90 * DAY)
        assert (await kept(log, namespace), await named_in_archive(log, namespace)) == (1, [])
        assert await left(log, key) == []


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", range(20, 30))
async def test_names_survive_an_archiver_that_was_killed(nats_server: NatsServer, number: int, after: bool):
    namespace = a_namespace()
    async with connected(nats_server, ADMIN) as log, connected(nats_server, ARCHIVER) as mine:
        await a_named_life(log, a_key(namespace))
        before = await told(log, namespace)
        kill_at(mine, number, after=after)
        with contextlib.suppress(Killed):
            await archive(mine, namespace)
        assert await told(log, namespace) == before
    async with connected(nats_server, ADMIN) as log, connected(nats_server, ARCHIVER) as mine:
        await archive(mine, namespace)
        assert await told(log, namespace) == before
        assert len(await named_in_archive(log, namespace)) == 1


@pytest.mark.parametrize("how", ["number", "age", "forgotten"])
async def test_the_names_leave_the_archive_with_their_history(nats_server: NatsServer, how: str):
    namespace = a_namespace()
    async with connected(nats_server, ADMIN) as log, connected(nats_server, ARCHIVER) as mine:
        for name in ("older", "newer"):
            await a_named_life(log, a_key(namespace, name))
        made, now = await archive(mine, namespace, seals=0, people=0.0), time.time()
        assert len(await named_in_archive(log, namespace)) == 2
        match how:
            case "number":
                made._most, made._grown = {"": 1}, {namespace}
                await made.retain()
            case "age":
                made._days = {"": 1}
                mine.now = lambda: now + 2 * DAY  # type: ignore[method-assign]
                await made.retain()
            case "forgotten":
                await log.archive.forget(archived_under(namespace, "older", "u-1"), "its owner asked for it")
        found = [message.subject for message in await named_in_archive(log, namespace)]
        assert found == ([] if how == "age" else [people_of(archived_under(namespace, "newer", "u-1"))])


@pytest.mark.parametrize(
    ("user", "before", "rest"),
    [
        pytest.param("", "", set(), id="all"),
        pytest.param("alice", "", {"bob"}, id="a user"),
        pytest.param("", "2001-01-01T00:00:00Z", {"alice", "bob"}, id="nothing so old"),
    ],
)
async def test_a_person_has_names_removed_from_the_archive_too(
    nats_server: NatsServer, user: str, before: str, rest: set[str]
):
    namespace = a_namespace()
    async with connected(nats_server, ADMIN) as log, connected(nats_server, ARCHIVER) as mine:
        for name in USERS:
            await a_named_life(log, a_key(namespace, f"of-{name}"), [name])
        await archive(mine, namespace, seals=0)
        await forget(settings_of(nats_server, ADMIN), namespace, user, before, datetime.now(UTC))
        found = {
            message.subject.split(".")[2].removeprefix("of-") for message in await named_in_archive(log, namespace)
        }
        assert found == rest
        assert await kept(log, namespace) == 2


async def test_an_export_has_no_names(nats_server: NatsServer, capsys: pytest.CaptureFixture[str]):
    namespace = a_namespace()
    async with connected(nats_server, ADMIN) as log, connected(nats_server, ARCHIVER) as mine:
        await a_named_life(log, a_key(namespace))
        before = await told(log, namespace)
        await archive(mine, namespace)
    await commands.export(settings_of(nats_server, "reader"), parse_target("trainingjob/resnet"), namespace, "", None)
    lines = capsys.readouterr().out.splitlines()
    assert lines == [line for line in before if not users_in([line])]


async def test_retention_by_number_takes_no_names_of_what_stays(tmp_path: Path):
    async with a_server(tmp_path) as server, connected(server, ADMIN) as log, connected(server, ARCHIVER) as mine:
        await a_named_life(log, a_key("team-a"))
        # The first message of the archive: nothing is before it.
        made = await archive(mine, "team-a", seals=0)
        made._most, made._grown = {"": 5}, {"team-a"}
        await made.retain()
        assert len(await named_in_archive(log, "team-a")) == 1


async def test_an_archive_that_was_not_set_up_anew_takes_histories_without_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("shared.eventlog.archive._PATIENCE", 0.2)
    async with a_server(tmp_path) as server, connected(server, ADMIN) as log, connected(server, ARCHIVER) as mine:
        found = await api.stream_info(log.connection, ARCHIVE)
        older = found.config | {"subjects": ["archive.*.*.*"]}
        await api.call(log.connection, f"STREAM.UPDATE.{ARCHIVE}", older, type(found))
        await a_named_life(log, key := a_key("team-a"))
        await a_sealed_life(log, other := a_key("team-a", "other"))
        made = await archive(mine, "team-a", seals=0)
        assert (bool(await left(log, key)), await left(log, other)) == (True, [])
        (trouble,) = {sealed.trouble for sealed in made.sealed.values() if sealed.key == key}
        assert "run `muster setup`" in trouble


@pytest.mark.parametrize(
    ("options", "days", "broken"),
    [({"most": {"": 1}}, 0, "people"), ({"days": {"": 1}}, 2, "people"), ({"days": {"": 1}}, 2, "copies")],
    ids=["by number, at the names", "by age, at the names", "by age, at the copies"],
)
async def test_a_store_that_fails_within_retention_keeps_neither_names_nor_copies(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch, options: dict[str, dict[str, int]], days: int, broken: str
):
    purge, namespace = Archive.purge, a_namespace()

    async def failing(self: Archive, stream: str, subject: str, before: int) -> int:
        if subject.endswith(".people") == (broken == "people"):
            raise Transient("the store fails")
        return await purge(self, stream, subject, before)

    async with connected(nats_server, ADMIN) as log, connected(nats_server, ARCHIVER) as mine:
        for name in ("older", "newer"):
            await a_named_life(log, a_key(namespace, name))
            await archive(mine, namespace, seals=0)
        made, now = await an_archiver(mine, namespace, people=0, **options), mine.now() or 0.0
        mine.now = lambda: now + days * DAY  # type: ignore[method-assign]
        with monkeypatch.context() as trouble:
            trouble.setattr(Archive, "purge", failing)
            with pytest.raises(Transient):
                await made.retain()
        await made.retain()
        rest = 0 if days else 1
        assert (await kept(log, namespace), len(await named_in_archive(log, namespace))) == (rest, rest)
