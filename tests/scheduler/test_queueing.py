"""Jobs in queues of Kueue: their Workloads, and who waits for quota."""

import msgspec
import pytest

from services.scheduler.core.effects import (
    CreatePod,
    CreateSecret,
    DeleteWorkload,
    FinishWorkload,
    ReadyWorkload,
    ReturnQuota,
    ShrinkWorkload,
    WriteWorkload,
)
from shared.job.events.catalog import AnyEvent
from shared.job.events.event import EffectRefused
from shared.job.events.scaler import ScaleAccepted, ScaleFailed, WorkersReleased
from shared.job.events.scheduler import JobRestarted, SlotsAssigned, SlotsReleased
from shared.job.events.status import JobCreated, JobRestarting, JobSucceeded, JobSuspended, JobSuspending
from shared.job.events.watcher import ChildGone, ChildrenObserved, JobGone, PodsGone, TimePassed
from shared.job.naming import Slot, Uid, secret_name, workload_name, workload_number
from shared.job.spec import LAUNCHER, WORKER
from shared.job.steps import Record, Step
from shared.job.views import Actor, ChildView, PodSetView, Slots, WorkloadView
from tests.kit.builders import (
    R1,
    a_running_job,
    a_spec,
    launcher,
    observed,
    pods,
    published,
    scale_in,
    scale_out,
    scaling_in,
    scaling_out,
    secret,
    worker,
    workers,
)
from tests.kit.histories import KEY
from tests.kit.stories import Story, given, scaler, scheduler, status

FIRST, SECOND = workload_name(KEY, 1), workload_name(KEY, 2)
CREATE_SECRET = CreateSecret(0, secret_name(KEY, 0))


def workload(
    number: int = 1, *, size: int = 2, version: int = 50, queue: str = "team-a", **more: object
) -> ChildrenObserved:
    """A Workload of the job with so many workers."""
    sets = (PodSetView(role=LAUNCHER, count=1), PodSetView(role=WORKER, count=size))
    view = WorkloadView(queue=queue, pod_sets=sets, **({"generation": 1, "held": True} | more))  # type: ignore[arg-type]
    child = ChildView(
        kind="Workload",
        name=workload_name(KEY, number),
        uid=Uid(f"w{number}"),
        version=version,
        ours=True,
        workload=view,
    )
    return ChildrenObserved(children=(child,))


def admitted(number: int = 1, *, version: int = 51, **more: object) -> ChildrenObserved:
    return workload(number, version=version, **({"reserved": True, "admitted": True} | more))  # type: ignore[arg-type]


def a_waiting_job(**spec: object) -> list[AnyEvent]:
    """Taken on, and without quota."""
    return [
        observed(a_spec(2, queue="team-a", **spec)),  # type: ignore[arg-type]
        JobCreated(reason="TrainingJobCreated"),
        JobSuspended(reason="TrainingJobSuspended", message="waits for quota in queue team-a"),
        secret(),
    ]


def a_queued_job(size: int = 2, **spec: object) -> list[AnyEvent]:
    """It runs with quota for its size, and Kueue knows that it does."""
    events = a_running_job(size, queue="team-a", most=4, **spec)
    return [*events[:1], admitted(size=size, ready=True), *events[1:]]


def written(number: int, size: int, *, uid: str = "", replaces: str = "", queue: str = "team-a") -> WriteWorkload:
    sets = ((LAUNCHER, 1), (WORKER, size))
    return WriteWorkload(workload_name(KEY, number), queue, sets, uid=Uid(uid) if uid else None, replaces=replaces)


def of_workloads(story: Story) -> list[Step]:
    """The scheduler's steps that are about Workloads."""
    kinds = WriteWorkload, ShrinkWorkload, ReturnQuota, ReadyWorkload, FinishWorkload, DeleteWorkload
    return [step for step in story.steps(scheduler) if isinstance(step, kinds)]


