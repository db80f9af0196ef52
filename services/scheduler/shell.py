"""The scheduler's shell: its effects, carried out in the cluster."""

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, TypeVar

import msgspec

from services.scheduler.core import effects, keys
from services.scheduler.core.decide import decide
from services.scheduler.keypair import make_key_pair
from services.scheduler.workloads import Workloads
from shared.cluster import Cluster, Resource, pod_fields
from shared.cluster.answers import DENIED, FORBIDDEN, UNKNOWN_FIELD, as_sent, denier, in_resource, without_values
from shared.cluster.kinds import AUTOSCALERS, CONFIGMAPS_WITH_DATA, PODS, SECRETS, SERVICES
from shared.cluster.objects import Custom, Metadata, Object, Pod
from shared.errors import Conflict, Refused, Transient, Withheld
from shared.flow import only_while
from shared.frameworks import gangs
from shared.frameworks.attaching import ssh_secret
from shared.frameworks.framework import PodContext, metadata, slot_labels
from shared.frameworks.kinds import BUILT_IN, Kinds
from shared.frameworks.pods import (
    RULES,
    Port,
    off_nodes,
    with_last_words,
    with_reporting,
    with_restarts,
    with_token_if_asked,
    with_training_container,
)
from shared.frameworks.queueing import placed
from shared.frameworks.runtimes import COPY, JobRuntime, digest_of, joined, text_of
from shared.frameworks.training_job import SSH_KEYS
from shared.job.events.catalog import AnyEvent
from shared.job.events.event import Author
from shared.job.events.scheduler import AutoscalerGone, AutoscalerMade, SecretGone, SecretMade
from shared.job.fold import History
from shared.job.naming import ATTEMPT, JOB_UID, JobKey, Slot, Uid, runtime_copy_name
from shared.job.policies import quota
from shared.job.policies.gangs import OUTSIDE
from shared.job.policies.replacement import in_place
from shared.job.policies.retries import final_codes
from shared.job.reasons import RUNTIME_CHANGED, SSH_OFF
from shared.job.sorted_set import SortedSet
from shared.job.spec import LAUNCHER, RENDEZVOUS, WORKER, JobSpec, RuntimeUsed
from shared.job.state import Job, Memo
from shared.job.steps import Effect, Step
from shared.job.timing import CREATED_WITHIN_SECONDS
from shared.process.main import Dependencies
from shared.process.settings import Settings
from shared.runtime.acts import Context
from shared.runtime.ownership import QUICK_SECONDS, conflict, is_controlled, is_there, must_be_controlled, must_be_ours
from shared.runtime.run import Service

T = TypeVar("T", bound=Object)

NO_KEYS = (
    "ssh keys are switched off in this cluster; have them switched on (MUSTER_SSH), or name a Secret of its own in the "
    f"annotation {SSH_KEYS} of a TrainingJob"
)

_OF_GANGS = (effects.CreatePodGroup, effects.DeletePodGroup)

KEPT_BYTES = 2**23
"""Of resources in memory, so that the pods of one job need one GET of its resource, which may have a megabyte."""

_Read = tuple[int, int, str]
"""A job's resource as it was read: its epoch, generation and the digest of its runtime."""


