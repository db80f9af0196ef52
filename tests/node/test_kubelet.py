"""What only a real kubelet can show: volumes, exits, endings, restarts, keys, logs and exec, and its own absence."""

import asyncio
import datetime
import json
import time
from pathlib import Path
from typing import Any

import pytest

from services.scheduler.keypair import make_key_pair
from shared.cluster import MOST_OUTPUT, Execution
from shared.cluster.kinds import PODS
from shared.errors import Refused, Transient
from shared.frameworks.attaching import SSH_SETTINGS
from shared.frameworks.scale_requests import SCALEINS, SCALEOUTS
from shared.frameworks.tfjob import TFJOB
from shared.frameworks.training_job import SSH_KEYS, TRAININGJOBS
from shared.job.naming import RESTART_IN_PLACE
from shared.job.policies.replacement import MOST_IN_PLACE
from tests.e2e import test_kubelet as of_the_kubelet
from tests.e2e import test_life as of_a_life
from tests.kit.operator import SHELL, Operator, a_job, a_request

pytestmark = [pytest.mark.node, pytest.mark.asyncio(loop_scope="module")]

# The life of a job is the same on a real node, and ends of containers are a kubelet's to tell: one node for all.
for stories in (of_a_life, of_the_kubelet):
    globals().update({name: story for name, story in vars(stories).items() if name.startswith("test_")})

REFRESH_SECONDS = 15.0
"""Below one on a quiet machine; a kubelet that was not nudged takes up to 80, and hardly ever twice less than this."""

FOREVER = "sleep 1000 & wait"

TELL_SIZES = (
    "while :; do now=$(/etc/edl/discover_hosts.sh | wc -l); [ $now = ${last:-0} ] || echo $now; last=$now; sleep 0.02; "
    "done"
)

# It takes so long that the listener is there before the end.
SAYS_GOODBYE = {
    "name": "main",
    "image": SHELL,
    "command": ["sh", "-c", "trap 'echo leaving; sleep 3; echo gone; exit 0' TERM; while :; do sleep 0.05; done"],
}

STAYS = {"name": "main", "image": SHELL, "command": ["sh", "-c", "trap '' TERM; while :; do sleep 0.05; done"]}


async def test_20_hosts_files_change_in_the_running_launcher_within_seconds(operator: Operator):
    await operator.apply(a_job("fresh", TELL_SIZES))
    await operator.phase("Running", TRAININGJOBS, "fresh")
    await _said(operator, "fresh-launcher", "2")
    await operator.apply(a_request("ScaleOut", "fresh-out", "fresh", toAdd={"count": 2}))
    await operator.phase("ScaleSucceeded", SCALEOUTS, "fresh-out")
    await _said(operator, "fresh-launcher", "4")
    await operator.apply(a_request("ScaleIn", "fresh-in", "fresh", toDelete={"count": 1}))
    await operator.phase("ScaleSucceeded", SCALEINS, "fresh-in")
    await _said(operator, "fresh-launcher", "3")
    lines = (await operator.kubectl("logs", "--timestamps", "fresh-launcher")).splitlines()
    seen = {line.split()[1]: _time(line.split()[0]) for line in lines}
    published = [
        _time(stored.time) for stored in await operator.log() if _is(stored.subject, "fresh", "HostsPublished")
    ]
    waits = [(seen[size] - at).total_seconds() for size, at in zip("43", published[1:], strict=True)]
    print(f"from HostsPublished to the launcher's eyes: {waits} s")
    assert max(waits) < REFRESH_SECONDS
    assert await _restarts(operator, "fresh-launcher") == 0
    await operator.kubectl("delete", "trainingjob", "fresh", "--wait=false")


