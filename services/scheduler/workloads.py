"""The scheduler's effects on Kueue's Workloads, carried out in the cluster.

`core/queueing.py` decides them.  A status is written on the version that was read: Kueue writes the same conditions.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from services.scheduler.core import effects
from shared.cluster import Cluster
from shared.cluster.objects import Custom
from shared.errors import Conflict, Refused, Transient
from shared.frameworks import queueing
from shared.frameworks.kinds import Kinds
from shared.frameworks.queueing import PRIORITIES, PRIORITY, WORKLOADS
from shared.job.state import Job
from shared.runtime.ownership import QUICK_SECONDS, is_there, must_be_controlled

Patch = dict[str, Any] | None


class Workloads:
    """The Workloads of all jobs."""

    def __init__(self, cluster: Cluster, kinds: Kinds, now: Callable[[], datetime]) -> None:
        self._cluster = cluster
        self._kinds = kinds
        self._now = now

    async def write(self, job: Job, effect: effects.WriteWorkload, resource: Custom) -> None:
        """Create the Workload, or write its spec anew."""
        assert job.spec is not None
        manifest = queueing.manifest(
            self._kinds.of(job),
            resource,
            job.key,
            effect.name,
            effect.pod_sets,
            queue=job.spec.queue,
            replaces=effect.replaces,
            priority=await self._priority(resource),
        )
        if effect.uid is not None:
            meta = {"uid": effect.uid, "annotations": manifest["metadata"]["annotations"]}
            if await is_there(self._cluster, WORKLOADS, job, effect.name, effect.uid):
                await self._patch(job, effect.name, {"metadata": meta, "spec": manifest["spec"]})
            return
        try:
            await self._cluster.create(WORKLOADS, job.key.namespace, manifest)
        except Refused as refusal:
            if refusal.reason != "AlreadyExists":
                raise
            held = await self._cluster.get(WORKLOADS.by_metadata, job.key.namespace, effect.name)
            must_be_controlled(held.metadata if held is not None else None, job, f"workload {effect.name}")

    async def _priority(self, resource: Custom) -> int:
        """The value of the job's WorkloadPriorityClass; 0 without one."""
        name = (resource.metadata.labels or {}).get(PRIORITY)
        if not name:
            return 0
        held = await self._cluster.get(PRIORITIES, "", name)
        if held is None:
            words = f"make the WorkloadPriorityClass {name}, or leave the label {PRIORITY} out"
            raise Refused(words, reason="NoPriorityClass", words=words)
        return held.value

    async def return_quota(self, job: Job, effect: effects.ReturnQuota) -> None:
        await self._write_status(job, effect, queueing.returned)

    async def ready(self, job: Job, effect: effects.ReadyWorkload) -> None:
        await self._write_status(job, effect, queueing.ready)

    async def finish(self, job: Job, effect: effects.FinishWorkload) -> None:
        await self._write_status(job, effect, lambda held, now: queueing.finished(held, effect.reason, now))
        await self._let_go(job, effect)

    async def delete(self, job: Job, effect: effects.DeleteWorkload) -> None:
        if await self._let_go(job, effect):
            await self._cluster.delete(WORKLOADS, job.key.namespace, effect.name, uid=effect.uid)

    async def _let_go(self, job: Job, effect: effects.FinishWorkload | effects.DeleteWorkload) -> bool:
        """Take the finalizer away; return False if the Workload is gone."""
        held = await self._held(job, effect)
        if held is None:
            return False
        if (patch := queueing.without_finalizer(held)) is not None:
            guard = {"uid": effect.uid, "resourceVersion": held.metadata.resource_version}
            await self._patch(job, effect.name, {"metadata": guard | patch["metadata"]})
        return True

    async def _write_status(
        self,
        job: Job,
        effect: effects.ReturnQuota | effects.ReadyWorkload | effects.FinishWorkload,
        status: Callable[[Custom, str], Patch],
    ) -> None:
        held = await self._held(job, effect)
        if held is None:
            return
        patch = status(held, self._now().strftime("%Y-%m-%dT%H:%M:%SZ"))
        if patch is not None:
            guard = {"metadata": {"resourceVersion": held.metadata.resource_version}}
            await self._patch(job, effect.name, guard | patch, subresource="status")

    async def _held(self, job: Job, effect: Any) -> Custom | None:
        if not await is_there(self._cluster, WORKLOADS, job, effect.name, effect.uid):
            return None
        return await self._cluster.get(WORKLOADS, job.key.namespace, effect.name)

    async def _patch(self, job: Job, name: str, patch: dict[str, Any], *, subresource: str = "") -> None:
        try:
            await self._cluster.patch(WORKLOADS, job.key.namespace, name, patch, subresource=subresource)
        except Conflict as changed:
            raise Transient(f"Workload {name} changed meanwhile", retry_after=QUICK_SECONDS) from changed
