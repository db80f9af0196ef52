"""Recorded situations, put into a cluster in memory, and the launcher that et-operator made."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from shared.cluster import Execution, Resource
from shared.cluster.kinds import CONFIGMAPS, PODS, SECRETS, SERVICES
from shared.frameworks.mpijob import MPIJOB
from shared.frameworks.pytorchjob import PYTORCHJOB
from shared.frameworks.scale_requests import SCALEINS, SCALEOUTS
from shared.frameworks.tfjob import TFJOB
from shared.frameworks.training_job import TRAININGJOB
from tests.kit.world import NAMESPACE, World
from tests.memory.store import MemoryStore

RECORDINGS = Path(__file__).parent / "recordings"

_RESOURCES: dict[str, Resource[Any]] = {
    known.kind: known
    for known in (
        *(framework.resource for framework in (TRAININGJOB, TFJOB, PYTORCHJOB, MPIJOB)),
        *(SCALEINS, SCALEOUTS, PODS, SERVICES, CONFIGMAPS, SECRETS),
    )
}


def recorded(name: str) -> list[dict[str, Any]]:
    """The objects of a recording, the job first."""
    found: list[dict[str, Any]] = yaml.safe_load((RECORDINGS / f"{name}.yaml").read_text())
    # What YAML shares is each object's own.
    return [_own(each) for each in found]


def put(store: MemoryStore, objects: Sequence[dict[str, Any]]) -> str:
    """Bring them all to life, in order, their owner by its new uid; return that uid."""
    job, *others = objects
    created = store.create(_RESOURCES[job["kind"]], NAMESPACE, job)
    uid = str(created.metadata["uid"])
    for thing in others:
        for owner in thing["metadata"].get("ownerReferences") or ():
            owner["uid"] = uid
        store.create(_RESOURCES[thing["kind"]], NAMESPACE, thing)
    for thing in objects:
        if "status" in thing:
            status = {"status": thing["status"]}
            store.patch(_RESOURCES[thing["kind"]], NAMESPACE, thing["metadata"]["name"], status, subresource="status")
    return uid


class Launcher:
    """A launcher that copied the hosts files when it began, and shows the ConfigMap, too."""

    def __init__(self, store: MemoryStore, hosts: str) -> None:
        self._store = store
        self._copied = hosts
        self.links: dict[str, str] = {}
        self.commands: list[Sequence[str]] = []
        self.lags = 0
        """How often still the ConfigMap's mount shows what it showed before."""
        self._before = self._mounted()
        store.program = self._run

    @property
    def hosts(self) -> list[str]:
        """What the training sees."""
        text = self._mounted() if self.links else self._copied
        return [line.partition(":")[0] for line in text.splitlines()]

    def _mounted(self) -> str:
        held = self._store.get(CONFIGMAPS, NAMESPACE, "resnet-config")
        return str(held.manifest["data"]["hostfile"]) if held is not None else ""

    async def _run(self, namespace: str, pod: str, container: str, command: Sequence[str]) -> Execution:
        self.commands.append(command)
        if tuple(command) == ("cat", "/etc/mpi/hostfile"):
            if self.lags:
                self.lags -= 1
                return Execution(0, self._before.encode())
            return Execution(0, self._mounted().encode())
        if "ln -sf" in command[2]:
            self.links = dict(zip(command[4::2], command[5::2], strict=True))
            return Execution(0, b"")
        return Execution(0, b"\0".join([b"sh", *(host.encode() for host in self.hosts)]))


def uids(world: World) -> dict[str, str]:
    """Those of the pods, by name."""
    return {name: held.metadata["uid"] for name, held in world.pods().items()}


def _own(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _own(inner) for key, inner in value.items()}
    return [_own(inner) for inner in value] if isinstance(value, list) else value
