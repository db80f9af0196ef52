"""What people are told of a training that reports: by `muster get`, by `muster why` and as events."""

from shared.job.events.scaler import HostsPublished
from shared.job.events.watcher import CheckpointTaken, ProgressReported
from shared.job.naming import Uid
from shared.telling.causes.sentences import sentence
from shared.telling.shown import Shown
from shared.telling.targets import known_kinds
from shared.telling.why import _progress
from tests.kit.builders import a_running_job
from tests.kit.histories import a_history

POD = Uid("pod-1")
AT_120 = ProgressReported(
    pod=POD, attempt=0, step=120, total=1000, percentage=12, remaining=440, metrics=(("loss", "0.37"),)
)
TAKEN = CheckpointTaken(step=100, pod=POD, source="Report")
REGROUPED = HostsPublished(version=2, members=((0, 0),), because=1)
AGAIN = ProgressReported(pod=POD, attempt=0, step=101)


def test_muster_get_notes_how_far_a_job_is_that_waits_for_nothing():
    shown = Shown.of(a_history([*a_running_job(2), AT_120]), known_kinds())
    assert shown.note == "step 120 of 1000 (12 %)"


def test_muster_why_says_how_far_it_is_and_what_an_end_would_cost():
    (said,) = _progress(a_history([*a_running_job(2), AT_120, TAKEN]).job)
    assert said.startswith("its training was at step 120 of 1000 (12 %) at ")
    assert said.endswith(
        "; loss 0.37; about 440 s are left; its newest checkpoint is of step 100, 20 steps before that"
    )


def test_a_job_that_reports_nothing_is_told_as_before():
    assert not [*_progress(a_history(a_running_job(2)).job)]


def test_the_first_step_after_a_change_says_what_the_change_cost():
    before = a_history([*a_running_job(2), AT_120, REGROUPED]).job
    after = a_history([*a_running_job(2), AT_120, REGROUPED, AGAIN]).job
    told = sentence(AGAIN, before, after)
    assert told.startswith("the group trains again at step 101 of 1000 (12 %), 19 steps back: ")
    assert told.endswith(" s after it changed")
    # As `transformers` and `muster.train` report: their process begins anew.
    begun = [*a_running_job(2), AT_120, REGROUPED, ProgressReported(pod=POD, attempt=0, percentage=0, total=1000)]
    told = sentence(AGAIN, a_history(begun).job, a_history([*begun, AGAIN]).job)
    assert told.startswith("the group trains again at step 101 of 1000, 19 steps back: ")
    assert sentence(AT_120, a_history(a_running_job(2)).job, a_history([*a_running_job(2), AT_120]).job) == (
        "the training is at step 120 of 1000 (12 %)"
    )
