"""Who is in the hosts files."""

from services.scaler.core.effects import WriteHosts
from shared.job.events.event import EffectRefused
from shared.job.events.scheduler import JobRestarted
from shared.job.events.status import JobRestarting
from shared.job.events.watcher import PodsGone, TimePassed
from shared.job.naming import Uid
from shared.job.spec import Elasticity
from shared.job.steps import Record
from tests.kit.builders import (
    a_created_job,
    a_ready_job,
    a_running_job,
    exited,
    hosts_file,
    pods,
    published,
    service,
    worker,
)
from tests.kit.stories import given, scaler


def test_no_worker_is_a_member_until_all_are_ready():
    given(*a_created_job(workers=2), service(), pods(worker(0))).then_nothing(scaler)


def test_the_first_members_are_all_workers():
    given(*a_ready_job(workers=2)).then(scaler, Record(published(1, 0, 1)))


def test_fewer_than_the_minimum_are_no_first_members_although_the_job_has_no_others_left():
    story = a_created_job(workers=3, least=2, of_workers="OnFailure", elasticity=Elasticity())
    lost = [worker(index, phase="Failed", exits=exited(1)) for index in (1, 2)]
    given(*story, service(), pods(worker(0), *lost)).then_nothing(scaler)


def test_a_lost_worker_leaves_the_hosts_files_at_once():
    given(*a_running_job(workers=3), PodsGone(uids=(Uid("pod-1"),))).then(scaler, Record(published(2, 0, 2)))


def test_a_failed_worker_leaves_the_hosts_files_at_once():
    given(*a_running_job(workers=2), pods(worker(0, version=30, phase="Failed"))).then(scaler, Record(published(2, 1)))


def test_not_being_ready_for_a_while_does_not_cost_membership():
    given(*a_running_job(workers=2), pods(worker(0, version=30, ready=False))).then_nothing(scaler)


def test_older_hosts_files_are_written_over():
    given(*a_running_job(workers=2), published(2, 0)).then_among_others(scaler, WriteHosts(2, (0,)))


def test_hosts_files_that_a_lost_history_wrote_are_followed_by_newer_ones():
    given(*a_running_job(workers=2), hosts_file(7)).then_among_others(scaler, Record(published(8, 0, 1)))


def test_hosts_files_that_an_earlier_attempt_left_unwritten_are_not_written_without_members():
    # The next ones come once the workers of this attempt are Ready.
    ended = [JobRestarting(reason="LauncherLost"), PodsGone(uids=tuple(map(Uid, ("pod-0", "pod-1", "launcher"))))]
    given(*a_running_job(workers=2), published(2, 0), *ended, JobRestarted(attempt=1)).then_nothing(scaler)


def test_a_refused_write_waits_for_its_back_off():
    refused = [*a_ready_job(workers=2), published(1, 0, 1), EffectRefused(effect="WriteHosts", reason="NameConflict")]
    given(*refused).then_nothing(scaler)
    given(*refused, TimePassed(anchor=len(refused), timer="BackOff:WriteHosts")).then(scaler, WriteHosts(1, (0, 1)))
