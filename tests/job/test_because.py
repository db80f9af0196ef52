"""Because: each decision names the earlier event of its job that made it."""

from collections.abc import Iterable, Iterator, Sequence
from typing import get_args

import pytest

from services.scaler.core import Policy
from services.scaler.core.decide import decide as scaler
from services.scheduler.core.decide import decide as scheduler
from services.status.core.decide import decide as status
from shared.eventlog import Stored
from shared.eventlog.subject import Subject
from shared.frameworks.kinds import BUILT_IN, Kinds
from shared.frameworks.scale_requests import SCALEINS, SCALEOUTS
from shared.frameworks.training_job import TRAININGJOBS
from shared.job.events.catalog import AnyEvent, Decision, read_event
from shared.job.events.event import UNKNOWN, Cause, Decided, EffectRefused
from shared.job.events.scaler import (
    DrainChecked,
    HostsPublished,
    ScaleAccepted,
    ScaleCancelled,
    ScaleFailed,
    ScaleRejected,
    ScaleSucceeded,
    ScriptFinished,
    ScriptStarted,
    WorkersReleased,
)
from shared.job.events.scheduler import JobExpired, JobRestarted, SlotsAssigned, SlotsReleased
from shared.job.events.status import (
    JobCreated,
    JobFailed,
    JobRestarting,
    JobRunning,
    JobScaling,
    JobSealed,
    JobSucceeded,
    JobSuspended,
    JobSuspending,
)
from shared.job.events.watcher import (
    DisruptionNoticed,
    JobAdopted,
    JobGone,
    LauncherLost,
    PodsGone,
    ScaleRequestGone,
    TimePassed,
)
from shared.job.fold import History
from shared.job.naming import RESTART, RESTART_REQUESTED, JobKey, Slot, Uid, key_of
from shared.job.spec import LAUNCHER, WORKER
from shared.job.state import Job
from shared.job.steps import Record
from shared.job.views import Slots
from tests.histories.recorded import Recording, recordings
from tests.kit.builders import (
    R1,
    a_created_job,
    a_ready_job,
    a_running_job,
    a_spec,
    exited,
    hosts_file,
    launcher,
    observed,
    pods,
    published,
    scale_in,
    scale_out,
    scaling_in,
    scaling_out,
    service,
    worker,
    workers,
)
from tests.kit.histories import kinds_of
from tests.kit.loop import Loop
from tests.kit.replicas import (
    a_created_replicated_job,
    a_replicated_spec,
    a_running_replicated_job,
    ended,
    led_by_workers,
    replica,
)
from tests.kit.stories import given
from tests.kit.world import NAMESPACE, World, a_scale_in, a_scale_out, a_training_job

RUNNING = a_running_job(2, least=2, restart="OnFailure")
FAILED = pods(launcher(version=50, phase="Failed", exits=exited(1)))
RESTARTING = [*RUNNING, FAILED, JobRestarting(reason="TrainingJobFailed")]
RELEASED = SlotsReleased(slots=(workers(0, 1), Slots(0, LAUNCHER, ((0, 0),))), reason="JobRestarting")
ALL_GONE = PodsGone(uids=(Uid("pod-0"), Uid("pod-1"), Uid("pod-launcher")))
RESTART_PASSED = TimePassed(anchor=len(RESTARTING), timer="Restart")
PAUSING, PAUSE = JobSuspending(reason="TrainingJobSuspending"), JobSuspended(reason="TrainingJobSuspended")
SUSPENDED = [*RUNNING, observed(a_spec(2, suspend=True), generation=2), PAUSING]
OUT = [*RUNNING, *scaling_out(2, 3)]
OUT_SEEN = [
    *OUT,
    pods(worker(2), worker(3)),
    published(2, 0, 1, 2, 3, request=R1),
    hosts_file(2),
    pods(launcher(version=50, hosts=2)),
]
IN = [*RUNNING, *scaling_in(1)]
IN_SEEN = [*IN, published(2, 0, request=R1), hosts_file(2), pods(launcher(version=50, hosts=2))]
OOM = pods(worker(1, version=30, phase="Failed", exits=exited(137, "OOMKilled")))
NOTICED = DisruptionNoticed(node="node-2", uids=(Uid("pod-1"),), reason="NodeScaledDown")
REPLICATED = a_running_replicated_job(a_replicated_spec("OnFailure"))

