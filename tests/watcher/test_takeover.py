"""Jobs that another operator began: noted, left alone, adopted with what is there."""

from typing import Any

import pytest

from services.watcher.core.cache import Cache
from services.watcher.core.observe import observe
from services.watcher.core.questions import Answers, Presence
from services.watcher.core.takeover import LEFT_ALONE, OF_ITS_KIND, begun_by_another, warning
from services.watcher.core.views import inherited_pod, observed_job
from shared.cluster.objects import (
    ContainerState,
    ContainerStatus,
    Custom,
    CustomMetadata,
    Metadata,
    OwnerReference,
    Pod,
    PodSpec,
    PodStatus,
    Terminated,
)
from shared.frameworks.framework import Framework
from shared.frameworks.kinds import BUILT_IN
from shared.frameworks.mpijob import MPIJOB, OF_A_BATCH_JOB
from shared.frameworks.takeover import read_status
from shared.frameworks.training_job import TRAININGJOB
from shared.frameworks.trainjob import TRAINJOB
from shared.job.events.catalog import AnyEvent
from shared.job.events.watcher import (
    HistoryAccepted,
    HistoryBroken,
    JobAdopted,
    JobGone,
    JobOfAnother,
    PodsGone,
    PodsObserved,
)
from shared.job.fold import History
from shared.job.naming import JobKey, Uid
from shared.job.state import Job
from shared.job.views import PodView, Slots
from tests.kit.histories import KEY, a_history
from tests.kit.stories import scaler, scheduler, status
from tests.takeover.recorded import recorded

RESOURCE = TRAININGJOB.resource
SELECTOR = "group-name=kai.alibabacloud.com"
ADDED = ("Created", "WorkersCreated", "WorkersReady")


def a_job(**status: Any) -> Custom:
    recording = recorded("et-operator-running")[0]
    meta = CustomMetadata(name=KEY.name, namespace=KEY.namespace, uid=KEY.uid, generation=1, resource_version="7")
    return Custom(metadata=meta, spec=recording["spec"], status=recording["status"] | status)


def a_pod(name: str, labels: dict[str, str], *, owner: str = KEY.uid, phase: str = "Running", **spec: Any) -> Pod:
    kind = OwnerReference(
        api_version=RESOURCE.api_version, kind="TrainingJob", name=KEY.name, uid=owner, controller=True
    )
    meta = CustomMetadata(
        name=name,
        namespace=KEY.namespace,
        uid=f"of-{name}",
        resource_version="5",
        labels=labels,
        owner_references=(kind,),
    )
    return Pod(metadata=meta, spec=PodSpec(**spec), status=PodStatus(phase=phase))


def et_pod(role: str, index: int | None = None, **more: Any) -> Pod:
    labels = {"group-name": RESOURCE.group, "training-job-name": KEY.name, "training-job-role": role}
    name = f"{KEY.name}-{role}" + ("" if index is None else f"-{index}")
    return a_pod(name, labels if index is None else labels | {"replica-index": str(index)}, **more)


def a_cache(job: Custom, *pods: Pod, takes_over: bool = True) -> Cache:
    cache = Cache(BUILT_IN, takes_over=takes_over)
    for listing in cache.listings():
        listing.version = 10
    cache.set_job(RESOURCE, (KEY.namespace, KEY.name), observed_job(TRAININGJOB, job))
    if takes_over:
        for pod in pods:
            cache.set_inherited(SELECTOR, (KEY.namespace, pod.metadata.name), inherited_pod(pod, BUILT_IN))
    return cache


def told(cache: Cache, *events: AnyEvent) -> tuple[History, list[AnyEvent]]:
    """What the watcher says of it from here on, one fact after the other, and the history with that."""
    history, said = a_history(events), [*events]
    while facts := observe(history.job, cache).facts[:1]:
        said += facts
        history = a_history(said)
        if isinstance(facts[0], JobAdopted):
            break
    return history, said[len(events) :]


NOTED = JobOfAnother(phase="Running", kind=RESOURCE.kind, api_version=RESOURCE.api_version)


def begun(job: Job, resource: Custom) -> JobOfAnother | None:
    cache = a_cache(resource)
    return begun_by_another(job, cache.job(KEY), cache)


