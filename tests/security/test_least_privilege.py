"""Every right is needed and every call allowed: the services on a real API server, held to its audit log.

The story here makes every call that a service has, also the rare ones.  What the other tests on a real control plane
asked for is compared as each of their servers ends (`tests/kit/recordings.py`).
"""

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from devcluster.controlplane import ControlPlane
from muster.stack import Stack
from shared.cluster import Resource
from shared.cluster.kinds import AUTOSCALERS, PODS, SERVICES
from shared.cluster.objects import Custom
from shared.frameworks.kinds import BUILT_IN
from shared.frameworks.pytorchjob import PYTORCHJOB
from shared.frameworks.scale_requests import SCALEINS, SCALEOUTS
from shared.frameworks.trainer_schemas import CLUSTER_RUNTIMES, RUNTIMES
from shared.frameworks.training_job import TRAININGJOB, TRAININGJOBS
from shared.frameworks.trainjob import TRAINJOB
from shared.installation.permissions import Need
from shared.job.naming import HOSTS_VERSION
from tests.kit.controlplane import require_control_plane
from tests.kit.operator import SHELL, Operator, a_job, a_request, an_example, audited
from tests.kit.recordings import NOTHING, needed
from tests.kit.stopping import go_on, stopped
from tests.kit.trainer import replicated_job, runtime, train_job
from tests.security.rights import calls

