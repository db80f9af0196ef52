"""What a platform engineer has before Muster comes: a cluster with storage and images, kubectl, helm and our commands.

The control plane is real.  On our own node the images `muster` and `nats` are this working tree: its commands, its NATS
server.  A real node has images of its own.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from devcluster.binaries import MissingProgram, find
from devcluster.cluster import ADMIN
from devcluster.controlplane import ControlPlane
from devcluster.node.relay import Ends, relaying
from devcluster.realnode import NAME, RealCluster
from tests.kit.commands import Ended, run
from tests.kit.controlplane import require_control_plane
from tests.kit.walking import agrees, steps

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "muster"
IMAGES = {"muster": ROOT, "nats": ROOT, "muster-digits": ROOT / "examples" / "digits"}

PATIENCE_SECONDS = 60.0
OPT_IN = "kubectl label namespace default muster.dev/jobs=enabled pod-security.kubernetes.io/enforce=baseline"
"""As the notes of the chart say it of a namespace with jobs."""
PROGRAMS = ("kubectl", "helm", "nats")


class Platform:
    def __init__(self, cluster: ControlPlane, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder
        folders = [find(program).parent for program in PROGRAMS]
        self.environment = {
            # Programs of the working tree by their bare names, as after its activation.
            "PATH": os.pathsep.join([*map(str, folders), str(Path(sys.executable).parent), os.environ["PATH"]]),
            "KUBECONFIG": str(cluster.kubeconfig(ADMIN)),
            "HOME": str(folder),
            **{f"HELM_{name}_HOME": str(folder / "helm" / name.lower()) for name in ("CACHE", "CONFIG", "DATA")},
        }

    async def shell(self, command: str, *, given: str = "", patience: float = PATIENCE_SECONDS) -> Ended:
        """A line at the engineer's terminal, in the root of the checkout."""
        words = ["bash", "-c", f"cd {ROOT} && {command}"]
        return await run(*words, given=given, environment=self.environment, patience=patience)

    async def do(self, command: str, *, given: str = "", patience: float = PATIENCE_SECONDS) -> str:
        """One that has to succeed; what it writes."""
        try:
            ended = await self.shell(command, given=given, patience=patience)
        except TimeoutError as over:
            raise TimeoutError(f"{over}\n{await self.picture()}") from over
        assert ended.code == 0, f"$ {command}\n{ended.out}{ended.complaint}\n{await self.picture()}"
        return ended.out

    async def walk(self, page: Path, section: str = "", *, patience: float) -> None:
        """The commands of a page as they stand, each with the output that the page shows."""
        for step in steps(page, section):
            output = await self.do(step.command, patience=patience)
            assert not step.shown or agrees(step.shown, output), f"$ {step.command}\n{output}\nshown:\n{step.shown}"

    async def get(self, what: str) -> Any:
        """What `kubectl get` finds."""
        return json.loads(await self.do(f"kubectl get {what} -o json"))

    async def says(self, what: str, words: str, *, patience: int = 60) -> str:
        """The line of a log with these words, as soon as there is one; `what` as for `kubectl logs`."""
        log = f"kubectl logs {what} | grep -m 1 '{words}'"
        said = f'timeout {patience} bash -c "until {log}; do sleep 0.5; done"'
        return await self.do(said, patience=patience + 5)

    async def until(self, what: str, holds: Callable[[Any], Any], patience: float = PATIENCE_SECONDS) -> Any:
        """What `kubectl get` finds, as soon as it is as wanted."""
        deadline = asyncio.get_running_loop().time() + patience
        while True:
            found = await self.get(what)
            if holds(found):
                return found
            assert asyncio.get_running_loop().time() < deadline, f"{what}: {found}\n{await self.picture()}"
            await asyncio.sleep(0.2)

    @asynccontextmanager
    async def forwarded(self, pod: str, port: int) -> AsyncIterator[int]:
        """A port of this machine that leads to one of a pod, as `kubectl port-forward`; `pod` as `-n NAMESPACE NAME`.

        Our node has no port forwarding, so it goes the way of the API server, to whichever pod has that name now.
        """

        async def dial(*_: object) -> Ends:
            assert self.cluster.tunnel is not None
            found = await self.shell(f"kubectl get pod {pod} -o jsonpath={{.status.podIP}}")
            if found.code:
                raise ConnectionRefusedError(found.complaint)
            reader, writer = await asyncio.open_unix_connection(self.cluster.tunnel)
            with ExitStack() as unless_led:
                # Also when it is broken off: a pod that is gone is answered for only after a while.
                unless_led.callback(writer.close)
                writer.write(f"CONNECT {found.out}:{port} HTTP/1.1\r\n\r\n".encode())
                if b" 200 " not in await reader.readuntil(b"\r\n\r\n"):
                    raise ConnectionRefusedError(f"{pod} does not take connections")
                unless_led.pop_all()
            return reader, writer

        async with relaying(dial, lambda relay: asyncio.start_server(relay, "127.0.0.1", 0)) as server:
            yield int(server.sockets[0].getsockname()[1])

    async def picture(self) -> str:
        """Everything that tells what went wrong."""
        logs = "do echo == $pod; kubectl -n muster logs --tail 8 $pod; done"
        pods = f"for pod in $(kubectl -n muster get pods -o name); {logs}"
        events = "kubectl get events -A --sort-by=.lastTimestamp | tail -25"
        seen = await self.shell(f"kubectl get pods,jobs,statefulsets,deployments -A; {events}; {pods}")
        return seen.out + seen.complaint


@asynccontextmanager
async def a_platform(
    folder: Path, *, disks: int, kubelet: bool = False, audit: Path | None = None
) -> AsyncIterator[Platform]:
    """With as many volumes as `disks`, of the default class; with `kubelet` on a real node, one at a time.

    A volume has 50 GiB from the beginning: a claim may ask for more than it got, and no controller enlarges it.

    `audit` is a file for one line per call of the API server.
    """
    require_control_plane()
    try:
        for program in PROGRAMS:
            find(program)
    except MissingProgram as missing:
        pytest.skip(str(missing))
    if kubelet:
        # No proxy of Services runs beside the server: it reaches aggregated APIs at their pods.
        at_pods = {"kube-apiserver": ["--enable-aggregator-routing=true"]}
        cluster: ControlPlane = RealCluster(folder / "cluster", more=at_pods, accounts=True)
    else:
        cluster = ControlPlane(folder / "cluster", images=IMAGES, audit=audit, accounts=True)
    async with cluster:
        platform = Platform(cluster, folder)
        node = NAME if kubelet else cluster.node.name
        await platform.do("kubectl apply -f -", given=json.dumps(_storage(folder, disks, node)))
        await platform.do(OPT_IN)
        yield platform


def _storage(folder: Path, disks: int, node: str) -> dict[str, Any]:
    default = {"storageclass.kubernetes.io/is-default-class": "true"}
    storage_class = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "local", "annotations": default},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowVolumeExpansion": True,
    }
    volumes = [_disk(folder, number, node) for number in range(disks)]
    return {"apiVersion": "v1", "kind": "List", "items": [storage_class, *volumes]}


def _disk(folder: Path, number: int, node: str) -> dict[str, Any]:
    path = folder / f"disk-{number}"
    path.mkdir()
    there = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": path.name},
        "spec": {
            "storageClassName": "local",
            "capacity": {"storage": "50Gi"},
            "accessModes": ["ReadWriteOnce"],
            "local": {"path": str(path)},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [there]}]}},
        },
    }
