"""Jobs that another operator began, with real pods, taken over: nothing restarts, and they finish.

A TrainingJob of et-operator's, which is scaled too, and an MPIJob of training-operator's.
"""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from muster.stack import Stack
from shared.cluster.kinds import CONFIGMAPS, PODS, SECRETS, SERVICES
from shared.frameworks.mpijob import MPIJOB
from shared.frameworks.scale_requests import SCALEINS, SCALEOUTS
from shared.frameworks.training_job import TRAININGJOBS
from tests.kit.hosts import MakeHost
from tests.kit.operator import SHELL, UNTIL_TOLD, WAITING_WORKER, Operator, a_request, launcher_that, of_kubeflow
from tests.takeover.recorded import recorded

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

JOB = "resnet"
CHILDREN = {"Pod": PODS, "Service": SERVICES, "Secret": SECRETS, "ConfigMap": CONFIGMAPS}


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def operator(host: MakeHost, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Operator]:
    """Its watcher is down: the other operator's time."""
    folder: Path = tmp_path_factory.mktemp("takeover")
    audit = folder / "audit.jsonl"
    settings = {"MUSTER_DRAIN": "PT1S", "MUSTER_TAKE_OVER": "true"}
    async with Stack(folder, host, settings=settings, audit=audit) as stack:
        stack.services["watcher"].kill()
        operator = Operator(stack, audit)
        yield operator


def left_by_et_operator() -> list[dict[str, Any]]:
    """The recording, with pods that run here; the job first."""
    objects = recorded("et-operator-running")
    for thing in objects:
        thing["metadata"]["namespace"] = "default"
    job, *others = objects
    roles = job["spec"]["etReplicaSpecs"]
    roles["launcher"]["template"]["spec"]["containers"] = [launcher_that(UNTIL_TOLD)]
    roles["worker"]["template"]["spec"]["containers"] = [WAITING_WORKER]
    for pod in (thing for thing in others if thing["kind"] == "Pod"):
        spec = pod["spec"]
        of = launcher_that(UNTIL_TOLD) if pod["metadata"]["name"].endswith("launcher") else WAITING_WORKER
        spec["containers"] = [spec["containers"][0] | of]
        for init in spec.get("initContainers") or ():
            init["image"] = SHELL
        # A scheduler's and a controller's business here.
        spec.pop("nodeName")
        spec.pop("serviceAccountName", None)
    return [thing for thing in objects if thing["kind"] != "ScaleOut"]


async def began(operator: Operator) -> dict[str, str]:
    """The other operator's job runs, and was scaled as that operator does; return the pods' uids."""
    kube = operator.stack.kube
    job, *others = left_by_et_operator()
    created = await kube.create(TRAININGJOBS, "default", job)
    # The files are there before the pods that mount them.
    for thing in sorted(others, key=lambda thing: thing["kind"] == "Pod"):
        thing["metadata"]["ownerReferences"][0]["uid"] = created.metadata.uid
        await kube.create(CHILDREN[thing["kind"]], "default", thing)

    async def runs() -> bool:
        pods = [await kube.get(PODS, "default", name) for name in await operator.pods(JOB)]
        return all(pod and pod.status.phase == "Running" for pod in pods)

    await operator.until(runs, lambda: "the other operator's pods run")
    for path, line in (("/etc/edl/hostfile", "%s:1"), ("/job/hostfile", "%s slots=1")):
        text = "".join(line % f"{JOB}-worker-{index}" + "\n" for index in (0, 1))
        await within(operator, f"printf '{text}' > {path}")
    await kube.patch(TRAININGJOBS, "default", JOB, {"status": job["status"]}, subresource="status")
    return await operator.pod_uids(JOB)


async def within(operator: Operator, line: str) -> str:
    return await operator.kubectl("exec", f"{JOB}-launcher", "-c", "main", "--", "sh", "-c", line)


async def reads(operator: Operator, *indices: int) -> None:
    """Wait until the launcher's program reads these workers, in every format."""
    want = [f"{JOB}-worker-{index}" for index in indices]
    look = "sh /etc/edl/discover_hosts.sh; echo; cat /job/hostfile"
    shown = [*(f"{name}:1" for name in want), "", *(f"{name} slots=1" for name in want)]
    said = ""

    async def so() -> bool:
        nonlocal said
        said = await within(operator, look)
        return said.splitlines() == shown

    await operator.until(so, lambda: f"{said!r}, not {shown}")