class TestNoting:
    def test_a_status_without_an_event_in_this_log_is_anothers(self):
        assert begun(a_history(()).job, a_job()) == NOTED

    @pytest.mark.parametrize(
        "job",
        [
            pytest.param(Custom(metadata=a_job().metadata, spec=a_job().spec), id="no status"),
            pytest.param(a_job(phase="", conditions=[]), id="a status that says nothing"),
            pytest.param(a_job(history={"log": "l", "sequence": 3, "hash": "ab"}), id="a head of ours"),
        ],
    )
    def test_any_other_is_not(self, job: Custom):
        assert begun(a_history(()).job, job) is None

    @pytest.mark.parametrize(
        "events",
        [
            pytest.param([NOTED], id="noted before"),
            pytest.param([JobGone()], id="gone"),
            pytest.param(
                [
                    HistoryBroken(log="l", sequence=3, hash="ab", reason="OtherLog"),
                    HistoryAccepted(sequence=3, hash="ab"),
                ],
                id="a loss that a person accepted",
            ),
        ],
    )
    def test_it_is_noted_once_and_not_in_the_place_of_a_lost_history(self, events: list[AnyEvent]):
        assert begun(a_history(events).job, a_job()) is None


class TestLeavingAlone:
    def test_only_the_resource_is_followed_and_no_service_acts(self):
        cache = a_cache(a_job(), et_pod("launcher"), takes_over=False)
        history, said = told(cache, NOTED)
        assert [type(event).__name__ for event in said] == ["JobObserved"]
        assert [*scheduler(history.job), *scaler(history.job), *status(history.job)] == []

    def test_without_a_list_of_its_pods_it_is_not_taken_over(self):
        cache = a_cache(a_job())
        cache.inherited[SELECTOR].version = 0
        _, said = told(cache, NOTED)
        assert [type(event).__name__ for event in said] == ["JobObserved"]

    def test_an_invalid_one_is_not_taken_over(self):
        job = a_job()
        job.spec["launcherAttachMode"] = "kubexec"
        _, said = told(a_cache(job, et_pod("launcher")), NOTED)
        assert "JobAdopted" not in [type(event).__name__ for event in said]

    def test_one_that_is_deleted_before_more_of_it_was_recorded_is_gone(self):
        cache = a_cache(a_job())
        cache.set_job(RESOURCE, (KEY.namespace, KEY.name), None)
        cache.held_back = False
        job = a_history([NOTED]).job
        (question,) = observe(job, cache).questions
        answers = Answers(presence=(question, Presence(there=False)))
        assert observe(job, cache, answers).facts == (JobGone(version=10),)

    def test_one_that_goes_is_not_touched_either(self):
        history = a_history([*told(a_cache(a_job(), takes_over=False), NOTED)[1], NOTED, JobGone()])
        assert [*scheduler(history.job), *scaler(history.job)] == []


