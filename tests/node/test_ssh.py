"""The keys of a job as a real kubelet mounts them, and as sshd and ssh take them with their package's settings."""

from pathlib import Path
from typing import Any

import pytest

from services.scheduler.keypair import make_key_pair
from shared.frameworks.attaching import SSH_SETTINGS
from shared.frameworks.training_job import SSH_KEYS, TRAININGJOBS
from tests.kit.operator import SHELL, Operator, a_job

pytestmark = [pytest.mark.node, pytest.mark.asyncio(loop_scope="module")]

FILES = ["authorized_keys", "config", "id_rsa", "id_rsa.pub", "known_hosts"]

# On standard error, and so in the pod's log, it says what it takes and what it refuses.
WORKER = {
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
    await operator.apply(a_job("reach", LOOKS_AND_TRIES, worker=WORKER))
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
    job["spec"]["etReplicaSpecs"]["worker"]["template"]["spec"] = mounting("of-folder", WORKER)
    await operator.apply(job)
    await operator.phase("Failed", TRAININGJOBS, "folder")
    assert "Permission denied (publickey" in await operator.kubectl("logs", "folder-launcher")
    refused = "Authentication refused: bad ownership or modes for directory /root/.ssh"
    assert refused in await operator.kubectl("logs", "folder-worker-0")
    await operator.kubectl("delete", "trainingjob", "folder", "--wait=false")