def pauses(story: Story) -> list[Step]:
    """The pauses that the status service records."""
    steps = story.steps(status)
    return [step for step in steps if isinstance(step, Record) and isinstance(step.event, JobSuspending | JobSuspended)]


def gone() -> PodsGone:
    return PodsGone(uids=(launcher().uid, worker(0).uid, worker(1).uid))


def evicted(**more: object) -> ChildrenObserved:
    return admitted(version=60, evicted="Preempted", message="preempted for another one", ready=True, **more)


EVICTED = [
    *a_queued_job(),
    evicted(),
    JobSuspending(reason="TrainingJobSuspending"),
    SlotsReleased(slots=(workers(0, 1), Slots(0, LAUNCHER, ((0, 0),))), reason="JobSuspending"),
]


def test_the_names_of_workloads_are_counted():
    assert workload_number(KEY, SECOND) == 2
    assert workload_number(KEY, workload_name(KEY, 999_999_999 + 1)) == 1_000_000_000
    assert [
        workload_number(KEY, name)
        for name in ("other", FIRST + "x", workload_name(KEY, 0), KEY.name, FIRST + "0" * 5000)
    ] == [0] * 5


class TestWaiting:
    def test_a_job_in_a_queue_is_suspended_until_it_is_admitted(self):
        story = given(observed(a_spec(2, queue="team-a")), JobCreated(reason="TrainingJobCreated"))
        story.then(scheduler, CREATE_SECRET, written(1, 2))
        message = "waits for quota in queue team-a"
        story.then(status, Record(JobSuspended(reason="TrainingJobSuspended", message=message)))

    def test_a_workload_that_waits_is_left_alone(self):
        given(*a_waiting_job(), workload()).then_nothing(scheduler)

    @pytest.mark.parametrize(
        "changed",
        [
            pytest.param({"generation": 0}, id="the job was edited"),
            pytest.param({"queue": "team-b"}, id="the queue was changed"),
            pytest.param({"size": 3}, id="the size was edited"),
        ],
    )
    def test_a_workload_that_waits_follows_the_job(self, changed: dict[str, object]):
        waiting = given(*a_waiting_job(), workload(**changed))  # type: ignore[arg-type]
        waiting.then(scheduler, written(1, 2, uid="w1"))

    def test_a_reserved_workload_waits_for_its_admission_checks(self):
        story = given(*a_waiting_job(), workload(reserved=True))
        story.then_nothing(scheduler)
        assert not [step for step in story.steps(status) if isinstance(step, Record)]

    def test_an_admitted_job_is_resumed(self):
        story = given(*a_waiting_job(), admitted())
        story.then(status, Record(JobCreated(reason="TrainingJobResumed")))
        resumed = given(*a_waiting_job(), admitted(), JobCreated(reason="TrainingJobResumed"))
        resumed.then(scheduler, Record(SlotsAssigned(slots=(workers(0, 1),), reason="JobCreated")))

    @pytest.mark.parametrize("event", [[], [JobCreated(reason="TrainingJobResumed")]], ids=["Suspended", "Created"])
    @pytest.mark.parametrize("answer", [workload(reserved=True), admitted()], ids=["reserved", "admitted"])
    def test_quota_for_the_templates_before_an_edit_is_given_back_and_asked_for_anew(
        self, answer: ChildrenObserved, event: list[AnyEvent]
    ):
        edited = observed(a_spec(2, queue="team-a", backoff_limit=1), generation=2)
        story = given(*a_waiting_job(), answer, *event, edited)
        assert not [step for step in story.steps(status) if step == Record(JobCreated(reason="TrainingJobResumed"))]
        if event:
            # Until it is suspended, its first slots may be on their way.
            story.then_nothing(scheduler)
            [pause] = [step.event for step in story.steps(status) if isinstance(step, Record)]
            story = given(*a_waiting_job(), answer, *event, edited, pause)
        story.then(scheduler, DeleteWorkload(FIRST, Uid("w1")), written(2, 2))

    def test_a_pause_before_the_first_pod_gives_the_quota_back_once_the_job_is_suspended(self):
        resumed = [*a_waiting_job(), admitted(), JobCreated(reason="TrainingJobResumed")]
        paused = given(*resumed, observed(a_spec(2, queue="team-a", suspend=True), generation=2))
        paused.then_nothing(scheduler)
        [pause] = [step.event for step in paused.steps(status) if isinstance(step, Record)]
        assert isinstance(pause, JobSuspended)

    def test_after_a_refusal_the_workload_waits_for_the_back_off(self):
        refused = EffectRefused(effect="WriteWorkload", reason="Forbidden")
        given(*a_waiting_job(), refused).then_nothing(scheduler)


