"""Gangs: which pods find places together, and the PodGroups by which they do."""

from typing import Any

import pytest
from msgspec.structs import replace

from services.scheduler.core.effects import CreatePod, CreatePodGroup, DeletePodGroup
from shared.cluster.objects import Custom, Metadata
from shared.frameworks.gangs import OFF, POD_GROUPS, in_group, with_gang
from shared.job.events.catalog import AnyEvent
from shared.job.events.scheduler import JobRestarted, SlotsAssigned
from shared.job.events.status import JobCreated, JobFailed, JobRestarting
from shared.job.events.watcher import ChildGone, ChildrenObserved, JobGone, JobObserved, PodsGone
from shared.job.naming import Slot, Uid, gang_attempt, gang_name
from shared.job.policies.gangs import POD_GROUP, least_of
from shared.job.spec import LAUNCHER, RENDEZVOUS, WORKER, Elasticity, JobSpec, Problem
from shared.job.state import Job
from shared.job.steps import Record
from shared.job.views import ChildView, Slots
from shared.job.waiting import waiting
from tests.kit.builders import (
    a_running_job,
    a_spec,
    exited,
    observed,
    pods,
    scaling_out,
    secret,
    service,
    worker,
    workers,
)
from tests.kit.groups import a_group_spec
from tests.kit.histories import KEY
from tests.kit.replicas import a_replicated_spec
from tests.kit.stories import given, scheduler

GROUP = gang_name(KEY, 0)
PENDING: dict[str, Any] = {"phase": "Pending", "ran": False}
PLACED: dict[str, Any] = {**PENDING, "node": "node-1"}


def a_gang(size: int = 3, least: int = 3, **spec: Any) -> list[AnyEvent]:
    return [
        observed(a_spec(size, gang=0, **spec)),
        JobCreated(reason="TrainingJobCreated"),
        SlotsAssigned(slots=(workers(*range(size)),), reason="JobCreated", gang=least),
        service(),
        secret(),
    ]


def group(name: str = GROUP) -> ChildrenObserved:
    child = ChildView(kind=POD_GROUP, name=name, uid=Uid("group"), version=7, ours=True)
    return ChildrenObserved(children=(child,))


def of_pods(*story: AnyEvent) -> dict[int, str]:
    """The PodGroup of each pod that is made now."""
    return {step.slot.index: step.gang for step in given(*story).steps(scheduler) if isinstance(step, CreatePod)}


def of_groups(*story: AnyEvent) -> list[object]:
    kinds = (CreatePodGroup, DeletePodGroup)
    return [step for step in given(*story).steps(scheduler) if isinstance(step, kinds)]


@pytest.mark.parametrize(
    ("spec", "sizes", "least"),
    [
        pytest.param(a_spec(4), {WORKER: 4}, 0, id="each alone"),
        pytest.param(a_spec(4, gang=0), {WORKER: 4}, 4, id="a launcher waits for all workers, whatever the minimum"),
        pytest.param(a_spec(4, gang=2), {WORKER: 4}, 2, id="as many as were asked for"),
        pytest.param(
            a_spec(4, gang=9), {LAUNCHER: 1, WORKER: 4}, 4, id="never more than there are, and not the launcher"
        ),
        pytest.param(a_spec(1, gang=0), {WORKER: 1}, 0, id="one pod is no gang"),
        pytest.param(replace(a_replicated_spec(), gang=0), {"chief": 1, WORKER: 2}, 3, id="every pod of every role"),
        pytest.param(
            a_spec(4, least=2, gang=0, elasticity=Elasticity()), {WORKER: 4}, 2, id="with elasticity its minimum"
        ),
        pytest.param(
            a_spec(8, least=2, gang=6, elasticity=Elasticity(most_pending=3)),
            {WORKER: 8},
            3,
            id="no more than are made",
        ),
        pytest.param(
            a_group_spec(4, least=2, gang=0), {WORKER: 4, RENDEZVOUS: 1}, 2, id="an elastic group begins with its least"
        ),
    ],
)
def test_a_gang_has_the_pods_that_the_attempt_begins_with(spec: JobSpec, sizes: dict[str, int], least: int):
    assert least_of(Job(key=KEY, spec=spec), spec, sizes) == least