pytestmark = [pytest.mark.real, pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

HERE = "default"
BRIEF = {"ttlSecondsAfterFinished": 0}
FOR_EVER = "sleep 1000 & wait"


def one_pod(container: str) -> dict[str, Any]:
    """A replica that ends at once, well."""
    command = {"name": container, "image": SHELL, "command": ["sh", "-c", "exit 0"]}
    return {"replicas": 1, "template": {"spec": {"containers": [command]}}}


def entry(container: str, **kind: str) -> list[dict[str, Any]]:
    """The same as the only entry of a list."""
    return [{**kind, **one_pod(container)}]


BRIEF_JOBS: Mapping[str, Any] = {
    "TFJob.kubeflow.org": {"runPolicy": BRIEF, "tfReplicaSpecs": {"Worker": one_pod("tensorflow")}},
    "PyTorchJob.kubeflow.org": {"runPolicy": BRIEF, "pytorchReplicaSpecs": {"Master": one_pod("pytorch")}},
    "MXJob.kubeflow.org": {"runPolicy": BRIEF, "mxReplicaSpecs": {"Scheduler": one_pod("mxnet")}},
    "MPIJob.kubeflow.org": {"runPolicy": BRIEF, "mpiReplicaSpecs": {"Launcher": one_pod("mpi")}},
    "JAXJob.kubeflow.org": {"runPolicy": BRIEF, "jaxReplicaSpecs": {"Worker": one_pod("jax")}},
    "PaddleJob.kubeflow.org": {"runPolicy": BRIEF, "paddleReplicaSpecs": {"Worker": one_pod("paddle")}},
    "XGBoostJob.kubeflow.org": {"runPolicy": BRIEF, "xgbReplicaSpecs": {"Master": one_pod("xgboost")}},
    "MXJob.fioravanzo.org": {"replicaSpecs": entry("mxnet", mxReplicaType="SCHEDULER")},
    "MXJob.mpba.fbk.eu": entry("mxnet", replicaType="SCHEDULER"),
    "MxJob.mxnet.mlkube.io": {"jobMode": "local", "replicaSpecs": entry("mxnet", mxReplicaType="WORKER")},
}
"""By kind, the spec of a job that ends at once, and is deleted then where it can say so.

The stories of TrainingJobs are told one by one, and TrainJobs have theirs with runtimes.
"""

NOT_YET: Mapping[str, str] = {}
"""Kinds that no story here is about, and why: their rights are not compared, and a recording must not have them."""


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def operator(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Operator]:
    require_control_plane()
    folder: Path = tmp_path_factory.mktemp("least")
    audit = folder / "audit.jsonl"
    async with Stack(folder, ControlPlane, settings={"MUSTER_DRAIN": "PT0S"}, audit=audit) as stack:
        yield Operator(stack, audit)


async def until_asked(operator: Operator, *wanted: Need) -> None:
    """Wait until the API server answered calls of all these kinds."""

    async def asked() -> bool:
        made = {call.need for call in calls(operator.audit.read_text().splitlines())}
        return made.issuperset(wanted)

    await operator.until(asked, lambda: f"never asked: {wanted}")


async def remove(operator: Operator, resource: Any, name: str) -> None:
    found = await operator.stack.kube.get(resource, HERE, name)
    assert found is not None
    await operator.stack.kube.delete(resource, HERE, name, uid=found.metadata.uid)


async def changed_meanwhile(operator: Operator, resource: Resource[Custom], manifest: dict[str, Any]) -> None:
    """Create a job and annotate it before its first status: only then the status service reads the job first."""
    name = manifest["metadata"]["name"]

    async def recorded() -> bool:
        return bool((await operator.job(name)).resource.generation)

    with stopped(operator.stack.services["status"].pid):
        await operator.stack.kube.create(resource, HERE, manifest)
        await operator.until(recorded, lambda: f"{name} is not in the log")
        await operator.stack.kube.patch(resource, HERE, name, {"metadata": {"annotations": {"team": "a"}}})


async def start(operator: Operator, name: str) -> None:
    await operator.stack.kube.create(TRAININGJOBS, HERE, a_job(name, FOR_EVER, workers=1))


async def test_a_job_trains_and_is_scaled_both_ways(operator: Operator):
    await start(operator, "whole")
    await operator.phase("Running", TRAININGJOBS, "whole")
    await operator.stack.kube.create(SCALEOUTS, HERE, a_request("ScaleOut", "out", "whole", toAdd={"count": 1}))
    await operator.phase("ScaleSucceeded", SCALEOUTS, "out")
    await operator.stack.kube.create(SCALEINS, HERE, a_request("ScaleIn", "in", "whole", toDelete={"count": 1}))
    await operator.phase("ScaleSucceeded", SCALEINS, "in")


async def test_a_request_runs_its_script(operator: Operator):
    # A script that is in every launcher.
    request = a_request("ScaleOut", "scripted", "whole", toAdd={"count": 1}, script="/etc/edl/discover_hosts.sh")
    await operator.stack.kube.create(SCALEOUTS, HERE, request)
    await operator.phase("ScaleSucceeded", SCALEOUTS, "scripted")
    await until_asked(operator, Need("scaler", "get", "", "pods/exec"))


async def test_a_job_goes_when_its_time_after_the_end_is_over(operator: Operator):
    job = a_job("brief", "exit 0", workers=1, ttlSecondsAfterFinished=0)
    await operator.stack.kube.create(TRAININGJOBS, HERE, job)
    await until_asked(operator, Need("scheduler", "delete", TRAININGJOBS.group, "trainingjobs"))


async def test_every_kind_has_a_story_here_or_a_reason_why_not():
    kinds = {kind.name for kind in BUILT_IN if kind not in (TRAININGJOB, TRAINJOB)}
    assert kinds == {*BRIEF_JOBS, *NOT_YET}, "write a job of each built-in kind into BRIEF_JOBS"
    assert not BRIEF_JOBS.keys() & NOT_YET.keys()


@pytest.mark.parametrize("kind", BRIEF_JOBS)
async def test_a_job_of_another_kind_comes_and_goes(operator: Operator, kind: str):
    framework = next(known for known in BUILT_IN if known.name == kind)
    resource = framework.resource
    # Three groups have an MXJob, and a pod's name is of one of them only.
    name = f"brief-{resource.plural}-{resource.group.partition('.')[0]}"
    await changed_meanwhile(operator, resource, {"metadata": {"name": name}, "spec": BRIEF_JOBS[kind]})
    about = resource.group, resource.plural
    await until_asked(operator, Need("status", "patch", resource.group, f"{resource.plural}/status"))
    if framework.definition.expires:
        await until_asked(operator, Need("scheduler", "delete", *about))
    else:
        await until_asked(operator, Need("scheduler", "get", *about))
        await remove(operator, resource, name)
    await until_asked(operator, Need("watcher", "get", *about))


@pytest.mark.parametrize("runtimes", [CLUSTER_RUNTIMES, RUNTIMES], ids=lambda kind: kind.plural)
async def test_a_train_job_comes_with_its_runtime_and_goes(operator: Operator, runtimes: Resource[Custom]):
    kube, resource = operator.stack.kube, TRAINJOB.resource
    waits = replicated_job("node", trains=False, image=SHELL, command=["sh", "-c", FOR_EVER])
    ends = replicated_job("launcher", image=SHELL, command=["sh", "-c", "exit 0"])
    policy = {"numNodes": 1, "mpi": {"numProcPerNode": 1, "mpiImplementation": "OpenMPI"}}
    name = f"brief-{runtimes.plural}"
    made = runtime(name, policy, waits, ends, kind=runtimes.kind)
    await kube.create(runtimes, HERE if runtimes is RUNTIMES else "", made)
    job = train_job(name, runtime=name)
    job["spec"]["runtimeRef"]["kind"] = runtimes.kind
    await changed_meanwhile(operator, resource, job)
    await until_asked(operator, Need("scheduler", "get", runtimes.group, runtimes.plural))
    await operator.comes_to("Complete", resource, name)
    await remove(operator, resource, name)
    await until_asked(operator, Need("watcher", "get", resource.group, resource.plural))


async def test_the_events_of_a_pod_that_waits_for_a_volume_are_read(operator: Operator):
    job = a_job("lacking", FOR_EVER)
    template = job["spec"]["etReplicaSpecs"]["worker"]["template"]["spec"]
    template["volumes"] = [{"name": "settings", "configMap": {"name": "settings"}}]
    await operator.apply(job)
    await until_asked(operator, Need("watcher", "list", "", "events"))
    await remove(operator, TRAININGJOBS, "lacking")


async def test_names_that_are_taken_are_looked_at(operator: Operator):
    kube = operator.stack.kube
    container = {"name": "main", "image": SHELL}
    # A scheduler that does not run: the pod stays Pending.
    foreign = {"schedulerName": "nobody", "containers": [container]}
    await kube.create(PODS, HERE, {"metadata": {"name": "taken-worker-0"}, "spec": foreign})
    await kube.create(SERVICES, HERE, {"metadata": {"name": "held"}, "spec": {"ports": [{"port": 80}]}})
    for name in ("taken", "held"):
        await start(operator, name)
    await until_asked(operator, *(Need("scheduler", "get", "", kind) for kind in ("pods", "services")))
    for name in ("taken", "held"):
        await remove(operator, TRAININGJOBS, name)
    for resource, name in ((PODS, "taken-worker-0"), (SERVICES, "held")):
        await remove(operator, resource, name)


async def test_the_autoscaler_of_a_policy_waits_for_its_name_and_goes_when_the_job_rests(operator: Operator):
    resource, name = PYTORCHJOB.resource, "measured"
    target = {"apiVersion": "v1", "kind": "ReplicationController", "name": "of-another"}
    await operator.apply(
        {
            "apiVersion": AUTOSCALERS.api_version,
            "kind": AUTOSCALERS.kind,
            "metadata": {"name": name, "namespace": HERE},
            "spec": {"scaleTargetRef": target, "maxReplicas": 1},
        }
    )
    job = an_example("pytorch/group")
    job["metadata"]["name"] = name
    half = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}
    job["spec"]["elasticPolicy"]["metrics"] = [{"type": "Resource", "resource": half}]
    await operator.apply(job)
    await until_asked(operator, Need("scheduler", "get", AUTOSCALERS.group, AUTOSCALERS.plural))
    await operator.kubectl("delete", "hpa", name)
    await operator.kubectl("wait", "hpa", name, "--for=create", "--timeout=60s")
    asked = '{"spec": {"runPolicy": {"suspend": true}}}'
    await operator.kubectl("patch", resource.plural, name, "--type=merge", f"--patch={asked}")
    await until_asked(operator, Need("scheduler", "delete", AUTOSCALERS.group, AUTOSCALERS.plural))
    await remove(operator, resource, name)