CASES: dict[str, tuple[Sequence[AnyEvent], Decision, AnyEvent]] = {}


def case(name: str, story: Sequence[AnyEvent], decision: Decision, made_by: AnyEvent) -> None:
    """After this story the decision is made by that event of it."""
    CASES[name] = (story, decision, made_by)


CREATED, ASSIGNED = JobCreated(reason="TrainingJobCreated"), SlotsAssigned(slots=(workers(0, 1),), reason="JobCreated")
JOB = observed(a_spec(2))
case("a job is admitted when it is observed", [JOB], CREATED, JOB)
case("its first slots follow", [JOB, CREATED, service()], ASSIGNED, CREATED)
ready = a_ready_job(2)
case("all workers are Ready", ready, published(1, 0, 1), ready[-1])
LAUNCH = SlotsAssigned(slots=(Slots(0, LAUNCHER, ((0, 0),)),), reason="WorkersReady")
case("the launcher waits for the hosts files", RUNNING[:7], LAUNCH, RUNNING[6])
case("the launcher runs", RUNNING[:9], JobRunning(reason="TrainingJobRunning"), RUNNING[8])
case("the launcher failed", RESTARTING[:-1], JobRestarting(reason="TrainingJobFailed"), FAILED)
REMAINS = pods(launcher(version=60, phase="Failed", exits=exited(1), deleting=True))
FAILURE = JobRestarting(reason="TrainingJobFailed")
case("the launcher failed, and was deleted afterwards", [*RUNNING, FAILED, REMAINS, ALL_GONE], FAILURE, FAILED)
LOST = LauncherLost(uid=Uid("pod-launcher"))
case("the launcher vanished", [*RUNNING, LOST], JobRestarting(reason="LauncherLost"), LOST)
ADOPTED = JobAdopted(source="AcceptedLoss", lost=(Slots(0, LAUNCHER, ((0, 0),)),))
LOST_BEFORE = JobFailed(reason="LauncherLost")
case("the launcher was missing when the job was adopted", [JOB, CREATED, ADOPTED], LOST_BEFORE, ADOPTED)
DONE = pods(launcher(version=50, phase="Succeeded", exits=exited(0)))
case("the launcher succeeded", [*RUNNING, DONE], JobSucceeded(reason="TrainingJobSucceeded"), DONE)
case("an attempt was given up", RESTARTING, RELEASED, RESTARTING[-1])
AGAIN = JobRestarted(attempt=1, reason="TrainingJobFailed")
WAITED = [*RESTARTING, RELEASED, ALL_GONE, RESTART_PASSED]
case("the wait before the next attempt is over", WAITED, AGAIN, RESTART_PASSED)
SECOND = SlotsAssigned(slots=(Slots(1, WORKER, ((0, 1),)),), reason="JobRestarted")
case("the next attempt began", [*WAITED, AGAIN], SECOND, AGAIN)
WISH = observed(a_spec(2, least=2, restart="OnFailure", word="again"))
BY_HAND = JobRestarting(reason=RESTART_REQUESTED)
case("a person asks for a restart", [*RUNNING, WISH], BY_HAND, WISH)
case("a person does not wait for the back-off", [*WAITED[:-1], WISH], AGAIN, WISH)
case("a person suspends it", SUSPENDED[:-1], SUSPENDED[-1], SUSPENDED[-2])  # type: ignore[arg-type]
PAUSED = SlotsReleased(slots=RELEASED.slots, reason="JobSuspending")
case("its pods go", SUSPENDED, PAUSED, SUSPENDED[-1])
case("its slots go, of which no pod came", [*SUSPENDED[:-1], PAUSE], PAUSED, PAUSE)
case("the last of its pods is gone", [*SUSPENDED, PAUSED, ALL_GONE], PAUSE, ALL_GONE)
NEVER = [observed(a_spec(2, suspend=True)), JobCreated(reason="TrainingJobCreated")]
case("it is suspended before it has a pod", NEVER, PAUSE, NEVER[0])
UNSEEN = [*a_created_job(2), SUSPENDED[-2], PAUSING, SlotsReleased(slots=(workers(0, 1),))]
NONE_APPEARED = TimePassed(anchor=len(UNSEEN), timer="Unseen")
case("none of its pods appeared", [*UNSEEN, NONE_APPEARED], PAUSE, NONE_APPEARED)
RESUMED, ADMITTED = observed(a_spec(2), generation=3), JobCreated(reason="TrainingJobResumed")
BACK = [*SUSPENDED, PAUSED, ALL_GONE, PAUSE, RESUMED]
case("a person resumes it", BACK, ADMITTED, RESUMED)
case("a resumed job begins again", [*BACK, ADMITTED], JobRestarted(attempt=1, reason="Resumed"), ADMITTED)
SHORT = [*RUNNING, NOTICED, PodsGone(uids=(Uid("pod-1"),))]
BELOW = TimePassed(anchor=len(SHORT), timer="BelowMinimum")
case("it stayed below its minimum", [*SHORT, BELOW], JobRestarting(reason="BelowMinimum"), BELOW)
LIMITED = [*RUNNING, observed(a_spec(2, least=2, active_deadline_seconds=9))]
LATE = TimePassed(anchor=2, timer="ActiveDeadline")
case("it was active for too long", [*LIMITED, LATE], JobFailed(reason="DeadlineExceeded"), LATE)
SLOW = [observed(a_spec(2, scheduling_timeout_seconds=9)), *a_created_job(2)[1:]]
UNSCHEDULED = TimePassed(anchor=3, timer="Scheduling")
case("it did not start in time", [*SLOW, UNSCHEDULED], JobFailed(reason="SchedulingTimeout"), UNSCHEDULED)
INVALID = EffectRefused(effect="CreatePod", reason="Invalid", permanent=True)
case("its pods are refused for good", [*a_created_job(2), INVALID], JobFailed(reason="Invalid"), INVALID)
EXITED = pods(worker(1, phase="Failed", exits=exited(2)))
STARTING = a_created_job(2, least=2, of_workers="Never")
case("a worker ended before the launcher", [*STARTING, EXITED], JobFailed(reason="WorkerExited"), EXITED)
FINISHED = pods(worker(1, phase="Succeeded", exits=exited(0)))
EARLY = JobFailed(reason="WorkerExited")
case("a worker finished before the launcher", [*STARTING, FINISHED], EARLY, FINISHED)
OVER = [*RUNNING, DONE, JobSucceeded(reason="TrainingJobSucceeded")]
CLEAN = SlotsReleased(slots=(workers(0, 1),), reason="CleanPodPolicyRunning")
case("its pods are cleaned up after the end", OVER, CLEAN, OVER[-1])
TTL = TimePassed(anchor=len(OVER), timer="TimeToLive")
case("it was kept for its time", [*OVER, TTL], JobExpired(), TTL)