def test_the_first_slots_say_how_many_find_places_together():
    story = given(observed(a_spec(3, gang=0)), JobCreated(reason="TrainingJobCreated"))
    story.then_among_others(scheduler, Record(SlotsAssigned(slots=(workers(0, 1, 2),), reason="JobCreated", gang=3)))


def test_its_pods_name_the_group_whether_or_not_it_is_there_yet():
    assert of_groups(*a_gang()) == [CreatePodGroup(GROUP, 3)]
    assert of_pods(*a_gang()) == {0: GROUP, 1: GROUP, 2: GROUP}
    assert of_groups(*a_gang(), group()) == []
    assert of_pods(*a_gang(), group()) == {0: GROUP, 1: GROUP, 2: GROUP}


def test_a_job_that_lost_the_roles_of_its_gang_needs_no_group():
    edited = observed(a_spec(3, gang=0), generation=2)
    assert edited.spec is not None
    alone = replace(edited.spec, roles=tuple(role for role in edited.spec.roles if role.name == LAUNCHER))
    assert of_groups(*a_gang(), replace(edited, spec=alone)) == []


def test_a_gang_has_no_pod_beyond_its_number_and_the_others_come_alone_once_it_has_places():
    story = [*a_gang(4, least=2), group()]
    assert of_pods(*story) == {0: GROUP, 1: GROUP}
    lost = worker(0, version=11, deleting=True, **PENDING)
    without = [*story, pods(worker(0, **PENDING), worker(1, **PENDING)), pods(lost), PodsGone(uids=(lost.uid,))]
    assert of_pods(*without) == {2: GROUP}
    placed = [*story, pods(worker(0, **PLACED), worker(1, **PLACED))]
    assert of_pods(*placed) == {2: "", 3: ""}
    # Were it in the group, a pod would wait for two places after both were lost.
    gone = [worker(index, version=12, deleting=True, **PLACED) for index in (0, 1)]
    assert of_pods(*placed, pods(*gone), PodsGone(uids=tuple(pod.uid for pod in gone))) == {2: "", 3: ""}


def test_a_pod_that_is_made_again_under_its_name_keeps_its_place_in_the_gang():
    spec = observed(a_group_spec(4, least=2, gang=0))
    story = [spec, *a_gang(4, least=2)[1:], group(), pods(worker(0, **PENDING), worker(1, **PENDING))]
    lost = worker(0, version=11, deleting=True, **PENDING)
    story += [pods(lost), PodsGone(uids=(lost.uid,))]
    assert of_pods(*story) == {}
    again = SlotsAssigned(slots=(workers(0),), replaces=(workers(0),), reason="PodsReplaced")
    assert of_pods(*story, again) == {0: GROUP}


def test_a_group_that_a_person_deleted_is_made_again():
    gone = ChildGone(kind=POD_GROUP, name=GROUP, uid=Uid("group"))
    assert of_groups(*a_gang(), group(), gone) == [CreatePodGroup(GROUP, 3)]
    wrong = Problem(reason="NoWorker", field="spec", message="it has no worker role")
    invalid = JobObserved(kind="TrainingJob", api_version="v1", generation=2, version=9, problems=(wrong,))
    assert of_groups(*a_gang(), group(), gone, invalid) == [], "its priority stands in a template"


def test_the_launcher_is_in_no_gang():
    launched = SlotsAssigned(slots=(Slots(0, LAUNCHER, ((0, 0),)),), reason="WorkersReady")
    story = [*a_gang(), group(), pods(*(worker(index) for index in range(3))), launched]
    created = [step for step in given(*story).steps(scheduler) if isinstance(step, CreatePod)]
    assert created == [CreatePod(Slot(0, LAUNCHER, 0))]


@pytest.mark.parametrize(
    ("there", "named"),
    [
        pytest.param([worker(0, **PENDING)], GROUP, id="no pod has a node: with one less none would get one"),
        pytest.param([worker(0, **PLACED)], "", id="they have places, and one that comes alone would wait for others"),
        pytest.param([worker(0)], "", id="they run"),
    ],
)
def test_the_pod_that_replaces_a_lost_one_is_in_the_gang_until_that_has_places(there: list[Any], named: str):
    lost = worker(1, version=11, deleting=True, **PENDING)
    story = [*a_gang(), group(), pods(*there, worker(1, **PENDING)), pods(lost), PodsGone(uids=(lost.uid,))]
    replaced = SlotsAssigned(slots=(workers(3),), replaces=(workers(1),), reason="WorkersReplaced")
    assert of_pods(*story, replaced)[3] == named


