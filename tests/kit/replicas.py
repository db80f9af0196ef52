"""Events of jobs without a launcher: a chief whose end is the job's, and workers that it needs."""

import msgspec

from shared.job.events.catalog import AnyEvent
from shared.job.events.scheduler import SlotsAssigned
from shared.job.events.status import JobCreated, JobRunning
from shared.job.events.watcher import ChildrenObserved, JobObserved, PodsObserved
from shared.job.naming import Slot, Uid
from shared.job.spec import REPLICATED, UNLIMITED, Handling, JobSpec, RestartPolicy, RoleSpec
from shared.job.views import ChildView, Exit, PodView, Slots
from tests.kit.histories import KEY

TOGETHER = msgspec.structs.replace(REPLICATED, leader="chief")


def a_replicated_spec(
    policy: RestartPolicy = "Never", *, workers: int = 2, limit: int = UNLIMITED, handling: Handling = TOGETHER
) -> JobSpec:
    roles = tuple(
        RoleSpec(
            name=name,
            replicas=replicas,
            min_replicas=0,
            restart_policy=policy,
            container="main",
            stem=f"resnet-{name}-",
        )
        for name, replicas in (("chief", 1), ("worker", workers))
        if replicas
    )
    return JobSpec(framework="test", roles=roles, handling=handling, attach_mode="", backoff_limit=limit)


def led_by_workers(succeeds: str, **spec: object) -> JobSpec:
    """Workers alone: how many of them have to end well is the question."""
    handling = msgspec.structs.replace(TOGETHER, leader="worker", succeeds=succeeds)
    known = a_replicated_spec(handling=handling, **spec)  # type: ignore[arg-type]
    return msgspec.structs.replace(known, roles=tuple(role for role in known.roles if role.name == "worker"))


def observed(spec: JobSpec) -> JobObserved:
    return JobObserved(
        kind="TrainingJob", api_version="kai.alibabacloud.com/v1alpha1", generation=1, version=1, spec=spec
    )


def replica(
    role: str, index: int, *, life: int = 0, version: int = 10, phase: str = "Running", **more: object
) -> PodView:
    """A pod; `life` counts those that had its name before."""
    return PodView(
        uid=Uid(f"{role}-{index}-{life}"),
        name=f"resnet-{role}-{index}",
        version=version + 100 * life,
        attempt=0,
        role=role,
        index=index,
        phase=phase,
        ready=phase == "Running",
        **more,  # type: ignore[arg-type]
    )


def ended(
    role: str, index: int, code: int, *, life: int = 0, reason: str = "", container: str = "main"
) -> PodsObserved:
    exits = (Exit(container, code, reason or ("Completed" if code == 0 else "Error")),)
    phase = "Succeeded" if code == 0 else "Failed"
    ran = reason != "StartError"
    return PodsObserved(pods=(replica(role, index, life=life, version=50, phase=phase, exits=exits, ran=ran),))


def services(spec: JobSpec) -> ChildrenObserved:
    names = [f"{role.stem}{index}" for role in spec.roles for index in range(role.replicas)]
    return ChildrenObserved(
        children=tuple(ChildView(kind="Service", name=name, uid=Uid(name), version=5, ours=True) for name in names)
    )


def all_slots(spec: JobSpec) -> tuple[Slots, ...]:
    return tuple(Slots(0, role.name, ((0, role.replicas - 1),)) for role in spec.roles)


def a_created_replicated_job(spec: JobSpec) -> list[AnyEvent]:
    return [
        observed(spec),
        JobCreated(reason="TrainingJobCreated"),
        SlotsAssigned(slots=all_slots(spec), reason="JobCreated"),
        services(spec),
    ]


def a_running_replicated_job(spec: JobSpec) -> list[AnyEvent]:
    pods = [replica(role.name, index) for role in spec.roles for index in range(role.replicas)]
    return [
        *a_created_replicated_job(spec),
        PodsObserved(pods=tuple(pods)),
        JobRunning(reason="TrainingJobRunning"),
    ]


CHIEF = Slot(0, "chief", 0)
WORKERS = (Slot(0, "worker", 0), Slot(0, "worker", 1))
assert KEY.name == "resnet"