TWO = a_running_job(2, of_workers="Always")
NEW = SlotsAssigned(slots=(workers(2),), replaces=(workers(1),), reason="WorkersReplaced")
case("a lost worker is replaced", [*TWO, OOM], NEW, OOM)
case("a lost worker leaves the hosts files", [*TWO, OOM, PodsGone(uids=(Uid("pod-1"),))], published(2, 0), OOM)
case("a worker that is about to go leaves the hosts files", [*TWO, NOTICED], published(2, 0), NOTICED)
JOINS = pods(worker(2))
case("a replacement joins", [*TWO, OOM, NEW, published(2, 0), JOINS], published(3, 0, 2), JOINS)
TWICE = [*TWO, OOM, NEW, pods(worker(2)), pods(worker(2, version=60, phase="Failed", exits=exited(1)))]
REPLACEMENT = TimePassed(anchor=len(TWICE), timer="Replacement:10")
THIRD = SlotsAssigned(slots=(workers(3),), replaces=(workers(2),), reason="WorkersReplaced")
case("a worker that is lost again waits", [*TWICE, REPLACEMENT], THIRD, REPLACEMENT)
LEFT = [*TWO, NOTICED, HostsPublished(version=2, members=((0, 0),), drain=10), hosts_file(2)]
LEFT += [pods(launcher(version=50, hosts=2))]
DRAINED = TimePassed(anchor=len(LEFT), timer="DisruptionDrain")
DISRUPTED = WorkersReleased(request=Uid(""), slots=(workers(1),), reason="Disrupted")
case("a worker that is about to go had time to finish", [*LEFT, DRAINED], DISRUPTED, DRAINED)

