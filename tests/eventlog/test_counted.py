"""The subjects of a stream, of which the server names 100,000 in one answer: all of them are counted."""

from pathlib import Path
from typing import Any, cast

import pytest

from shared.eventlog import api
from shared.eventlog.account import ADMIN, STREAM
from shared.eventlog.connection import Connection
from shared.eventlog.server import NatsServer
from shared.eventlog.setup import set_up
from shared.eventlog.streams import StreamInfo, StreamState
from tests.kit.nats import a_decision, connected


@pytest.mark.parametrize("of_one", [2, 3, 4, 9, 10, 99])
@pytest.mark.parametrize("leaves", [0, 1])
async def test_all_subjects_are_counted_however_few_an_answer_has(
    monkeypatch: pytest.MonkeyPatch, of_one: int, leaves: int
):
    there, stays = {f"subject-{number:02}": number for number in range(10)}, "subject-05"

    async def answers(*_: Any, offset: int) -> StreamInfo:
        total, page = len(there), dict(sorted(there.items())[offset : offset + of_one])
        if leaves and len(there) == 10:
            del there["subject-00"]
        return StreamInfo({}, StreamState(subjects=page), total=total)

    monkeypatch.setattr(api, "stream_info", answers)
    monkeypatch.setattr(api, "OVERLAP", 1)
    found = await api.counted(cast(Connection, None), STREAM, ">")
    assert found.keys() >= there.keys()
    assert found[stays] == 5


@pytest.mark.nats
async def test_an_answer_begins_where_it_is_asked_to(tmp_path: Path):
    async with NatsServer(tmp_path) as server:
        await set_up(server.url, user=ADMIN, password=server.users[ADMIN])
        async with connected(server, ADMIN) as log:
            for job in ("a", "b", "c"):
                await log.append(a_decision(1, job=job), expect=0)
            counted = await log.counted("jobs.>")
            later = await api.stream_info(log.connection, STREAM, "jobs.>", offset=1)
    assert (len(counted), later.total) == (3, 3)
    assert later.state.subjects == dict(sorted(counted.items())[1:])