class TestSayingWhy:
    def of_mpi_operator(self, *reached: str) -> Custom:
        """A job as its definition stores it: with `sshAuthMountPath`."""
        job = recorded("mpijob-running")[0]
        conditions = [{"type": kind, "status": "True"} for kind in reached]
        return Custom(
            metadata=a_job().metadata,
            spec=job["spec"] | {"sshAuthMountPath": "/root/.ssh"},
            status={"conditions": conditions},
        )

    def heard(
        self, job: Custom, noted: JobOfAnother | None = None, *, of: Framework = MPIJOB, takes_over: bool = True
    ) -> tuple[Cache, Job]:
        """The job as the log has it once the watcher has seen this resource."""
        cache = Cache(BUILT_IN, takes_over=takes_over)
        for listing in cache.listings():
            listing.version = 10
        cache.set_job(of.resource, (KEY.namespace, KEY.name), observed_job(of, job))
        first = noted or begun_by_another(a_history(()).job, cache.job(KEY), cache)
        assert first is not None
        history, said = told(cache, first)
        assert len(said) < 9, said
        return cache, history.job

    def said(self, job: Custom, *, takes_over: bool = True) -> tuple[str, str] | None:
        cache, heard = self.heard(job, takes_over=takes_over)
        return warning(heard, cache)

    def test_a_launcher_of_a_batch_job_is_named_while_it_may_run(self):
        assert self.said(self.of_mpi_operator("Created", "Running")) == (LEFT_ALONE, OF_A_BATCH_JOB)

    @pytest.mark.parametrize("last", ["Suspended", "Succeeded", "Failed"])
    def test_nothing_is_said_of_one_that_can_be_taken_over(self, last: str):
        assert self.said(self.of_mpi_operator("Created", last)) is None

    def test_the_problem_of_an_invalid_one_is_named(self):
        job = a_job()
        job.spec["launcherAttachMode"] = "kubexec"
        cache = a_cache(job, et_pod("launcher"))
        history, _ = told(cache, NOTED)
        (problem,) = history.job.resource.problems
        said = observe(history.job, cache).warning
        assert said == (LEFT_ALONE, f"spec.launcherAttachMode: {problem.message} ({problem.reason})")

    def test_first_a_person_has_to_say_that_the_operator_is_gone(self):
        said = self.said(self.of_mpi_operator("Created", "Running"), takes_over=False)
        assert said is not None
        assert "MUSTER_TAKE_OVER" in said[1]

    def test_a_log_of_before_says_the_obstacle_from_now_on(self):
        _, job = self.heard(self.of_mpi_operator("Created", "Running"), NOTED)
        assert job.resource.obstacle == OF_A_BATCH_JOB

    def test_an_obstacle_that_is_gone_is_told_as_well(self):
        noted = JobOfAnother(phase="Running", obstacle=OF_A_BATCH_JOB)
        _, job = self.heard(self.of_mpi_operator("Created", "Suspended"), noted, takes_over=False)
        assert (job.resource.another, job.resource.obstacle) == (True, "")

    def test_a_launcher_of_v1_that_is_not_seen_is_told_once_the_pods_are_listed(self):
        resource = self.of_mpi_operator("Created", "Running")
        del resource.spec["sshAuthMountPath"]
        cache, job = self.heard(resource)
        assert (job.resource.another, job.resource.obstacle) == (True, OF_A_BATCH_JOB)
        # A restarted watcher, which has not listed them yet, says nothing else.
        for listing in cache.inherited.values():
            listing.version = 0
        assert not observe(job, cache).facts

    def test_a_kind_that_cannot_be_taken_over_is_named(self):
        status = {"jobsStatus": [{"name": "node", "active": 1}]}
        resource = Custom(metadata=a_job().metadata, spec={"runtimeRef": {"name": "a"}}, status=status)
        cache, job = self.heard(resource, of=TRAINJOB, takes_over=False)
        assert warning(job, cache) == (LEFT_ALONE, OF_ITS_KIND)


class TestAdopting:
    def adopted(self, job: Custom, *pods: Pod) -> JobAdopted:
        _, said = told(a_cache(job, *pods), NOTED)
        (found,) = (event for event in said if isinstance(event, JobAdopted))
        return found

    def test_its_pods_are_known_before_it_is_adopted(self):
        _, said = told(a_cache(a_job(), et_pod("launcher"), et_pod("worker", 0)), NOTED)
        assert [type(event).__name__ for event in said] == ["JobObserved", "PodsObserved", "JobAdopted"]
        (views,) = (event for event in said if isinstance(event, PodsObserved))
        assert [(pod.name, pod.claimed) for pod in views.pods] == [
            ("resnet-launcher", False),
            ("resnet-worker-0", False),
        ]

    def test_a_worker_that_should_be_there_is_lost(self):
        found = self.adopted(a_job(), et_pod("launcher"), et_pod("worker", 1))
        assert found.slots == (Slots(0, "launcher", ((0, 0),)), Slots(0, "worker", ((1, 1),)))
        assert (found.lost, found.size, found.next_index) == ((Slots(0, "worker", ((0, 0),)),), 2, 2)

    def test_before_the_launcher_had_its_turn_what_is_missing_is_made(self):
        early = a_job()
        conditions = [known for known in early.status["conditions"] if known["type"] in ADDED[:2]]
        found = self.adopted(a_job(phase="Created", conditions=conditions), et_pod("worker", 0))
        assert (found.slots, found.lost, found.members) == ((Slots(0, "worker", ((0, 1),)),), (), ())

    def test_a_finished_one_brings_its_end_and_counts(self):
        found = self.adopted(
            a_job(phase="Failed", completionTime="2030-01-01T00:00:00Z", replicaStatuses={"Launcher": {"failed": 1}})
        )
        assert (found.phase, found.completion_time, found.slots) == ("Failed", "2030-01-01T00:00:00Z", ())
        assert [(count.role, count.failed) for count in found.counts] == [("launcher", 1)]

    def test_a_pod_under_another_name_is_not_one_of_its_places(self):
        labels = et_pod("worker", 3).metadata.labels or {}
        found = self.adopted(a_job(), et_pod("launcher"), et_pod("worker", 0), a_pod("mine", labels))
        assert found.slots == (Slots(0, "launcher", ((0, 0),)), Slots(0, "worker", ((0, 0),)))


