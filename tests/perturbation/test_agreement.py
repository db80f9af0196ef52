"""The judges of these tests: what only one watcher knows is a difference, and what never was is a lie."""

from datetime import UTC, datetime
from typing import Any, cast

import pytest

from devcluster.cluster import DevelopmentCluster
from services.watcher.core.views import observed_pod
from shared.cluster.kinds import PODS
from shared.cluster.objects import Pod
from shared.frameworks.framework import owner_reference
from shared.frameworks.training_job import JOB_NAME, JOB_ROLE, REPLICA_INDEX, TRAININGJOBS
from shared.job.events.catalog import AnyEvent
from shared.job.events.watcher import ChildGone, JobDeleting, JobGone, LauncherLost, PodsGone, ScaleRequestGone
from shared.job.naming import ATTEMPT, JOB_UID, Uid
from shared.job.spec import WORKER
from shared.job.views import PodView
from tests.kit.builders import R1, a_running_job, a_spec, observed, pods, scale_out, worker
from tests.kit.histories import KEY, a_history, stored
from tests.perturbation.agreement import State, difference, folded
from tests.perturbation.witness import Witness

BEFORE = [*a_running_job(workers=2), scale_out(request=R1)]
POD = Uid("pod-7")


def told(*events: AnyEvent) -> State:
    return folded([a_history([*BEFORE, *events]).job])


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(PodsGone(uids=(Uid("pod-1"),)), id="a pod is missing"),
        pytest.param(pods(worker(2)), id="a pod too many"),
        pytest.param(pods(worker(1, version=90, phase="Failed")), id="a pod failed"),
        pytest.param(ChildGone(kind="ConfigMap", name="resnet-config", uid=Uid("config")), id="a child is missing"),
        pytest.param(ScaleRequestGone(uid=R1), id="a request is missing"),
        pytest.param(observed(a_spec(3), generation=2), id="another spec"),
        pytest.param(JobDeleting(version=90), id="the job is on its way out"),
        pytest.param(JobGone(version=90), id="the job is gone"),
    ],
)
def test_what_one_of_two_logs_does_not_know_is_a_difference(event: AnyEvent):
    assert told(event) != told()
    assert difference(told(event), told())


def test_versions_that_changed_nothing_are_none():
    assert told(pods(worker(1, version=90))) == told()


def a_witness_of_a_pod(phase: str = "Running") -> tuple[Witness, PodView]:
    """And how a watcher would tell of that pod."""
    witness = Witness(cast(DevelopmentCluster, None))
    labels = {JOB_NAME: KEY.name, JOB_UID: KEY.uid, JOB_ROLE: WORKER, ATTEMPT: "0", REPLICA_INDEX: "7"}
    owner = owner_reference(TRAININGJOBS, KEY)
    metadata = {"namespace": KEY.namespace, "name": "resnet-worker-7", "uid": POD, "resourceVersion": "30"}
    manifest = {"metadata": {**metadata, "labels": labels, "ownerReferences": [owner]}, "status": {"phase": phase}}
    shown: Any = witness.note(PODS, manifest)
    assert isinstance(shown, Pod)
    sight = observed_pod(shown)
    assert sight is not None
    return witness, sight[1]


def lies(witness: Witness, event: AnyEvent) -> list[str]:
    return witness.lies([stored(a_history(BEFORE), event)])


def test_a_pod_as_it_was_is_no_lie_and_one_as_it_never_was_is():
    witness, pod = a_witness_of_a_pod()
    _, other = a_witness_of_a_pod("Failed")
    assert lies(witness, pods(pod)) == []
    assert lies(witness, pods(other))
    assert lies(witness, pods(pod, worker(1)))


@pytest.mark.parametrize("event", [PodsGone(uids=(POD,)), LauncherLost(uid=POD)], ids=["gone", "lost"])
def test_an_end_that_did_not_happen_is_a_lie_and_so_is_one_told_too_early(event: AnyEvent):
    witness, _ = a_witness_of_a_pod()
    assert lies(witness, event)
    witness.ended[POD] = datetime(2031, 1, 1, tzinfo=UTC).timestamp()
    assert lies(witness, event)
    witness.ended[POD] = datetime(2029, 1, 1, tzinfo=UTC).timestamp()
    assert lies(witness, event) == []


def test_the_end_of_a_job_ends_its_pods():
    witness, _ = a_witness_of_a_pod()
    witness.ended[KEY.uid] = datetime(2029, 1, 1, tzinfo=UTC).timestamp()
    assert lies(witness, PodsGone(uids=(POD,))) == []
    assert lies(witness, JobGone(version=90)) == []