case("a request is taken up", [*RUNNING, scale_out(2)], OUT[-2], scale_out(2))  # type: ignore[arg-type]
case("an accepted request changes the phase", OUT[:-1], JobScaling(reason="ScalingStart"), OUT[-2])
NO_SUCH = ScaleRejected(request=R1, reason="NoSuchWorker")
case("a request is rejected", [*RUNNING, scale_in(names=("none",))], NO_SUCH, scale_in(names=("none",)))
case("new workers are Ready", OUT_SEEN[:-3], published(2, 0, 1, 2, 3, request=R1), OUT_SEEN[-4])
GROWN = ScaleSucceeded(request=R1, reason="ScalingOutSucceeded")
case("the launcher has the new hosts files", OUT_SEEN, GROWN, OUT_SEEN[-1])
case("a scaled job runs on", [*OUT_SEEN, GROWN], JobRunning(reason="TrainingJobRunning"), GROWN)
SCRIPTED = [*RUNNING, *scaling_in(1, script=True)]
RUN = ScriptStarted(request=R1, timeout=60)
case("a script of a scale-in runs at once", SCRIPTED, RUN, SCRIPTED[-2])
EXIT = ScriptFinished(request=R1, exit_code=3)
case("a script failed", [*SCRIPTED, RUN, EXIT], ScaleFailed(request=R1, reason="ScriptFailed"), EXIT)
for lost in ("RequestDeleted", "NoLauncher"):
    NOT_RUN = ScriptFinished(request=R1, reason=lost)
    case(f"a script found {lost} first", [*SCRIPTED, RUN, NOT_RUN], ScaleFailed(request=R1, reason=lost), NOT_RUN)
