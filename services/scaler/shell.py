"""The scaler's shell: its effects, carried out in the cluster."""

from functools import partial
from typing import Any

import msgspec

from services.scaler.core import Policy, effects
from services.scaler.core.decide import decide
from services.scaler.core.membership import hosts_config_map
from services.scaler.launcher_commands import LauncherCommands
from shared.cluster import Cluster
from shared.cluster.kinds import CONFIGMAPS, PODS
from shared.cluster.objects import Metadata
from shared.errors import Conflict, Refused, Transient, accepting
from shared.frameworks.framework import owner_reference
from shared.frameworks.kinds import BUILT_IN, Kinds
from shared.frameworks.scale_requests import REQUESTS
from shared.frameworks.schemas import Document
from shared.job.events.catalog import AnyEvent
from shared.job.events.event import Author
from shared.job.fold import History
from shared.job.naming import HOSTS_LINKING, HOSTS_VERSION, JobKey, config_name
from shared.job.reasons import NO_SCALE
from shared.job.spec import OWNED_BY_ANOTHER
from shared.job.state import Job, Memo
from shared.job.steps import Effect, Step
from shared.process.main import Dependencies
from shared.runtime.acts import Context
from shared.runtime.ownership import QUICK_SECONDS, is_controlled, is_there, must_be_asked_of, must_be_controlled
from shared.runtime.run import Service
from shared.untrusted import whole_number


