"""`muster why`: chains of causes over real histories, as people and as programs read them.

What whole answers look like is in `tests/golden/why`.
"""

import json

import msgspec
import pytest

from muster.asking import why_of
from shared.errors import Refused
from shared.eventlog import Stored
from shared.frameworks.scale_requests import SCALEINS, SCALEOUTS
from shared.frameworks.training_job import TRAININGJOBS
from shared.job.chain import Head
from shared.job.events.catalog import AnyEvent
from shared.job.events.event import Decided, EffectRefused
from shared.job.events.scaler import (
    DrainChecked,
    HostsPublished,
    ScaleAccepted,
    ScaleFailed,
    ScaleRejected,
    ScaleSucceeded,
    ScriptFinished,
    ScriptStarted,
    WorkersReleased,
)
from shared.job.events.scheduler import JobRestarted, SlotsAssigned, SlotsReleased
from shared.job.events.status import (
    JobCreated,
    JobFailed,
    JobRestarting,
    JobRunning,
    JobScaling,
    JobSucceeded,
    JobSuspended,
    JobSuspending,
)
from shared.job.events.watcher import (
    ChildrenObserved,
    DisruptionNoticed,
    HistoryBroken,
    HistoryDisputed,
    JobDeleting,
    JobGone,
    JobObserved,
    JobOfAnother,
    PodsGone,
    ScaleRequestGone,
    TimePassed,
)
from shared.job.fold import History
from shared.job.naming import RESTART, Uid
from shared.job.spec import LAUNCHER, WORKER, Problem
from shared.job.views import Exit, PodView, Slots
from shared.telling.causes.chains import of_job
from shared.telling.causes.walk import NOT_ASKED, UNRECORDED, Causes
from shared.telling.reading import fold_all
from shared.telling.targets import parse_target
from shared.telling.why import as_lines, chain_lines, explained
from tests.golden.compare import assert_golden
from tests.kit.builders import (
    R1,
    R2,
    a_created_job,
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
    worker,
    workers,
)
from tests.kit.histories import KEY, log_of
from tests.kit.world import NAMESPACE, World, a_scale_in, a_scale_out, a_training_job
from tests.memory.eventlog import MemoryEventLog, MemoryJournal

replace = msgspec.structs.replace
ASKED = parse_target(f"trainingjob/{KEY.name}")
(JOB,) = ASKED.targets


def causes_of(*events: AnyEvent) -> Causes:
    return fold_all(Causes(KEY), log_of(events))


def said(causes: Causes, word: str = "") -> str:
    """The whole answer."""
    heading, chains = explained(causes, word, JOB)
    return "\n".join([*heading, *chain_lines(chains)]) + "\n"


def path(causes: Causes) -> list[str]:
    """The types along the chain of the job's phase, newest first."""
    assert causes.phase is not None
    return [link.type for link in causes.phase.chain()]


def in_attempt(pod: PodView, attempt: int) -> PodView:
    return replace(pod, attempt=attempt, uid=Uid(f"{pod.uid}-{attempt}"), version=pod.version + 1000)


def gone(index: int) -> PodsGone:
    return PodsGone(uids=(Uid(f"pod-{index}"),))


def test_a_decision_of_another_release_or_with_other_settings_says_so():
    *job, running = a_running_job(2)
    known = [replace(event, release="0.1.0") if isinstance(event, Decided) else event for event in job]
    assert isinstance(running, JobRunning)
    told = "the status is 0.2.0 MUSTER_DRAIN=5"
    assert told not in said(causes_of(*known, replace(running, release="0.1.0")))
    assert said(causes_of(*known, replace(running, release="0.2.0 MUSTER_DRAIN=5"))).count(told) == 1


RUNS_AGAIN = [
    SlotsAssigned(slots=(Slots(1, WORKER, ((0, 1),)),), reason="JobRestarted"),
    pods(in_attempt(worker(0), 1), in_attempt(worker(1), 1)),
    HostsPublished(version=2, members=((0, 1),)),
    hosts_file(2),
    SlotsAssigned(slots=(Slots(1, LAUNCHER, ((0, 0),)),), reason="WorkersReady"),
    pods(in_attempt(launcher(hosts=2), 1)),
    JobRunning(reason="TrainingJobRunning"),
]
"""A new attempt of two workers, from its slots on."""


