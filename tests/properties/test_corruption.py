"""A log in which one bit is another, or whose newest events are lost: no service takes a step on it unseen.

What is asked: the next decision of a service that read the log as it was is not confirmed by the damaged one, so that
the job is held. The other way round is the same: a decision on the damaged log is not confirmed by anybody else.
`MUSTER_FLIPS=10000` asks it more often.
"""

import os
import random
from typing import Any

import msgspec
import pytest

from shared.eventlog import Stored
from shared.job.chain import START
from shared.job.events.status import JobRestarting
from shared.job.fold import History
from tests.kit.histories import KEY, folded, stored
from tests.properties.test_laws import a_life

FLIPS = int(os.environ.get("MUSTER_FLIPS", "500"))
PARTS = ("subject", "event_id", "time", "body")


def flipped(event: Stored, chance: random.Random) -> Stored:
    """The event with one other bit."""
    part = chance.choice(PARTS)
    value = getattr(event, part)
    raw = bytearray(value if part == "body" else value.encode())
    # Of text one of seven bits, so that it stays text.
    raw[chance.randrange(len(raw))] ^= 1 << chance.randrange(8 if part == "body" else 7)
    return msgspec.structs.replace(event, **{part: bytes(raw) if part == "body" else raw.decode()})


def is_held(log: list[Stored]) -> bool:
    """True if no service acts on the job after it has read these events."""
    return bool(folded(log)[KEY].held)


@pytest.fixture(scope="module")
def log() -> list[Stored]:
    """The events of a life, and one decision more."""
    events = a_life(7).log
    history = History(KEY)
    for event in events:
        history.fold(event)
    assert not history.held
    return [*events, stored(history, JobRestarting(reason="RestartRequested"))]


def test_the_log_as_it_was_is_confirmed(log: list[Stored]):
    assert not is_held(log)


def test_one_other_bit_holds_the_job(log: list[Stored]):
    chance = random.Random(1)
    for number in range(FLIPS):
        at = chance.randrange(len(log) - 1)
        damaged = [*log[:at], flipped(log[at], chance), *log[at + 1 :]]
        assert is_held(damaged), f"flip {number}: {damaged[at]} instead of {log[at]}"


def test_events_that_are_lost_hold_the_job(log: list[Stored]):
    for lost in range(1, len(log) - 1):
        assert is_held([*log[: -lost - 1], log[-1]]), f"the newest {lost} are lost"
        assert is_held([*log[: lost - 1], *log[lost:]]), f"the event {lost} is lost"


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"basis": "0:" + START.hex()}, id="basis"),
        pytest.param({"optional": True}, id="optional"),
        pytest.param({"source": "urn:uuid:another#watcher"}, id="source"),
        pytest.param({"type": "dev.muster.JobGone"}, id="type"),
    ],
)
def test_all_that_an_event_is_enters_the_chain(log: list[Stored], changed: dict[str, Any]):
    for at, event in enumerate(log[:-1]):
        damaged = [*log[:at], msgspec.structs.replace(event, **changed), *log[at + 1 :]]
        assert is_held(damaged), event


def test_events_at_other_sequences_hold_the_job(log: list[Stored]):
    """The newest ones, whose sequences no basis names yet, moved by one."""
    for at in range(1, len(log) - 1):
        moved = [msgspec.structs.replace(event, sequence=event.sequence + 1) for event in log[at:]]
        assert is_held([*log[:at], *moved]), at
