"""Who made a change can be removed from the log, and every history is as whole as before."""

from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from muster.history import forget
from shared.eventlog import EventLog
from shared.eventlog.account import ADMIN
from shared.eventlog.server import NatsServer
from shared.eventlog.setup import set_up
from shared.eventlog.subject import Subject
from shared.job.events.event import ChangeAttributed
from shared.job.events.status import JobFailed
from shared.job.fold import History
from shared.job.naming import JobKey, Uid
from shared.process.settings import Settings
from shared.telling.reading import everything
from tests.history.conftest import record
from tests.kit.builders import a_running_job
from tests.kit.nats import connected

NOW = datetime(2031, 1, 1, tzinfo=UTC)
ALL = {("team-a", "alice"), ("team-a", "bob"), ("team-b", "alice")}


@pytest.mark.parametrize(
    ("namespace", "user", "before", "left"),
    [
        pytest.param("", "", "", set(), id="all"),
        pytest.param("team-a", "", "", {("team-b", "alice")}, id="a namespace"),
        pytest.param("", "alice", "", {("team-a", "bob")}, id="a user, with the users before"),
        pytest.param("", "", "2001-01-01T00:00:00Z", ALL, id="nothing so old"),
    ],
)
async def test_what_is_forgotten_is_gone_and_the_chain_holds(
    tmp_path: Path, namespace: str, user: str, before: str, left: set[tuple[str, str]]
):
    async with NatsServer(tmp_path) as nats:
        settings = Settings(NATS_URL=nats.url, NATS_USER=ADMIN, NATS_PASSWORD=nats.users[ADMIN])
        await set_up(nats.url, user=ADMIN, password=nats.users[ADMIN])
        async with connected(nats, ADMIN) as log:
            first, *life = a_running_job(2)
            for team, users in (("team-a", ("alice", "bob")), ("team-b", ("alice",))):
                history = History(JobKey(team, "resnet", Uid(f"uid-{team}")))
                await record(log, [first], history)
                said = [ChangeAttributed(of=history.sequence, user=each) for each in users]
                await record(log, [*said, *life, JobFailed(reason="JobFailed")], history)
            heads = await _heads(log)
            await forget(settings, namespace, user, before, NOW)
            assert await _heads(log) == heads
            assert await _people(log) == left


async def _heads(log: EventLog) -> dict[JobKey, str]:
    """The end of each history's chain; none is held."""
    histories, _ = await everything(log)
    assert not [*histories.held()]
    return {each.job.key: str(each.head) for each in histories}


async def _people(log: EventLog) -> set[tuple[str, str]]:
    """Who made a change in which namespace, as the log says."""
    _, events = await everything(log)
    read = ((Subject.parse(each.subject).namespace, msgspec.json.decode(each.body)) for each in events)
    return {(namespace, event["user"]) for namespace, event in read if event["type"] == "ChangeAttributed"}