def a_restarted_job() -> list[AnyEvent]:
    """A drained node takes a worker, the job stays below its minimum, and another attempt runs."""
    job = a_running_job(2, least=2, restart="OnFailure")
    lost = len(job) + 2
    return [
        *job,
        DisruptionNoticed(node="node-2", uids=(Uid("pod-1"),), reason="NodeScaledDown"),
        gone(1),
        TimePassed(anchor=lost, timer="BelowMinimum"),
        JobRestarting(reason="BelowMinimum", message="fewer workers run than the 2 that are needed"),
        SlotsReleased(slots=(workers(0), Slots(0, LAUNCHER, ((0, 0),))), reason="JobRestarting"),
        PodsGone(uids=(Uid("pod-0"), Uid("pod-launcher"))),
        TimePassed(anchor=lost + 2, timer="Restart"),
        JobRestarted(attempt=1, reason="BelowMinimum"),
        *RUNS_AGAIN,
    ]


def a_scaled_job() -> list[AnyEvent]:
    return [
        *a_running_job(2),
        *scaling_out(2, 3),
        pods(worker(2), worker(3)),
        published(2, 0, 1, 2, 3, request=R1),
        hosts_file(2),
        pods(launcher(version=50, hosts=2)),
        ScaleSucceeded(request=R1, reason="ScalingOutSucceeded"),
        JobRunning(reason="TrainingJobRunning"),
    ]


def a_shrunk_job() -> list[AnyEvent]:
    job = [*a_running_job(2), *scaling_in(1), published(2, 0, request=R1), hosts_file(2)]
    return [
        *job,
        pods(launcher(version=50, hosts=2)),
        TimePassed(anchor=len(job) + 1, timer="Drain"),
        WorkersReleased(request=R1, slots=(workers(1),), reason="Drained"),
        pods(worker(1, version=60, deleting=True)),
        gone(1),
        ScaleSucceeded(request=R1, reason="ScalingInSucceeded"),
        JobRunning(reason="TrainingJobRunning"),
    ]


def a_job_with_a_replacement() -> list[AnyEvent]:
    return [
        *a_running_job(2, of_workers="Always"),
        pods(worker(1, version=30, phase="Failed", exits=exited(137, "OOMKilled"))),
        SlotsAssigned(slots=(workers(2),), replaces=(workers(1),), reason="WorkersReplaced"),
        published(2, 0),
        hosts_file(2),
        pods(worker(2)),
        published(3, 0, 2),
    ]


def a_request_out_of_time() -> list[AnyEvent]:
    job = a_running_job(2)
    return [
        *job,
        *scaling_out(2, 3),
        pods(worker(2), worker(3, phase="Pending", reason="Unschedulable")),
        TimePassed(anchor=len(job) + 2, timer="ScalingDeadline"),
        ScaleFailed(request=R1, reason="DeadlineExceeded", released=(workers(2, 3),)),
        JobRunning(reason="TrainingJobRunning"),
    ]


def a_resumed_job() -> list[AnyEvent]:
    return [
        *a_running_job(2),
        observed(a_spec(2, suspend=True), generation=2),
        JobSuspending(reason="TrainingJobSuspending"),
        SlotsReleased(slots=(workers(0, 1), Slots(0, LAUNCHER, ((0, 0),))), reason="JobSuspending"),
        PodsGone(uids=(Uid("pod-0"), Uid("pod-1"), Uid("pod-launcher"))),
        JobSuspended(reason="TrainingJobSuspended"),
        observed(a_spec(2), generation=3),
        JobCreated(reason="TrainingJobResumed"),
        JobRestarted(attempt=1, counted=False, reason="Resumed"),
        *RUNS_AGAIN,
    ]


def a_restarted_and_scaled_job() -> list[AnyEvent]:
    return [
        *a_restarted_job(),
        scale_out(1),
        ScaleAccepted(request=R1, kind="ScaleOut", added=(Slots(1, WORKER, ((2, 2),)),), deadline=60, drain=0),
        JobScaling(reason="ScalingStart"),
        ScaleFailed(request=R1, reason="QuotaExceeded", released=(Slots(1, WORKER, ((2, 2),)),)),
        JobRunning(reason="TrainingJobRunning"),
    ]


