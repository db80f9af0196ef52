"""What the log has of a Workload: what Kueue decided, and what pods get as long as an admission lasts."""

from typing import Any

import msgspec
import pytest

from services.watcher.core.cache import WORKLOAD, Cache
from services.watcher.core.observe import BYTES_PER_EVENT
from services.watcher.core.views import observed_job
from shared.cluster.objects import Custom, CustomMetadata
from shared.frameworks.queueing import LONGEST, QUEUE, placed, view_of
from shared.frameworks.training_job import TRAININGJOBS, TrainingJob
from shared.job.events.watcher import ChildGone, ChildrenObserved, HistoryBroken, JobGone
from shared.job.naming import Uid, workload_name
from shared.job.spec import WORKER
from shared.job.views import ChildView, PodSetView, WorkloadView
from tests.kit.builders import a_created_job
from tests.kit.histories import KEY
from tests.kit.world import a_training_job
from tests.watcher.watching import Watching, a_resource, replace

NAME = workload_name(KEY, 1)
POOL = Custom(metadata=CustomMetadata(name="pool"), spec={"nodeLabels": {"pool": "a"}})
ELSEWHERE = Custom(metadata=CustomMetadata(name="pool"), spec={"nodeLabels": {"pool": "b"}})
ADMITTED = WorkloadView(
    queue="team-a", reserved=True, admitted=True, pod_sets=(PodSetView(role=WORKER, count=2, flavors=("pool",)),)
)


def watching(view: WorkloadView = ADMITTED, **flavors: Custom) -> Watching:
    """A job whose Workload is shown; Kueue's objects were listed."""
    found = Watching(*a_created_job())
    found.cache = Cache(kueue=True)
    found.listed(1_000)
    found.show(a_resource(version=1))
    for name, flavor in flavors.items():
        found.cache.set_flavor(name, flavor)
    show(found, view, version=10)
    return found


def show(found: Watching, view: WorkloadView, version: int) -> None:
    found.show_child(ChildView(kind=WORKLOAD, name=NAME, uid=Uid("w1"), version=version, ours=True, workload=view))


def told(found: Watching) -> list[WorkloadView]:
    """The views that are recorded now."""
    facts = [fact for fact in found.settle() if isinstance(fact, ChildrenObserved)]
    return [child.workload for fact in facts for child in fact.children if child.workload is not None]


def places(view: WorkloadView) -> list[dict[str, str]]:
    return [{**each.node_selector} for each in view.pod_sets]


def test_an_admission_and_what_its_flavor_gives_are_one_fact():
    found = watching()
    assert told(found) == []
    assert found.cache.set_flavor("pool", POOL) == (KEY,)
    assert [places(view) for view in told(found)] == [[{"pool": "a"}]]


def test_that_of_a_job_of_which_a_restored_log_has_only_that_it_is_gone_is_seen_as_its_finalizer_keeps_it():
    broken = HistoryBroken(log="log-2", sequence=7, hash="ab", reason="OtherLog", kind="TrainingJob")
    found = Watching(broken, JobGone(version=2))
    found.cache = Cache(kueue=True)
    found.listed(1_000)
    show(found, kept := replace(ADMITTED, deleting=True, held=True), version=10)
    assert told(found) == [kept]


@pytest.mark.parametrize(
    "answer", [{"evicted": "Preempted"}, {"finished": "Failed"}, {"deleting": True}, {"admitted": False}]
)
def test_what_gives_pods_nothing_is_recorded_without_its_flavor(answer: dict[str, Any]):
    assert told(watching(replace(ADMITTED, **answer))) == [replace(ADMITTED, **answer)]


def test_as_long_as_an_admission_lasts_pods_get_what_they_got_at_its_beginning():
    found = watching(pool=POOL)
    told(found)
    found.cache.set_flavor("pool", ELSEWHERE)
    assert told(found) == []
    show(found, replace(ADMITTED, ready=True), version=20)
    assert [places(view) for view in told(found)] == [[{"pool": "a"}]]
    found.cache.set_flavor("pool", None)
    show(found, ADMITTED, version=30)
    assert [places(view) for view in told(found)] == [[{"pool": "a"}]]
    show(found, replace(ADMITTED, evicted="Preempted"), version=40)
    assert [view.evicted for view in told(found)] == ["Preempted"]
    found.cache.set_flavor("pool", ELSEWHERE)
    show(found, ADMITTED, version=50)
    assert [places(view) for view in told(found)] == [[{"pool": "b"}]]


def test_a_deleted_workload_is_gone_once_it_was_listed():
    found = watching(pool=POOL)
    told(found)
    found.cache.set_child(WORKLOAD, (KEY.namespace, NAME), None)
    assert found.settle() == [ChildGone(kind=WORKLOAD, name=NAME, uid=Uid("w1"))]


def test_without_kueue_the_time_of_jobs_goes_on():
    found = watching()
    for listing in (found.cache.children[WORKLOAD], found.cache.flavors):
        listing.blind = True
    assert found.cache.sees(TRAININGJOBS)
    found.cache.pods.blind = True
    assert not found.cache.sees(TRAININGJOBS)


@pytest.mark.parametrize(("kueue", "queue"), [(True, "team-a"), (False, "")])
def test_the_label_of_a_queue_counts_where_the_setting_is_on(kueue: bool, queue: str):
    manifest = a_training_job()
    meta = CustomMetadata(name="resnet", labels={QUEUE: "team-a"})
    job = observed_job(TrainingJob(), Custom(metadata=meta, spec=manifest["spec"]), kueue=kueue)
    assert job.observed.spec is not None
    assert job.observed.spec.queue == queue


def test_a_workload_of_any_size_fits_an_event():
    word = "x" * LONGEST
    many = {f"{number:02d}{word}"[:LONGEST]: word for number in range(99)} | {word + "x": "", "long": word + "x"}
    tolerations = [{"key": key, "operator": word, "value": word, "effect": word} for key in many]
    sets = [{"name": f"{number}{word}", "count": 1, "flavors": many} for number in range(99)]
    updates = [each | {"labels": many, "annotations": many, "tolerations": tolerations} for each in sets]
    status = {
        "conditions": [{"type": kind, "status": "True", "reason": word * 9} for kind in ("Evicted", "Finished")],
        "admission": {"podSetAssignments": sets},
        "admissionChecks": [{"podSetUpdates": updates}] * 99,
    }
    shown = Custom(metadata=CustomMetadata(name=NAME), spec={"podSets": sets, "queueName": word * 9}, status=status)
    assert len(msgspec.json.encode(view_of(shown))) < BYTES_PER_EVENT


HOSTILE: tuple[Any, ...] = (None, 7, "x", [], {}, [None, 7, "x", {}], {"": None}, {"name": 7, "count": "many"})


@pytest.mark.parametrize("value", HOSTILE, ids=repr)
def test_any_json_gives_a_view_and_pods_are_made_with_it(value: Any):
    sets = [{"name": "worker", "count": value, "flavors": value, "nodeSelector": value, "tolerations": value}]
    for spec, status in (
        (value, value),
        ({"podSets": value, "queueName": value, "active": value}, {"conditions": value, "admission": value}),
        ({"podSets": sets}, {"admission": {"podSetAssignments": sets}, "admissionChecks": [{"podSetUpdates": sets}]}),
        ({"podSets": sets}, {"conditions": [{"type": value, "status": value}], "admissionChecks": value}),
    ):
        view = view_of(Custom(metadata=CustomMetadata(name=NAME), spec=spec, status=status))
        for pod_set in view.pod_sets:
            placed({"metadata": {}, "spec": {}}, NAME, pod_set)
