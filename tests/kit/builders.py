"""Events of ordinary jobs, with one meaningful argument each."""

import json
from collections.abc import Iterable
from typing import Any

import msgspec

from shared.frameworks.scale_requests import named_workers
from shared.job.events.catalog import AnyEvent
from shared.job.events.scaler import HostsPublished, ScaleAccepted
from shared.job.events.scheduler import SecretMade, SlotsAssigned
from shared.job.events.status import JobCreated, JobRunning, JobScaling
from shared.job.events.watcher import ChildrenObserved, JobObserved, PodsObserved, ScaleRequested
from shared.job.naming import Slot, Uid, config_name, pod_name, service_name
from shared.job.spec import LAUNCHER, WORKER, CleanPodPolicy, JobSpec, RestartPolicy, RoleSpec, ScaleKind, ScaleSpec
from shared.job.views import ChildView, Exit, Member, PodView, Slots, ranges
from tests.kit.histories import KEY

R1 = Uid("request-1")
R2 = Uid("request-2")


def a_spec(
    workers: int = 2,
    *,
    least: int = 1,
    most: int | None = None,
    clean: CleanPodPolicy = "Running",
    restart: RestartPolicy = "Never",
    of_workers: RestartPolicy = "Never",
    of_launcher: RestartPolicy = "Never",
    word: str = "",
    follows: bool = False,
    written: bool = False,
    **more: Any,
) -> JobSpec:
    return JobSpec(
        framework="training",
        roles=(
            RoleSpec(name=LAUNCHER, replicas=1, container="main", restart_policy=of_launcher),
            RoleSpec(
                name=WORKER,
                replicas=workers,
                min_replicas=least,
                max_replicas=most,
                follows=follows,
                written=written,
                container="main",
                restart_policy=of_workers,
            ),
        ),
        clean_pod_policy=clean,
        restart_policy=restart,
        restart=word,
        **more,
    )


def observed(spec: JobSpec, *, generation: int = 1) -> JobObserved:
    return JobObserved(
        kind="TrainingJob",
        api_version="kai.alibabacloud.com/v1alpha1",
        generation=generation,
        version=generation,
        spec=spec,
    )


def worker(index: int, *, version: int = 10, phase: str = "Running", ready: bool = True, **more: object) -> PodView:
    slot = Slot(0, WORKER, index)
    return PodView(
        uid=Uid(f"pod-{index}"),
        name=pod_name(KEY.name, slot),
        version=version,
        attempt=0,
        role=WORKER,
        index=index,
        phase=phase,
        ready=ready and phase == "Running",
        **more,  # type: ignore[arg-type]
    )


def launcher(*, version: int = 20, phase: str = "Running", hosts: int = 1, **more: object) -> PodView:
    slot = Slot(0, LAUNCHER, 0)
    return PodView(
        uid=Uid("pod-launcher"),
        name=pod_name(KEY.name, slot),
        version=version,
        attempt=0,
        role=LAUNCHER,
        index=0,
        phase=phase,
        ready=phase == "Running",
        hosts=hosts,
        **more,  # type: ignore[arg-type]
    )


def exited(code: int, reason: str = "") -> tuple[Exit, ...]:
    return (Exit("main", code, reason or ("Completed" if code == 0 else "Error")),)


def pods(*views: PodView) -> PodsObserved:
    return PodsObserved(pods=views)


def workers(*indices: int) -> Slots:
    return Slots(0, WORKER, ranges(indices))


def service() -> ChildrenObserved:
    child = ChildView(kind="Service", name=service_name(KEY.name), uid=Uid("svc"), version=5, ours=True)
    return ChildrenObserved(children=(child,))


def secret(attempt: int = 0) -> SecretMade:
    return SecretMade(attempt=attempt, uid=Uid(f"keys-{attempt}"))


def hosts_file(version: int) -> ChildrenObserved:
    child = ChildView(
        kind="ConfigMap",
        name=config_name(KEY.name),
        uid=Uid("config"),
        version=100 + version,
        ours=True,
        hosts=version,
    )
    return ChildrenObserved(children=(child,))


def published(version: int, *indices: int, request: Uid = Uid("")) -> HostsPublished:
    return HostsPublished(version=version, members=ranges(indices), request=request)