def test_a_pod_of_a_gang_that_is_deleted_before_it_ran_is_replaced_whatever_its_policy():
    lost = worker(1, version=11, deleting=True, **PENDING)
    story = [pods(worker(1, **PENDING)), pods(lost), PodsGone(uids=(lost.uid,))]
    replaced = Record(SlotsAssigned(slots=(workers(3),), replaces=(workers(1),), reason="WorkersReplaced"))
    given(*a_gang(), *story).then_among_others(scheduler, replaced)
    alone = [observed(a_spec(3)), *a_gang()[1:]]
    assert replaced not in given(*alone, *story).steps(scheduler)


def running(size: int, **spec: Any) -> list[AnyEvent]:
    story = a_running_job(size, gang=0, **spec)
    [at] = [at for at, event in enumerate(story) if isinstance(event, SlotsAssigned) and event.reason == "JobCreated"]
    story[at] = SlotsAssigned(slots=(workers(*range(size)),), reason="JobCreated", gang=size)
    return [*story, group()]


def test_the_pods_of_a_scale_out_are_a_gang_of_their_own():
    story = given(*running(2, most=8), *scaling_out(2, 3))
    accepted = story.job.scaling.open_request
    assert accepted is not None
    name = gang_name(KEY, 0, accepted.accepted)
    story.then_among_others(
        scheduler,
        CreatePodGroup(name, 2),
        *(CreatePod(Slot(0, WORKER, index), accepted.name, name) for index in (2, 3)),
    )
    assert of_pods(*running(2, most=8), *scaling_out(2)) == {2: ""}
    assert of_pods(*running(2, most=8, elasticity=Elasticity()), *scaling_out(2, 3)) == {2: "", 3: ""}
    assert of_pods(*running(2, most=8), *scaling_out(2, 3), pods(worker(2, **PLACED))) == {3: ""}


def test_a_job_that_runs_makes_pods_of_no_gang():
    failed = worker(1, version=30, phase="Failed", exits=exited(1))
    replaced = SlotsAssigned(slots=(workers(2),), replaces=(workers(1),), reason="WorkersReplaced")
    assert of_pods(*running(2, of_workers="OnFailure"), pods(failed), replaced) == {2: ""}


def test_the_groups_of_an_attempt_go_with_its_pods():
    over = JobRestarting(reason="LauncherLost")
    story = [*a_gang(restart="OnFailure"), group(), pods(worker(0)), over]
    assert of_groups(*story) == []
    gone = [*story, PodsGone(uids=(worker(0).uid,))]
    assert of_groups(*gone) == [DeletePodGroup(GROUP, Uid("group"))]
    next_one = [*gone, JobRestarted(attempt=1), SlotsAssigned(slots=(Slots(1, WORKER, ((0, 2),)),), gang=3)]
    assert of_groups(*next_one) == [CreatePodGroup(gang_name(KEY, 1), 3), DeletePodGroup(GROUP, Uid("group"))]


def test_the_groups_of_a_job_go_with_its_last_pod_that_runs_or_with_the_job():
    ended = [*a_gang(), group(), pods(worker(0)), JobFailed(reason="LauncherLost")]
    assert of_groups(*ended) == []
    assert of_groups(*ended, PodsGone(uids=(worker(0).uid,))) == [DeletePodGroup(GROUP, Uid("group"))]
    assert of_groups(*a_gang(), group(), JobGone()) == [DeletePodGroup(GROUP, Uid("group"))]


def test_the_group_of_another_owner_or_under_another_name_is_left_alone():
    theirs = ChildView(kind=POD_GROUP, name=GROUP, uid=Uid("group"), version=7, ours=False)
    ended = [*a_gang(), ChildrenObserved(children=(theirs,)), group("somebodys"), JobFailed(reason="LauncherLost")]
    assert of_groups(*ended) == []


