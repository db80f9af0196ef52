"""MPI as its users know it: mpirun in the launcher, sshd in the workers, and nothing of ssh to set up."""

import base64
import hashlib
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from shared.frameworks.mpijob import MPIJOB
from shared.frameworks.training_job import SSH_KEYS, TRAININGJOBS
from tests.kit.commands import run
from tests.kit.hosts import EMBEDDED, MakeHost
from tests.kit.operator import SHELL, UNTIL_TOLD, Operator, a_job, launcher_that

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

# It says on standard error, and so in the pod's log, which key it let in.
LISTENING = "mkdir -p /run/sshd && exec /usr/sbin/sshd -D -e -o UsePAM=no"

MPI_HELLO = (
    "mpirun --allow-run-as-root --hostfile /etc/mpi/deepspeed-hostfile -np 4 "
    """sh -c 'echo "rank $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE on $(hostname)"'"""
)

HELLO = """sh -c 'echo "rank $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE on $(hostname)"'"""
MPI_JOBS = MPIJOB.resource


CLUSTERS = EMBEDDED


@pytest.fixture(scope="module")
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
    uid = await operator.kubectl("get", "trainingjob", "mpi", "-o", "jsonpath={.metadata.uid}")
    encoded = await operator.kubectl("get", "secret", f"mpi-ssh-{uid}-0", "-o", r"jsonpath={.data.id_rsa\.pub}")
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
    assert "own-ssh-" not in await operator.kubectl("get", "secrets")


async def test_the_launcher_reaches_no_worker_with_another_host_key(operator: Operator):
    """As if another pod had taken the worker's name."""
    another = "ssh-keygen -q -t ed25519 -N '' -f /tmp/another; " + LISTENING + " -h /tmp/another"
    tries = "ssh -o BatchMode=yes %s-worker-0 hostname 2>&1; true"
    for name, annotations in (("posing", {}), ("unpinned", {"muster.dev/ssh-host-keys": "own"})):
        job = an_mpi_job(name, tries % name, workers=1)
        template = job["spec"]["etReplicaSpecs"]["worker"]["template"]
        template["metadata"] = {"annotations": annotations}
        template["spec"]["containers"][0]["command"] = ["sh", "-c", another]
        await operator.apply(job)
        await operator.phase("Succeeded", TRAININGJOBS, name)
    assert "Host key verification failed." in await operator.kubectl("logs", "posing-launcher")
    assert "unpinned-worker-0" in (await operator.kubectl("logs", "unpinned-launcher")).splitlines()


async def test_a_worker_reads_no_private_key_but_its_host_key(operator: Operator):
    every = "for file in /root/.ssh/* /etc/ssh/ssh_host_ed25519_key; do ssh-keygen -y -f $file 2>/dev/null; done"
    tells = (
        "ssh-keygen -y -f /root/.ssh/id_rsa | cut -d' ' -f2; cut -d' ' -f3 /root/.ssh/known_hosts; "
        f"ssh -o BatchMode=yes apart-worker-0 '{every}' | cut -d' ' -f2 | sort -u"
    )
    await operator.apply(an_mpi_job("apart", tells, workers=1))
    await operator.phase("Succeeded", TRAININGJOBS, "apart")
    said = (await operator.kubectl("logs", "apart-launcher")).splitlines()
    # A login on this machine may have more to say.
    launchers, host, *of_worker = (line for line in said if line.startswith("AAAA"))
    assert of_worker == [host]
    assert launchers != host


def an_mpijob(name: str, version: str, script: str, *, workers: int = 2, **spec: Any) -> dict[str, Any]:
    """An MPIJob as its users write it: nothing says where the hosts and the keys are."""
    worker = {"name": "main", "image": SHELL, "command": ["sh", "-c", LISTENING]}
    replicas: dict[str, Any] = {"Launcher": {"template": {"spec": {"containers": [launcher_that(script)]}}}}
    if workers:
        replicas["Worker"] = {"replicas": workers, "template": {"spec": {"containers": [worker]}}}
    return {
        "apiVersion": f"kubeflow.org/{version}",
        "kind": "MPIJob",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"slotsPerWorker": 2, "mpiReplicaSpecs": replicas, **spec},
    }


