"""What may grow does, nothing becomes smaller than what it holds, and the rest is told."""

from pathlib import Path

import pytest

from shared.eventlog import api
from shared.eventlog.account import ADMIN
from shared.eventlog.server import NatsServer, configuration
from shared.eventlog.streams import StreamInfo, compare, growth
from tests.kit.nats import at


@pytest.mark.parametrize(
    ("found", "asked", "changes", "kept"),
    [
        pytest.param({"num_replicas": 1}, {}, {}, 0, id="nothing is asked"),
        pytest.param({"num_replicas": 1}, {"num_replicas": 3}, {"num_replicas": 3}, 0, id="more copies"),
        pytest.param({"num_replicas": 3}, {"num_replicas": 3}, {}, 0, id="as many"),
        pytest.param({"num_replicas": 3}, {"num_replicas": 1}, {}, 1, id="fewer"),
        pytest.param({"max_bytes": 10}, {"max_bytes": 20}, {"max_bytes": 20}, 0, id="more room"),
        pytest.param({"max_bytes": 20}, {"max_bytes": 10}, {"max_bytes": 10}, 0, id="less room, and enough"),
        pytest.param({"max_bytes": 20}, {"max_bytes": 9}, {}, 1, id="less room than it uses"),
        pytest.param({"max_bytes": 20}, {"max_bytes": -1}, {"max_bytes": -1}, 0, id="all room there is"),
        pytest.param({"max_bytes": -1}, {"max_bytes": 20}, {"max_bytes": 20}, 0, id="a bound where there was none"),
        pytest.param({"max_bytes": -1}, {"max_bytes": 8}, {}, 1, id="a bound below what is there"),
        pytest.param({}, {"max_bytes": -1}, {}, 0, id="no bound, as the server may leave it out"),
    ],
)
def test_growth(found: dict[str, int], asked: dict[str, int], changes: dict[str, int], kept: int):
    grows = growth(found, asked, used=9)
    assert grows.changes == changes
    assert len(grows.kept) == kept


def test_what_is_off_may_be_left_out():
    assert compare({"name": "JOBS"}, {"name": "JOBS", "sealed": False, "max_age": 0}) == []


def test_a_difference_is_a_sentence_that_says_what_it_may_cost():
    found, wanted = (
        {"name": "JOBS", "storage": "memory", "compression": "s2"},
        {"storage": "file", "compression": "none"},
    )
    assert compare(found, {"name": "JOBS", "num_replicas": 3, **wanted}) == [
        "JOBS: storage is 'memory', and would be made 'file' today",
        "JOBS: compression is 's2', and would be made 'none' today: a copy may be lost when its server was killed and "
        "later stopped",
    ]


async def test_an_account_that_has_used_up_its_share_of_the_disk_is_full(tmp_path: Path):
    users = {ADMIN: "secret"}
    accounts = configuration(tmp_path, 0, users)["accounts"]
    accounts["LOG"]["jetstream"] = {"max_file": 10_000}
    async with (
        NatsServer(tmp_path, users=users, more={"accounts": accounts}) as server,
        at(server, ADMIN) as connection,
    ):
        await api.call(connection, "STREAM.CREATE.JOBS", {"name": "JOBS", "subjects": ["jobs.>"]}, StreamInfo)
        await api.publish(connection, "jobs.a", b"1" * 9_000, {})
        with pytest.raises(api.NoRoom, match=r"resource limits exceeded for account .* `max_file` of its account"):
            await api.publish(connection, "jobs.b", b"1" * 9_000, {})