class TestRunning:
    def test_kueue_is_told_once_that_the_pods_are_ready(self):
        running = a_queued_job()
        assert of_workloads(given(*running)) == []
        unready = given(*running, admitted(version=52))
        assert of_workloads(unready) == [ReadyWorkload(FIRST, Uid("w1"))]

    def test_a_job_keeps_its_quota_when_its_label_is_taken_away(self):
        story = given(*a_queued_job(), observed(a_spec(2), generation=2))
        assert of_workloads(story) == []
        assert not [step for step in story.steps(status) if isinstance(step, Record)]

    def test_a_job_without_a_label_is_suspended_with_the_quota_that_it_runs_with(self):
        assert not [step for step in given(*a_running_job(2)).steps(status) if isinstance(step, Record)]
        story = given(*a_queued_job(), observed(a_spec(2), generation=2), evicted())
        [step] = [step for step in story.steps(status) if isinstance(step, Record)]
        assert isinstance(step.event, JobSuspending)
        assert step.event.message.startswith("waits for quota in queue team-a; evicted (Preempted)")

    def test_a_job_that_loses_its_label_while_it_waits_runs(self):
        story = given(*a_waiting_job(), workload(), observed(a_spec(2), generation=2))
        story.then(scheduler, DeleteWorkload(FIRST, Uid("w1"), waiting=True))
        assert Record(JobCreated(reason="TrainingJobResumed")) in story.steps(status)

    def test_a_label_that_comes_back_counts_from_the_next_attempt_on(self):
        unlabelled = [*a_waiting_job(), workload(), observed(a_spec(2), generation=2)]
        begun = [
            *unlabelled,
            JobCreated(reason="TrainingJobResumed"),
            SlotsAssigned(slots=(workers(0, 1),), reason="JobCreated"),
            workload(version=60, deleting=True),
            ChildGone(kind="Workload", name=FIRST, uid=Uid("w1")),
        ]
        story = given(*begun, observed(a_spec(2, queue="team-a"), generation=3))
        assert of_workloads(story) == []
        assert not pauses(story)

    @pytest.mark.parametrize("queue", ["", "team-a"], ids=["no label", "a label that it got as it ran"])
    def test_a_workload_without_quota_stops_no_job_that_runs_without_a_queue(self, queue: str):
        running = [*a_running_job(2), observed(a_spec(2, queue=queue), generation=1)]
        story = given(*running, workload(7))
        assert not pauses(story)
        assert of_workloads(story) == [DeleteWorkload(workload_name(KEY, 7), Uid("w7"), waiting=True)]

    def test_a_restart_after_the_label_was_taken_away_begins_at_once(self):
        restarted = [
            *a_queued_job(),
            observed(a_spec(2), generation=2),
            JobRestarting(reason="RestartRequested", counted=False),
            *EVICTED[-1:],
            gone(),
            JobRestarted(attempt=1, counted=False, reason="RestartRequested"),
            secret(1),
        ]
        begins = SlotsAssigned(slots=(Slots(1, WORKER, ((0, 1),)),), reason="JobRestarted")
        given(*restarted).then_among_others(scheduler, Record(begins), DeleteWorkload(FIRST, Uid("w1")))
        for answer in (admitted(version=60), admitted(version=60, deleting=True)):
            assert not pauses(given(*restarted, begins, admitted(version=60, deleting=True), answer))

    def test_a_job_that_restarts_keeps_its_quota_and_asks_for_more_after_an_edit(self):
        restarting = [
            *a_queued_job(),
            JobRestarting(reason="RestartRequested", counted=False),
            observed(a_spec(3, queue="team-a"), generation=2),
            *EVICTED[-1:],
            gone(),
            JobRestarted(attempt=1, counted=False, reason="RestartRequested"),
            secret(1),
        ]
        begins = SlotsAssigned(slots=(Slots(1, WORKER, ((0, 1),)),), reason="JobRestarted")
        given(*restarting).then_among_others(scheduler, Record(begins), written(2, 3, replaces=FIRST))

    def test_a_label_that_a_running_job_gets_counts_from_its_next_attempt_on(self):
        running = [*a_running_job(2), observed(a_spec(2, queue="team-a"), generation=1)]
        story = given(*running)
        assert of_workloads(story) == []
        assert not [step for step in story.steps(status) if isinstance(step, Record)]
        paused = [*running, JobSuspending(reason="TrainingJobSuspending"), EVICTED[-1], gone()]
        assert of_workloads(given(*paused)) == [written(1, 2)]

    def test_a_foreign_workload_admits_no_job(self):
        [child] = admitted().children
        foreign = ChildrenObserved(children=(msgspec.structs.replace(child, name="theirs"),))
        given(*a_waiting_job(), foreign).then(scheduler, written(1, 2))


