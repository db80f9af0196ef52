"""`muster history`: looking back, and what is refused."""

import json

import pytest
import typer

from muster.history import as_json_text, until
from tests.kit.builders import a_running_job, scaling_out
from tests.kit.histories import a_history, stored


@pytest.mark.parametrize(
    ("at", "there"),
    [
        pytest.param("1", True, id="its own sequence"),
        pytest.param("0", False, id="an earlier sequence"),
        pytest.param("2100-01-01T00:00:00Z", True, id="a later time"),
        pytest.param("2000-01-01T00:00:00Z", False, id="an earlier time"),
        pytest.param("2000-01-01", False, id="a date is its midnight, UTC"),
    ],
)
def test_a_moment_is_a_sequence_or_a_time(at: str, there: bool):
    assert until(at)(stored(a_history([]), a_running_job()[0], sequence=1)) is there


def test_a_time_of_another_zone_is_the_same_moment():
    event = stored(a_history([]), a_running_job()[0], sequence=1)
    zulu = event.time[:19]
    assert until(f"{zulu}.999+00:00")(event)
    assert not until(f"{zulu}.999+02:00")(event)
    assert until(f"{zulu}-02:00")(event)


def test_what_is_no_moment_is_wrong_usage():
    with pytest.raises(typer.BadParameter, match="'yesterday'"):
        until("yesterday")


def test_the_state_of_a_job_that_scales_can_be_shown():
    job = a_history([*a_running_job(workers=2), *scaling_out(2, 3)]).job
    shown = json.loads(as_json_text(job))
    assert shown["phase"] == job.phase
    assert len(shown["pods"]) == len(job.pods)
    assert len(shown["slots"]) == len(job.attempt.slots)