STORIES: dict[str, tuple[list[AnyEvent], str]] = {
    "running": (a_running_job(2), ""),
    "node_drained_and_restarted": (a_restarted_job(), ""),
    "restarted_and_scaled": (a_restarted_and_scaled_job(), ""),
    "waits_for_old_pods": (
        [*a_restarted_job()[: len(a_running_job()) + 5], TimePassed(anchor=14, timer="Restart")],
        "",
    ),
    "worker_of_a_drained_node": (a_restarted_job()[: len(a_running_job()) + 2], "worker-1"),
    "launcher_failed": (
        [
            *a_running_job(2),
            pods(launcher(version=50, phase="Failed", exits=exited(1))),
            JobFailed(reason="TrainingJobFailed", message="the launcher exited with 1 (Error)"),
        ],
        "",
    ),
    "succeeded": (
        [
            *a_running_job(2),
            pods(launcher(version=50, phase="Succeeded", exits=exited(0))),
            JobSucceeded(reason="TrainingJobSucceeded"),
        ],
        "",
    ),
    "scaled_out": (a_scaled_job(), ""),
    "worker_of_a_scale_out": (a_scaled_job(), "resnet-worker-3"),
    "scaled_in": (a_shrunk_job(), "scalein/scalein-request-1"),
    "worker_that_was_evicted": (
        [*a_running_job(2), pods(worker(1, version=30, deleting=True, disruption="EvictionByEvictionAPI")), gone(1)],
        "worker-1",
    ),
    "request_behind_another": (
        [*a_running_job(2), *scaling_out(2), scale_in(1, request=R2)],
        "scalein/scalein-request-2",
    ),
    "request_that_left": (
        [*a_running_job(2), *scaling_out(2), scale_in(1, request=R2), ScaleRequestGone(uid=R2)],
        "scalein/scalein-request-2",
    ),
    "request_under_way": (
        [*a_running_job(2), *scaling_out(2), pods(worker(2, phase="Pending", reason="Unschedulable"))],
        "scaleout/scaleout-request-1",
    ),
    "edit_that_is_not_acted_upon": (
        [
            *a_running_job(2),
            JobObserved(
                kind="TrainingJob",
                api_version="v1",
                generation=2,
                version=2,
                problems=(Problem(reason="AboveMaximum", field="spec.worker.replicas", message="set fewer"),),
            ),
        ],
        "",
    ),
    "worker_that_was_replaced": (a_job_with_a_replacement(), "1"),
    "replacement": (a_job_with_a_replacement(), "worker-2"),
    "request_out_of_time": (a_request_out_of_time(), "scaleout/scaleout-request-1"),
    "request_rejected": (
        [*a_running_job(2), scale_in(names=("no-such-worker",)), ScaleRejected(request=R1, reason="NoSuchWorker")],
        "scalein-request-1",
    ),
    "suspending": (a_resumed_job()[: len(a_running_job(2)) + 3], ""),
    "suspended": (a_resumed_job()[: len(a_running_job(2)) + 5], ""),
    "resumed": (a_resumed_job(), ""),
    "waits_for_an_image": (
        [*a_created_job(2), pods(worker(0), worker(1, phase="Pending", reason="ImagePullBackOff"))],
        "",
    ),
    "waits_for_quota": ([*a_created_job(2), EffectRefused(effect="CreatePod", reason="QuotaExceeded")], ""),
    "worker_refused": ([*a_created_job(2), EffectRefused(effect="CreatePod", reason="QuotaExceeded")], "1"),
    "invalid": (
        [
            JobObserved(
                kind="TrainingJob",
                api_version="v1",
                generation=1,
                version=1,
                problems=(Problem(reason="NoContainers", field="spec.worker", message="add a container"),),
            )
        ],
        "",
    ),
    "gone": ([*a_running_job(2), JobGone(version=70)], ""),
    "deletion_that_orphans": ([*a_running_job(2), JobDeleting(version=60, orphan=True, finalizers=("orphan",))], ""),
    "deletion_that_waits": ([*a_running_job(2), JobDeleting(version=60, finalizers=("example.com/hold",))], ""),
    "broken": ([*a_running_job(2), HistoryBroken(log="other", sequence=900, hash="ab", reason="BeyondTheEnd")], ""),
    "disputed": ([*a_running_job(2), HistoryDisputed(theirs=Head(900, "ab"), ours=Head(10, "cd"))], ""),
}


@pytest.mark.parametrize("name", STORIES)
def test_the_answer_in_full(name: str):
    events, word = STORIES[name]
    assert_golden(f"why/{name}", {"told": said(causes_of(*events), word)})


async def test_the_answer_needs_no_event_of_other_jobs():
    journal = MemoryJournal()
    # Reading it fails: its subject is of no job.
    journal.events.append(Stored(2, "facts.team-b.another", "bad", "2030-01-01T00:00:00.000Z", b""))
    journal.events += log_of(a_running_job(2), after=2)
    heading, *_ = (await why_of(MemoryEventLog(journal), ASKED, "", KEY.namespace)).splitlines()
    assert "Running" in heading


