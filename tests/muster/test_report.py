"""`muster report`: the whole life of a job in one document, and in blocks of lines."""

import msgspec
import pytest

from muster.asking import report_of
from shared.errors import Refused
from shared.frameworks.kinds import BUILT_IN
from shared.job.events.catalog import AnyEvent
from shared.job.events.scaler import WorkersReleased
from shared.job.events.scheduler import JobRestarted, SlotsAssigned
from shared.job.events.status import JobFailed, JobRestarting, JobSuspended, JobSuspending
from shared.job.events.watcher import JobDeleting, JobGone, JobObserved, PodsGone, PodsObserved
from shared.job.naming import Uid
from shared.job.views import Actor, Exit
from shared.telling.report import Report, report_lines
from shared.telling.targets import parse_target
from tests.kit.builders import (
    a_created_job,
    a_running_job,
    a_spec,
    exited,
    observed,
    pods,
    scaling_out,
    worker,
    workers,
)
from tests.memory.eventlog import MemoryEventLog
from tests.muster.test_get import Log

EDIT = Actor("kubectl-edit", "Update")


@pytest.fixture
def log() -> Log:
    return Log()


async def of(log: Log, name: str = "resnet") -> Report:
    asked = parse_target(f"trainingjob/{name}")
    return await report_of(MemoryEventLog(log.journal), asked, "team-a", BUILT_IN)


def begun() -> list[AnyEvent]:
    return begun_with(2)


def begun_with(size: int) -> list[AnyEvent]:
    first, *later = a_running_job(size)
    assert isinstance(first, JobObserved)
    return [msgspec.structs.replace(first, by=(EDIT,)), *later]


async def test_each_phase_has_its_time_and_the_newest_lasts(log: Log):
    log.add(*begun())
    report = await of(log)
    created, running = report.phases
    assert (created.phase, running.phase) == ("Created", "Running")
    assert created.until == running.since
    assert created.seconds == running.sequence - created.sequence
    assert (running.until, running.seconds) == ("", None)
    assert report.job.phase == "Running"


async def test_a_restart_begins_an_attempt_and_a_lost_worker_is_a_failure(log: Log):
    failed = PodsObserved(pods=(worker(1, version=30, phase="Failed", exits=exited(1)),))
    log.add(*begun(), failed, JobRestarting(reason="WorkerFailed"), JobRestarted(attempt=1, reason="WorkerFailed"))
    report = await of(log)
    first, second = report.attempts
    assert (first.number, first.pods, first.reason, first.counted) == (1, 3, "", False)
    assert (second.number, second.pods, second.reason, second.counted) == (2, 0, "WorkerFailed", True)
    assert first.until == report.phases[-1].since
    (loss,) = report.failures
    assert (loss.pod, loss.code) == ("resnet-worker-1", 1)


async def test_a_scaling_has_its_sizes_and_its_author_and_lasts_until_it_is_over(log: Log):
    log.add(*begun(), *scaling_out(2))
    (scaling,) = (await of(log)).scalings
    assert (scaling.kind, scaling.before, scaling.after) == ("ScaleOut", 2, 3)
    assert scaling.by == ()
    assert (scaling.until == "") is (scaling.phase == "Scaling")


async def test_changes_name_their_authors_and_no_one_where_none_is_known(log: Log):
    log.add(*begun(), JobGone(version=90))
    applied, deleted = (await of(log)).changes
    assert applied.by == (EDIT,)
    assert (deleted.by, deleted.change) == ((), "it was deleted")


async def test_a_job_that_is_gone_has_ended_its_last_phase_and_its_last_attempt(log: Log):
    log.add(*begun(), JobFailed(reason="TrainingJobFailed", message="exited with 1"), JobGone(version=90))
    report = await of(log)
    assert report.phases[-1].phase == "Failed"
    assert report.phases[-1].until
    assert report.attempts[-1].until == report.phases[-1].since


async def test_another_job_of_the_log_is_left_out(log: Log):
    log.add(*begun(), JobGone(version=90))
    before = await of(log)
    log.add(*begun(), name="other", uid="uid-9")
    assert msgspec.structs.replace(await of(log), until=before.until) == before
    with pytest.raises(Refused, match="knows no TrainingJob"):
        await of(log, "none")


async def test_its_blocks_name_what_there_is_and_json_has_all_of_it(log: Log):
    log.add(*begun())
    report = await of(log)
    heading, *lines = report_lines(report, as_json=False)
    assert heading == "trainingjob/resnet (uid-1): Running"
    headings = [line.split() for line in lines if line.startswith(("SEQUENCE", "FOR"))]
    assert [heading[2 if heading[0] == "FOR" else 3] for heading in headings] == [
        "PHASE",
        "ATTEMPT",
        "PLACES",
        "CHANGE",
    ]
    assert any("kubectl-edit" in line for line in lines)
    assert msgspec.json.decode("".join(report_lines(report, as_json=True)), type=Report) == report