async def test_a_launcher_without_memory_is_told_from_one_that_failed(operator: Operator):
    manifest = a_job("greedy", "")
    container = manifest["spec"]["etReplicaSpecs"]["launcher"]["template"]["spec"]["containers"][0]
    container["command"] = ["python3", "-c", "print(len(b'x' * (1 << 30)))"]
    container["resources"] = {"limits": {"memory": "64Mi"}}
    await operator.apply(manifest)
    status = await operator.phase("Failed", TRAININGJOBS, "greedy")
    assert "exited with 137 (OOMKilled)" in status["conditions"][-1]["message"]


async def test_27_a_job_whose_image_is_not_there_says_so(operator: Operator):
    worker = {"name": "main", "image": "not-there:1", "imagePullPolicy": "Never"}
    await operator.apply(a_job("bare", FOREVER, worker=worker))

    async def told() -> bool:
        job = await operator.job("bare")
        return {pod.reason for pod in job.pods.views.values()} == {"ErrImageNeverPull"}

    await operator.until(told, lambda: "the reason is not in the log")
    assert (await operator.status(TRAININGJOBS, "bare"))["phase"] == "Created"
    await operator.kubectl("delete", "trainingjob", "bare", "--wait=false")


async def test_a_worker_that_leaves_may_say_goodbye(operator: Operator):
    await operator.apply(a_job("polite", FOREVER, worker=SAYS_GOODBYE))
    await operator.phase("Running", TRAININGJOBS, "polite")
    listening = asyncio.create_task(operator.kubectl("logs", "--follow", "polite-worker-1"))
    await operator.apply(a_request("ScaleIn", "polite-in", "polite", toDelete={"podNames": ["polite-worker-1"]}))
    await operator.phase("ScaleSucceeded", SCALEINS, "polite-in")
    assert (await listening).split() == ["leaving", "gone"]
    await operator.kubectl("delete", "trainingjob", "polite", "--wait=false")


async def test_of_a_deleted_job_nothing_stays_not_even_a_worker_that_will_not_go(operator: Operator):
    manifest = a_job("stubborn", FOREVER, worker=STAYS)
    manifest["spec"]["etReplicaSpecs"]["worker"]["template"]["spec"]["terminationGracePeriodSeconds"] = 1
    await operator.apply(manifest)
    await operator.phase("Running", TRAININGJOBS, "stubborn")
    await operator.kubectl("delete", "trainingjob", "stubborn", "--wait=false")
    await operator.leaves_nothing("stubborn", "pods,services,configmaps,endpointslices")
    assert (await operator.job("stubborn")).resource.gone


async def test_a_command_of_ours_has_its_output_its_exit_code_and_its_refusals(operator: Operator):
    await operator.apply(a_job("asked", FOREVER))
    await operator.phase("Running", TRAININGJOBS, "asked")
    kube = operator.stack.kube

    async def launcher(*command: str, container: str = "main", timeout: float = 60.0) -> Execution:
        return await kube.execute("default", "asked-launcher", container, command, timeout=timeout)

    assert await launcher("sh", "-c", "hostname; echo no >&2; exit 7") == Execution(7, b"asked-launcher\n")
    assert await launcher("sh", "-c", "head -c 100000000 /dev/zero") == Execution(0, bytes(MOST_OUTPUT))
    for program in ("no-such-program", "/no/such/program", "/etc/passwd"):
        with pytest.raises(Refused) as refusal:
            await launcher(program)
        assert refusal.value.reason == "CannotExecute"
    with pytest.raises(Refused, match="container nobody is not valid"):
        await launcher("true", container="nobody")
    with pytest.raises(Transient, match="timed out"):
        await launcher("sleep", "1234", timeout=1.0)
    # The command goes on: the runtime does not learn that the client left.
    assert b"1234" in (await launcher("sh", "-c", "cat /proc/[0-9]*/cmdline")).output
    await operator.kubectl("delete", "trainingjob", "asked", "--wait=false")


