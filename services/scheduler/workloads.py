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
from shared.errors import Conflict, Refused, Transient, accepting
from shared.frameworks import queueing
from shared.frameworks.kinds import Kinds
from shared.frameworks.queueing import PRIORITIES, PRIORITY, WORKLOADS
from shared.job.state import Job
from shared.runtime.ownership import QUICK_SECONDS, must_be_controlled, must_be_ours


class Workloads:
    def __init__(self, cluster: Cluster, kinds: Kinds, now: Callable[[], datetime]) -> None:
        self._cluster = cluster
        self._kinds = kinds
        self._now = now

    async def write(self, job: Job, effect: effects.WriteWorkload, resource: Custom) -> None:
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
            if (held := await self._held(job, effect)) is not None:
                await self._patch(job, held, queueing.rewritten(held, manifest))
            return
        with accepting("AlreadyExists"):
            await self._cluster.create(WORKLOADS, job.key.namespace, manifest)
            return
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

    async def change(self, job: Job, effect: effects.OfWorkload) -> None:
        held = await self._held(job, effect)
        if held is None:
            return
        now = self._now().strftime("%Y-%m-%dT%H:%M:%SZ")
        match effect:
            case effects.ShrinkWorkload():
                await self._patch(job, held, queueing.shrunk(held, effect.pod_sets))
            case effects.ReturnQuota():
                await self._patch(job, held, queueing.returned(held, now), subresource="status")
            case effects.ReadyWorkload():
                await self._patch(job, held, queueing.ready(held, now), subresource="status")
            case effects.FinishWorkload():
                await self._patch(job, held, queueing.finished(held, effect.reason, now), subresource="status")
                await self._let_go(job, effect)
            case effects.DeleteWorkload() if not (effect.waiting and queueing.has_quota(held)):
                meta = held.metadata
                if meta.deletion_timestamp is None:
                    version = meta.resource_version if effect.waiting else ""
                    await self._cluster.delete(WORKLOADS, meta.namespace, meta.name, uid=meta.uid, version=version)
                await self._let_go(job, effect)

    async def _let_go(self, job: Job, effect: effects.FinishWorkload | effects.DeleteWorkload) -> None:
        """Take the finalizer away; of one to delete only once it is being deleted."""
        held = await self._held(job, effect)
        if held is None:
            return
        if isinstance(effect, effects.DeleteWorkload) and held.metadata.deletion_timestamp is None:
            raise _changed(held)
        await self._patch(job, held, queueing.without_finalizer(held))

    async def _held(self, job: Job, effect: effects.OfWorkload | effects.WriteWorkload) -> Custom | None:
        """The Workload with the effect's uid, of this job as `is_there` asks; None if it is gone."""
        held = await self._cluster.get(WORKLOADS, job.key.namespace, effect.name)
        if held is None or held.metadata.uid != effect.uid:
            return None
        must_be_ours(held.metadata, job, f"workload {effect.name}")
        return held

    async def _patch(self, job: Job, held: Custom, patch: dict[str, Any] | None, *, subresource: str = "") -> None:
        if patch is None:
            return
        guard = {"uid": held.metadata.uid, "resourceVersion": held.metadata.resource_version}
        patch = patch | {"metadata": patch.get("metadata", {}) | guard}
        try:
            await self._cluster.patch(WORKLOADS, job.key.namespace, held.metadata.name, patch, subresource=subresource)
        except Conflict as changed:
            raise _changed(held) from changed


def _changed(held: Custom) -> Transient:
    return Transient(f"Workload {held.metadata.name} changed meanwhile", retry_after=QUICK_SECONDS)
