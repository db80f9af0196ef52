"""A status costs as much as the job has pods: what it needs of them is gathered once, in every kind."""

import pytest

from services.status.core.documents import document_of
from shared.frameworks.kinds import BUILT_IN
from shared.job.events.scheduler import SlotsAssigned
from shared.job.events.status import JobCreated, JobRunning
from shared.job.events.watcher import JobObserved, PodsObserved
from shared.job.naming import JobKey, Slot, Uid
from shared.job.policies import replacement
from shared.job.spec import WORKER, JobSpec, RoleSpec
from shared.job.state import Job
from shared.job.views import Exit, PodView, Slots
from tests.frameworks.documents import Document, custom, of_each_kind
from tests.kit.histories import a_history


def half_failed(document: Document) -> Job:
    """A running job, every second worker of which has failed."""
    at = document["apiVersion"], document["kind"]
    framework = next(kind for kind in BUILT_IN if (kind.resource.api_version, kind.resource.kind) == at)
    spec = framework.parse(custom(document))
    assert isinstance(spec, JobSpec), spec
    history = a_history(
        [
            JobObserved(kind=document["kind"], api_version=document["apiVersion"], generation=1, version=1, spec=spec),
            JobCreated(reason="Created"),
            SlotsAssigned(slots=tuple(Slots(0, role.name, ((0, role.replicas - 1),)) for role in spec.roles)),
            PodsObserved(pods=tuple(a_pod(role, index) for role in spec.roles for index in range(role.replicas))),
            JobRunning(reason="Running"),
            PodsObserved(
                pods=tuple(a_pod(spec.worker, index, failed=True) for index in range(0, spec.worker.replicas, 2))
            ),
        ],
        JobKey("team-a", document["metadata"]["name"], Uid("uid-1")),
    )
    return history.job


def a_pod(role: RoleSpec, index: int, *, failed: bool = False) -> PodView:
    return PodView(
        uid=Uid(f"{role.name}-{index}"),
        name=f"{role.name}-{index}",
        version=20 if failed else 10,
        attempt=0,
        role=role.name,
        index=index,
        phase="Failed" if failed else "Running",
        ready=not failed,
        exits=(Exit(role.container, 137, "Error"),) if failed else (),
    )


@pytest.mark.parametrize(
    "number", [pytest.param(number, id=str(each["apiVersion"])) for number, each in enumerate(of_each_kind(2))]
)
def test_a_status_goes_through_the_pods_as_often_whether_there_are_few_or_many(
    number: int, monkeypatch: pytest.MonkeyPatch
):
    passes: list[str] = []
    by_slot, replaceable = Job.by_slot, replacement.replaceable

    def counted_by_slot(job: Job) -> dict[Slot, PodView]:
        passes.append("by_slot")
        return by_slot(job)

    def counted_replaceable(job: Job) -> dict[Slot, replacement.Vacancy]:
        passes.append("replaceable")
        return replaceable(job)

    monkeypatch.setattr(Job, "by_slot", counted_by_slot)
    monkeypatch.setattr(replacement, "replaceable", counted_replaceable)
    found = []
    for workers in (8, 80):
        job = half_failed(of_each_kind(workers)[number])
        passes.clear()
        document_of(job)
        assert sum(slot.role == WORKER for slot in job.attempt.vacancies) == workers / 2
        found.append([*passes])
    few, many = found
    assert few == many