@pytest.mark.parametrize(
    ("story", "reason", "message"),
    [
        pytest.param(
            [pods(*(worker(index, **PENDING) for index in range(3)))],
            "PodGroupMissing",
            f"resnet-worker-0 waits for the PodGroup {GROUP}, which does not exist",
            id="no PodGroup",
        ),
        pytest.param(
            [group(), pods(worker(0, **PENDING), worker(2, **PENDING))],
            "GangIncomplete",
            "resnet-worker-0 waits for its gang: 3 pods have to find places together, and 2 exist",
            id="too few pods",
        ),
        pytest.param(
            [group(), pods(*(worker(index, **PENDING) for index in range(3)))],
            "Pending",
            "resnet-worker-0: Pending",
            id="they are considered",
        ),
        pytest.param(
            [
                group(),
                pods(worker(0, **PENDING, reason="Unschedulable", message="no room for 3"), worker(1, **PENDING)),
            ],
            "Unschedulable",
            "resnet-worker-0: Unschedulable: no room for 3",
            id="the kube-scheduler says why",
        ),
    ],
)
def test_a_wait_that_no_condition_tells_has_a_reason(story: list[AnyEvent], reason: str, message: str):
    wait = waiting(given(*a_gang(), *story).job)
    assert wait is not None
    assert (wait.reason, wait.message) == (reason, message)


@pytest.mark.parametrize(
    ("said", "before", "gang", "ignored"),
    [
        pytest.param(None, None, 0, "", id="all jobs are gangs where gangs are on"),
        pytest.param("true", None, 0, "", id="asked for"),
        pytest.param("false", 3, None, "", id="declined"),
        pytest.param("2", 3, 2, "", id="the annotation comes before minAvailable"),
        pytest.param(None, 3, 3, "", id="minAvailable"),
        pytest.param("all", None, 0, "set a number of pods, true or false", id="another word"),
        pytest.param("0", None, 0, "set a number of pods, true or false", id="no pods"),
    ],
)
def test_a_job_says_by_annotation_how_many(said: str | None, before: int | None, gang: int | None, ignored: str):
    job = Custom(metadata=Metadata(name="resnet", annotations={"muster.dev/gang": said} if said else None))
    spec = with_gang(job, a_spec(4, gang=before), "")
    assert spec.gang == gang
    assert [each.message for each in spec.ignored] == [ignored] * bool(ignored)


@pytest.mark.parametrize(
    ("said", "before", "field"),
    [
        pytest.param(None, None, "", id="did not ask"),
        pytest.param("true", None, "metadata.annotations[muster.dev/gang]", id="asked by annotation"),
        pytest.param(None, 3, "spec.runPolicy.schedulingPolicy.minAvailable", id="asked by minAvailable"),
    ],
)
def test_who_asked_is_told_why_there_is_no_gang(said: str | None, before: int | None, field: str):
    job = Custom(metadata=Metadata(name="resnet", annotations={"muster.dev/gang": said} if said else None))
    spec = with_gang(job, a_spec(4, gang=before), OFF)
    assert spec.gang is None
    assert [each.field for each in spec.ignored] == [field] * bool(field)


@pytest.mark.parametrize(
    ("said", "why_not", "told"), [("true", "", 1), (None, "", 1), ("false", "", 0), ("true", OFF, 1), (None, OFF, 0)]
)
def test_roles_of_several_priorities_are_no_gang_and_who_would_have_one_is_told(
    said: str | None, why_not: str, told: int
):
    job = Custom(metadata=Metadata(name="resnet", annotations={"muster.dev/gang": said} if said else None))
    spec = with_gang(job, a_spec(4), why_not, "spec.worker.priorityClassName")
    assert (spec.gang, len(spec.ignored)) == (None, told)


def test_a_pod_keeps_the_group_of_its_template():
    assert in_group({"spec": {}}, GROUP)["spec"] == {"schedulingGroup": {"podGroupName": GROUP}}
    own = {"spec": {"schedulingGroup": {"podGroupName": "mine"}}}
    assert in_group(own, GROUP) == own


def test_a_name_tells_its_attempt():
    assert gang_attempt(KEY, gang_name(KEY, 12)) == 12
    assert gang_attempt(KEY, gang_name(KEY, 3, 71)) == 3
    for other in ("resnet", f"{GROUP}-0", f"{GROUP}x", "resnet-uid-2-0", "0"):
        assert gang_attempt(KEY, other) in (None, *[0] * (other == "0"))
    assert [each.version for each in POD_GROUPS] == ["v1beta1", "v1alpha2"]