SILENT = TimePassed(anchor=len(SCRIPTED) + 1, timer="ScriptDeadline")
NEVER = ScaleFailed(request=R1, reason="ScriptOutcomeUnknown")
case("a script was not heard of", [*SCRIPTED, RUN, SILENT], NEVER, SILENT)
QUIET = DrainChecked(request=R1)
LET_GO = WorkersReleased(request=R1, slots=(workers(1),), reason="Drained")
case("leaving workers are no longer used", [*IN_SEEN, QUIET], LET_GO, QUIET)
DRAIN = TimePassed(anchor=len(IN_SEEN), timer="Drain")
case("leaving workers had time", [*IN_SEEN, DrainChecked(request=R1, reason="Forbidden"), DRAIN], LET_GO, DRAIN)
case("the launcher is no more", [*IN_SEEN, LOST], LET_GO, LOST)
GONE = PodsGone(uids=(Uid("pod-1"),))
SHRUNK = ScaleSucceeded(request=R1, reason="ScalingInSucceeded")
case("the leaving workers are gone", [*IN_SEEN, QUIET, LET_GO, GONE], SHRUNK, GONE)
DEADLINE = TimePassed(anchor=len(OUT) - 1, timer="ScalingDeadline")
TOO_LATE = ScaleFailed(request=R1, reason="DeadlineExceeded", released=(workers(2, 3),))
case("a request ran out of time", [*OUT, DEADLINE], TOO_LATE, DEADLINE)
QUOTA = EffectRefused(effect="CreatePod", reason="QuotaExceeded")
OVER_QUOTA = ScaleFailed(request=R1, reason="QuotaExceeded", released=(workers(2, 3),))
case("a request was refused its pods", [*OUT, QUOTA, DEADLINE], OVER_QUOTA, QUOTA)
ILL = pods(worker(3, phase="Failed", exits=exited(1)))
BROKE = ScaleFailed(request=R1, reason="WorkerFailed", released=(workers(2, 3),))
OUT_ONCE = [*RUNNING, *scaling_out(2, 3, limit=0)]
case("a new worker ended", [*OUT_ONCE, ILL, pods(worker(2))], BROKE, ILL)
TAKEN_BACK = ScaleRequestGone(uid=R1)
UNDONE = ScaleCancelled(request=R1, reason="RequestDeleted", released=(workers(2, 3),))
case("a person deleted the request", [*OUT, TAKEN_BACK, DEADLINE], UNDONE, TAKEN_BACK)
case("the launcher ended", [*SCRIPTED, DONE], ScaleFailed(request=R1, reason="NoLauncher"), DONE)
ENDED = [*OUT, DONE, JobSucceeded(reason="TrainingJobSucceeded")]
case("the job ended first", ENDED, ScaleCancelled(request=R1, reason="JobFinished"), ENDED[-1])
DELETED = JobGone(version=90)
case("the job was deleted first", [*OUT, DELETED], ScaleCancelled(request=R1, reason="JobGone"), DELETED)
E2 = Uid("replicas-2")
EDITED = ScaleAccepted(request=E2, kind="ScaleOut", added=(workers(2, 3),), deadline=600, drain=0)
SMALLER = observed(a_spec(3), generation=3)
MEANWHILE = [*RUNNING, observed(a_spec(4), generation=2), EDITED, JobScaling(reason="ScalingStart"), SMALLER]
case("a smaller size is asked for", MEANWHILE, ScaleCancelled(request=E2, reason="Overtaken"), SMALLER)
FEWER = observed(a_spec(1), generation=2)
NOT_BEGUN = WorkersReleased(request=E2, slots=(workers(1),), reason="BeforeTheStart")
case("a job that starts gets a smaller size", [*a_created_job(2), pods(worker(0)), FEWER], NOT_BEGUN, FEWER)
STOPPED = [*OUT, observed(a_spec(2, suspend=True)), PAUSING]
case("the job was suspended first", STOPPED, ScaleCancelled(request=R1, reason="JobSuspended"), STOPPED[-1])

CHIEF_RUNS = [*a_created_replicated_job(a_replicated_spec()), pods(replica("chief", 0)), pods(replica("worker", 0))]
case("the leader runs", CHIEF_RUNS, JobRunning(reason="TFJobRunning"), CHIEF_RUNS[-2])
CHIEF_DONE = ended("chief", 0, 0)
TRAINED = JobSucceeded(reason="TFJobSucceeded")
case("the leader succeeded", [*REPLICATED, CHIEF_DONE, ended("worker", 0, 1)], TRAINED, CHIEF_DONE)
FIRST_DONE, SECOND_DONE = ended("worker", 1, 0), ended("worker", 0, 0)
EVERY = [*a_running_replicated_job(led_by_workers("All")), FIRST_DONE, SECOND_DONE]
case("the last of the leaders succeeded", EVERY, TRAINED, SECOND_DONE)
NEEDED = [*a_running_replicated_job(a_replicated_spec()), ended("worker", 1, 3), ended("worker", 0, 3)]
case("a pod that is needed failed", NEEDED, JobFailed(reason="TFJobFailed"), NEEDED[-1])
PARTS = [*a_running_replicated_job(a_replicated_spec(workers=2)), ended("chief", 0, 5), ended("worker", 0, 1)]
case("of two pods that are needed the one that is told", PARTS, JobFailed(reason="TFJobFailed"), PARTS[-2])


@pytest.mark.parametrize("name", CASES)
def test_a_decision_names_the_event_that_made_it(name: str):
    story, decision, made_by = CASES[name]
    place = made(given(*story).job, decision).sequence
    assert place, "no event is named"
    assert story[place - 1] == made_by


def test_every_type_of_decision_has_a_case():
    # A seal is made by the rule for histories, not by the one for jobs.
    assert {type(decision) for _, decision, _ in CASES.values()} | {JobSealed} == set(get_args(Decision))