async def test_a_job_outlives_its_kubelet(operator: Operator):
    kubelet = operator.stack.cluster.real_node.kubelet
    await operator.apply(a_job("patient", FOREVER))
    await operator.phase("Running", TRAININGJOBS, "patient")
    kubelet.kill()
    await operator.apply(a_request("ScaleOut", "patient-out", "patient", toAdd={"count": 1}))
    await operator.until(lambda: _bound(operator, "patient-worker-2"), lambda: "the new worker is not made")
    kubelet.start()
    await operator.phase("ScaleSucceeded", SCALEOUTS, "patient-out")
    for pod in ("patient-launcher", "patient-worker-0", "patient-worker-1", "patient-worker-2"):
        assert await _restarts(operator, pod) == 0
    await operator.kubectl("delete", "trainingjob", "patient", "--wait=false")


async def _said(operator: Operator, pod: str, line: str) -> None:
    """Wait until `line` is in the pod's log."""

    async def there() -> bool:
        return line in (await operator.kubectl("logs", pod)).splitlines()

    await operator.until(there, lambda: f"{pod} never said {line}")


async def _bound(operator: Operator, name: str) -> bool:
    pod = await operator.stack.kube.get(PODS, "default", name)
    return pod is not None and pod.spec.node_name is not None


async def _restarts(operator: Operator, name: str) -> int:
    pod = json.loads(await operator.kubectl("get", "pod", name, "-o", "json"))
    return sum(status["restartCount"] for status in pod["status"]["containerStatuses"])


def _is(subject: str, job: str, kind: str) -> bool:
    words = subject.split(".")
    return words[2] == job and words[-1] == kind


def _time(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text)


# Containers that begin again in their pods.

SIGNALLED_AFTER = 0.5
"""Seconds from `signal` to the end of the container."""

FAILS_WHEN_TOLD = {
    "name": "tensorflow",
    "image": SHELL,
    "command": ["sh", "-c", "date +%s.%N; trap 'exit 5' USR1; trap 'exit 0' TERM; while :; do sleep 0.05; done"],
}


def a_tf_job(name: str, annotations: dict[str, str]) -> dict[str, Any]:
    replica = {"replicas": 2, "restartPolicy": "OnFailure", "template": {"spec": {"containers": [FAILS_WHEN_TOLD]}}}
    return {
        "apiVersion": TFJOB.resource.api_version,
        "kind": "TFJob",
        "metadata": {"name": name, "namespace": "default", "annotations": annotations},
        "spec": {"runPolicy": {"cleanPodPolicy": "All"}, "tfReplicaSpecs": {"Worker": replica}},
    }


async def begun(operator: Operator, job: str, after: float) -> float:
    """When the container of worker 1 began, by its own clock, after this time."""
    at = 0.0

    async def there() -> bool:
        nonlocal at
        status = await operator.status(TFJOB.resource, job)
        active = ((status.get("replicaStatuses") or {}).get("Worker") or {}).get("active")
        try:
            said = (await operator.kubectl("logs", f"{job}-worker-1")).split()
        except AssertionError:
            return False
        at = float(said[0]) if said and active == 2 else 0.0
        return at > after

    await operator.until(there, lambda: f"{job} does not train again")
    return at


async def fails(operator: Operator, job: str) -> float:
    """Worker 1 fails when it is told to; the seconds until its container runs again."""
    told = time.time() + SIGNALLED_AFTER
    await operator.signal(f"{job}-worker-1", "tensorflow")
    return await begun(operator, job, told) - told


async def uid(operator: Operator, job: str) -> str:
    return await operator.kubectl("get", "pod", f"{job}-worker-1", "-o", "jsonpath={.metadata.uid}")


async def test_a_failed_container_begins_again_in_its_pod_and_not_for_ever(operator: Operator) -> None:
    await operator.apply(a_tf_job("in-place", {RESTART_IN_PLACE: "true"}), a_tf_job("anew", {}))
    for name in ("in-place", "anew"):
        await begun(operator, name, 0.0)
    first, other = await uid(operator, "in-place"), await uid(operator, "anew")
    anew = await fails(operator, "anew")
    assert await uid(operator, "anew") != other
    again = await fails(operator, "in-place")
    assert await uid(operator, "in-place") == first
    print(f"from the failure to the next start: {again:.1f} s in place, {anew:.1f} s in a new pod")
    assert again < anew
    for _ in range(MOST_IN_PLACE - 1):
        await fails(operator, "in-place")
    await operator.until(lambda: uid_differs(operator, first))
    assert "new pods keep off " in await operator.muster("why", "tfjob/in-place")
    job = await operator.job("in-place")
    assert job.attempt.replaced == MOST_IN_PLACE
    await operator.kubectl("delete", "tfjob", "in-place", "anew", "--wait=false")


