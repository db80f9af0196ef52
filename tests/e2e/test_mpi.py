"""MPI as its users know it: mpirun in the launcher, sshd in the workers, and nothing of ssh to set up."""

import base64
import hashlib
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from shared.frameworks.training import TRAININGJOBS
from shared.job.naming import SSH_KEYS
from tests.kit.commands import run
from tests.kit.hosts import HOSTS, MakeHost
from tests.kit.operator import SHELL, Operator, a_job

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

# It says on standard error, and so in the pod's log, which key it let in.
LISTENING = "mkdir -p /run/sshd && exec /usr/sbin/sshd -D -e -o UsePAM=no"

MPI_HELLO = (
    "mpirun --allow-run-as-root --hostfile /etc/mpi/deepspeed-hostfile -np 4 "
    """sh -c 'echo "rank $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE on $(hostname)"'"""
)


@pytest.fixture(params=HOSTS[:2], scope="module")
def host(request: pytest.FixtureRequest) -> MakeHost:
    """Those whose containers see the programs of this machine."""
    lacking = [program for program in ("mpirun", "ssh", "/usr/sbin/sshd") if shutil.which(program) is None]
    if lacking:
        pytest.skip(
            f"{', '.join(lacking)} must be installed: apt-get install openmpi-bin openssh-client openssh-server"
        )
    if os.geteuid() != 0:
        pytest.skip("sshd lets others in as itself only where it is root")
    made: MakeHost = request.param()
    return made


def an_mpi_job(name: str, script: str, workers: int) -> dict[str, Any]:
    """Its workers stay after the end, for their logs."""
    worker = {
        "name": "main",
        "image": SHELL,
        "command": ["sh", "-c", LISTENING],
        "readinessProbe": {"tcpSocket": {"port": 22}, "periodSeconds": 1},
    }
    return a_job(name, script, workers=workers, worker=worker, cleanPodPolicy="None")


def fingerprint(public: str) -> str:
    """Of a public key, as sshd tells it."""
    kind, blob = public.split()[:2]
    digest = base64.b64encode(hashlib.sha256(base64.b64decode(blob)).digest()).decode().rstrip("=")
    return f"{kind.removeprefix('ssh-').upper()} SHA256:{digest}"


async def accepted(operator: Operator, worker: str) -> set[str]:
    """Fingerprints of the keys that a worker's sshd let in."""
    lines = (await operator.kubectl("logs", worker)).splitlines()
    return {line.partition(" ssh2: ")[2] for line in lines if line.startswith("Accepted publickey for root ")}


async def test_mpirun_reaches_every_worker_with_the_jobs_own_key(operator: Operator):
    await operator.apply(an_mpi_job("mpi", MPI_HELLO, workers=4))
    await operator.phase("Succeeded", TRAININGJOBS, "mpi")
    said = (await operator.kubectl("logs", "mpi-launcher")).splitlines()
    # A login on this machine may have more to say.
    assert sorted(line for line in said if line.startswith("rank ")) == [
        f"rank {rank} of 4 on mpi-worker-{rank}" for rank in range(4)
    ]
    encoded = await operator.kubectl("get", "secret", "mpi", "-o", r"jsonpath={.data.id_rsa\.pub}")
    ours = fingerprint(base64.b64decode(encoded).decode())
    assert ours.startswith("ED25519 ")
    for rank in range(4):
        assert await accepted(operator, f"mpi-worker-{rank}") == {ours}


async def test_keys_of_the_users_own_are_used_instead(operator: Operator, tmp_path: Path):
    ended = await run("ssh-keygen", "-q", "-t", "rsa", "-b", "3072", "-N", "", "-f", str(tmp_path / "id_rsa"))
    assert ended.code == 0, ended.complaint
    (tmp_path / "config").write_text("StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\n")
    await operator.kubectl("create", "secret", "generic", "my-keys", f"--from-file={tmp_path}")
    job = an_mpi_job("own", "ssh own-worker-0 hostname", workers=1)
    job["metadata"]["annotations"] = {SSH_KEYS: "my-keys"}
    await operator.apply(job)
    await operator.phase("Succeeded", TRAININGJOBS, "own")
    assert "own-worker-0" in (await operator.kubectl("logs", "own-launcher")).splitlines()
    mine = fingerprint((tmp_path / "id_rsa.pub").read_text())
    assert mine.startswith("RSA ")
    assert await accepted(operator, "own-worker-0") == {mine}
    assert "NotFound" in await operator.kubectl("get", "secret", "own", fails=True)