async def test_control_characters_that_people_wrote_stay_in_one_line(log: Log):
    log.add(*begun(), JobFailed(reason="X", message="one\ntwo"), SlotsAssigned(slots=(workers(0),)))
    assert all("\n" not in line for line in report_lines(await of(log), as_json=False))


@pytest.mark.parametrize("deletion", [JobGone(version=90), JobDeleting(version=90)])
async def test_the_pods_of_a_deleted_job_end_with_it_and_are_no_failures(log: Log, deletion: AnyEvent):
    killed = worker(1, version=90, phase="Failed", exits=exited(137, "Error"), deleting=True)
    log.add(*begun(), deletion, pods(killed), PodsGone(uids=(Uid("pod-0"),)))
    assert (await of(log)).failures == ()


@pytest.mark.parametrize(
    ("last", "told_of"),
    [
        pytest.param({"exits": exited(0, "Completed"), "phase": "Succeeded"}, "", id="a worker that exited with 0"),
        pytest.param({"exits": exited(143, "Error"), "deleting": True}, "was deleted (exit code 143)", id="deleted"),
        pytest.param({"exits": exited(0, "Completed"), "deleting": True}, "was deleted (exit code 0)", id="well"),
        pytest.param({"exits": exited(2, "Error")}, "exited with 2 (Error)", id="failed"),
    ],
)
async def test_a_failure_is_a_failed_or_a_deleted_worker(log: Log, last: dict[str, object], told_of: str):
    log.add(*begun(), pods(worker(1, **{"version": 90, "phase": "Failed"} | last)))  # type: ignore[arg-type]
    lines = [*report_lines(await of(log), as_json=False)]
    assert [line.rpartition("  ")[2] for line in lines if "resnet-worker-1 " in line] == [told_of] * bool(told_of)


async def test_the_exception_of_a_failed_worker_is_in_the_line_of_its_failure(log: Log):
    said = "step\n" * 200 + "Traceback (most recent call last):\n  line 9\nOutOfMemoryError: CUDA out of memory"
    crash = Exit("main", 1, "Error", said)
    log.add(*begun(), PodsObserved(pods=(worker(1, version=30, phase="Failed", exits=(crash,)),)))
    (line,) = [line for line in report_lines(await of(log), as_json=False) if "exited with 1" in line]
    assert line.endswith("OutOfMemoryError: CUDA out of memory")


async def test_a_job_that_came_back_goes_on(log: Log):
    log.add(*begun(), JobGone(version=90), observed(a_spec(2)))
    report = await of(log)
    assert (report.phases[-1].phase, report.phases[-1].until) == ("Running", "")
    assert report.attempts[-1].until == ""
    log.add(JobFailed(reason="TrainingJobFailed"))
    report = await of(log)
    assert report.phases[-2].until == report.phases[-1].since == report.attempts[-1].until
    assert all(span.seconds is None or span.seconds > 0 for span in (*report.phases, *report.attempts))


async def test_an_end_that_was_known_before_it_came_back_is_kept(log: Log):
    log.add(*begun(), JobFailed(reason="TrainingJobFailed"), JobGone(version=90), observed(a_spec(2)))
    report = await of(log)
    assert report.phases[-1].until == ""
    assert report.attempts[-1].until == report.phases[-1].since


async def test_back_off_and_a_pause_belong_to_no_attempt(log: Log):
    log.add(*begun(), JobRestarting(reason="WorkerFailed"), JobRestarted(attempt=1, reason="WorkerFailed"))
    first, second = (await of(log)).attempts
    assert second.since > first.until
    log.add(JobSuspending(reason="Suspended"), JobSuspended(reason="Suspended"))
    report = await of(log)
    assert report.attempts[-1].until == report.phases[-2].since


async def test_an_attempt_has_the_pods_that_were_there(log: Log):
    created = a_created_job(3)
    log.add(*created)
    assert [attempt.pods for attempt in (await of(log)).attempts] == [0]
    log.add(pods(worker(0, phase="Pending"), worker(1, phase="Pending")), PodsGone(uids=(worker(1).uid,)))
    assert [attempt.pods for attempt in (await of(log)).attempts] == [2]


async def test_every_worker_that_failed_is_told_however_many_failed_at_once(log: Log):
    some, rest = range(20), range(20, 40)
    log.add(*begun_with(40), pods(*(worker(index, version=30, phase="Failed", exits=exited(1)) for index in some)))
    log.add(PodsGone(uids=tuple(worker(index).uid for index in rest)))
    losses = (await of(log)).failures
    assert [loss.pod for loss in losses] == [f"resnet-worker-{index}" for index in (*some, *rest)]
    assert {(loss.code, loss.reason) for loss in losses} == {(1, "Error"), (None, "Deleted")}


async def test_a_worker_that_was_released_or_succeeded_is_no_failure(log: Log):
    log.add(*begun(), pods(worker(1, version=30, phase="Succeeded", exits=exited(0))))
    log.add(WorkersReleased(request=Uid(""), slots=(workers(0),), reason="Drained"))
    assert (await of(log)).failures == ()