async def uid_differs(operator: Operator, first: str) -> bool:
    try:
        return await uid(operator, "in-place") != first
    except AssertionError:
        return False


# Keys of ssh, with the settings of its package.

FILES = ["authorized_keys", "config", "id_rsa", "id_rsa.pub", "known_hosts"]

# On standard error, and so in the pod's log, it says what it takes and what it refuses.
SSHD = {
    "name": "main",
    "image": SHELL,
    "command": ["sh", "-c", "mkdir -p /run/sshd && exec /usr/sbin/sshd -D -e"],
    "readinessProbe": {"tcpSocket": {"port": 22}, "periodSeconds": 1},
}

LOOKS_AND_TRIES = (
    "stat -L -c '%n %a %U' /root/.ssh /root/.ssh/*; "
    "for worker in $(cut -d: -f1 /etc/edl/hostfile); do ssh -o BatchMode=yes $worker hostname; done"
)


def mounting(secret: str, container: dict[str, Any]) -> dict[str, Any]:
    """A pod's spec with a whole Secret as the folder of the keys."""
    mount = {"name": "keys", "mountPath": "/root/.ssh"}
    items = [{"key": name, "path": name} for name in ("id_rsa", "id_rsa.pub", "config")]
    items.append({"key": "id_rsa.pub", "path": "authorized_keys"})
    volume = {"name": "keys", "secret": {"secretName": secret, "defaultMode": 0o600, "items": items}}
    return {"containers": [container | {"volumeMounts": [mount]}], "volumes": [volume]}


async def test_the_launcher_reaches_its_workers_with_the_keys_as_they_are_mounted(operator: Operator):
    await operator.apply(a_job("reach", LOOKS_AND_TRIES, worker=SSHD))
    await operator.phase("Succeeded", TRAININGJOBS, "reach")
    said = (await operator.kubectl("logs", "reach-launcher")).splitlines()
    assert said == [
        "/root/.ssh 755 root",
        *(f"/root/.ssh/{name} 600 root" for name in FILES),
        "reach-worker-0",
        "reach-worker-1",
    ]
    await operator.kubectl("delete", "trainingjob", "reach", "--wait=false")


async def test_a_secret_mounted_as_the_folder_would_be_refused(operator: Operator, tmp_path: Path):
    """Why the keys are mounted file by file; where the user mounts the folder, that is how it is."""
    pair = make_key_pair("folder")
    (tmp_path / "id_rsa").write_bytes(pair.private)
    (tmp_path / "id_rsa.pub").write_bytes(pair.public)
    (tmp_path / "config").write_text(SSH_SETTINGS)
    await operator.kubectl("create", "secret", "generic", "of-folder", f"--from-file={tmp_path}")
    job = a_job("folder", LOOKS_AND_TRIES, workers=1, cleanPodPolicy="None")
    job["metadata"]["annotations"] = {SSH_KEYS: "of-folder"}
    job["spec"]["etReplicaSpecs"]["worker"]["template"]["spec"] = mounting("of-folder", SSHD)
    await operator.apply(job)
    await operator.phase("Failed", TRAININGJOBS, "folder")
    assert "Permission denied (publickey" in await operator.kubectl("logs", "folder-launcher")
    refused = "Authentication refused: bad ownership or modes for directory /root/.ssh"
    assert refused in await operator.kubectl("logs", "folder-worker-0")
    await operator.kubectl("delete", "trainingjob", "folder", "--wait=false")
