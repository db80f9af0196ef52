"""The connection to the log: made when it is asked for, and anew where another log has the place of the known one."""

import asyncio
from pathlib import Path

import pytest

from services.history.answers import Answers
from shared.errors import Refused, Transient
from shared.eventlog import Stored
from shared.eventlog.account import ADMIN, HISTORY
from shared.eventlog.server import NatsServer
from shared.eventlog.setup import set_up
from shared.history_api import Question
from shared.job.fold import History
from shared.job.naming import JobKey, Uid
from shared.process.kept_connection import KeptConnection
from shared.process.settings import Settings
from shared.telling.reading import fold_to_end
from shared.telling.targets import known_kinds
from tests.history.conftest import record
from tests.kit.builders import a_running_job
from tests.kit.nats import connected
from tests.kit.subscribers import write

RESNET = Question("team-a", "trainingjob.resnet")


async def test_another_log_in_the_place_of_the_known_one_is_answered_from(tmp_path: Path):
    first = NatsServer(tmp_path / "first")
    settings = Settings(NATS_URL=first.url, NATS_USER=HISTORY, NATS_PASSWORD=first.users[HISTORY])
    connection = KeptConnection(HISTORY, settings)
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


async def test_a_history_of_which_a_part_was_read_when_the_connection_closed_is_no_answer(tmp_path: Path):
    async with NatsServer(tmp_path) as server:
        await set_up(server.url, password=server.users[ADMIN])
        await write(server, 3_000)
        async with connected(server, HISTORY) as log:
            closing: list[asyncio.Task[None]] = []

            def fold(_: Stored) -> None:
                if not closing:
                    closing.append(asyncio.ensure_future(log.close()))

            with pytest.raises(Transient, match="the connection was closed after"):
                await fold_to_end(log, fold)
            await closing[0]


async def test_a_connection_that_comes_back_by_itself_is_kept(tmp_path: Path):
    server = NatsServer(tmp_path)
    settings = Settings(NATS_URL=server.url, NATS_USER=HISTORY, NATS_PASSWORD=server.users[HISTORY])
    connection = KeptConnection(HISTORY, settings)
    try:
        async with server:
            await _filled(server, "resnet")
            known = await connection.log()
        async with asyncio.timeout(10):
            while known.connected:
                await asyncio.sleep(0.05)
        assert await connection.log() is known
        async with NatsServer(tmp_path, port=server.port, users=server.users):
            await _until_answered(Answers(connection.log, known_kinds()), RESNET)
            assert await connection.log() is known
        await known.close()
        with pytest.raises(Transient, match="start NATS there"):
            await connection.log()
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
