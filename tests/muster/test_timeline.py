"""`muster timeline`: a lane for each place, in the width of the terminal."""

from collections.abc import Iterable

import pytest

from shared.frameworks.kinds import BUILT_IN
from shared.job.events.catalog import AnyEvent
from shared.job.events.watcher import JobGone, NodeBack, NodeLost
from shared.job.fold import History
from shared.job.naming import Uid
from shared.telling.report import reported
from shared.telling.timeline import timeline
from tests.kit.builders import a_created_job, a_running_job, a_spec, observed, pods, worker
from tests.kit.histories import KEY, stored

WIDTH = 100


def drawn(*events: AnyEvent, coloured: bool = False) -> list[str]:
    """The timeline of these events, one a second."""
    history, log = History(KEY), []
    for event in events:
        log.append(stored(history, event))
        history.fold(log[-1])
    return [*timeline(reported(history, log, BUILT_IN, until=log[-1].time), WIDTH, coloured=coloured)]


def lanes(lines: Iterable[str]) -> dict[str, str]:
    return {line[:12].rstrip(): line[12:] for line in lines if line.startswith(("worker", "launcher"))}


def quiet(seconds: int) -> list[AnyEvent]:
    return [observed(a_spec(2))] * seconds


def test_places_that_did_the_same_share_a_lane_and_a_lane_fills_the_width():
    lines = drawn(*a_running_job(2), *quiet(100))
    assert [*lanes(lines)] == ["launcher 0", "worker 0-1"]
    assert all(len(lane) == WIDTH - 12 for lane in lanes(lines).values())
    assert lanes(lines)["worker 0-1"].endswith("#" * 70)


def test_a_loss_of_a_second_in_an_hour_shows():
    uids = (Uid("pod-1"),)
    blink = [NodeLost(node="gpu-7", uids=uids, reason="NodeUnreachable"), NodeBack(node="gpu-7", uids=uids)]
    lines = drawn(*a_running_job(2), pods(worker(1, version=12, node="gpu-7")), *quiet(1800), *blink, *quiet(1800))
    assert lanes(lines)["worker 1"].count("x") == 1
    assert "x" not in lanes(lines)["worker 0"]


def test_the_legend_has_the_time_of_each_bucket_and_no_other():
    lines = drawn(*a_created_job(2), *quiet(10))
    legend = lines[lines.index("", 2) + 1 :]
    assert [line[0] for line in legend] == [".", "g"]
    assert legend[0].endswith("70 %  waited for a node")


@pytest.mark.parametrize("events", [[observed(a_spec(2))], [JobGone(version=3)]], ids=["not taken on", "gone"])
def test_a_job_that_held_no_place_says_so(events: list[AnyEvent]):
    assert drawn(*events)[-1] == "it has held no place yet"


def test_colours_change_no_sign():
    plain, coloured = (drawn(*a_running_job(2), coloured=each) for each in (False, True))
    assert plain != coloured
    stripped = [line.replace("\x1b[0m", "") for line in coloured]
    for code in (31, 32, 33, 35, 36, 90):
        stripped = [line.replace(f"\x1b[{code}m", "") for line in stripped]
    assert stripped == plain