class Scaler(Service):
    author: Author = "scaler"

    def __init__(self, cluster: Cluster, policy: Policy, kinds: Kinds = BUILT_IN) -> None:
        self._cluster = cluster
        self._kinds = kinds
        self._steps = Memo(partial(decide, policy=policy))
        self._commands = LauncherCommands(cluster, allowed=policy.commands)
        self._hosts: dict[JobKey, Metadata] = {}
        """The hosts ConfigMaps as this process wrote them: the next write is made on that version, without a GET."""
        self._launchers: dict[JobKey, Metadata] = {}
        """The same of the launchers."""

    def decide(self, history: History) -> list[Step]:
        if history.job.resource.gone:
            self.forget(history.job.key)
        return self._steps(history.job) if self._kinds.knows(history.job) else []

    def forget(self, key: JobKey) -> None:
        self._hosts.pop(key, None)
        self._launchers.pop(key, None)
        self._steps.forget(key)

    async def act(self, effect: Effect, context: Context) -> AnyEvent | None:
        match effect:
            case effects.RunScript():
                return await self._commands.run(context.job, effect)
            case effects.CheckDrain():
                return await self._commands.check_drain(context.job, effect)
            case effects.WriteHosts():
                await self._write_hosts(context.job, effect)
            case effects.NudgeLauncher():
                await self._touch(context.job, effect, HOSTS_VERSION)
            case effects.LinkHosts():
                await self._link(context.job, effect)
            case effects.WriteSize():
                await self._write_size(context.job, effect)
            case effects.OwnRequest():
                await self._own(context.job, effect)
            case effects.DeleteHosts():
                if await is_there(self._cluster, CONFIGMAPS, context.job, effect.name, effect.uid):
                    await self._cluster.delete(CONFIGMAPS, context.job.key.namespace, effect.name, uid=effect.uid)
            case _:
                raise AssertionError(f"not an effect of the scaler: {effect}")
        return None

    async def _write_hosts(self, job: Job, effect: effects.WriteHosts) -> None:
        assert job.spec is not None
        key, name = job.key, config_name(job.key.name)
        workers = job.worker_names(effect.members)
        framework = self._kinds.of(job)
        manifest = hosts_config_map(framework, key, job.spec, members=workers, version=effect.version)
        # If the write fails, or is asked for again, it has to be read again.
        meta = self._hosts.pop(key, None)
        if job.hosts is None:
            meta = None
        elif meta is None or _version(meta) >= effect.version:
            meta = await self._shown(job)
        if meta is None:
            with accepting("AlreadyExists"):
                made = await self._cluster.create(CONFIGMAPS, key.namespace, manifest)
                self._hosts[key] = made.metadata
                return
            meta = await self._shown(job)
        must_be_controlled(meta, job, f"config map {name}", labelled=False)
        assert meta is not None
        labels = manifest["metadata"]["labels"]
        patch: Document = {
            "metadata": {"resourceVersion": meta.resource_version, "uid": meta.uid, "labels": labels},
        }
        if _version(meta) < effect.version:
            patch["metadata"]["annotations"] = manifest["metadata"]["annotations"]
            patch["data"] = manifest["data"]
        elif labels.items() <= (meta.labels or {}).items():
            # Another replica wrote this version or a newer one, which an older one never replaces.
            self._hosts[key] = meta
            return
        try:
            patched = await self._cluster.patch(CONFIGMAPS, key.namespace, name, patch)
        except Refused as refusal:
            if refusal.reason != "NotFound":
                raise
            raise Transient(f"config map {name} was deleted meanwhile", retry_after=QUICK_SECONDS) from refusal
        self._hosts[key] = patched.metadata

    async def _shown(self, job: Job) -> Metadata | None:
        held = await self._cluster.get(CONFIGMAPS, job.key.namespace, config_name(job.key.name))
        return held.metadata if held is not None else None

    async def _link(self, job: Job, effect: effects.LinkHosts) -> None:
        """Link another operator's hosts files to the ConfigMap's, once the kubelet has brought its newest version."""
        assert job.spec is not None
        framework = self._kinds.of(job)
        files = framework.take_over.files
        if files:
            if job.membership.version != effect.version:
                raise Transient("there are newer hosts files")
            await self._touch(job, effect, HOSTS_LINKING)
            members = job.worker_names(job.listed_workers)
            await self._commands.link(job, effect, files, framework.hosts_files(job.key, job.spec, members))
        await self._touch(job, effect, HOSTS_VERSION)

    async def _touch(self, job: Job, effect: effects.NudgeLauncher | effects.LinkHosts, annotation: str) -> None:
        key = job.key
        known = self._launchers.pop(key, None)
        version = known.resource_version if known is not None and known.uid == effect.uid else None
        if version is None and not await is_there(self._cluster, PODS, job, effect.name, effect.uid):
            return
        guard = {"uid": effect.uid} | ({"resourceVersion": version} if version is not None else {})
        patch = {"metadata": {**guard, "annotations": {annotation: str(effect.version)}}}
        try:
            with accepting("NotFound"):
                patched = await self._cluster.patch(PODS, key.namespace, effect.name, patch)
                self._launchers[key] = patched.metadata
        except Conflict:
            # The pod changed since the last write, or another one has this name by now.
            if version is not None or await is_there(self._cluster, PODS, job, effect.name, effect.uid):
                raise

    async def _write_size(self, job: Job, effect: effects.WriteSize) -> None:
        """Write the size through `/scale`, which changes nothing else.

        Raises `Transient` if the resource has changed since the decision: an edit of a person comes first.
        """
        resource, key = self._kinds.of(job).resource, job.key
        held = await self._cluster.get(resource.by_metadata, key.namespace, key.name)
        if held is None or held.metadata.uid != key.uid:
            return
        if held.metadata.generation != effect.generation:
            raise Transient(f"{key} has changed since the decision", retry_after=QUICK_SECONDS)
        patch = {"metadata": {"resourceVersion": held.metadata.resource_version}, "spec": {"replicas": effect.size}}
        try:
            await self._cluster.patch(resource, key.namespace, key.name, patch, subresource="scale")
        except Refused as refusal:
            if refusal.reason != "NotFound":
                raise
            # A definition of another release, or of the operator before Muster.
            raise Refused(f"{resource.plural} have no scale subresource", reason=NO_SCALE) from refusal

    async def _own(self, job: Job, effect: effects.OwnRequest) -> None:
        resource, namespace, framework = REQUESTS[effect.kind], job.key.namespace, self._kinds.of(job)
        request = await self._cluster.get(resource, namespace, effect.name)
        if request is None or request.metadata.uid != effect.uid or is_controlled(request.metadata, job.key):
            return
        meta = request.metadata
        if meta.controller is not None:
            message = f"{effect.kind} {effect.name} belongs to {meta.controller.kind} {meta.controller.name}"
            raise Refused(message, reason=OWNED_BY_ANOTHER, words=message)
        await must_be_asked_of(self._cluster, framework.resource, job, effect.kind, request)
        kept: list[dict[str, Any]] = msgspec.to_builtins(meta.owner_references or ())
        patch = {
            "metadata": {
                "resourceVersion": meta.resource_version,
                "ownerReferences": [*kept, owner_reference(framework.resource, job.key)],
            }
        }
        await self._cluster.patch(resource, namespace, effect.name, patch)


def _version(hosts: Metadata) -> int:
    """The version of hosts files; -1 for one that is no number, and was not written by Muster."""
    written = whole_number((hosts.annotations or {}).get(HOSTS_VERSION, ""))
    return written if written is not None else -1


def build(dependencies: Dependencies) -> Scaler:
    settings = dependencies.settings
    policy = Policy.of(settings.drain, commands=settings.exec)
    return Scaler(dependencies.cluster, policy, dependencies.kinds)