def a_created_job(workers: int = 2, **spec: object) -> list[AnyEvent]:
    """Taken on: worker slots assigned, nothing seen of them yet."""
    return [
        observed(a_spec(workers, **spec)),  # type: ignore[arg-type]
        JobCreated(reason="TrainingJobCreated"),
        SlotsAssigned(slots=(Slots(0, WORKER, ((0, workers - 1),)),), reason="JobCreated"),
    ]


def a_ready_job(workers: int = 2, **spec: object) -> list[AnyEvent]:
    """All workers Ready, hosts files not published yet."""
    return [*a_created_job(workers, **spec), secret(), pods(*(worker(index) for index in range(workers)))]


def labelled(events: Iterable[AnyEvent], **labels: str) -> list[AnyEvent]:
    """The events of a job whose resource has these labels."""
    first, *others = events
    return [msgspec.structs.replace(first, labels=(*labels.items(),)), *others]


def with_devices(events: Iterable[AnyEvent], gpus: int) -> list[AnyEvent]:
    """The events of a job each of whose workers requests so many GPUs."""
    first, *others = events
    assert isinstance(first, JobObserved)
    assert first.spec is not None
    of_worker = (("cpu", 4.0), ("nvidia.com/gpu", float(gpus)))
    roles = tuple(
        msgspec.structs.replace(role, requests=of_worker) if role.name == WORKER else role for role in first.spec.roles
    )
    return [msgspec.structs.replace(first, spec=msgspec.structs.replace(first.spec, roles=roles)), *others]


def a_running_job(workers: int = 2, **spec: object) -> list[AnyEvent]:
    """The launcher runs with all workers as members."""
    return [
        *a_ready_job(workers, **spec),
        published(1, *range(workers)),
        ChildrenObserved(children=(*service().children, *hosts_file(1).children)),
        SlotsAssigned(slots=(Slots(0, LAUNCHER, ((0, 0),)),), reason="WorkersReady"),
        pods(launcher()),
        JobRunning(reason="TrainingJobRunning"),
    ]


def scale_out(
    count: int = 2, *, request: Uid = R1, owned: bool = True, script: bool = False, limit: int = 6
) -> ScaleRequested:
    spec = ScaleSpec(kind="ScaleOut", job=KEY.name, count=count, timeout_seconds=60, script=script, backoff_limit=limit)
    return _requested("ScaleOut", request, spec, owned=owned)


def scale_in(
    count: int | None = None,
    *,
    names: tuple[str, ...] = (),
    request: Uid = R1,
    owned: bool = True,
    script: bool = False,
) -> ScaleRequested:
    workers, stranger = named_workers(KEY.name, names)
    spec = ScaleSpec(
        kind="ScaleIn",
        job=KEY.name,
        count=count,
        workers=workers,
        stranger=stranger,
        timeout_seconds=60,
        script=script,
    )
    return _requested("ScaleIn", request, spec, owned=owned)


def _requested(kind: ScaleKind, request: Uid, spec: ScaleSpec, *, owned: bool) -> ScaleRequested:
    return ScaleRequested(
        kind=kind, name=f"{kind.lower()}-{request}", uid=request, owner=KEY.uid if owned else Uid(""), spec=spec
    )


def scaling_out(*indices: int, request: Uid = R1, script: bool = False, limit: int = 6) -> list[AnyEvent]:
    """A scale-out to these new workers, accepted and in phase Scaling."""
    return [
        scale_out(len(indices), request=request, script=script, limit=limit),
        ScaleAccepted(request=request, kind="ScaleOut", added=(workers(*indices),), deadline=60, drain=0),
        JobScaling(reason="ScalingStart"),
    ]


def scaling_in(*indices: int, request: Uid = R1, script: bool = False) -> list[AnyEvent]:
    """A scale-in of these workers, accepted and in phase Scaling."""
    return [
        scale_in(len(indices), request=request, script=script),
        ScaleAccepted(
            request=request,
            kind="ScaleIn",
            leaving=tuple(Member(index, Uid(f"pod-{index}")) for index in indices),
            deadline=60,
            drain=10,
        ),
        JobScaling(reason="ScalingStart"),
    ]


def report_body(**said: Any) -> bytes:
    """A report as `transformers` writes it; what is no part of the contract is a metric."""
    known = {name: said.pop(name) for name in ("progressPercentage", "estimatedRemainingSeconds") if name in said}
    metrics = [{"name": name, "value": str(value)} for name, value in said.items()]
    status = {"lastUpdatedTime": "1999-01-01T00:00:00Z", **known, "metrics": metrics}
    return json.dumps({"trainerStatus": status}).encode()
