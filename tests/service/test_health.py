"""Health: what probes hear; over real HTTP where the port itself is meant."""

import asyncio
import json
import socket
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any

import aiohttp
import pytest
import uvloop

from services.status.core.decide import decide
from shared.errors import Refused
from shared.eventlog import Entry
from shared.job.events.event import Author
from shared.job.fold import History
from shared.job.naming import JobKey
from shared.job.steps import Effect, Step
from shared.ports import free_port
from shared.process import health, serving
from shared.release import this_release
from shared.runtime.acts import Context
from shared.runtime.run import Runtime
from shared.telemetry.metrics import Count
from tests.kit.tasks import beside
from tests.kit.virtual_time import until
from tests.memory.eventlog import MemoryEventLog, MemoryJournal

pytestmark = pytest.mark.real_time


def has_ipv6() -> bool:
    with suppress(OSError), socket.socket(socket.AF_INET6) as tried:
        tried.bind(("::1", 0))
        return True
    return False


class Idle:
    """A service that has nothing to do."""

    author: Author = "status"

    def decide(self, history: History) -> list[Step]:
        return (
            [step for step in decide(history.job) if not isinstance(step, Effect)] if history.job.status.phase else []
        )

    async def act(self, effect: Effect, context: Context) -> None:
        raise AssertionError(effect)

    async def attend(self, runtime: Runtime) -> None:
        await asyncio.Event().wait()

    def known(self) -> tuple[()]:
        return ()

    def forget(self, key: JobKey) -> None:
        pass


def context(runtime: Runtime, *, owner: bool = True) -> health.Health:
    """A service that has all it needs and runs."""
    known = health.Health("status")
    known.trouble, known.runtime, known.owner, known.failing = "", runtime, lambda: owner, lambda: runtime.trouble
    return known


def answer(services: Sequence[health.Health], path: str, accept: str = "") -> tuple[int, str, bytes]:
    """The status, the content type and the body, as the port gives them once the next snapshot is there."""
    told = serving.Probes(
        lambda: [each.report() for each in services],
        lambda: (series for each in services for series in each.current_metrics()),
        lambda: "",
    )
    return told.answer(path, accept)


def heard(path: str, *services: health.Health) -> tuple[int, Any]:
    status, _, body = answer(services, path)
    return status, json.loads(body)


async def asked(port: int, path: str, host: str = "127.0.0.1") -> tuple[int, Any]:
    async with aiohttp.ClientSession() as session, session.get(f"http://{host}:{port}{path}") as answer:
        return answer.status, await answer.json()


async def test_ready_once_the_log_was_folded_and_alive_before():
    journal = MemoryJournal()
    runtime, port = Runtime(Idle(), MemoryEventLog(journal, user="status")), free_port()
    async with health.serve([context(runtime)], "127.0.0.1", port):
        assert (await asked(port, "/healthz"))[0] == 200
        status, known = await asked(port, "/readyz")
        assert (status, known["ready"], known["position"]) == (503, False, 0)
        async with beside(runtime.run()):
            await until(lambda: runtime.current, "the fold")
            # One that is not ready looks again sooner.
            await asyncio.sleep(2 * serving.SOON_SECONDS)
            status, known = await asked(port, "/readyz")
        assert (status, known["ready"], known["position"]) == (200, True, 1)
        assert (known["service"], known["version"]) == ("status", this_release())


async def test_trouble_with_the_log_is_told_and_is_not_ready():
    runtime = Runtime(Idle(), MemoryEventLog(MemoryJournal()))
    runtime.current, runtime.appends.trouble = True, "append: no answer from the log"
    answering = context(runtime)
    status, known = heard("/readyz", answering)
    assert (status, known["trouble"]) == (503, "append: no answer from the log")
    answering.failing = lambda: "append jobs.team-a.resnet.uid-1.status.JobRunning: no answer"
    assert heard("/readyz", answering)[1]["trouble"] == "append jobs.*: no answer"
    assert heard("/healthz", answering)[0] == 200, "a restart would not help"