class TestPods:
    def test_one_that_is_missing_from_the_list_of_its_operator_is_gone_whatever_other_lists_show(self):
        launcher, worker = et_pod("launcher"), et_pod("worker", 0)
        cache = a_cache(a_job(), launcher, worker)
        history, _ = told(cache, NOTED)
        for listing in (cache.pods, *cache.inherited.values()):
            # No pod of Muster's and none of another operator has changed since the pods began.
            listing.version = 4
        cache.inherited[SELECTOR].version = 6
        cache.set_inherited(SELECTOR, (KEY.namespace, worker.metadata.name), None)
        assert PodsGone(uids=(Uid("of-resnet-worker-0"),)) in observe(history.job, cache).facts

    @pytest.mark.parametrize(
        "pod",
        [
            pytest.param(a_pod("x", {}), id="no labels"),
            pytest.param(a_pod("x", {"training-job-role": "worker"}), id="a worker without an index"),
            pytest.param(a_pod("x", {"training-job-role": "worker", "replica-index": "-1"}), id="no index"),
            pytest.param(a_pod("x", {"training-job-role": "judge", "replica-index": "1"}), id="no role of its kind"),
            pytest.param(Pod(metadata=Metadata(name="x", labels={"training-job-role": "launcher"})), id="no owner"),
        ],
    )
    def test_a_pod_that_does_not_say_its_place_is_none_of_ours(self, pod: Pod):
        assert inherited_pod(pod, BUILT_IN) is None

    def test_the_owners_uid_says_whose_it_is(self):
        resource = inherited_pod(et_pod("worker", 1, owner="older-life"), BUILT_IN)
        assert resource is not None
        assert resource[0] == JobKey(KEY.namespace, KEY.name, Uid("older-life"))

    @pytest.mark.parametrize(
        ("policy", "code", "ended"),
        [("Never", 1, True), ("OnFailure", 1, False), ("OnFailure", 0, True), ("Always", 0, False)],
    )
    def test_a_container_that_begins_again_has_not_ended(self, policy: str, code: int, *, ended: bool):
        pod = et_pod("worker", 0, restart_policy=policy)
        gone = ContainerStatus(name="main", state=ContainerState(terminated=Terminated(exit_code=code)))
        resource = inherited_pod(
            Pod(metadata=pod.metadata, spec=pod.spec, status=PodStatus(phase="Running", container_statuses=(gone,))),
            BUILT_IN,
        )
        assert resource is not None
        view: PodView = resource[1]
        assert (view.phase != "Running", bool(view.exits)) == (ended, ended)


@pytest.mark.parametrize(
    "nonsense",
    [None, [], 3, "", {"phase": 3}, {"conditions": 5}, {"conditions": [None, 4, {}, {"type": "x", "status": True}]}],
)
def test_a_status_of_any_shape_is_read_as_nothing(nonsense: Any):
    assert read_status(nonsense) is None


def test_of_a_broken_status_what_can_be_read_is():
    found = read_status(
        {"phase": "Running", "startTime": "soon", "restartCount": True, "replicaStatuses": {"Worker": 3, 4: {}}}
    )
    assert found is not None
    assert (found.phase, found.begun, found.start_time, found.restarts, found.counts) == ("Running", True, "", 0, ())
