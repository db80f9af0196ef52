"""Ends that were seen stay seen: what vanishes afterwards, or was short before anybody counted, changes no verdict."""

import pytest

from shared.job.events.event import EffectRefused
from shared.job.events.scheduler import SlotsAssigned
from shared.job.events.status import JobRunning
from shared.job.events.watcher import LauncherLost, PodsGone, TimePassed
from shared.job.policies.verdict import verdict
from shared.job.spec import LAUNCHER
from shared.job.timing import next_due
from shared.job.views import Slots, ended
from tests.kit.builders import (
    a_ready_job,
    a_running_job,
    exited,
    hosts_file,
    launcher,
    pods,
    published,
    worker,
)
from tests.kit.histories import a_history, stored
from tests.kit.stories import given

UID = launcher().uid


@pytest.mark.parametrize(
    ("code", "phase", "success"),
    [pytest.param(0, "Succeeded", True, id="well"), pytest.param(3, "Failed", False, id="badly")],
)
def test_a_launcher_that_ended_and_is_removed_before_the_end_was_decided_ended_all_the_same(
    code: int, phase: str, success: bool
):
    end = launcher(version=30, phase=phase, exits=exited(code))
    found = verdict(given(*a_running_job(), pods(end), PodsGone(uids=(UID,))).job)
    assert found == verdict(given(*a_running_job(), pods(end)).job)
    assert found is not None
    assert found.success is success


def test_an_end_that_was_seen_stands_when_the_launcher_is_deleted_afterwards():
    story = [*a_running_job(), pods(launcher(version=30, phase="Succeeded", exits=exited(0)))]
    deleted = pods(launcher(version=31, phase="Succeeded", exits=exited(0), deleting=True))
    for then in ([deleted], [deleted, PodsGone(uids=(UID,))]):
        assert verdict(given(*story, *then).job) == verdict(given(*story).job)


def test_the_end_of_its_training_container_counts_though_a_sidecar_still_ran_when_it_vanished():
    end = launcher(version=30, exits=exited(0))
    assert not ended(end)
    found = verdict(given(*a_running_job(), pods(end), LauncherLost(uid=UID)).job)
    assert found is not None
    assert found.success


def test_a_worker_lost_while_the_launcher_starts_counts_once_the_job_runs():
    story = given(
        *a_ready_job(workers=2, least=2),
        published(1, 0, 1),
        hosts_file(1),
        SlotsAssigned(slots=(Slots(0, LAUNCHER, ((0, 0),)),), reason="WorkersReady"),
        pods(worker(1, version=25, phase="Failed", exits=exited(1))),
        pods(launcher()),
        JobRunning(reason="TrainingJobRunning"),
    )
    assert [timer.name for timer in next_due(story.job)] == ["BelowMinimum"]


def test_what_is_refused_again_and_again_leaves_nothing_behind():
    history = a_history(a_running_job())
    for _ in range(100):
        history.fold(stored(history, EffectRefused(effect="PatchStatus", reason="Forbidden")))
        history.fold(stored(history, TimePassed(anchor=history.sequence, timer="BackOff:PatchStatus")))
        assert next_due(history.job) == ()
    assert not history.job.efforts.timers_passed
    assert history.job.efforts.refusals["PatchStatus"].count == 100
