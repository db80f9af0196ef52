"""Health: what probes hear, over real HTTP on the loopback."""

import asyncio
import socket
from contextlib import suppress
from typing import Any

import aiohttp

from services.status.decide import decide
from shared.eventlog import Entry
from shared.eventlog.memory import MemoryEventLog, MemoryJournal
from shared.job.events import Author
from shared.job.fold import History
from shared.job.steps import Effect, Step
from shared.service import health
from shared.service.run import Machine, Standing
from tests.kit.virtual_time import until


class Idle:
    """A service that has nothing to do."""

    author: Author = "status"

    def decide(self, history: History) -> list[Step]:
        return [step for step in decide(history.job) if not isinstance(step, Effect)] if history.job.phase else []

    async def act(self, effect: Effect, standing: Standing) -> None:
        raise AssertionError(effect)

    async def attend(self, machine: Machine) -> None:
        await asyncio.Event().wait()

    def known(self) -> tuple[()]:
        return ()


def a_free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


async def asked(port: int, path: str) -> tuple[int, Any]:
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}{path}") as answer:
        return answer.status, await answer.json()


async def test_ready_once_the_log_was_folded_and_alive_before():
    journal = MemoryJournal()
    machine, port = Machine(Idle(), MemoryEventLog(journal, user="status")), a_free_port()
    async with health.serve(machine, lambda: True, "127.0.0.1", port):
        assert (await asked(port, "/healthz"))[0] == 200
        status, known = await asked(port, "/readyz")
        assert (status, known["ready"], known["position"]) == (503, False, 0)
        running = asyncio.create_task(machine.run())
        await until(lambda: machine.current, "the fold", seconds=5)
        status, known = await asked(port, "/readyz")
        assert (status, known["ready"], known["position"]) == (200, True, 1)
        assert known["service"] == "status"
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


async def test_trouble_with_the_log_is_told_and_is_not_ready():
    machine, port = Machine(Idle(), MemoryEventLog(MemoryJournal())), a_free_port()
    machine.current, machine.trouble = True, "append: no answer from the log"
    async with health.serve(machine, lambda: True, "127.0.0.1", port):
        status, known = await asked(port, "/readyz")
        assert (status, known["trouble"]) == (503, "append: no answer from the log")
        assert (await asked(port, "/healthz"))[0] == 200, "a restart would not help"


async def test_a_held_job_is_told_with_its_reason_and_the_rest_is_ready():
    journal = MemoryJournal()
    journal.append(
        Entry(subject="facts.team-a.resnet.uid-1.watcher.JobTeleported", event_id="e", time="", body=b"{}"), expect=0
    )
    machine, port = Machine(Idle(), MemoryEventLog(journal, user="status")), a_free_port()
    running = asyncio.create_task(machine.run())
    await until(lambda: machine.current, "the fold", seconds=5)
    async with health.serve(machine, lambda: False, "127.0.0.1", port):
        status, known = await asked(port, "/readyz")
        assert status == 200
        assert "upgrade" in known["held"]["team-a/resnet"]
        assert known["owner"] is False
        assert known["jobs"] == 2
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


async def test_the_port_is_closed_afterwards_and_port_nought_opens_none():
    machine, port = Machine(Idle(), MemoryEventLog(MemoryJournal())), a_free_port()
    async with health.serve(machine, lambda: True, "127.0.0.1", port):
        assert (await asked(port, "/healthz"))[0] == 200
    with suppress(aiohttp.ClientConnectorError):
        await asked(port, "/healthz")
        raise AssertionError("it still answers")
    async with health.serve(machine, lambda: True, "127.0.0.1", 0):
        pass