def test_of_an_event_about_several_pods_the_slot_is_named_too():
    two = pods(worker(0, version=30), worker(1, version=30, phase="Failed", exits=exited(1)))
    assert made(given(*TWO, two).job, NEW).slot == Slot(0, WORKER, 1)


def decisions(log: Iterable[Stored]) -> Iterator[tuple[Stored, Decision, Job, list[int]]]:
    """Every decision of a log, the job before it, and the sequences of the job's events until then."""
    histories: dict[JobKey, History] = {}
    known: dict[JobKey, list[int]] = {}
    for stored in log:
        key = key_of(Subject.parse(stored.subject))
        history, before = histories.setdefault(key, History(key)), known.setdefault(key, [])
        event = read_event(stored.body, stored.subject.rpartition(".")[2])
        if isinstance(event, Decided):
            yield stored, event, history.job, [*before]
        history.fold(stored)
        before.append(stored.sequence)


def made(job: Job, decision: Decision, kinds: Kinds = BUILT_IN) -> Cause:
    """The cause with which a service takes this decision now; UNKNOWN if none does."""
    steps = (*scheduler(job), *scaler(job, Policy()), *status(job, kinds))
    causes = (step.because for step in steps if isinstance(step, Record) and alike(step.event, decision))
    return next(causes, UNKNOWN)


def alike(event: AnyEvent, decision: Decision) -> bool:
    return type(event) is type(decision) and getattr(event, "request", "") == getattr(decision, "request", "")


def check_names(log: Sequence[Stored]) -> None:
    """Every decision of a log names one of the events of its job before it: that for which its rule takes it again."""
    states: dict[tuple[JobKey, int], Job] = {}
    histories: dict[JobKey, History] = {}
    for stored in log:
        history = histories.setdefault(key := key_of(Subject.parse(stored.subject)), History(key))
        history.fold(stored)
        states[key, stored.sequence] = history.job
    kinds = kinds_of(log)
    for stored, decision, _, known in decisions(log):
        key, taken_on = key_of(Subject.parse(stored.subject)), int(stored.basis.partition(":")[0])
        cause = made(states[key, taken_on], decision, kinds)
        assert cause.sequence in known, f"{decision} at {stored.sequence}: {cause}"
        assert decision.because == cause.sequence, f"{decision} at {stored.sequence}: {cause}"


@pytest.mark.parametrize("recording", recordings("0.1.0"), ids=lambda recording: recording.name)
def test_every_decision_of_a_recorded_history_names_an_earlier_event(recording: Recording):
    check_names(recording.events())


@pytest.mark.parametrize("seed", range(40))
def test_whatever_happens_a_decision_names_an_earlier_event(seed: int):
    loop = Loop(seed, a_spec(3, least=2, most=6, restart="OnFailure", of_workers="Always"))
    loop.crashes, loop.notices = 2, 1
    for kind in ("ScaleOut", "ScaleIn"):
        loop.request(kind, count=1, script=bool(seed % 2))
    loop.run(lambda loop: loop.job.over or len(loop.events) > 150)
    check_names(loop.log)


async def test_a_service_writes_what_made_its_decision_by_the_state_that_it_decided_on():
    async with World() as world:
        world.apply(TRAININGJOBS, a_training_job(workers=2))
        await world.running()
        world.apply(SCALEOUTS, a_scale_out(2))
        await world.phase("ScaleSucceeded", SCALEOUTS, "out")
        world.apply(SCALEINS, a_scale_in(1))
        await world.phase("ScaleSucceeded", SCALEINS, "in")
        await world.running()
        world.store.patch(TRAININGJOBS, NAMESPACE, "resnet", {"metadata": {"annotations": {RESTART: "again"}}})
        await world.until(lambda: world.job().attempt.number == 1, "a second attempt")
        await world.running()
        await world.quiet()
        log = [stored for stored in world.journal.events if key_of(Subject.parse(stored.subject)) == world.job().key]
    assert len([*decisions(log)]) > 15
    check_names(log)