class TestEvicted:
    def test_an_evicted_job_is_suspended(self):
        message = "waits for quota in queue team-a; evicted (Preempted): preempted for another one"
        wanted = JobSuspending(reason="TrainingJobSuspending", message=message)
        given(*a_queued_job(), evicted()).then(status, Record(wanted))

    @pytest.mark.parametrize(
        ("size", "by", "keeps"),
        [
            pytest.param(2, Actor("muster", "Update", "scale"), True, id="its own size is written"),
            pytest.param(3, Actor("kubectl", "Update", "scale"), False, id="a person asks for another size"),
            pytest.param(2, Actor("kubectl-edit", "Update"), False, id="a person may have edited a template"),
            pytest.param(2, None, False, id="its writer is not known"),
        ],
    )
    @pytest.mark.parametrize("suspended", [False, True], ids=["while it ran", "while it is suspended"])
    def test_an_evicted_job_keeps_its_place_in_the_queue_with_the_templates_that_kueue_knows(
        self, size: int, by: Actor | None, keeps: bool, suspended: bool
    ):
        written_now = msgspec.structs.replace(
            observed(a_spec(size, queue="team-a", most=4), generation=2), by=(by,) if by is not None else ()
        )
        pause = [*EVICTED[-3:], gone(), JobSuspended(reason="TrainingJobSuspended")]
        events = [*a_queued_job(), *([*pause, written_now] if suspended else [written_now, *pause])]
        waits = given(*events, workload(version=70))
        assert of_workloads(waits) == ([] if keeps else [written(1, size, uid="w1")])
        back = given(*events, admitted(version=71))
        resumed = Record(JobCreated(reason="TrainingJobResumed")) in back.steps(status)
        assert (resumed, of_workloads(back)) == (
            (True, []) if keeps else (False, [DeleteWorkload(FIRST, Uid("w1")), written(2, size)])
        )

    def test_an_evicted_job_gets_no_pods(self):
        lost = [*a_running_job(2, queue="team-a", of_workers="Always"), PodsGone(uids=(worker(1).uid,))]
        lost[1:1] = [admitted(ready=True)]
        [again] = [step for step in given(*lost).steps(scheduler) if isinstance(step, Record)]
        replaced = [*lost, again.event]
        assert [step for step in given(*replaced).steps(scheduler) if isinstance(step, CreatePod)]
        story = given(*replaced, evicted())
        assert not [step for step in story.steps(scheduler) if isinstance(step, CreatePod)]

    def test_the_pod_that_replaces_a_lost_one_waits_for_its_end(self):
        going = [
            *a_running_job(2, queue="team-a", of_workers="Always"),
            admitted(ready=True),
            WorkersReleased(request=Uid(""), slots=(workers(1),), reason="Disrupted"),
            pods(worker(1, version=40, deleting=True)),
            SlotsAssigned(slots=(workers(2),), replaces=(workers(1),), reason="WorkersReplaced"),
        ]
        made = [
            [step for step in given(*events).steps(scheduler) if isinstance(step, CreatePod)]
            for events in (going, [*going, PodsGone(uids=(worker(1).uid,))])
        ]
        assert made == [[], [CreatePod(Slot(0, WORKER, 2))]]

    def test_quota_goes_back_when_the_pods_are_gone(self):
        assert of_workloads(given(*EVICTED)) == []
        assert of_workloads(given(*EVICTED, gone())) == [ReturnQuota(FIRST, Uid("w1"))]

    def test_an_evicted_workload_without_quota_waits(self):
        returned = workload(version=61, evicted="Preempted")
        assert of_workloads(given(*EVICTED, gone(), returned)) == []

    def test_a_slice_that_waits_is_deleted(self):
        growing = workload(2, size=3, replaces=FIRST)
        assert of_workloads(given(*EVICTED, growing)) == [DeleteWorkload(SECOND, Uid("w2"), waiting=True)]

    def test_a_workload_that_vanishes_suspends_its_job_and_is_made_again(self):
        vanished = [*a_queued_job(), ChildGone(kind="Workload", name=FIRST, uid=Uid("w1"))]
        message = "waits for quota in queue team-a"
        wanted = JobSuspending(reason="TrainingJobSuspending", message=message)
        given(*vanished).then(status, Record(wanted))
        assert of_workloads(given(*vanished)) == []
        assert of_workloads(given(*vanished, *EVICTED[-2:], gone())) == [written(1, 2)]

    def test_a_workload_that_a_person_deletes_goes_after_the_pods(self):
        deleted = admitted(version=60, deleting=True)
        after = [deleted, *EVICTED[-2:]]
        assert of_workloads(given(*a_queued_job(), *after)) == []
        assert of_workloads(given(*a_queued_job(), *after, gone())) == [
            DeleteWorkload(FIRST, Uid("w1")),
            written(2, 2),
        ]


