"""Telling of risks: a warning each, once; and whatever goes wrong with the looking ends nothing."""

import asyncio

from structlog.testing import capture_logs

from shared.errors import Transient
from shared.eventlog.inspection import LATEST_SECONDS, SOONEST_SECONDS, Look, Room
from shared.process.health import Health, warn_unmonitored, watch_risks


async def test_each_risk_is_told_once_and_what_goes_wrong_with_a_look_ends_nothing():
    room = Room("JOBS", used=7, most=0, remedy="")
    answers: list[Look | Exception] = [
        AttributeError("a bug of ours"),
        Look(["one copy"], [room]),
        Transient("the log cannot be asked"),
        Look(["one copy"], [room]),
        Look([], []),
    ]

    async def look() -> Look:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    health = Health("status")
    with capture_logs() as said:
        telling = asyncio.create_task(watch_risks(health, look, 0.1))
        await asyncio.sleep(2 * SOONEST_SECONDS + 1.5 * LATEST_SECONDS)
        assert (health.warnings, health.rooms) == (("one copy",), (room,))
        await asyncio.sleep(LATEST_SECONDS)
        assert (health.warnings, health.rooms) == ((), ())
        assert not telling.done()
        telling.cancel()
    assert [line["event"] for line in said] == ["risks not known", "log at risk", "log no longer at risk"]


def test_without_a_monitor_the_disk_is_unknown_and_that_is_told():
    with capture_logs() as said:
        warn_unmonitored(())
        warn_unmonitored(("http://127.0.0.1:8222",))
    (line,) = said
    assert line["log_level"] == "warning"
    assert "NATS_MONITOR" in line["why"]
