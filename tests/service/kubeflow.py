"""One job of the training operator's kinds in a world, told of as its users see it."""

from shared.cluster.kinds import SERVICES
from shared.frameworks.kinds import BUILT_IN, Kinds
from shared.frameworks.kubeflow import KubeflowJob
from tests.frameworks.documents import changed
from tests.kit.world import NAMESPACE, Document, World


def applied(job: Document, *, run: Document | None = None, restart: str | None = None) -> Document:
    """As a user writes it, with this run policy, and this restart policy in every role."""
    job = changed(job, "metadata", {"name": job["metadata"]["name"]})
    if run is not None:
        job = changed(job, "spec.runPolicy", run)
    if restart is not None:
        (specs,) = (specs for field, specs in job["spec"].items() if field.endswith("ReplicaSpecs"))
        for role in specs.values():
            role["restartPolicy"] = restart
    return job


class Play(World):
    """A world with one job of this kind, called `mnist` unless it is applied under another name."""

    def __init__(self, framework: KubeflowJob, *, kinds: Kinds = BUILT_IN) -> None:
        super().__init__(kinds=kinds)
        self._framework = framework
        self._resource = framework.resource
        self._name = "mnist"

    def play(self, job: Document) -> str:
        """Apply the job; its uid."""
        self._name = job["metadata"]["name"]
        return str(self.apply(self._resource, job).metadata["uid"])

    def shown(self) -> Document:
        return self.status(self._resource, self._name)

    def known(self, kind: str) -> tuple[str, str] | None:
        """(status, reason) of one of its conditions."""
        return self.condition(self._resource, self._name, kind)

    def state(self) -> str:
        """What the column State shows."""
        return str((self.shown().get("conditions") or [{}])[-1].get("type", ""))

    def why(self, kind: str = "") -> str:
        """The message of the newest condition, of this type."""
        return str([known["message"] for known in self.shown()["conditions"] if kind in ("", known["type"])][-1])

    async def comes_to(self, state: str) -> None:
        await self.until(lambda: self.state() == state, f"it is {state} and not {self.shown()}")

    def counts(self, role: str) -> tuple[int, int, int]:
        """Active, succeeded and failed pods of a role."""
        found = (self.shown().get("replicaStatuses") or {}).get(role) or {}
        return found.get("active", 0), found.get("succeeded", 0), found.get("failed", 0)

    async def has_workers(self, count: int) -> None:
        """What autoscalers read as the size is this."""
        await self.until(lambda: self.counts("Worker")[0] == count, f"{count} workers run, and not {[*self.pods()]}")

    async def runs(self, workers: int = 2) -> None:
        await self.comes_to("Running")
        await self.has_workers(workers)

    def uid(self, pod: str) -> str:
        return str(self.pods()[pod].metadata["uid"])

    def uids(self) -> dict[str, str]:
        return {name: held.metadata["uid"] for name, held in self.pods().items()}

    def services(self) -> list[str]:
        return sorted(held.at[1] for held in self.store.find(SERVICES, NAMESPACE))

    def told(self) -> set[str]:
        """The reasons of the job's Kubernetes Events."""
        return {reason for reason, name in self.kubernetes_events() if name == self._name}

    def edit(self, spec: Document) -> None:
        self.patch({"spec": spec})

    def patch(self, patch: Document) -> None:
        self.store.patch(self._resource, NAMESPACE, self._name, patch)

    def scale(self, workers: int) -> None:
        """As `kubectl scale` and autoscalers do."""
        self.edit({self._framework.replica_specs: {"Worker": {"replicas": workers}}})

    def suspend(self, *, suspend: bool) -> None:
        self.edit({"runPolicy": {"suspend": suspend}})

    def gone(self) -> bool:
        return self.store.get(self._resource, NAMESPACE, self._name) is None