async def test_a_running_job_is_taken_over_scaled_and_finished(operator: Operator):
    before = await began(operator)
    assert sorted(before) == [f"{JOB}-launcher", f"{JOB}-worker-0", f"{JOB}-worker-1"]
    operator.stack.services["watcher"].start()
    await operator.members(JOB, f"{JOB}-worker-0", f"{JOB}-worker-1")

    async def linked() -> bool:
        return "/etc/mpi/hostfile" in await within(operator, "readlink /etc/edl/hostfile; readlink /job/hostfile")

    await operator.until(linked, lambda: "the hosts files are links")
    await reads(operator, 0, 1)
    assert await operator.pod_uids(JOB) == before

    await operator.apply(a_request("ScaleOut", "out", JOB, toAdd={"count": 1}))
    await operator.phase("ScaleSucceeded", SCALEOUTS, "out")
    await reads(operator, 0, 1, 2)
    await operator.apply(a_request("ScaleIn", "in", JOB, toDelete={"podNames": [f"{JOB}-worker-1"]}))
    await operator.phase("ScaleSucceeded", SCALEINS, "in")
    await reads(operator, 0, 2)
    now = await operator.pod_uids(JOB)
    kept = (f"{JOB}-launcher", f"{JOB}-worker-0")
    assert {name: now[name] for name in kept} == {name: before[name] for name in kept}

    await operator.tell_to_end(JOB)
    status = await operator.phase("Succeeded", TRAININGJOBS, JOB)
    assert status["startTime"] == "2029-12-31T22:00:00Z"
    await operator.has_pods(JOB, f"{JOB}-launcher")
    assert (await operator.pod_uids(JOB))[f"{JOB}-launcher"] == before[f"{JOB}-launcher"]
    types = await operator.types(JOB)
    assert types[:4] == ["JobOfAnother", "JobObserved", "PodsObserved", "JobAdopted"]
    assert "JobRestarting" not in types
    await operator.assert_replayed(JOB)


def left_by_training_operator() -> list[dict[str, Any]]:
    """The recording of an MPIJob of v1, with pods that run here; its launcher reads the hosts file that it mounts."""
    objects = recorded("mpijob-running")
    hosts = {"name": "mpi-job-config", "configMap": {"name": "linpack-config"}}
    for thing in objects:
        thing["metadata"]["namespace"] = "default"
        if thing["kind"] != "Pod":
            continue
        of = launcher_that(UNTIL_TOLD) if thing["metadata"]["name"].endswith("launcher") else WAITING_WORKER
        mounted = {"volumeMounts": [{"name": "mpi-job-config", "mountPath": "/etc/mpi"}]}
        thing["spec"] = {"restartPolicy": "Never", "containers": [{**of, **mounted, "name": "mpi"}], "volumes": [hosts]}
    return objects


async def test_a_running_mpi_job_of_v1_is_taken_over_with_its_hosts_file_and_finishes(operator: Operator):
    kube, mpijobs = operator.stack.kube, MPIJOB.resource
    operator.stack.services["watcher"].kill()
    job, *others = left_by_training_operator()
    created = await kube.create(mpijobs, "default", job)
    for thing in others:
        thing["metadata"]["ownerReferences"][0]["uid"] = created.metadata.uid
        await kube.create(CHILDREN[thing["kind"]], "default", thing)
    names = ["linpack-launcher", "linpack-worker-0", "linpack-worker-1"]

    async def uids() -> dict[str, str]:
        pods = [await kube.get(PODS, "default", name) for name in names]
        assert all(pod and pod.status.phase == "Running" for pod in pods)
        return {pod.metadata.name: pod.metadata.uid for pod in pods if pod}

    await operator.until(uids, lambda: "the other operator's pods run")
    before = await uids()
    await kube.patch(mpijobs, "default", "linpack", {"status": job["status"]}, subresource="status")
    operator.stack.services["watcher"].start()
    label = "muster.dev/job-uid=" + created.metadata.uid
    await operator.selects(label, *names)
    assert await uids() == before
    look = ("exec", "linpack-launcher", "-c", "mpi", "--", "sh", "-c", "cat /etc/mpi/hostfile; ls /etc/mpi/kubexec.sh")

    async def reads_both() -> bool:
        lines = ["linpack-worker-0 slots=1", "linpack-worker-1 slots=1", "/etc/mpi/kubexec.sh"]
        return (await operator.kubectl(*look)).splitlines() == lines

    await operator.until(reads_both, lambda: "the launcher does not read both workers")
    await operator.signal("linpack-launcher", "mpi")
    status = await operator.comes_to("Succeeded", mpijobs, "linpack")
    assert status["startTime"] == "2029-12-31T22:00:00Z"
    await operator.selects(of_kubeflow("linpack"), "linpack-launcher")
    assert "JobRestarting" not in await operator.types("linpack")