@pytest.mark.parametrize(
    ("events", "types"),
    [
        pytest.param(
            [
                pods(worker(1, version=30, deleting=True)),
                TimePassed(anchor=11, timer="BelowMinimum"),
                JobFailed(reason="BelowMinimum"),
            ],
            ["JobFailed", "TimePassed", "PodsObserved"],
            id="a worker that a person deleted",
        ),
        pytest.param(
            [
                observed(a_spec(2, least=2, active_deadline_seconds=9), generation=1),
                TimePassed(anchor=2, timer="ActiveDeadline"),
                JobFailed(reason="DeadlineExceeded"),
            ],
            ["JobFailed", "TimePassed", "JobCreated"],
            id="its active deadline",
        ),
    ],
)
def test_what_ended_an_attempt(events: list[AnyEvent], types: list[str]):
    assert path(causes_of(*a_running_job(2, least=2), *events))[: len(types)] == types


def test_the_event_that_a_decision_names_is_its_cause():
    events = [*a_running_job(2), pods(launcher(version=50, phase="Failed", exits=exited(1)))]
    for named in (11, 9):
        ((chain, *_),) = [of_job(causes_of(*events, JobFailed(reason="TrainingJobFailed", because=named)))]
        assert chain.links[1].sequence == named


@pytest.mark.parametrize("named", [4, 12, 900, -1])
def test_an_event_that_cannot_be_the_cause_is_none(named: int):
    events = [*a_running_job(2), pods(launcher(version=50, phase="Failed", exits=exited(1)))]
    causes = causes_of(*events, JobFailed(reason="TrainingJobFailed", because=named))
    assert UNRECORDED in said(causes)


def test_hosts_files_are_published_again_because_another_client_changed_them():
    (child,) = hosts_file(1).children
    edited = ChildrenObserved(children=(replace(child, version=child.version + 1),))
    events = [*a_running_job(2), edited]
    causes = causes_of(*events, replace(published(2, 0, 1), because=len(events)))
    told = causes.find(len(events) + 1)
    assert told is not None
    assert told.cause is not None
    assert told.cause.text == "another client changed the hosts files of version 1"


def test_a_worker_whose_exit_was_seen_before_its_phase_is_told_of_by_its_exit():
    ended = worker(1, version=31, phase="Failed", exits=exited(3))
    events = [
        *a_running_job(2, of_workers="Always"),
        pods(replace(ended, version=30, phase="Running", ready=False)),
        pods(ended, worker(0, version=31, reason="CrashLoopBackOff")),
        SlotsAssigned(slots=(workers(2),), replaces=(workers(1),), reason="WorkersReplaced"),
    ]
    answer = said(causes_of(*events), "worker-2").splitlines()
    assert "takes the place of resnet-worker-1" in answer[3]
    assert "resnet-worker-1 ended: exit code 3" in answer[4]


CRASHED = worker(1, version=80, phase="Failed", exits=exited(1))
SUCCEEDED = worker(1, version=80, phase="Succeeded", exits=exited(0))
DELETED = worker(1, version=80, phase="Failed", deleting=True, exits=exited(143))


@pytest.mark.parametrize(
    ("before", "now", "state"),
    [
        pytest.param(DELETED, CRASHED, "it ended or went by itself", id="a crash after a deletion"),
        pytest.param(CRASHED, DELETED, "it was deleted", id="a deletion after a crash"),
        pytest.param(DELETED, SUCCEEDED, "it ended or went by itself", id="a success after a deletion"),
    ],
)
def test_a_worker_is_not_told_by_an_earlier_pod_of_its_name(before: PodView, now: PodView, state: str):
    events = [
        *a_running_job(2, restart="OnFailure"),
        pods(before),
        JobRestarting(reason="TrainingJobFailed"),
        SlotsReleased(slots=(workers(0), Slots(0, LAUNCHER, ((0, 0),))), reason="JobRestarting"),
        PodsGone(uids=(Uid("pod-0"), Uid("pod-1"), Uid("pod-launcher"))),
        JobRestarted(attempt=1, counted=True, reason="TrainingJobFailed"),
        *RUNS_AGAIN,
        pods(in_attempt(now, 1)),
    ]
    assert state in said(causes_of(*events), "worker-1").splitlines()[0]


