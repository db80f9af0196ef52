"""`muster why` of jobs without a launcher: every pod by its name, and no word of hosts files.

What whole answers look like is in `tests/golden/why`.
"""

import msgspec
import pytest

from shared.errors import Refused
from shared.frameworks.kinds import BUILT_IN
from shared.job.events.catalog import AnyEvent
from shared.job.events.scaler import HostsPublished
from shared.job.events.scheduler import JobRestarted, SlotsAssigned
from shared.job.events.status import JobCreated, JobFailed, JobRestarting, JobRunning, JobSucceeded
from shared.job.events.watcher import DisruptionNoticed, JobObserved, PodsGone, PodsObserved, TimePassed
from shared.job.naming import Slot, Uid
from shared.job.spec import WORKER, RoleSpec
from shared.job.views import Exit, Slots, spans
from shared.telling.causes.links import OWN_OUTPUT
from shared.telling.causes.walk import Causes
from shared.telling.reading import fold_all
from shared.telling.targets import parse_target
from shared.telling.why import chain_lines, explained
from tests.golden.compare import assert_golden
from tests.kit.histories import KEY, log_of
from tests.kit.replicas import (
    CHIEF,
    TOGETHER,
    WORKERS,
    a_created_replicated_job,
    a_replicated_spec,
    a_running_replicated_job,
    ended,
    led_by_workers,
    replica,
)
from tests.muster.test_summary import a_crash_loop

replace = msgspec.structs.replace
(JOB,) = parse_target("tfjob/resnet", BUILT_IN).targets
SPEC = a_replicated_spec("OnFailure")
SUCCEEDED = JobSucceeded(reason="TFJobSucceeded")
REMAINS = replace(
    replica("worker", 1, version=60, phase="Failed", deleting=True), exits=ended("worker", 1, 137).pods[0].exits
)
ELASTIC = replace(
    led_by_workers("First"),
    handling=replace(TOGETHER, leader=WORKER, strict=False, elastic=True),
    roles=(RoleSpec(name=WORKER, replicas=2, min_replicas=2, max_replicas=4, stem="resnet-worker-"),),
)


def a_job_with_servers() -> list[AnyEvent]:
    servers = RoleSpec(name="ps", replicas=3, min_replicas=0, container="main", stem="resnet-ps-")
    return a_running_replicated_job(replace(SPEC, roles=(*SPEC.roles, servers)))


def a_job_with_a_pod_made_again() -> list[AnyEvent]:
    """Both workers fail, one after the other, and their slots are filled again by pods of the same names."""
    first, second = ([slot] for slot in WORKERS)
    story = [*a_running_replicated_job(SPEC), ended("worker", 0, 137), PodsGone(uids=(Uid("worker-0-0"),))]
    story += [SlotsAssigned(slots=spans(first), replaces=spans(first), reason="PodsReplaced"), ended("worker", 1, 137)]
    anchor = len(story)
    return [
        *story,
        PodsObserved(pods=(REMAINS,)),
        PodsGone(uids=(Uid("worker-1-0"),)),
        TimePassed(anchor=anchor, timer="Replacement:10"),
        SlotsAssigned(slots=spans(second), replaces=spans(second), reason="PodsReplaced"),
        PodsObserved(pods=(replica("worker", 1, life=1),)),
    ]


def a_job_that_began_again() -> list[AnyEvent]:
    whole = a_replicated_spec("OnFailure", handling=replace(TOGETHER, restarts="Job"))
    return [
        *a_running_replicated_job(whole),
        ended("chief", 0, 1),
        JobRestarting(reason="TFJobFailed", message="resnet-chief-0 exited with 1 (Error)"),
        JobRestarted(attempt=1, reason="TFJobFailed"),
        SlotsAssigned(slots=(Slots(1, "chief", ((0, 0),)), Slots(1, WORKER, ((0, 1),))), reason="JobRestarted"),
    ]


STORIES: dict[str, tuple[list[AnyEvent], str]] = {
    "replicas_running": (a_job_with_servers(), ""),
    "replicas_succeeded": ([*a_running_replicated_job(SPEC), ended("chief", 0, 0), SUCCEEDED], ""),
    "replicas_all_succeeded": (
        [
            *a_running_replicated_job(led_by_workers("All")),
            ended("worker", 1, 0),
            ended("worker", 0, 0),
            SUCCEEDED,
        ],
        "",
    ),
    "replica_that_failed_the_job": (
        [
            *a_running_replicated_job(a_replicated_spec()),
            ended("worker", 1, 3),
            JobFailed(reason="TFJobFailed", message="resnet-worker-1 exited with 3 (Error)"),
        ],
        "",
    ),
    "replica_made_again": (a_job_with_a_pod_made_again(), "worker-1"),
    "replicas_that_crash": (
        [
            *a_job_with_a_pod_made_again(),
            ended("worker", 1, 3, life=1),
            PodsObserved(pods=(replica("worker", 0, life=1),)),
            ended("worker", 0, 137, life=1),
        ],
        "",
    ),
    "replicas_begun_again": (a_job_that_began_again(), ""),
    "replicas_that_wait": (
        [
            *a_created_replicated_job(SPEC),
            PodsObserved(pods=(replica("worker", 0), replica("chief", 0, phase="Pending", reason="ImagePullBackOff"))),
        ],
        "",
    ),
    "replica_beside_a_sidecar_that_crashes": (
        [
            *a_running_replicated_job(SPEC),
            PodsObserved(pods=(replica("worker", 1, version=60, reason="CrashLoopBackOff", message="sidecar proxy"),)),
        ],
        "worker-1",
    ),
    "replicas_that_join": (
        [
            *a_running_replicated_job(ELASTIC),
            HostsPublished(version=1, members=((0, 1),)),
            DisruptionNoticed(node="node-2", uids=(Uid("worker-1-0"),), reason="NodeScaledDown"),
            PodsGone(uids=(Uid("worker-1-0"),)),
        ],
        "",
    ),
}