async def ranks(operator: Operator, job: str) -> list[str]:
    said = (await operator.kubectl("logs", f"{job}-launcher")).splitlines()
    return sorted(line for line in said if line.startswith("rank "))


@pytest.mark.parametrize("version", ["v1", "v2beta1"])
async def test_mpirun_finds_hosts_and_keys_of_an_mpijob_by_itself(operator: Operator, version: str):
    job = f"hello-{version}"
    await operator.apply(an_mpijob(job, version, f"mpirun --allow-run-as-root -np 4 {HELLO}"))
    await operator.comes_to("Succeeded", MPI_JOBS, job)
    assert await ranks(operator, job) == [f"rank {rank} of 4 on {job}-worker-{rank // 2}" for rank in range(4)]
    domain = "" if version == "v1" else f".{job}.default.svc"
    hosts = await operator.kubectl("get", "configmap", f"{job}-config", "-o", "jsonpath={.data.hostfile}")
    assert hosts == "".join(f"{job}-worker-{index}{domain} slots=2\n" for index in range(2))
    # cleanPodPolicy None is the default in both.
    assert "NotFound" not in await operator.kubectl("get", "pod", f"{job}-worker-0")


@pytest.mark.parametrize("workers", [0, 2])
async def test_a_launcher_works_too_where_the_job_says_so(operator: Operator, workers: int):
    job = f"works-{workers}"
    script = f"mpirun --allow-run-as-root -np {2 * workers + 2} {HELLO}"
    await operator.apply(an_mpijob(job, "v2beta1", script, workers=workers, runLauncherAsWorker=True))
    await operator.comes_to("Succeeded", MPI_JOBS, job)
    said = await ranks(operator, job)
    assert said[:2] == [f"rank {rank} of {2 * workers + 2} on {job}-launcher" for rank in range(2)]
    assert len(said) == 2 * workers + 2


async def discovers(operator: Operator, hosts: list[str]) -> None:
    """Wait until this is what Horovod would be told in the launcher."""
    told: list[str] = []

    async def so() -> bool:
        nonlocal told
        told = (await operator.kubectl("exec", "elastic-launcher", "--", "sh", "/etc/mpi/discover_hosts.sh")).split()
        return told == hosts

    await operator.until(so, lambda: f"the hosts are {told}")


async def test_the_hosts_follow_kubectl_scale(operator: Operator):
    await operator.apply(an_mpijob("elastic", "v2beta1", UNTIL_TOLD, workers=1, runPolicy={"cleanPodPolicy": "All"}))
    await operator.comes_to("Running", MPI_JOBS, "elastic")
    for workers in (3, 2):
        await operator.kubectl("scale", "mpijob", "elastic", f"--replicas={workers}")
        await discovers(operator, [f"elastic-worker-{index}.elastic.default.svc:2" for index in range(workers)])
    await operator.tell_to_end("elastic")
    await operator.comes_to("Succeeded", MPI_JOBS, "elastic")
    await operator.leaves_no_pod("elastic")


async def test_what_is_written_as_one_version_is_read_as_the_other(operator: Operator):
    for version, path in (("v1", ""), ("v2beta1", "/root/.ssh")):
        job = f"read-{version}"
        await operator.apply(an_mpijob(job, version, "exit 0", runPolicy={"suspend": True}))
        for read in ("v1", "v2beta1"):
            asked = ("get", f"mpijobs.{read}.kubeflow.org", job, "-o", "jsonpath={.spec.sshAuthMountPath}")
            assert await operator.kubectl(*asked) == path
        await operator.comes_to("Suspended", MPI_JOBS, job)
        await operator.kubectl("delete", "mpijob", job)
