"""The real Kueue on a development cluster: its definitions, its webhooks, and its one program.

The program and its manifests come from its Go module, which `devcluster/devcluster/binaries/kueue/go.mod` pins.
"""

import json
import subprocess
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from devcluster import binaries
from devcluster.certificates import make_server
from devcluster.child import Child
from devcluster.cluster import ADMIN
from shared.ports import HOST, free_port
from tests.kit.hosts import real
from tests.kit.operator import Operator, an_operator
from tests.queues.jobs import POOL, queues

KINDS = {
    "mpijob": "kubeflow.org",
    "pytorchjob": "kubeflow.org",
    "tfjob": "kubeflow.org",
    "trainjob": "trainer.kubeflow.org",
}
"""The kinds that it manages, with their groups."""
OF_KUEUE = ("clusterqueue", "cohort", "resourceflavor", "workload")
VERSION = "v1beta2"
PATIENCE_SECONDS = 60.0


def require_kueue() -> None:
    """Skip the test where Kueue was not built, with the words that say what to do."""
    try:
        binaries.find("kueue")
    except binaries.MissingProgram as missing:
        pytest.skip(str(missing))


@cache
def sources(module: str = "kueue") -> Path:
    """The folder with the manifests of Kueue's module, or of JobSet's; its build has fetched both."""
    folder = Path(binaries.__file__).parent / "kueue"
    command = ["go", "list", "-m", "-f", "{{.Dir}}", f"sigs.k8s.io/{module}"]
    found = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return Path(found.stdout.strip()) / "config" / "components"


def definitions() -> list[dict[str, Any]]:
    """Its definitions in the version that it stores: others would need its webhook that converts.

    Beside TrainJobs it watches JobSets, of which there are none here, and ends if their definition is missing.
    """
    [jobsets] = (sources("jobset") / "crd" / "bases").glob("*_jobsets.yaml")
    found = [yaml.safe_load(jobsets.read_text())]
    for path in sorted((sources() / "crd" / "bases").glob("*.yaml")):
        definition = yaml.safe_load(path.read_text())
        definition["spec"]["versions"] = [each for each in definition["spec"]["versions"] if each["name"] == VERSION]
        found.append(definition)
    return found


def webhooks(url: str, authority: str) -> list[dict[str, Any]]:
    """Its webhooks for the kinds of these tests, at this address."""
    wanted = {f"{letter}{kind}.kb.io" for letter in "mv" for kind in (*KINDS, *OF_KUEUE)}
    found = [each for each in yaml.safe_load_all((sources() / "webhook" / "manifests.yaml").read_text()) if each]
    for configuration in found:
        configuration["webhooks"] = [each for each in configuration["webhooks"] if each["name"] in wanted]
        for each in configuration["webhooks"]:
            path = each["clientConfig"].pop("service")["path"]
            each["clientConfig"] |= {"url": f"{url}{path}", "caBundle": authority}
    return found


class Kueue:
    """Its process, which may be stopped and started again."""

    def __init__(self, child: Child, health: int) -> None:
        self._child = child
        self._health = health

    async def start(self) -> None:
        self._child.start()
        await self._child.until(self._ready, PATIENCE_SECONDS)

    async def stop(self) -> None:
        await self._child.stop()

    async def _ready(self) -> bool:
        try:
            url = f"http://{HOST}:{self._health}/readyz"
            async with aiohttp.ClientSession() as session, session.get(url) as answer:
                return answer.status == 200
        except aiohttp.ClientError:
            return False


@asynccontextmanager
async def muster_and_kueue(folder: Path, cpu: int | str, **settings: str) -> AsyncIterator[tuple[Operator, Kueue]]:
    """Both on a real control plane, with a queue of so many processors; skips the test where Kueue was not built."""
    require_kueue()
    async with an_operator(folder, real(), **settings) as operator, beside(operator, folder / "kueue") as kueue:
        await operator.kubectl("label", "nodes", "--all", f"{POOL}=a")
        await operator.apply(*queues(cpu=cpu))
        yield operator, kueue


@asynccontextmanager
async def beside(operator: Operator, folder: Path) -> AsyncIterator[Kueue]:
    """Kueue beside Muster; it manages the jobs that name a queue."""
    given = definitions()
    await operator.kubectl("apply", "--server-side", "-f", "-", given=tuple(given))
    names = [f"crd/{each['metadata']['name']}" for each in given]
    await operator.established(*names)
    await operator.kubectl("create", "namespace", "kueue-system")
    port, health, metrics = free_port(), free_port(), free_port()
    certificates, etc = _written(folder)
    configuration = {
        "apiVersion": f"config.kueue.x-k8s.io/{VERSION}",
        "kind": "Configuration",
        "namespace": "kueue-system",
        "health": {"healthProbeBindAddress": f"{HOST}:{health}"},
        "metrics": {"bindAddress": f"{HOST}:{metrics}"},
        "webhook": {"port": port, "host": HOST, "certDir": str(certificates)},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "manageJobsWithoutQueueName": False,
        "integrations": {
            "frameworks": [f"{group}/{kind}" for kind, group in KINDS.items()],
            "externalFrameworks": ["TrainingJob.v1alpha1.kai.alibabacloud.com"],
        },
    }
    (folder / "kueue.json").write_text(json.dumps(configuration))
    program = [str(binaries.find("kueue")), f"--config={folder / 'kueue.json'}"]
    program += ["--feature-gates=VisibilityOnDemand=false", f"--kubeconfig={operator.stack.cluster.kubeconfig(ADMIN)}"]
    mounted = ["unshare", "--mount", "--map-root-user", "sh", "-c", f'mount --bind "{etc}" /etc && exec "$@"', "kueue"]
    kueue = Kueue(Child("kueue", [*mounted, *program], folder / "kueue.log", {}), health)
    try:
        await kueue.start()
        authority = b64encode((certificates / "ca.crt").read_bytes()).decode()
        await operator.apply(*webhooks(f"https://{HOST}:{port}", authority))
        yield kueue
    finally:
        await kueue.stop()


async def why_says(operator: Operator, job: str, words: str) -> None:
    """Wait until `muster why` has these words: on a slow machine it leaves the queue out."""

    async def so() -> bool:
        return words in await operator.muster("why", job)

    await operator.until(so, lambda: f"why of {job} does not say {words!r}")


def _written(folder: Path) -> tuple[Path, Path]:
    """Its certificates, and what it sees as `/etc`: it looks for those of its metrics at one place there alone."""
    certificates, etc = folder / "certificates", folder / "etc"
    theirs = etc / "kueue" / "metrics" / "certs"
    for place in (certificates, theirs):
        place.mkdir(parents=True)
    make_server(certificates, ["kueue"], [HOST])
    for ours, name in (("server.crt", "tls.crt"), ("server.key", "tls.key")):
        for place in (certificates, theirs):
            (place / name).write_bytes((certificates / ours).read_bytes())
    return certificates, etc
