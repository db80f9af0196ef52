"""The scheduler's effects on Kueue's Workloads, carried out in the cluster.

`core/queueing.py` decides them.  Each is written on the version that was read: Kueue writes the same objects, and may
have admitted or evicted one since the decision.
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
from shared.runtime.ownership import QUICK_SECONDS, must_be_controlled, must_be_ours

Patch = dict[str, Any] | None


class Workloads:
    """The Workloads of all jobs."""

    def __init__(self, cluster: Cluster, kinds: Kinds, now: Callable[[], datetime]) -> None:
        self._cluster = cluster
        self._kinds = kinds
        self._now = now

    async def write(self, job: Job, effect: effects.WriteWorkload, resource: Custom) -> None:
        """Create the Workload, or write one without quota anew."""
        manifest = queueing.manifest(
            self._kinds.of(job),
            resource,
            job.key,
            effect.name,
            effect.pod_sets,
            queue=effect.queue,
            replaces=effect.replaces,
            priority=await self._priority(resource),
        )
        if effect.uid is not None:
            held = await self._held(job, effect.name, effect.uid)
            if held is not None and (patch := queueing.rewritten(held, manifest)) is not None:
                await self._patch(job, held, patch)
            return
        try:
            await self._cluster.create(WORKLOADS, job.key.namespace, manifest)
        except Refused as refusal:
            if refusal.reason != "AlreadyExists":
                raise
            other = await self._cluster.get(WORKLOADS.by_metadata, job.key.namespace, effect.name)
            must_be_controlled(other.metadata if other is not None else None, job, f"workload {effect.name}")

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

    async def shrink(self, job: Job, effect: effects.ShrinkWorkload) -> None:
        held = await self._held(job, effect.name, effect.uid)
        if held is not None and (patch := queueing.shrunk(held, effect.pod_sets)) is not None:
            await self._patch(job, held, patch)

    async def return_quota(self, job: Job, effect: effects.ReturnQuota) -> None:
        await self._write_status(job, effect, queueing.returned)

    async def ready(self, job: Job, effect: effects.ReadyWorkload) -> None:
        await self._write_status(job, effect, queueing.ready)

    async def finish(self, job: Job, effect: effects.FinishWorkload) -> None:
        await self._write_status(job, effect, lambda held, now: queueing.finished(held, effect.reason, now))
        await self._let_go(job, effect, deleted=False)

    async def delete(self, job: Job, effect: effects.DeleteWorkload) -> None:
        held = await self._held(job, effect.name, effect.uid)
        if held is None or (effect.waiting and queueing.has_quota(held)):
            return
        meta = held.metadata
        if meta.deletion_timestamp is None:
            version = meta.resource_version if effect.waiting else ""
            await self._cluster.delete(WORKLOADS, meta.namespace, meta.name, uid=meta.uid, version=version)
        await self._let_go(job, effect, deleted=True)

    async def _let_go(
        self, job: Job, effect: effects.FinishWorkload | effects.DeleteWorkload, *, deleted: bool
    ) -> None:
        """Take the finalizer away; `deleted` from a Workload that is being deleted alone."""
        held = await self._held(job, effect.name, effect.uid)
        if held is None:
            return
        if deleted and held.metadata.deletion_timestamp is None:
            raise _changed(held)
        if (patch := queueing.without_finalizer(held)) is not None:
            await self._patch(job, held, patch)

    async def _write_status(
        self,
        job: Job,
        effect: effects.ReturnQuota | effects.ReadyWorkload | effects.FinishWorkload,
        status: Callable[[Custom, str], Patch],
    ) -> None:
        held = await self._held(job, effect.name, effect.uid)
        if held is not None and (patch := status(held, self._now().strftime("%Y-%m-%dT%H:%M:%SZ"))) is not None:
            await self._patch(job, held, patch, subresource="status")

    async def _held(self, job: Job, name: str, uid: str) -> Custom | None:
        """The Workload with this uid, of this job as `is_there` asks; None if it is gone."""
        held = await self._cluster.get(WORKLOADS, job.key.namespace, name)
        if held is None or held.metadata.uid != uid:
            return None
        must_be_ours(held.metadata, job, f"workload {name}")
        return held

    async def _patch(self, job: Job, held: Custom, patch: dict[str, Any], *, subresource: str = "") -> None:
        guard = {"uid": held.metadata.uid, "resourceVersion": held.metadata.resource_version}
        patch = patch | {"metadata": patch.get("metadata", {}) | guard}
        try:
            await self._cluster.patch(WORKLOADS, job.key.namespace, held.metadata.name, patch, subresource=subresource)
        except Conflict as changed:
            raise _changed(held) from changed


def _changed(held: Custom) -> Transient:
    return Transient(f"Workload {held.metadata.name} changed meanwhile", retry_after=QUICK_SECONDS)