def test_a_deleted_worker_that_another_replaced_is_told_as_deleted():
    replaced = SlotsAssigned(slots=(workers(2),), replaces=(workers(1),), reason="WorkersReplaced")
    events = [*a_running_job(2, of_workers="OnFailure"), pods(DELETED), replaced]
    assert "it was deleted, and resnet-worker-2 took its place" in said(causes_of(*events), "worker-1")


def test_why_a_pod_vanished_is_unknown_without_a_deletion():
    causes = causes_of(*a_running_job(2), gone(1))
    assert NOT_ASKED in said(causes, "worker-1")


def test_a_pod_that_was_released_did_not_vanish():
    assert NOT_ASKED not in said(causes_of(*a_shrunk_job()), "worker-1")


def test_a_script_that_failed_is_why_its_request_failed():
    events = [
        *a_running_job(2),
        *scaling_in(1, script=True),
        ScriptStarted(request=R1, timeout=60),
        ScriptFinished(request=R1, exit_code=3),
        ScaleFailed(request=R1, reason="ScriptFailed"),
    ]
    answer = said(causes_of(*events), "scalein/scalein-request-1")
    assert "the script ended, with exit code 3" in answer
    assert "its own output may say" in answer


def test_workers_that_are_still_in_use_are_told_of():
    events = [
        *a_running_job(2),
        *scaling_in(1),
        published(2, 0, request=R1),
        hosts_file(2),
        DrainChecked(request=R1, in_use=(1,)),
    ]
    assert "worker 1 is still in use" in said(causes_of(*events), "scalein/scalein-request-1")


def test_the_newest_attempt_is_meant_by_a_workers_name():
    assert said(causes_of(*a_restarted_job()), "worker-1").startswith("resnet-worker-1, attempt 2: Ready")


@pytest.mark.parametrize(
    "word",
    [
        pytest.param("worker-9", id="a worker that never was"),
        pytest.param("other-worker-1", id="another job's worker"),
        pytest.param("scaleout/none", id="a request that never was"),
        pytest.param("resnet", id="the job itself"),
    ],
)
def test_who_is_not_known_is_said_in_one_line_with_those_who_are(word: str):
    with pytest.raises(Refused, match="launcher, worker 0-3 and scaleout/scaleout-request-1"):
        explained(causes_of(*a_scaled_job()), word, JOB)


def test_a_history_that_is_held_is_told_as_far_as_it_can_be_read():
    first, *others = log_of(a_running_job(2))
    causes = fold_all(
        Causes(KEY), [first, *(replace(event, basis="1:wrong" if event.basis else "") for event in others)]
    )
    told = said(causes)
    assert "held: " in told
    assert "JobRunning" in told


def test_an_event_of_a_newer_release_is_passed_over():
    events, history = log_of(a_running_job(2)), History(KEY)
    for event in events:
        history.fold(event)
    unknown = replace(
        events[-1],
        sequence=99,
        basis=history.basis,
        subject=events[-1].subject.replace("JobRunning", "JobDreaming"),
        body=events[-1].body.replace(b"JobRunning", b"JobDreaming"),
    )
    assert "held: unknown event JobDreaming" in said(fold_all(Causes(KEY), [*events, unknown]))


def test_json_names_each_event_once_with_its_cause():
    lines = json.loads("\n".join(as_lines(of_job(causes_of(*a_restarted_job())))))
    assert {"sequence", "time", "type", "author", "text", "cause", "unknown", "question"} == set(lines[0])
    sequences = [line["sequence"] for line in lines]
    assert len(sequences) == len(set(sequences))
    assert lines[0]["type"] == "JobRunning"
    assert lines[-1]["cause"] is None
    assert all(line["cause"] in sequences for line in lines[:-1])


async def a_life(world: World) -> Uid:
    """A job that was scaled, suspended and resumed, as the services themselves recorded it."""
    world.apply(TRAININGJOBS, a_training_job(workers=2))
    await world.running()
    world.apply(SCALEOUTS, a_scale_out(2))
    await world.phase("ScaleSucceeded", SCALEOUTS, "out")
    world.apply(SCALEINS, a_scale_in(1))
    await world.phase("ScaleSucceeded", SCALEINS, "in")
    await world.running()
    for wish, phase in ((True, "Suspended"), (False, "Running")):
        world.store.patch(TRAININGJOBS, NAMESPACE, KEY.name, {"spec": {"suspend": wish}})
        await world.phase(phase)
    world.store.patch(TRAININGJOBS, NAMESPACE, KEY.name, {"metadata": {"annotations": {RESTART: "again"}}})
    await world.until(lambda: world.job().attempt.number == 2, "a third attempt")
    await world.running()
    return world.job().key.uid


