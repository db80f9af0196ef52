"""Pods as the scheduler makes them, rendered from a manifest."""

from collections.abc import Mapping
from typing import Any

from shared.cluster.objects import Custom
from shared.frameworks.framework import Framework, PodContext
from shared.frameworks.training_job import TRAININGJOB
from shared.job.naming import JobKey, Slot, secret_name
from shared.job.spec import JobSpec
from shared.job.state import Job, JobResource


def context_of(
    job: Custom,
    slot: Slot,
    framework: Framework,
    *,
    scaleout: str = "",
    ssh_secret: str = "",
    hosts: int = 0,
    sizes: Mapping[str, int],
) -> PodContext:
    spec = framework.parse(job)
    assert isinstance(spec, JobSpec), spec
    meta = job.metadata
    key = JobKey(meta.namespace, meta.name, meta.uid)  # type: ignore[arg-type]
    folded = Job(
        key=key,
        resource=JobResource(kind=framework.resource.kind, api_version=framework.resource.api_version),
        spec=spec,
    )
    known = {role.name: role.replicas for role in spec.roles} | dict(sizes)
    return PodContext(
        key=key,
        slot=slot,
        name=folded.pod_name(slot),
        sizes=known,
        scaleout=scaleout,
        ssh_secret=ssh_secret or secret_name(key, slot.attempt),
        hosts=hosts,
    )


def pod_for(
    job: Custom,
    slot: Slot,
    framework: Framework = TRAININGJOB,
    *,
    scaleout: str = "",
    ssh_secret: str = "",
    hosts: int = 0,
    sizes: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """The pod of a slot; `sizes` are those of roles that are not as the manifest says."""
    spec = framework.parse(job)
    assert isinstance(spec, JobSpec), spec
    context = context_of(job, slot, framework, scaleout=scaleout, ssh_secret=ssh_secret, hosts=hosts, sizes=sizes or {})
    return framework.pod(job, spec, context)


def service_for(job: Custom, slot: Slot | None = None, framework: Framework = TRAININGJOB) -> dict[str, Any]:
    """The Service of a job, or that of a slot."""
    spec = framework.parse(job)
    assert isinstance(spec, JobSpec), spec
    meta = job.metadata
    context = context_of(job, slot, framework, sizes={}) if slot is not None else None
    return framework.service(job, spec, JobKey(meta.namespace, meta.name, meta.uid), context)  # type: ignore[arg-type]
