"""The connection to the log: made when it is asked for, and anew where another log has the place of the known one."""

import asyncio
from pathlib import Path

import pytest

from muster.kinds import known_kinds
from services.history.__main__ import Connection
from services.history.answers import Answers
from shared.errors import Refused, Transient
from shared.eventlog.account import ADMIN, HISTORY
from shared.eventlog.server import NatsServer
from shared.eventlog.setup import set_up
from shared.history_api import Question
from shared.job.fold import History
from shared.job.naming import JobKey, Uid
from shared.process.settings import Settings
from tests.history.conftest import record
from tests.kit.builders import a_running_job
from tests.kit.nats import connected

RESNET = Question("team-a", "trainingjob.resnet")


async def test_another_log_in_the_place_of_the_known_one_is_answered_from(tmp_path: Path):
    first = NatsServer(tmp_path / "first")
    settings = Settings(NATS_URL=first.url, NATS_USER=HISTORY, NATS_PASSWORD=first.users[HISTORY])
    connection = Connection(settings)
    answers = Answers(connection.log, known_kinds())
    with pytest.raises(Transient, match="start NATS there"):
        await answers.answer(RESNET)
    with pytest.raises(Transient, match="start NATS there"):
        await answers.answer(RESNET)
    try:
        async with first:
            await _filled(first, "resnet")
            await _until_answered(answers, RESNET)
        second = NatsServer(tmp_path / "second", port=first.port, users=first.users)
        async with second:
            await _filled(second, "other")
            await _until_answered(answers, Question("team-a", "trainingjob.other"))
            with pytest.raises(Refused, match="the log knows no TrainingJob team-a/resnet"):
                await answers.answer(RESNET)
    finally:
        await connection.close()


async def _filled(server: NatsServer, name: str) -> None:
    await set_up(server.url, user=ADMIN, password=server.users[ADMIN])
    async with connected(server, ADMIN) as log:
        await record(log, a_running_job(2), History(JobKey("team-a", name, Uid(f"uid-{name}"))))


async def _until_answered(answers: Answers, question: Question) -> None:
    """Once the pause after a failed connection is over, and the other log was noticed."""
    while True:
        try:
            await answers.answer(question)
        except (Transient, Refused):
            await asyncio.sleep(0.05)
            continue
        return