async def test_nothing_is_unknown_of_what_the_services_decided():
    async with World() as world:
        uid = await a_life(world)
        await world.quiet()
        log = MemoryEventLog(world.journal, user="status")
        for about in ("", "worker-0", "worker-2", "launcher", "scaleout/out", "scalein/in"):
            told = await why_of(log, ASKED, about, NAMESPACE, uid=uid)
            assert UNRECORDED not in told, told
            assert "the job was" in told or "was created: " in told, told
        told = await why_of(log, parse_target("scaleout/out"), "", NAMESPACE)
        assert told.startswith("scaleout/out: Succeeded")


async def test_a_request_whose_job_is_not_there_says_what_it_waits_for():
    async with World() as world:
        world.apply(SCALEOUTS, a_scale_out(2, job="nobody"))
        await world.phase("Pending", SCALEOUTS, "out")
        log = MemoryEventLog(world.journal, user="status")
        told = (await why_of(log, parse_target("scaleout/out"), "", NAMESPACE)).splitlines()
    there = "there is no TrainingJob of that name in this namespace; jobs of other kinds are scaled by `kubectl scale`"
    assert told[0].startswith(f"scaleout/out: Pending: JobNotFound: {there}; the request fails at ")
    assert told[0].endswith(" UTC at the earliest unless the job comes before")
    assert "ScaleOut out was created: 2 more workers" in told[-1]


async def test_of_two_requests_of_one_name_the_kind_tells_which_is_meant():
    async with World() as world:
        world.apply(TRAININGJOBS, a_training_job())
        await world.running()
        world.apply(SCALEOUTS, a_scale_out(2, name="same"))
        await world.phase("ScaleSucceeded", SCALEOUTS, "same")
        world.apply(SCALEINS, a_scale_in(1, name="same"))
        await world.phase("ScaleSucceeded", SCALEINS, "same")
        log = MemoryEventLog(world.journal, user="status")
        out = (await why_of(log, parse_target("scaleout/same"), "", NAMESPACE)).splitlines()
        other = (await why_of(log, ASKED, "scalein/same", NAMESPACE)).splitlines()
    assert out[0].startswith("scaleout/same: Succeeded")
    assert other[0].startswith("scalein/same: Succeeded")


@pytest.mark.parametrize(
    ("reason", "word"),
    [("ManyStarting", "turn"), ("OverBudget", "turn"), ("TrainingRuntimeNotFound", "runtime")],
)
def test_a_job_that_begins_by_itself_is_not_told_as_refused(reason: str, word: str):
    waiting = JobObserved(
        kind="TrainingJob", api_version="v1", generation=1, version=1, problems=(Problem(reason=reason),)
    )
    heading, *lines = said(causes_of(waiting)).splitlines()
    assert f": waits for its {word}: {reason}" in heading
    assert heading.endswith("; it begins by itself")
    assert any(f"what was applied waits for its {word}: {reason}" in line for line in lines)


@pytest.mark.parametrize(
    ("obstacle", "heading"),
    [
        pytest.param(
            "its launcher is another's", "because Muster cannot take it over: its launcher is another's", id="one"
        ),
        pytest.param("", "until MUSTER_TAKE_OVER=true says that it is gone", id="none"),
    ],
)
def test_why_a_job_of_another_operator_is_left_alone(obstacle: str, heading: str):
    observed = JobObserved(kind="MPIJob", api_version="kubeflow.org/v2beta1", generation=1, version=1)
    told = said(causes_of(JobOfAnother(phase="Running", obstacle=obstacle), observed))
    assert f"no service acts on the job {heading}" in told
    assert ("; Muster cannot take it over: its launcher is another's" in told) == bool(obstacle)


def test_why_a_pod_failed_ends_with_the_exception_of_its_last_words():
    traceback = "step\n" * 200 + "Traceback (most recent call last):\n  line 9\nOutOfMemoryError: CUDA out of memory"
    crash = (Exit("main", 1, "Error", traceback),)
    causes = causes_of(*a_running_job(2), pods(worker(1, version=30, phase="Failed", exits=crash)))
    (line,) = [line for line in said(causes, "worker-1").splitlines() if "exit code 1" in line]
    assert line.endswith("OutOfMemoryError: CUDA out of memory")
