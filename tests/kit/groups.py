"""Events of elastic jobs without a launcher, whose workers find each other by their names: PyTorchJobs."""

import msgspec

from shared.job.events.catalog import AnyEvent
from shared.job.events.scaler import ScaleAccepted
from shared.job.events.scheduler import SlotsAssigned
from shared.job.events.status import JobCreated, JobRunning, JobScaling
from shared.job.events.watcher import JobObserved
from shared.job.naming import Uid
from shared.job.spec import REPLICATED, UNLIMITED, WORKER, JobSpec, RestartPolicy, RoleSpec
from shared.job.views import Member
from tests.kit.builders import observed, pods, published, worker, workers

ELASTIC = msgspec.structs.replace(REPLICATED, succeeds="Any", elastic=True)

E2, E3 = Uid("replicas-2"), Uid("replicas-3")


def a_group_spec(
    size: int = 3, *, least: int = 1, most: int | None = 4, restart: RestartPolicy = "OnFailure", **more: object
) -> JobSpec:
    role = RoleSpec(
        name=WORKER, replicas=size, min_replicas=least, max_replicas=most, restart_policy=restart, container="main"
    )
    spec = {"handling": ELASTIC, "attach_mode": "", "clean_pod_policy": "None", "backoff_limit": UNLIMITED} | more
    return JobSpec(framework="group", roles=(role,), **spec)  # type: ignore[arg-type]


def sized(size: int, *, generation: int = 2, **spec: object) -> JobObserved:
    """The job's resource with so many replicas."""
    return observed(a_group_spec(size, **spec), generation=generation)  # type: ignore[arg-type]


def a_starting_group(size: int = 3, **spec: object) -> list[AnyEvent]:
    """All places assigned, nothing seen of their pods."""
    return [
        sized(size, generation=1, **spec),
        JobCreated(reason="TrainingJobCreated"),
        SlotsAssigned(slots=(workers(*range(size)),), reason="JobCreated"),
    ]


def a_running_group(size: int = 3, **spec: object) -> list[AnyEvent]:
    """All workers Ready, and known to be."""
    return [
        *a_starting_group(size, **spec),
        pods(*(worker(index) for index in range(size))),
        JobRunning(reason="TrainingJobRunning"),
        published(1, *range(size)),
    ]


def growing(*indices: int, **spec: object) -> list[AnyEvent]:
    """An edit from two workers to these more, accepted and in phase Scaling."""
    return [
        *a_running_group(2, **spec),
        sized(2 + len(indices), **spec),
        ScaleAccepted(request=E2, kind="ScaleOut", added=(workers(*indices),), deadline=600, drain=0),
        JobScaling(reason="ScalingStart"),
    ]


def shrinking(*indices: int, size: int = 3, request: Uid = E2, **spec: object) -> list[AnyEvent]:
    """An edit from `size` to fewer, without these, accepted and in phase Scaling."""
    leaving = tuple(Member(index, Uid(f"pod-{index}")) for index in indices)
    return [
        *a_running_group(size, **spec),
        sized(size - len(indices), **spec),
        ScaleAccepted(request=request, kind="ScaleIn", leaving=leaving, deadline=600, drain=10),
        JobScaling(reason="ScalingStart"),
    ]