def of_tensorflow(event: AnyEvent) -> AnyEvent:
    """The kit's jobs are TrainingJobs."""
    if isinstance(event, JobObserved):
        return replace(event, kind="TFJob", api_version="kubeflow.org/v1")
    if isinstance(event, (JobCreated, JobRunning)):
        return replace(event, reason=event.reason.replace("TrainingJob", "TFJob"))
    return event


def causes_of(events: list[AnyEvent]) -> Causes:
    return fold_all(Causes(KEY), log_of(map(of_tensorflow, events)))


def said(events: list[AnyEvent], word: str = "") -> str:
    heading, chains = explained(causes_of(events), word, JOB)
    return "\n".join([*heading, *chain_lines(chains)]) + "\n"


@pytest.mark.parametrize("name", STORIES)
def test_the_answer_in_full(name: str):
    assert_golden(f"why/{name}", {"told": said(*STORIES[name])})


@pytest.mark.parametrize("name", STORIES)
def test_no_sentence_speaks_of_launchers_and_files_that_are_not_there(name: str):
    answer = said(*STORIES[name])
    assert "launcher" not in answer
    assert "hosts files" not in answer
    assert "trainingjob" not in answer.lower()


@pytest.mark.parametrize(
    ("word", "slot"),
    [
        pytest.param("resnet-ps-2", "resnet-ps-2", id="a pod's whole name"),
        pytest.param("ps-2", "resnet-ps-2", id="a role and an index"),
        pytest.param("chief", "resnet-chief-0", id="a role of one pod"),
        pytest.param("1", "resnet-worker-1", id="a worker's index"),
    ],
)
def test_a_pod_is_named_as_people_do(word: str, slot: str):
    assert said(a_job_with_servers(), word).startswith(f"{slot}, attempt 1: Ready")


def test_who_is_not_known_is_said_with_those_who_are():
    for word in ("ps", "ps-3", "launcher"):
        with pytest.raises(Refused) as refused:
            said(a_job_with_servers(), word)
        complaint = f"tfjob/resnet has no pod and no request {word!r}; it knows chief 0, ps 0-2, worker 0-1"
        assert str(refused.value) == complaint


def test_a_place_that_is_filled_again_tells_of_its_new_pod_alone():
    worker = replica("worker", 1, life=1, version=60, deleting=True, disruption="EvictionByEvictionAPI")
    answer = said([*a_job_with_a_pod_made_again(), PodsObserved(pods=(worker,))], "worker-1")
    gone = next(line for line in answer.splitlines() if "is being deleted" in line)
    assert "is about to go" in gone
    assert OWN_OUTPUT not in answer.partition("is being deleted")[0]


def test_of_several_containers_each_end_has_the_name_of_its_own():
    exits = (Exit("pytorch", 0, "Completed"), Exit("metrics", 9, "Error", "boom"))
    beside = replica("worker", 1, version=60, phase="Succeeded", exits=exits)
    answer = said([*a_running_replicated_job(SPEC), PodsObserved(pods=(beside,))], "worker-1")
    assert "ended: pytorch: exit code 0, metrics: exit code 9: boom" in answer
    assert OWN_OUTPUT not in answer


def test_why_a_pod_ended_is_known_if_its_kubelet_says_so():
    rejected = replica("worker", 1, version=60, phase="Failed", reason="OutOfcpu", message="not enough cpu")
    answer = said([*a_running_replicated_job(SPEC), PodsObserved(pods=(rejected,))], "worker-1")
    assert "not enough cpu" in answer
    assert OWN_OUTPUT not in answer


def test_the_end_of_the_job_is_that_of_the_pod_that_leads_it():
    events = [*a_running_replicated_job(SPEC), ended("worker", 0, 0), ended("chief", 0, 0), SUCCEEDED]
    causes = causes_of(events)
    assert causes.phase is not None
    assert causes.phase.cause is not None
    assert causes.phase.cause.text.startswith("resnet-chief-0 ended")
    assert Slot(0, "chief", 0) == CHIEF


@pytest.mark.parametrize("kind", ["TFJob", "PyTorchJob"])
def test_the_first_line_of_a_crash_loop_says_what_kubectl_says(kind: str):
    (first, *_), _ = explained(fold_all(Causes(KEY), log_of(a_crash_loop(kind))), "", JOB)
    assert "Restarting, 2 of 3 pods running, 1 pod replaced: resnet-worker-0 exited with 1 (Error); " in first
    assert first.endswith("; resnet-worker-0 is made again at 00:00:21 UTC")


def test_a_job_whose_pods_run_again_tells_of_no_failure():
    assert "which pods were lost" not in said(a_job_with_a_pod_made_again())