async def test_a_held_job_is_told_with_its_reason_and_the_rest_is_ready():
    journal = MemoryJournal()
    journal.append(
        Entry(subject="facts.team-a.resnet.uid-1.watcher.JobTeleported", event_id="e", time="", body=b"{}"), expect=0
    )
    runtime = Runtime(Idle(), MemoryEventLog(journal, user="status"))
    async with beside(runtime.run()):
        await until(lambda: runtime.current, "the fold")
    answering = context(runtime, owner=False)
    status, known = heard("/readyz", answering)
    assert status == 200
    assert known["held"] == {"UnknownEvent": "1 job"}, "any pod may ask: no job is named"
    answering.names = True
    status, known = heard("/readyz", answering)
    assert "upgrade" in known["held"]["team-a/resnet"]
    assert known["owner"] is False
    assert known["jobs"] == 2


async def test_the_port_is_closed_afterwards_and_port_0_opens_none():
    runtime, port = Runtime(Idle(), MemoryEventLog(MemoryJournal())), free_port()
    async with health.serve([context(runtime)], "127.0.0.1", port):
        assert (await asked(port, "/healthz"))[0] == 200
    with suppress(aiohttp.ClientConnectorError):
        await asked(port, "/healthz")
        raise AssertionError("it still answers")
    async with health.serve([context(runtime)], "127.0.0.1", 0):
        pass


def test_before_it_runs_it_is_alive_and_says_what_it_waits_for():
    waiting = health.Health("status")
    assert heard("/healthz", waiting)[0] == 200
    waiting.trouble = "connect to nats://here: no server there"
    status, known = heard("/readyz", waiting)
    assert (status, known["ready"], known["trouble"]) == (503, False, "connect to nats://here: no server there")


async def test_several_services_of_one_process_are_ready_together():
    runtime = Runtime(Idle(), MemoryEventLog(MemoryJournal()))
    runtime.current = True
    running, waiting = context(runtime), health.Health("scaler")
    status, known = heard("/readyz", running, waiting)
    assert (status, [each["ready"] for each in known["services"]]) == (503, [True, False])
    waiting.runtime, waiting.trouble = runtime, ""
    assert heard("/readyz", running, waiting)[0] == 200


async def test_a_port_that_is_taken_is_said_in_one_sentence():
    port = free_port()
    async with health.serve([health.Health("status")], "127.0.0.1", port):
        with pytest.raises(Refused, match="MUSTER_HEALTH_PORT"):
            async with health.serve([health.Health("scaler")], "127.0.0.1", port):
                pass


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 loopback")
@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_without_a_host_it_answers_at_the_addresses_of_both_families(run: Callable[[Coroutine[Any, Any, None]], None]):
    async def both() -> None:
        port = free_port()
        async with health.serve([health.Health("status")], "", port):
            for host in ("127.0.0.1", "[::1]"):
                assert (await asked(port, "/healthz", host))[0] == 200

    run(both())


async def test_jobs_that_wait_for_a_budget_are_counted_and_named_on_request_alone():
    known = context(Runtime(Idle(), MemoryEventLog(MemoryJournal())))
    known.metrics.waiting.update({("team-a", "memory"): 2, ("team-b", "memory"): 1, ("team-b", "room"): 4})
    jobs, room = known.report().warnings
    assert jobs.startswith("3 jobs wait to be taken on")
    assert "room in the log" in room
    known.names = True
    assert known.report().warnings[0].startswith("team-a, team-b: 3 jobs")
    (waiting,) = (each for each in known.current_metrics() if each.metric is health.WAITING)
    assert isinstance(waiting, Count)
    assert waiting.values["status", "team-b", "room"] == 4
    known.owner = lambda: False
    assert known.report().warnings == (), "a replica that lost its lease tells nothing of what it had waiting"
