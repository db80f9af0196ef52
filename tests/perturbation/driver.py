"""A client that writes directly to the API server: jobs, requests, pods and children come, change and go.

Seeded; plays the scheduler and the kubelet too, because no other process does.
"""

import random
from collections.abc import Awaitable, Callable
from typing import Any

from shared.cluster import Resource
from shared.cluster.kinds import CONFIGMAPS, PODS, SECRETS, SERVICES
from shared.cluster.kube import KubeCluster
from shared.cluster.objects import Object
from shared.errors import Refused, Trouble
from shared.frameworks.scale_requests import SCALEINS, SCALEOUTS
from shared.frameworks.training_job import JOB_NAME, JOB_ROLE, REPLICA_INDEX, TRAININGJOBS
from shared.job.naming import ATTEMPT, HOSTS_VERSION, JOB_UID, Slot, pod_name
from shared.job.spec import LAUNCHER, WORKER
from tests.kit.world import a_scale_in, a_scale_out, a_training_job
from tests.perturbation.witness import Witness

JOBS = tuple(f"job-{letter}" for letter in "abcdefgh")
FINALIZER = "example.com/wait"
MOST_DELETIONS = 8
"""Of jobs: more than ten that a blind watcher misses at once would rightly make it hold."""


class Driver:
    def __init__(self, admin: KubeCluster, witness: Witness, namespace: str, seed: int) -> None:
        self._admin = admin
        self._witness = witness
        self._namespace = namespace
        self._chance = random.Random(seed)
        self._deletions = 0
        self.steps: list[str] = []

    async def step(self) -> None:
        """One change; what meets something that is gone by now, or there already, is no change."""
        moves: list[tuple[int, Callable[[], Awaitable[None]]]] = [
            (6, self.create_job),
            (6, self._edit_job),
            (2, self._delete_job),
            (2, self._let_go),
            (20, self._create_pod),
            (30, self._change_pod),
            (8, self._delete_pod),
            (6, self._create_child),
            (8, self._change_child),
            (3, self._delete_child),
            (6, self._create_request),
            (5, self._change_request),
            (4, self._delete_request),
        ]
        (move,) = self._chance.choices([move for _, move in moves], [weight for weight, _ in moves])
        try:
            await move()
        except Trouble as refusal:
            self.steps.append(f"refused: {refusal}")

    async def create_job(self, name: str = "") -> Object:
        return await self._create(TRAININGJOBS, a_training_job(name or self._chance.choice(JOBS)))

    async def delete(self, resource: Resource[Any], thing: Object) -> None:
        self._witness.ending(thing.metadata.uid)
        self.steps.append(f"delete {resource.kind} {thing.metadata.name}")
        await self._admin.delete(resource, thing.metadata.namespace, thing.metadata.name, uid=thing.metadata.uid)

    def pod_of(self, job: Any, role: str, index: int) -> dict[str, Any]:
        labels = {ATTEMPT: "0", JOB_ROLE: role, REPLICA_INDEX: str(index)}
        metadata = self._owned(job, pod_name(job.metadata.name, Slot(0, role, index)), labels)
        return {"metadata": metadata, "spec": {"containers": [{"name": "main", "image": "none"}]}}

    def any(self, resource: Resource[Any]) -> Any:
        """One that is there; refused when there is none."""
        found = [
            one for one in self._witness.there[resource.kind].values() if one.metadata.namespace == self._namespace
        ]
        if not found:
            raise Refused(f"there is no {resource.kind}", reason="NotFound")
        return self._chance.choice(sorted(found, key=lambda one: (one.metadata.name, one.metadata.uid)))

    async def _create(self, resource: Resource[Any], manifest: dict[str, Any]) -> Object:
        self.steps.append(f"create {resource.kind} {manifest['metadata']['name']}")
        made: Object = await self._admin.create(resource, self._namespace, manifest)
        return made

    async def _patch(
        self, resource: Resource[Any], thing: Object, patch: dict[str, Any], subresource: str = ""
    ) -> None:
        self.steps.append(f"patch {resource.kind} {thing.metadata.name}")
        await self._admin.patch(resource, self._namespace, thing.metadata.name, patch, subresource=subresource)

    async def _edit_job(self) -> None:
        job = self.any(TRAININGJOBS)
        patch = self._chance.choice(
            [
                {"spec": {"backoffLimit": self._chance.randint(0, 9)}},
                {"spec": {"ttlSecondsAfterFinished": self._chance.randint(0, 99)}},
                {"metadata": {"annotations": {"note": str(self._chance.random())}}},
                {"metadata": {"finalizers": [FINALIZER]}},
            ]
        )
        await self._patch(TRAININGJOBS, job, patch)

    async def _delete_job(self) -> None:
        if self._deletions < MOST_DELETIONS:
            job = self.any(TRAININGJOBS)
            self._deletions += 1
            await self.delete(TRAININGJOBS, job)

    async def _let_go(self) -> None:
        job = self.any(TRAININGJOBS)
        if job.metadata.finalizers:
            await self._patch(TRAININGJOBS, job, {"metadata": {"finalizers": None}})

    async def _create_pod(self) -> None:
        job = self.any(TRAININGJOBS)
        role = self._chance.choice((LAUNCHER, WORKER, WORKER, WORKER))
        index = 0 if role == LAUNCHER else self._chance.randint(0, 5)
        pod = self.pod_of(job, role, index)
        if self._chance.random() < 0.1:
            # Copied labels make no pod of ours.
            del pod["metadata"]["ownerReferences"]
        await self._create(PODS, pod)

    async def _change_pod(self) -> None:
        pod, chance = self.any(PODS), self._chance
        ended = {"terminated": {"exitCode": chance.choice((0, 1, 137)), "reason": "Error"}}
        status = chance.choice(
            [
                {"phase": "Running", "conditions": [{"type": "Ready", "status": chance.choice(("True", "False"))}]},
                {"phase": "Running", "containerStatuses": [_container({"running": {}})]},
                {"phase": "Pending", "containerStatuses": [_container({"waiting": {"reason": "ImagePullBackOff"}})]},
                {"phase": chance.choice(("Failed", "Succeeded")), "containerStatuses": [_container(ended)]},
                {"phase": "Failed", "reason": "Evicted"},
                {"message": str(chance.random())},
            ]
        )
        if chance.random() < 0.2:
            await self._patch(PODS, pod, {"metadata": {"annotations": {HOSTS_VERSION: str(chance.randint(1, 9))}}})
        else:
            await self._patch(PODS, pod, {"status": status}, "status")

    async def _delete_pod(self) -> None:
        await self.delete(PODS, self.any(PODS))

    async def _create_child(self) -> None:
        job, dice = self.any(TRAININGJOBS), self._chance.random()
        metadata = self._owned(job, job.metadata.name, {})
        if dice < 0.4:
            metadata = self._owned(job, f"{job.metadata.name}-config", {})
            await self._create(CONFIGMAPS, {"metadata": {**metadata, "annotations": {HOSTS_VERSION: "1"}}})
        elif dice < 0.7:
            await self._create(SECRETS, {"metadata": metadata})
        else:
            await self._create(SERVICES, {"metadata": metadata, "spec": {"clusterIP": "None", "ports": [{"port": 22}]}})

    async def _change_child(self) -> None:
        version = {"metadata": {"annotations": {HOSTS_VERSION: str(self._chance.randint(2, 99))}}}
        await self._patch(CONFIGMAPS, self.any(CONFIGMAPS), version)

    async def _delete_child(self) -> None:
        resource = self._chance.choice((CONFIGMAPS, SERVICES, SECRETS))
        await self.delete(resource, self.any(resource))

    async def _create_request(self) -> None:
        job, count = self._chance.choice(JOBS), self._chance.randint(1, 3)
        name = f"request-{self._chance.randint(0, 9)}"
        if self._chance.random() < 0.5:
            await self._create(SCALEOUTS, a_scale_out(count, name=name, job=job))
        else:
            await self._create(SCALEINS, a_scale_in(count, name=name, job=job))

    async def _change_request(self) -> None:
        resource, field = self._chance.choice(((SCALEOUTS, "toAdd"), (SCALEINS, "toDelete")))
        request, job = self.any(resource), self.any(TRAININGJOBS)
        if request.spec["selector"]["name"] == job.metadata.name and not request.metadata.owner_references:
            await self._patch(resource, request, {"metadata": {"ownerReferences": [_owner(job)]}})
        else:
            await self._patch(resource, request, {"spec": {field: {"count": self._chance.randint(1, 5)}}})

    async def _delete_request(self) -> None:
        resource = self._chance.choice((SCALEOUTS, SCALEINS))
        await self.delete(resource, self.any(resource))

    def _owned(self, job: Any, name: str, labels: dict[str, str]) -> dict[str, Any]:
        whose = {JOB_NAME: job.metadata.name, JOB_UID: job.metadata.uid}
        return {"name": name, "labels": {**whose, **labels}, "ownerReferences": [_owner(job)]}


def _owner(job: Any) -> dict[str, Any]:
    named = {"name": job.metadata.name, "uid": job.metadata.uid}
    return {"apiVersion": TRAININGJOBS.api_version, "kind": "TrainingJob", **named, "controller": True}


def _container(state: dict[str, Any]) -> dict[str, Any]:
    return {"name": "main", "state": state, "image": "none", "imageID": "", "ready": False, "restartCount": 0}