class TestPaused:
    def test_a_person_s_pause_gives_the_place_up_when_the_pods_are_gone(self):
        paused = [*a_queued_job(), observed(a_spec(2, queue="team-a", suspend=True), generation=2), *EVICTED[-2:]]
        assert of_workloads(given(*paused)) == []
        assert of_workloads(given(*paused, gone())) == [DeleteWorkload(FIRST, Uid("w1"))]

    def test_a_workload_that_waits_goes_only_while_it_has_no_quota(self):
        paused = observed(a_spec(2, queue="team-a", suspend=True), generation=2)
        assert of_workloads(given(*a_waiting_job(), workload(), paused)) == [
            DeleteWorkload(FIRST, Uid("w1"), waiting=True)
        ]


class TestSize:
    def test_quota_goes_back_when_no_pod_of_a_released_slot_may_appear_any_more(self):
        begin, *running = a_running_job(2, queue="team-a", most=4)
        given_up = ScaleFailed(request=R1, reason="X", released=(workers(2),))
        story = [begin, admitted(size=3, ready=True), *running, *scaling_out(2), given_up]
        assert of_workloads(given(*story)) == []
        smaller = ShrinkWorkload(FIRST, Uid("w1"), ((LAUNCHER, 1), (WORKER, 2)))
        assert of_workloads(given(*story, TimePassed(anchor=len(story), timer="Unseen"))) == [smaller]

    def test_a_scale_in_gives_quota_back_when_its_pods_are_gone(self):
        release = WorkersReleased(request=R1, slots=(workers(1),), reason="Idle")
        released = [*a_queued_job(), *scaling_in(1), published(2, 0, request=R1), release]
        assert of_workloads(given(*released)) == []
        smaller = ShrinkWorkload(FIRST, Uid("w1"), ((LAUNCHER, 1), (WORKER, 1)))
        assert of_workloads(given(*released, PodsGone(uids=(worker(1).uid,)))) == [smaller]

    def test_a_lost_worker_keeps_its_quota(self):
        lost = given(*a_queued_job(), PodsGone(uids=(worker(1).uid,)))
        assert of_workloads(lost) == []

    def test_a_scale_out_waits_for_a_larger_workload(self):
        asked = [*a_queued_job(), scale_out(1)]
        story = given(*asked)
        assert of_workloads(story) == [written(2, 3, replaces=FIRST)]
        story.then_nothing(scaler)
        waiting = given(*asked, workload(2, size=3, replaces=FIRST))
        assert of_workloads(waiting) == []
        waiting.then_nothing(scaler)

    def test_a_scale_out_is_accepted_when_the_larger_workload_is_admitted(self):
        larger = admitted(2, size=3, replaces=FIRST, ready=True)
        story = given(*a_queued_job(), scale_out(1), larger)
        [step] = story.steps(scaler)
        assert isinstance(step, Record)
        assert isinstance(step.event, ScaleAccepted)
        finished = admitted(version=70, finished="WorkloadSliceReplaced", ready=True)
        assert of_workloads(given(*a_queued_job(), scale_out(1), larger, finished)) == [
            DeleteWorkload(FIRST, Uid("w1"))
        ]

    def test_a_job_runs_on_while_its_larger_workload_passes_the_admission_checks(self):
        checked = workload(2, size=3, replaces=FIRST, reserved=True)
        finished = admitted(version=70, finished="WorkloadSliceReplaced")
        story = given(*a_queued_job(), scale_out(1), checked, finished)
        assert of_workloads(story) == []
        assert not [step for step in story.steps(status) if isinstance(step, Record)]

    @pytest.mark.parametrize(
        "successor",
        [
            pytest.param({}, id="waits"),
            pytest.param({"reserved": True, "evicted": "Preempted"}, id="was evicted"),
            pytest.param({"reserved": True, "deleting": True}, id="is being deleted"),
        ],
    )
    def test_a_replaced_workload_gives_nothing_once_its_successor_has_no_quota(self, successor: dict[str, object]):
        finished = admitted(version=70, finished="WorkloadSliceReplaced", ready=True)
        story = given(*a_queued_job(), workload(2, size=3, replaces=FIRST, **successor), finished)  # type: ignore[arg-type]
        assert [type(step.event) for step in story.steps(status) if isinstance(step, Record)] == [JobSuspending]

    def test_a_larger_workload_of_another_size_gives_way(self):
        of_another_size = workload(2, size=4, replaces=FIRST)
        assert of_workloads(given(*a_queued_job(), scale_out(1), of_another_size)) == [
            DeleteWorkload(SECOND, Uid("w2"), waiting=True),
            written(3, 3, replaces=FIRST),
        ]
        assert of_workloads(given(*a_queued_job(), of_another_size)) == [
            DeleteWorkload(SECOND, Uid("w2"), waiting=True)
        ]

    @pytest.mark.parametrize(("reserved", "kept"), [(False, 2), (True, 3)], ids=["the older", "that with quota"])
    def test_of_two_larger_workloads_of_the_same_size_one_is_kept(self, reserved: bool, kept: int):
        twins = workload(2, size=3, replaces=FIRST), workload(3, size=3, replaces=FIRST, reserved=reserved)
        assert of_workloads(given(*a_queued_job(), scale_out(1), *twins)) == [
            DeleteWorkload(workload_name(KEY, 5 - kept), Uid(f"w{5 - kept}"), waiting=True)
        ]

    @pytest.mark.parametrize("queue", ["team-b", ""], ids=["another queue", "no queue"])
    def test_a_running_job_grows_in_the_queue_that_gave_its_quota(self, queue: str):
        moved = [*a_queued_job(), observed(a_spec(2, queue=queue, most=4), generation=2), scale_out(1)]
        assert of_workloads(given(*moved)) == [written(2, 3, replaces=FIRST)]
        assert of_workloads(given(*moved, workload(2, size=3, replaces=FIRST))) == []

    def test_a_larger_workload_in_another_queue_gives_way(self):
        elsewhere = workload(2, size=3, replaces=FIRST, queue="team-b")
        assert of_workloads(given(*a_queued_job(), scale_out(1), elsewhere)) == [
            DeleteWorkload(SECOND, Uid("w2"), waiting=True),
            written(3, 3, replaces=FIRST),
        ]

    @pytest.mark.parametrize("evicted", ["", "Preempted"])
    def test_the_quota_of_an_older_workload_goes_back_once_a_newer_one_is_admitted(self, evicted: str):
        older = admitted(version=70, evicted=evicted, ready=True)
        larger = admitted(2, size=3, replaces=FIRST, ready=True, queue="team-b")
        story = given(*a_queued_job(), scale_out(1), older, larger)
        assert of_workloads(story) == [DeleteWorkload(FIRST, Uid("w1"))]

    def test_the_quota_of_an_evicted_successor_goes_back(self):
        successor = admitted(2, size=3, replaces=FIRST, evicted="Preempted")
        assert of_workloads(given(*a_queued_job(), successor)) == [DeleteWorkload(SECOND, Uid("w2"))]

    def test_a_scale_in_asks_for_no_quota(self):
        assert of_workloads(given(*a_queued_job(), scale_in(1))) == []

    def test_a_scale_out_beyond_the_maximum_asks_for_no_quota(self):
        story = given(*a_queued_job(), scale_out(3))
        assert of_workloads(story) == []
        assert story.steps(scaler)