async def test_what_the_garbage_collector_leaves_is_deleted(operator: Operator):
    plane = operator.stack.cluster
    assert isinstance(plane, ControlPlane)
    await start(operator, "left")
    await operator.phase("Running", TRAININGJOBS, "left")
    # Without controllers no garbage collector follows owner references.
    plane.controllers.kill()
    try:
        await remove(operator, TRAININGJOBS, "left")
        await until_asked(
            operator,
            Need("watcher", "get", TRAININGJOBS.group, "trainingjobs"),
            Need("scheduler", "delete", "", "pods"),
            Need("scheduler", "delete", "", "services"),
            Need("scheduler", "delete", "", "secrets"),
            Need("scaler", "delete", "", "configmaps"),
        )
    finally:
        await plane.controllers.run()


async def test_another_pod_with_the_launchers_name_is_left_alone(operator: Operator):
    kube, services, name = operator.stack.kube, operator.stack.services, "whole-launcher"
    launcher = await kube.get(PODS, HERE, name)
    assert launcher is not None
    with stopped(services["scaler"].pid):
        # The watcher tells that the launcher has to load its files again, and then nothing more.
        await kube.patch(PODS, HERE, name, {"metadata": {"annotations": {HOSTS_VERSION: "0"}}})

        async def told() -> bool:
            job = await operator.job("whole")
            return job.launcher is not None and job.launcher.hosts == 0

        await operator.until(told, lambda: "the annotation is not in the log")
        with stopped(services["watcher"].pid):
            await operator.kubectl("delete", "pod", name, "--force", "--grace-period=0")
            foreign = {"schedulerName": "nobody", "containers": [{"name": "main", "image": SHELL}]}
            other = await kube.create(PODS, HERE, {"metadata": {"name": name}, "spec": foreign})
            go_on(services["scaler"].pid)
            await until_asked(operator, Need("scaler", "get", "", "pods"))
            kept = await kube.get(PODS, HERE, name)
            assert kept is not None
            assert kept.metadata.uid == other.metadata.uid != launcher.metadata.uid
            assert HOSTS_VERSION not in (kept.metadata.annotations or {})
    # Before the launcher counts as lost.
    await until_asked(operator, Need("watcher", "get", "", "namespaces"))


async def test_29_pods_of_others_are_never_asked_for(operator: Operator):
    asked = [
        call["requestURI"]
        for call in audited(operator.audit)
        if call["verb"] in ("list", "watch")
        and call["objectRef"]["resource"] == "pods"
        and ":muster:" in call["user"]["username"]
    ]
    assert asked
    assert all("labelSelector=muster.dev%2Fjob-uid" in uri for uri in asked)


async def test_31_the_roles_are_what_all_that_needed(operator: Operator):
    assert needed(operator.audit, spared=[kind for kind in BUILT_IN if kind.name in NOT_YET]) == NOTHING