class Scheduler(Service):
    author: Author = "scheduler"

    def __init__(
        self,
        cluster: Cluster,
        kinds: Kinds = BUILT_IN,
        *,
        cluster_domain: str = "cluster.local",
        last_words: bool = True,
        ssh: bool = True,
        released_grace: int = 5,
        pod_groups: Resource[Object] | None = None,
        reporting: Callable[[], Port | None] = lambda: None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`last_words`: the kubelet keeps the last lines of a container that fails, unless the template decides.

        `released_grace`: seconds that a released and drained worker has to end, unless its template gives it less.
        `pod_groups` are served in this version; None if no pods are placed together.
        `reporting` is where training programs report now; None for nowhere.
        Without `ssh` no Secret is made or deleted; those that are there go with their job.
        """
        self._last_words = last_words
        self._ssh = ssh
        self._released_grace = released_grace
        self._pod_groups = pod_groups
        self._reporting = reporting
        self._cluster = cluster
        self._kinds = kinds
        self._steps = Memo(decide)
        self._workloads = Workloads(cluster, kinds, now)
        self._domain = cluster_domain
        self._resources: dict[JobKey, tuple[_Read, asyncio.Task[Custom]]] = {}
        self._sizes: dict[JobKey, int] = {}
        """Bytes of those that were read, the oldest first."""

    def decide(self, history: History) -> list[Step]:
        steps = self._steps(history.job) if self._kinds.knows(history.job) else []
        # Where there are no PodGroups, what a job began with is neither made nor deleted.
        return steps if self._pod_groups is not None else [step for step in steps if not isinstance(step, _OF_GANGS)]

    def forget(self, key: JobKey) -> None:
        self._drop(key)
        self._steps.forget(key)

    async def act(self, effect: Effect, context: Context) -> AnyEvent | None:
        match effect:
            case effects.CreatePod():
                await self._create_pod(context, effect)
            case effects.ClaimPod():
                await self._claim_pod(context.job, effect)
            case effects.CreateService():
                await self._create_service(context, effect.slot)
            case effects.CreateSecret() if not self._ssh:
                raise Refused(NO_KEYS, reason=SSH_OFF, words=NO_KEYS)
            case effects.CreateSecret():
                return await self._create_secret(context.job, effect)
            case effects.DeletePod(drained=True):
                await self._delete_drained(context.job, effect)
            case effects.DeletePod():
                await self._delete(PODS, context.job, effect.name, effect.uid, grace=0 if effect.force else None)
            case effects.DeleteService():
                await self._delete(SERVICES, context.job, effect.name, effect.uid)
            case effects.DeleteSecret():
                await self._delete_secret(context.job, effect)
                return SecretGone(attempt=effect.attempt)
            case effects.CreateAutoscaler():
                return await self._create_autoscaler(context)
            case effects.DeleteAutoscaler():
                await self._delete(AUTOSCALERS, context.job, context.job.key.name, effect.uid)
                return AutoscalerGone()
            case effects.CreatePodGroup():
                await self._create_pod_group(context, effect)
            case effects.DeletePodGroup() if self._pod_groups is not None:
                await self._delete(self._pod_groups, context.job, effect.name, effect.uid)
            case effects.WriteWorkload():
                await self._workloads.write(context.job, effect, await self._resource(context))
            case effects.OfWorkload():
                await self._workloads.change(context.job, effect)
            case effects.DeleteJob():
                await self._delete_job(context.job)
            case _:
                raise AssertionError(f"not an effect of the scheduler: {effect}")
        return None

    async def _create_pod(self, context: Context, effect: effects.CreatePod) -> None:
        job, resource = context.job, await self._resource(context)
        assert job.spec is not None
        of_pod = self._context(job, effect.slot, effect.scaleout)
        manifest, name = with_token_if_asked(self._kinds.of(job).pod(resource, job.spec, of_pod)), of_pod.name
        if (placement := quota.placement(job, effect.slot.role)) is not None:
            manifest = placed(manifest, *placement)
        container = job.spec.role(effect.slot.role).container
        manifest = with_training_container(manifest, container)
        manifest = off_nodes(manifest, effect.avoid)
        if effect.gang and self._pod_groups is not None:
            manifest = gangs.in_group(manifest, effect.gang)
        if (port := self._reporting()) is not None and effect.slot.role != RENDEZVOUS:
            manifest = with_reporting(manifest, job.key, container, port)
        if self._last_words:
            manifest = with_last_words(manifest)
        again = manifest
        if in_place(job.spec, effect.slot.role):
            again = with_restarts(manifest, container, final_codes(job.spec, effect.slot.role))
        try:
            made = await self._made_pod(job, resource, effect.slot, again)
        except Refused as refusal:
            if not (refusal.reason == UNKNOWN_FIELD and refusal.field.endswith(RULES)):
                raise
            # An API server before 1.34 begins no container again, and the pod is replaced.
            made = await self._made_pod(job, resource, effect.slot, manifest)
        if made is not None:
            return
        pod = await self._cluster.get(PODS, job.key.namespace, name)
        meta = pod.metadata if pod is not None else None
        attempt = (meta.labels or {}).get(ATTEMPT) if meta is not None else None
        node = (pod.spec.node_name or "") if pod is not None else ""
        must_be_controlled(meta, job, f"pod {name}", same=attempt == str(effect.slot.attempt), node=node)

    async def _delete(
        self, resource: Resource[Any], job: Job, name: str, uid: str, *, grace: int | None = None
    ) -> None:
        if await is_there(self._cluster, resource, job, name, uid):
            await self._cluster.delete(resource, job.key.namespace, name, uid=uid, grace=grace)

    async def _delete_drained(self, job: Job, effect: effects.DeletePod) -> None:
        """Delete a pod that nothing uses, with the grace period of its template or a shorter one."""
        pod = await self._cluster.get(PODS, job.key.namespace, effect.name)
        if pod is None or pod.metadata.uid != effect.uid:
            return
        must_be_ours(pod.metadata, job, f"pod {effect.name}")
        its = pod.spec.termination_grace_period_seconds
        grace = self._released_grace if its is None or its > self._released_grace else None
        await self._cluster.delete(PODS, job.key.namespace, effect.name, uid=effect.uid, grace=grace)

    async def _delete_job(self, job: Job) -> None:
        """Delete the job's resource; raises `Refused(reason="NotAsked")` if that asks for no time to live."""
        framework, key = self._kinds.of(job), job.key
        held = await self._cluster.get(framework.resource, key.namespace, key.name)
        if held is None or held.metadata.uid != key.uid:
            return
        spec = framework.parse(held)
        if isinstance(spec, JobSpec) and spec.ttl_seconds_after_finished is None:
            message = "the job sets no ttlSecondsAfterFinished, and is left alone"
            raise Refused(message, reason="NotAsked", words=message)
        await self._cluster.delete(framework.resource, key.namespace, key.name, uid=key.uid)

    async def _claim_pod(self, job: Job, effect: effects.ClaimPod) -> None:
        pod = await self._cluster.get(PODS, job.key.namespace, effect.name)
        if pod is None or pod.metadata.uid != effect.uid:
            # The pod is gone; the watcher records that.
            return
        await self._claim(PODS, job, pod.metadata, slot_labels(self._kinds.of(job), job.key, effect.slot))

    async def _claim(self, resource: Resource[Any], job: Job, meta: Metadata, labels: dict[str, str]) -> None:
        """Put Muster's labels on an object that another operator made for this job.

        Raises `Refused` if the job is not its controller, `Transient` if it changed meanwhile.
        """
        if not is_controlled(meta, job.key):
            raise conflict(f"{resource.kind.lower()} {meta.name}", meta)
        if labels.items() <= (meta.labels or {}).items():
            return
        guard = {"uid": meta.uid, "resourceVersion": meta.resource_version}
        try:
            await self._cluster.patch(resource, job.key.namespace, meta.name, {"metadata": {**guard, "labels": labels}})
        except Conflict as changed:
            raise Transient(f"{resource.kind} {meta.name} changed meanwhile", retry_after=QUICK_SECONDS) from changed

    async def _settle(self, resource: Resource[Any], job: Job, name: str) -> None:
        """Check an existing object; label it if another operator made it for this job."""
        found: Object | None = await self._cluster.get(resource, job.key.namespace, name)
        meta = found.metadata if found is not None else None
        unlabelled = meta is not None and JOB_UID not in (meta.labels or {}) and meta.deletion_timestamp is None
        if job.resource.adopted and meta is not None and unlabelled and is_controlled(meta, job.key):
            await self._claim(resource, job, meta, self._kinds.of(job).labels(job.key))
            return
        must_be_controlled(meta, job, f"{resource.kind.lower()} {name}")

    def _context(self, job: Job, slot: Slot, scaleout: str = "") -> PodContext:
        name = job.pod_name(slot)
        return PodContext(
            key=job.key,
            slot=slot,
            name=name,
            sizes=_sizes(job.attempt.unreleased),
            cluster_domain=self._domain,
            scaleout=scaleout,
            ssh_secret=keys.secret(job),
            # The kubelet mounts at least this version, so that no nudge is needed.
            hosts=job.hosts.hosts if slot.role == LAUNCHER and job.hosts is not None else 0,
        )

    async def _create_service(self, context: Context, slot: Slot | None) -> None:
        job, resource = context.job, await self._resource(context)
        assert job.spec is not None
        of_pod = self._context(job, slot) if slot is not None else None
        manifest = self._kinds.of(job).service(resource, job.spec, job.key, of_pod)
        if await self._made(SERVICES, job, manifest) is None:
            await self._settle(SERVICES, job, manifest["metadata"]["name"])

    async def _create_pod_group(self, context: Context, effect: effects.CreatePodGroup) -> None:
        """With the priority of its workers: Kubernetes 1.37 places no pod whose priority is not its group's."""
        job, resource = context.job, await self._resource(context)
        assert self._pod_groups is not None
        assert job.spec is not None
        roles = [role.name for role in job.spec.roles if role.name not in OUTSIDE]
        slot = Slot(job.attempt.number, WORKER if WORKER in roles else roles[0], 0)
        framework = self._kinds.of(job)
        priority = gangs.priority_class(framework.pod(resource, job.spec, self._context(job, slot)))
        manifest = gangs.manifest(framework, self._pod_groups, job.key, effect.name, effect.least, priority)
        if await self._made(self._pod_groups, job, manifest) is None:
            await self._settle(self._pod_groups, job, effect.name)

    async def _create_autoscaler(self, context: Context) -> AutoscalerMade:
        job, resource = context.job, await self._resource(context)
        assert job.spec is not None
        manifest = self._kinds.of(job).autoscaler(resource, job.spec, job.key)
        found = await self._made(AUTOSCALERS, job, manifest)
        found = found or await self._cluster.get(AUTOSCALERS, job.key.namespace, job.key.name)
        meta = found.metadata if found is not None else None
        must_be_controlled(meta, job, f"horizontalpodautoscaler {job.key.name}")
        if meta is None:
            raise Transient("the autoscaler is gone again", retry_after=QUICK_SECONDS)
        return AutoscalerMade(uid=Uid(meta.uid))

    async def _create_secret(self, job: Job, effect: effects.CreateSecret) -> SecretMade:
        key, name = job.key, effect.name
        pair, host = make_key_pair(str(key)), make_key_pair(f"{key} workers")
        try:
            manifest = ssh_secret(
                self._kinds.of(job),
                key,
                name,
                private=pair.private,
                public=pair.public,
                host=host.private,
                public_host=host.public,
            )
            made = await self._made(SECRETS, job, manifest)
            # A Secret that exists is the attempt's: nothing else gets its name.  No service may read it.
            uid = made.metadata.uid if made else await self._cluster.would_delete(SECRETS, key.namespace, name)
        except Withheld:
            raise
        except (Transient, Conflict) as trouble:
            what = f"create Secret {key.namespace}/{name}: {type(trouble).__name__}"
            if not isinstance(trouble, Transient):
                raise Transient(what) from None
            raise Transient(what, reason=trouble.reason, words=denier(trouble.words)) from None
        except Refused as refusal:
            # The API server's message may repeat the object, and a private key must not be logged.
            what = f"create Secret {key.namespace}/{name}: {refusal.reason}"
            raise Refused(what, reason=refusal.reason, field=refusal.field, words=denier(refusal.words)) from None
        if uid is None:
            raise Transient(f"create Secret {key.namespace}/{name}: it is deleted meanwhile")
        return SecretMade(attempt=effect.attempt, uid=Uid(uid))

    async def _delete_secret(self, job: Job, effect: effects.DeleteSecret) -> None:
        if not self._ssh:
            # It goes with its owner, the job.
            return
        try:
            # No service may read a Secret; no other object has a name with this job's uid and an attempt.
            await self._cluster.delete(SECRETS, job.key.namespace, effect.name, uid=effect.uid)
        except Refused as refusal:
            # In a namespace that was closed to Muster since: it goes with its owner, too, and no watch shows that.
            if not job.resource.gone or refusal.reason not in (FORBIDDEN, DENIED):
                raise

    async def _made(self, resource: Resource[T], job: Job, manifest: dict[str, Any]) -> T | None:
        """Create the object; return None if its name is taken."""
        what = f"create {resource.kind} {job.key.namespace}/{manifest['metadata']['name']}"
        try:
            within = CREATED_WITHIN_SECONDS if resource is PODS else 0
            return await self._cluster.create(resource, job.key.namespace, manifest, within=within)
        except Transient as trouble:
            if trouble.words:
                raise without_values(trouble, what, manifest) from None
            raise
        except Refused as refusal:
            if refusal.reason != "AlreadyExists":
                raise without_values(as_sent(refusal, manifest), what, manifest) from None
            return None

    async def _resource(self, context: Context) -> Custom:
        """The resource with its pod templates, read once per generation and runtime.

        Raises `Transient` if its uid or generation is not that of the decision: the watcher records the newer one.
        Raises `Conflict` if its status shows events that this fold lacks.
        """
        job = context.job
        # A restored store counts generations again from its backup.
        used = job.spec.runtime if job.spec is not None else None
        at = (job.resource.epoch, job.resource.generation, used.digest if used is not None else "")
        known, reading = self._resources.get(job.key, (None, None))
        if reading is None or known != at:
            self._drop(job.key)
            # Others use what this effect reads, also if it is wanted no more.
            with only_while(lambda: True):
                reading = asyncio.create_task(self._read(context, used))
            self._resources[job.key] = at, reading
            reading.add_done_callback(lambda task: self._keep(job.key, task))
        return await asyncio.shield(reading)

    def _keep(self, key: JobKey, reading: asyncio.Task[Custom]) -> None:
        # Reads the exception, too, if the waiting effects were cancelled.
        failed = reading.cancelled() or reading.exception() is not None
        if self._resources.get(key, (None, None))[1] is not reading:
            return
        if failed:
            self._drop(key)
            return
        self._sizes[key] = len(msgspec.json.encode(reading.result()))
        while sum(self._sizes.values()) > KEPT_BYTES:
            self._drop(next(iter(self._sizes)))

    def _drop(self, key: JobKey) -> None:
        self._resources.pop(key, None)
        self._sizes.pop(key, None)

    async def _read(self, context: Context, used: RuntimeUsed | None) -> Custom:
        job = context.job
        framework = self._kinds.of(job)
        found = await self._cluster.get(framework.resource, job.key.namespace, job.key.name)
        if found is None or found.metadata.uid != job.key.uid or found.metadata.generation != job.resource.generation:
            raise Transient(f"{job.key} has changed since the decision")
        if not job.integrity.leads_to(found.status, context.head):
            raise Conflict(f"the status of {job.key} shows events that were not read yet, or that the log lost")
        if used is None:
            await self._try_doubtful(job, found)
            return found
        whole = joined(found, await self._runtime(job, used))
        # After a change of the runtime the watcher cannot check the resource against the one that the job keeps.
        answer = framework.parse(whole) if not job.resource.problems else ()
        told = {known.field for known in job.spec.ignored} if job.spec is not None else set()
        for problem in answer if not isinstance(answer, JobSpec) else ():
            if problem.field not in told:
                raise Refused(problem.message, reason=problem.reason, field=problem.field, words=problem.message)
        await self._try_doubtful(job, whole)
        return whole

    async def _try_doubtful(self, job: Job, resource: Custom) -> None:
        """Ask the API server about fields of pod templates that this release does not know.

        Without this a slip in the launcher's template would show once all workers run.  Raises `Refused` for a field
        that the API server does not know either.
        """
        if job.spec is None or job.resource.problems or job.under_way:
            return
        for role in job.spec.roles:
            slot = Slot(job.attempt.number, role.name, 0)
            pod = self._kinds.of(job).pod(resource, job.spec, self._context(job, slot))
            if not any(pod_fields.unknown(pod["spec"])):
                continue
            with suppress(Transient):
                try:
                    await self._cluster.would_create(PODS, job.key.namespace, pod)
                except Refused as refusal:
                    # Any other refusal is that of the moment: a quota, or a webhook that takes no trial.
                    if refusal.reason == UNKNOWN_FIELD:
                        raise in_resource(refusal, self._kinds.of(job).template_path(resource, role.name)) from None

    async def _made_pod(self, job: Job, resource: Custom, slot: Slot, manifest: dict[str, Any]) -> Pod | None:
        try:
            return await self._made(PODS, job, manifest)
        except Refused as refusal:
            raise in_resource(refusal, self._kinds.of(job).template_path(resource, slot.role)) from None

    async def _runtime(self, job: Job, used: RuntimeUsed) -> JobRuntime:
        """The runtime as the log has it: the job's copy, which is made when the job begins.

        Raises `Refused` if there is no copy and the runtime was changed since.
        """
        name = runtime_copy_name(job.key.name, used.digest)
        kept = await self._cluster.get(CONFIGMAPS_WITH_DATA, job.key.namespace, name)
        if kept is None:
            text = await self._runtime_text(job, used)
            manifest = {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": metadata(self._kinds.of(job), job.key, name),
                "immutable": True,
                "data": {COPY: text},
            }
            kept = await self._made(CONFIGMAPS_WITH_DATA, job, manifest)
            kept = kept or await self._cluster.get(CONFIGMAPS_WITH_DATA, job.key.namespace, name)
        must_be_controlled(kept.metadata if kept is not None else None, job, f"config map {name}")
        text = (kept.data or {}).get(COPY, "") if kept is not None else ""
        if digest_of(text) != used.digest:
            message = f"config map {name} was changed; delete it, and Muster makes it again from the same runtime"
            raise Refused(message, reason=RUNTIME_CHANGED, words=message)
        return JobRuntime(used, msgspec.json.decode(text))

    async def _runtime_text(self, job: Job, used: RuntimeUsed) -> str:
        kind = next(each for each in self._kinds.of(job).runtimes if each.resource.kind == used.kind)
        namespace = "" if kind.of_cluster else job.key.namespace
        found = await self._cluster.get(kind.resource, namespace, used.name)
        text = text_of(found.spec) if found is not None else ""
        if digest_of(text) == used.digest:
            return text
        message = (
            f"the {used.kind} was changed or deleted since the job was read; a job with pods needs to be created again"
        )
        raise Refused(message, reason=RUNTIME_CHANGED, words=message)


@lru_cache(maxsize=16)
def _sizes(slots: SortedSet[Slot]) -> Mapping[str, int]:
    """The number of pods of each role; the pods of one decision ask with the same set, which may have thousands."""
    return Counter(slot.role for slot in slots)


def build(dependencies: Dependencies) -> Scheduler:
    settings = dependencies.settings
    if settings.progress_url and settings.progress_ca is None:
        raise Refused("name the authority of MUSTER_PROGRESS_URL in MUSTER_PROGRESS_CA", reason="NoAuthority")
    return Scheduler(
        dependencies.cluster,
        dependencies.kinds,
        cluster_domain=settings.cluster_domain,
        last_words=settings.termination_messages,
        ssh=settings.ssh,
        released_grace=math.ceil(settings.released_grace.total_seconds()),
        pod_groups=dependencies.pod_groups,
        reporting=lambda: _port(settings),
    )


def _port(settings: Settings) -> Port | None:
    """Where training programs report, with the authority of now; the file is replaced when it is renewed."""
    if not settings.progress_url or settings.progress_ca is None:
        return None
    try:
        return Port(settings.progress_url, settings.progress_ca.read_text())
    except (OSError, UnicodeDecodeError) as error:
        what = f"the authority {settings.progress_ca} cannot be read: {error}"
        raise Transient(f"{what}; mount the Secret there") from error
