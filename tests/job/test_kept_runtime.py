"""When a job keeps the runtime that it began with, and what of its resource counts from then on."""

import msgspec
import pytest

from shared.job.events.catalog import AnyEvent
from shared.job.events.event import EffectRefused
from shared.job.events.scheduler import SlotsAssigned
from shared.job.events.status import JobCreated
from shared.job.events.watcher import ChildrenObserved, PodsObserved
from shared.job.naming import Uid, runtime_copy_name
from shared.job.spec import JobSpec, RuntimeUsed, Wishes, going_on
from shared.job.state import Job
from shared.job.views import ChildView
from tests.kit.builders import a_spec, observed, worker, workers
from tests.kit.histories import KEY
from tests.kit.stories import given

replace = msgspec.structs.replace


def a_runtime(digest: str) -> RuntimeUsed:
    return RuntimeUsed(kind="TrainingRuntime", name="torch", uid="runtime-1", generation=1, digest=digest)


def of_runtime(digest: str, workers: int = 2) -> JobSpec:
    return a_spec(workers, most=4, runtime=a_runtime(digest))


def kept(job: Job) -> str:
    return job.kept_runtime.digest if job.kept_runtime is not None else ""


FIRST = of_runtime("1" * 64)
NEWER = of_runtime("2" * 64, workers=3)
BEGUN: tuple[AnyEvent, ...] = (
    observed(FIRST),
    JobCreated(reason="TrainJobCreated"),
    SlotsAssigned(slots=(workers(0, 1),), reason="JobCreated"),
)
CHANGED = EffectRefused(effect="CreatePod", reason="RuntimeChanged", slots=(workers(0, 1),))
COPY = ChildrenObserved(
    children=(
        ChildView(kind="ConfigMap", name=runtime_copy_name(KEY.name, "1" * 64), uid=Uid("copy"), version=5, ours=True),
    )
)
POD = PodsObserved(pods=(worker(0),))


def test_a_job_without_slots_follows_its_runtime():
    job = given(observed(FIRST), JobCreated(reason="TrainJobCreated"), observed(NEWER)).job
    assert (job.spec, kept(job)) == (NEWER, "")


def test_a_job_with_slots_keeps_its_runtime_and_its_size_before_a_pod_is_seen():
    job = given(*BEGUN, observed(NEWER), POD).job
    assert (job.spec, kept(job)) == (FIRST, "1" * 64)


def test_a_job_for_which_nothing_was_made_follows_the_changed_runtime():
    job = given(*BEGUN, CHANGED).job
    assert kept(job) == ""
    job = given(*BEGUN, CHANGED, observed(NEWER)).job
    assert (job.spec, kept(job)) == (NEWER, "2" * 64)


@pytest.mark.parametrize("seen", [COPY, POD], ids=["copy", "pod"])
def test_a_job_whose_copy_or_pod_was_seen_keeps_its_runtime_whatever_is_refused(seen: AnyEvent):
    job = given(*BEGUN, seen, CHANGED, observed(NEWER)).job
    assert (job.spec, kept(job)) == (FIRST, "1" * 64)


def test_a_runtime_with_the_same_spec_is_the_same():
    again = replace(FIRST, runtime=replace(a_runtime("1" * 64), uid="runtime-2", generation=7), backoff_limit=1)
    assert given(*BEGUN, POD, observed(again)).job.spec == again


def test_the_copy_of_a_runtime_is_no_hosts_file():
    refused = EffectRefused(effect="WriteHosts", reason="QuotaExceeded")
    assert "WriteHosts" in given(*BEGUN, refused, COPY).job.efforts.refusals


def test_a_deadline_and_a_fitting_number_of_workers_count_and_another_number_is_told():
    field = "spec.trainer.numNodes"
    fits = going_on(FIRST, Wishes(workers=4, workers_field=field, deadline=60))
    assert (fits.worker.replicas, fits.active_deadline_seconds, fits.ignored) == (4, 60, ())
    beyond = going_on(fits, Wishes(workers=9, workers_field=field))
    assert (beyond.worker.replicas, beyond.active_deadline_seconds) == (4, None)
    assert [known.field for known in beyond.ignored] == [field]
    assert going_on(beyond, Wishes(workers=4, workers_field=field)).ignored == ()