class TestTheEnd:
    def test_the_workload_is_finished_when_no_pod_runs(self):
        over = [
            *a_queued_job(),
            pods(launcher(version=30, phase="Succeeded")),
            JobSucceeded(reason="TrainingJobSucceeded"),
        ]
        assert of_workloads(given(*over)) == []
        ended = [*over, PodsGone(uids=(worker(0).uid, worker(1).uid))]
        assert of_workloads(given(*ended)) == [FinishWorkload(FIRST, Uid("w1"), "Succeeded")]
        for left in ({"finished": "Succeeded"}, {"held": False}):
            assert of_workloads(given(*ended, admitted(version=80, **left))) == [
                FinishWorkload(FIRST, Uid("w1"), "Succeeded")
            ]
        assert of_workloads(given(*ended, admitted(version=80, finished="Succeeded", held=False))) == []

    def test_a_workload_that_waits_to_grow_the_job_is_finished_while_pods_still_run(self):
        over = [
            *a_queued_job(),
            pods(launcher(version=30, phase="Succeeded")),
            JobSucceeded(reason="TrainingJobSucceeded"),
        ]
        assert of_workloads(given(*over, workload(2, size=3))) == [FinishWorkload(SECOND, Uid("w2"), "Succeeded")]
        assert of_workloads(given(*over, workload(2, size=3, finished="Succeeded"))) == []
        both = [*over, admitted(2, size=3)]
        assert of_workloads(given(*both)) == [FinishWorkload(FIRST, Uid("w1"), "Succeeded")]

    def test_the_workload_of_a_deleted_job_goes_after_its_pods(self):
        deleted = [*a_queued_job(), JobGone(version=99)]
        assert of_workloads(given(*deleted)) == []
        assert of_workloads(given(*deleted, gone())) == [DeleteWorkload(FIRST, Uid("w1"))]
        assert of_workloads(given(*deleted, gone(), admitted(version=99, held=False, deleting=True))) == []
