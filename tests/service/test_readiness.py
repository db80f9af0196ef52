"""Looking after readiness: one line for one trouble, a reminder now and then, and no storm of looks."""

import asyncio

from structlog.testing import capture_logs

from shared.cluster.examination import Unfinished
from shared.errors import Refused, Transient, Trouble
from shared.process.health import EVERY_SECONDS, LONGEST_WAIT_SECONDS, REMIND_SECONDS, Health, Reminder, look_after
from tests.kit.virtual_time import until


class Outside:
    """What a service needs; each look is counted."""

    def __init__(self) -> None:
        self.wrong: Trouble | str = ""
        self.looks: list[float] = []
        self.alarm = asyncio.Event()
        self.health = Health("status")
        self.health.trouble = ""
        self.looking = asyncio.create_task(look_after(self.health, self.alarm, self.look))

    async def look(self) -> None:
        self.looks.append(asyncio.get_running_loop().time())
        if isinstance(self.wrong, Trouble):
            raise self.wrong
        if self.wrong:
            raise Refused(self.wrong, reason="Missing")

    def fails(self, wrong: Trouble | str) -> None:
        """From now on it is wrong, and the alarm is set."""
        self.wrong = wrong
        self.alarm.set()


async def test_it_looks_now_and_then_without_a_word():
    outside = Outside()
    with capture_logs() as said:
        await asyncio.sleep(10 * EVERY_SECONDS)
    assert 8 <= len(outside.looks) <= 10
    assert said == []
    outside.looking.cancel()


async def test_a_trouble_is_said_once_and_again_after_a_minute_and_so_is_its_end():
    outside = Outside()
    with capture_logs() as said:
        outside.fails("no definitions")
        await until(lambda: outside.health.trouble == "no definitions")
        await asyncio.sleep(30)
        assert [line["event"] for line in said] == ["not ready"]
        await asyncio.sleep(60)
        assert [line["event"] for line in said] == ["not ready", "not ready"]
        outside.wrong = ""
        await until(lambda: not outside.health.trouble, seconds=LONGEST_WAIT_SECONDS + 1)
        assert [line["event"] for line in said] == ["not ready", "not ready", "ready again"]
    outside.looking.cancel()


async def test_another_trouble_is_said_at_once():
    outside = Outside()
    with capture_logs() as said:
        outside.fails("no definitions")
        await until(lambda: bool(outside.health.trouble))
        outside.wrong = "no permissions"
        await until(lambda: outside.health.trouble == "no permissions", seconds=LONGEST_WAIT_SECONDS + 1)
        assert [line["why"] for line in said] == ["no definitions", "no permissions"]
    outside.looking.cancel()


async def test_a_look_that_is_unfinished_is_no_trouble_and_ends_what_may_have_passed():
    outside = Outside()
    with capture_logs() as said:
        outside.fails(Transient("it does not answer"))
        await until(lambda: bool(outside.health.trouble))
        outside.wrong = Unfinished("it answers, but not every question")
        await until(lambda: not outside.health.trouble, seconds=LONGEST_WAIT_SECONDS + 1)
        await asyncio.sleep(10 * EVERY_SECONDS)
        assert [line["event"] for line in said] == ["not ready", "ready again"]
    assert len(outside.looks) <= 13
    outside.looking.cancel()


async def test_what_is_missing_stays_so_while_looks_are_unfinished():
    outside = Outside()
    outside.fails("no definitions")
    await until(lambda: bool(outside.health.trouble))
    outside.wrong = Unfinished("it answers, but not every question")
    await asyncio.sleep(EVERY_SECONDS)
    assert outside.health.trouble == "no definitions"
    outside.wrong = ""
    await until(lambda: not outside.health.trouble, seconds=LONGEST_WAIT_SECONDS + 1)
    outside.looking.cancel()


async def test_tries_become_rarer_and_stay_often_enough():
    outside = Outside()
    outside.fails("no definitions")
    await asyncio.sleep(60)
    pauses = [later - earlier for earlier, later in zip(outside.looks, outside.looks[1:], strict=False)]
    assert pauses[:4] == [0.5, 1.0, 2.0, 4.0]
    assert set(pauses[4:]) == {LONGEST_WAIT_SECONDS}
    outside.looking.cancel()


async def test_a_thousand_failures_of_one_job_bring_few_looks():
    outside = Outside()
    for _ in range(1000):
        outside.alarm.set()
        await asyncio.sleep(0.05)
    assert len(outside.looks) <= 12
    outside.looking.cancel()


async def test_what_fails_while_it_rests_is_looked_at_afterwards():
    outside = Outside()
    outside.alarm.set()
    await until(lambda: len(outside.looks) == 1)
    await asyncio.sleep(0.1)
    outside.fails("no permissions")
    await until(lambda: bool(outside.health.trouble), seconds=10)
    outside.looking.cancel()


async def test_a_lost_connection_needs_no_alarm():
    outside = Outside()
    outside.health.connected = lambda: False
    await until(lambda: len(outside.looks) == 1, seconds=3)
    outside.looking.cancel()


async def test_what_the_log_refuses_is_a_trouble_until_it_takes_it():
    outside = Outside()
    with capture_logs() as said:
        outside.health.failing = lambda: "the log is full"
        await asyncio.sleep(10)
        assert outside.health.trouble == "the log is full"
        outside.health.failing = lambda: ""
        await until(lambda: not outside.health.trouble, seconds=LONGEST_WAIT_SECONDS + 1)
    assert [line["event"] for line in said] == ["not ready", "ready again"]
    outside.looking.cancel()


async def test_the_same_trouble_is_one_line_a_minute_and_a_new_one_a_line_at_once():
    reminder, loop = Reminder(), asyncio.get_running_loop()
    began = loop.time()
    with capture_logs() as lines:
        while loop.time() < began + 2.5 * REMIND_SECONDS:
            reminder.remind("no connection")
            await asyncio.sleep(2.0)
        reminder.remind("wrong password")
        reminder.over()
        reminder.remind("wrong password")
    told = [*["no connection"] * 3, *["wrong password"] * 2]
    assert [(line["event"], line["why"]) for line in lines] == [("not ready", why) for why in told]
