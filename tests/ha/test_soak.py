"""The soak sees a process that grows, tells no slope of one that hardly lived, and takes no time that is none."""

from collections.abc import Callable

import msgspec
import pytest

from shared.eventlog import Stored
from shared.job.fold import History
from shared.job.naming import JobKey, Uid
from tests.ha import soak
from tests.ha.lives import Life, Sample
from tests.ha.strikes import APISERVER, PAUSE_SECONDS
from tests.kit.builders import a_running_job
from tests.kit.histories import stored

LASTING = soak.COURSE.spared[0]


def a_life(name: str, minutes: int, resident: Callable[[float], float]) -> Life:
    """One look every six seconds; `resident` has MiB by the minute."""
    looks = range(10 * minutes + 1)
    return Life(name, 1, [Sample(look * 6.0, resident(look / 10), 30) for look in looks])


def jumps(minute: float) -> float:
    """MiB by which single looks are beside the line."""
    return 0.5 if int(minute * 10) % 2 else -0.5


@pytest.mark.parametrize(
    ("resident", "slope"),
    [
        pytest.param(lambda minute: 60 + minute / 30 + jumps(minute), 2.0, id="it grows"),
        pytest.param(lambda minute: min(60 + minute, 75) + jumps(minute), 0.0, id="it grows while it is young"),
        pytest.param(lambda minute: 60 - minute / 60, -1.0, id="it shrinks"),
    ],
)
def test_the_slope_is_that_of_the_second_half_of_a_life(resident: Callable[[float], float], slope: float):
    assert soak.slope(a_life(LASTING, 30, resident).samples) == pytest.approx(slope, abs=0.1)


def test_a_process_that_grows_misses_the_goal_and_one_that_is_steady_does_not():
    grows, steady = a_life(LASTING, 30, lambda minute: 60 + minute), a_life("n2", 30, lambda _: 40)
    words = f"missed: {LASTING} grew by 60.0 MiB an hour, 20.0 without histories, and the goal is < 1"
    assert soak.verdict([grows, steady], 40.0) == words
    assert (
        soak.verdict([grows, steady], 59.5)
        == f"Without their histories these grew by less than 1 MiB an hour: {LASTING}."
    )


def test_a_process_that_was_to_live_through_and_did_not_is_a_miss():
    lives = [a_life(LASTING, 2, lambda _: 60), a_life(LASTING, 28, lambda minute: 60 + minute)]
    assert soak.verdict(lives, 0.0) == f"missed: {LASTING} was to live through, and lived 2 times"


def test_a_short_life_has_no_slope():
    short = a_life(LASTING, 15, lambda minute: 60 + minute)
    assert soak.slope(short.samples) is None
    assert soak.verdict([short], 0.0).endswith("no slope is told.")


def test_lives_under_one_name_are_one_line_and_have_no_slope():
    lives = [a_life("scaler-0", 1, lambda _: 50), a_life("scaler-0", 25, lambda minute: 50 + minute)]
    lines = soak.table([*lives, a_life(LASTING, 25, lambda _: 60)], 4.0).splitlines()
    assert [line.split(" | ")[0] for line in lines[2:]] == [f"| {LASTING}", "| scaler-0"]
    assert lines[3].split(" | ")[1:] == ["2", "25 min", "64.0", "73.5", "75.0", "", "", "30", "30 |"]


def test_what_the_histories_of_a_log_take_grows_with_its_jobs():
    """One job a second: of each, a history has some KiB."""

    def a_log(jobs: int) -> list[Stored]:
        log = list[Stored]()
        for job in range(jobs):
            history = History(JobKey("team-a", f"job-{job}", Uid(f"uid-{job}")))
            for event in a_running_job(workers=2):
                time = f"2030-01-01T00:{job // 60:02}:{job % 60:02}Z"
                one = stored(history, event, sequence=len(log) + 1)
                log.append(msgspec.structs.replace(one, time=time))
                history.fold(log[-1])
        return log

    few = soak.growth_of_histories(a_log(60))
    assert 5 * 3_600 / 1_024 < few < 50 * 3_600 / 1_024
    assert soak.growth_of_histories(a_log(120)) == pytest.approx(few, rel=0.2)


def test_the_strikes_fit_into_the_time_and_strike_all_kinds():
    strikes = soak.strikes_of(1_800.0, seed=0)
    assert len(strikes) == 60
    assert {strike.how for strike in strikes} == {"kill", "pause", "stop"}
    assert sum(strike.service == APISERVER for strike in strikes) == 6
    assert len(soak.strikes_of(60.0, seed=0)) == 2
    assert soak.EVERY_SECONDS > PAUSE_SECONDS


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["--hours=0"], id="none"),
        pytest.param(["--minutes=-5"], id="less than none"),
        pytest.param(["--hours=25"], id="more than the checks hold"),
        pytest.param(["--hours=nan"], id="no number"),
        pytest.param(["--hours=a day"], id="words"),
        pytest.param(["--hours=1", "--minutes=1"], id="two times"),
        pytest.param(["--seed=one"], id="a seed in words"),
    ],
)
def test_a_time_that_is_none_is_refused_in_one_line(words: list[str], capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as refused:
        soak.main(words)
    assert refused.value.code == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
