"""What `muster why` and `muster get` say while no service can act: also of a job that the log does not know yet."""

from pathlib import Path
from typing import NamedTuple

import pytest

from muster import asking
from muster import get as getting
from muster.commands.arguments import named
from muster.get import Options
from shared.errors import Refused
from shared.eventlog import api
from shared.eventlog.account import ADMIN, AUTHORS, STREAM
from shared.eventlog.inspection import Room, without_holder
from shared.eventlog.jetstream import JetStreamEventLog
from shared.eventlog.server import NatsServer
from shared.eventlog.streams import StreamInfo
from shared.process.settings import Settings
from tests.kit.nats import a_decision, a_server, connected, owners

pytestmark = pytest.mark.nats

FULL = "the log is full: no service acts on any job until it has room"
NO_LEASE = "no replica of the watcher, scheduler, scaler, status acts"


class Told(NamedTuple):
    """The notices on standard error."""

    by_why: str
    by_get: str


async def told(server: NatsServer, capsys: pytest.CaptureFixture[str]) -> Told:
    settings = Settings(nats_url=server.url, nats_user="reader", nats_password=server.users["reader"])
    with pytest.raises(Refused, match="the log knows no"):
        await asking.why(named("trainingjob/new"), "", "team-a", settings, uid="the-uid", as_json=False)
    by_why = capsys.readouterr().err
    await getting.get(settings, Options(""))
    return Told(by_why, capsys.readouterr().err)


async def full(log: JetStreamEventLog) -> None:
    """Leave the log no room for one more event."""
    jobs = await api.stream_info(log.connection, STREAM)
    await api.call(log.connection, f"STREAM.UPDATE.{STREAM}", jobs.config | {"max_bytes": jobs.state.bytes}, StreamInfo)


async def test_a_full_log_is_told_to_the_person_who_waits(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    async with a_server(tmp_path) as server, owners(server):
        assert await told(server, capsys) == Told("", ""), "every service acts"
        async with connected(server, ADMIN) as log:
            await log.append(a_decision("team-a"), expect=0)
            await full(log)
        assert all(FULL in each and "`muster doctor`" in each for each in await told(server, capsys))


async def test_services_without_a_lease_holder_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    async with a_server(tmp_path) as server:
        assert all(NO_LEASE in each and "`muster doctor`" in each for each in await told(server, capsys))


@pytest.mark.parametrize(
    ("keys", "namespace", "missing"),
    [
        pytest.param(AUTHORS, "team-a", [], id="an installation for the whole cluster acts on every namespace"),
        pytest.param([f"{one}.team-a" for one in AUTHORS], "team-a", [], id="one for this namespace acts on it"),
        pytest.param([f"{one}.team-b" for one in AUTHORS], "team-a", [*AUTHORS], id="one for another does not"),
        pytest.param([f"{one}.team-b" for one in AUTHORS], "", [], id="of all namespaces any counts"),
        pytest.param(["archiver", *AUTHORS[1:]], "team-a", ["watcher"], id="the archiver is no watcher"),
    ],
)
def test_which_services_have_no_holder(keys: list[str], namespace: str, missing: list[str]):
    assert without_holder(keys, namespace) == missing


@pytest.mark.parametrize(
    ("used", "most", "is_full"),
    [
        pytest.param(10_000_000, 0, False, id="nothing bounds it"),
        pytest.param(9_000_000, 10_000_000, False, id="its reserve has begun"),
        pytest.param(9_999_000, 10_000_000, True, id="there is no room for an event"),
        pytest.param(10_001_000, 10_000_000, True, id="its bound was lowered below its use"),
    ],
)
def test_a_full_room(used: int, most: int, is_full: bool):
    assert Room("JOBS", used, most, "").full == is_full
