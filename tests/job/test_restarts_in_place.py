"""A failed training container that its kubelet begins again counts as a replacement, and not for ever; the nodes where
containers of a job failed again and again."""

from typing import Any

import pytest
from msgspec.structs import replace

from services.scheduler.core.effects import CreatePod, DeletePod
from services.watcher.core.views import observed_job
from shared.frameworks.pods import off_nodes, with_restarts
from shared.frameworks.pytorchjob import PYTORCHJOB
from shared.frameworks.training_job import TRAININGJOB
from shared.job.events.catalog import AnyEvent
from shared.job.events.event import At
from shared.job.events.scheduler import SlotsAssigned
from shared.job.events.watcher import DisruptionNoticed, PodsObserved, TimePassed
from shared.job.naming import RESTART_IN_PLACE
from shared.job.policies import nodes
from shared.job.policies.replacement import MOST_IN_PLACE, in_place
from shared.job.policies.retries import final_codes
from shared.job.policies.verdict import verdict
from shared.job.spec import JobSpec
from shared.job.timers import AVOIDED
from shared.job.timing import next_due
from tests.frameworks.documents import changed, custom, pytorch_job, training_job
from tests.kit.builders import a_running_job, exited, pods, worker, workers
from tests.kit.replicas import TOGETHER, WORKERS, a_replicated_spec, a_running_replicated_job, replica
from tests.kit.stories import Story, given, scheduler

FAILS: dict[str, Any] = {"reason": "Error", "message": "exited with 5 (Error): alas"}


def a_spec(**more: Any) -> JobSpec:
    return replace(a_replicated_spec("OnFailure", limit=more.pop("limit", 6)), restarts_in_place=True, **more)


def again(restarts: int, *, node: str = "node-1", index: int = 0) -> list[AnyEvent]:
    """The training container of a worker fails, and its kubelet begins it again."""
    version = 100 + 10 * restarts
    failed = replace(replica("worker", index, version=version, restarts=restarts - 1, node=node, **FAILS), ready=False)
    return [
        PodsObserved(pods=(failed,)),
        PodsObserved(pods=(replica("worker", index, version=version + 1, restarts=restarts, node=node),)),
    ]


def failing(times: int, spec: JobSpec | None = None, **more: Any) -> Story:
    spec = spec or a_spec()
    events = [event for number in range(times) for event in again(number + 1, **more)]
    return given(*a_running_replicated_job(spec), *events)


def test_each_counts_as_a_replacement_and_is_told_and_the_pod_stays():
    story = failing(2)
    assert (story.job.attempt.replaced, story.job.attempt.vacancies, verdict(story.job)) == (2, {}, None)
    assert [(each.pod, each.reason, each.message) for each in story.job.status.failures] == [
        ("resnet-worker-0", "Error", "exited with 5 (Error): alas")
    ] * 2
    story.then_nothing(scheduler)


@pytest.mark.parametrize("seen", [True, False], ids=["between two looks", "before the first look"])
def test_those_that_the_watcher_missed_count_too(seen: bool):
    def failed_twice(spec: JobSpec) -> Story:
        begun = [event for event in a_running_replicated_job(spec) if seen or not isinstance(event, PodsObserved)]
        return given(*begun, PodsObserved(pods=(replica("worker", 0, version=200, restarts=2),)))

    story = failed_twice(a_spec())
    assert (story.job.attempt.replaced, story.job.attempt.vacancies) == (2, {})
    end = verdict(failed_twice(a_spec(limit=1)).job)
    assert end is not None
    assert end.reason == "BackoffLimitExceeded"


def test_the_pod_is_replaced_when_its_container_failed_in_it_again_and_again():
    story = failing(MOST_IN_PLACE)
    assert story.job.attempt.replaced == MOST_IN_PLACE - 1
    assert [*story.job.attempt.vacancies] == [WORKERS[0]]
    pod = replica("worker", 0)
    story.then_among_others(scheduler, DeletePod(pod.name, pod.uid))


def test_the_limit_ends_the_job_as_that_of_replacements_does():
    story = failing(2, a_spec(limit=1))
    end = verdict(story.job)
    assert end is not None
    assert (end.reason, end.permanent) == ("BackoffLimitExceeded", True)
    assert "alas" in end.message


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(a_replicated_spec("OnFailure"), id="that the pod template asks for"),
        pytest.param(replace(a_replicated_spec("Never"), restarts_in_place=True), id="where nothing is replaced"),
    ],
)
def test_a_restart_that_muster_did_not_ask_for_counts_against_nothing(spec: JobSpec):
    story = failing(5, spec)
    assert (story.job.attempt.replaced, story.job.attempt.vacancies, story.job.status.failures) == (0, {}, ())
    assert nodes.avoided(story.job) == {}


def test_a_container_that_ends_with_its_node_counts_against_nothing():
    pod = replica("worker", 0)
    notice = DisruptionNoticed(uids=(pod.uid,), reason="SpotInterruption", node="node-1", seconds=120)
    story = given(*a_running_replicated_job(a_spec()), notice, *again(1))
    assert (story.job.attempt.replaced, story.job.attempt.vacancies) == (0, {})


@pytest.mark.parametrize(
    ("policy", "final", "codes"),
    [
        pytest.param("OnFailure", False, [0], id="every failure"),
        pytest.param("Always", False, [0], id="a success makes a new pod"),
        pytest.param("ExitCode", False, [*range(128)], id="what a signal ended"),
        pytest.param("ExitCode", True, [*range(128), 137], id="and not what may have used too much memory"),
    ],
)
def test_what_is_begun_again_is_what_would_be_replaced(policy: Any, final: bool, codes: list[int]):
    handling = replace(TOGETHER, out_of_memory_is_final=final)
    assert final_codes(a_replicated_spec(policy, handling=handling), "worker") == codes


def test_only_a_pod_whose_successor_has_its_name_is_begun_again():
    assert in_place(a_spec(), "worker")
    assert not in_place(a_spec(handling=replace(TOGETHER, in_place=False)), "worker")
    assert not in_place(a_spec(handling=replace(TOGETHER, restarts="Job")), "chief")
    assert not in_place(a_spec(), "launcher")


def test_the_kubelet_is_told_by_rules_unless_the_template_has_a_policy():
    own = {"name": "side", "restartPolicy": "Always"}
    pod = {"spec": {"containers": [{"name": "main"}, own]}}
    main, side = with_restarts(pod, "main", [0])["spec"]["containers"]
    assert main["restartPolicy"] == "Never"
    assert main["restartPolicyRules"] == [{"action": "Restart", "exitCodes": {"operator": "NotIn", "values": [0]}}]
    assert side is own
    assert with_restarts(pod, "side", [0]) == pod


@pytest.mark.parametrize(
    ("said", "wanted", "told"),
    [
        pytest.param("true", True, 0, id="asked for"),
        pytest.param("false", False, 0, id="declined"),
        pytest.param("yes", False, 1, id="another word"),
    ],
)
def test_a_job_asks_by_annotation(said: str, wanted: bool, told: int):
    manifest = changed(pytorch_job(Master=1, Worker=2), "metadata.annotations", {RESTART_IN_PLACE: said})
    manifest = changed(manifest, "spec.pytorchReplicaSpecs.Worker.restartPolicy", "OnFailure")
    spec = observed_job(PYTORCHJOB, custom(manifest)).observed.spec
    assert spec is not None
    assert (spec.restarts_in_place, len(spec.ignored)) == (wanted, told)


def test_a_kind_that_takes_no_worker_under_the_name_of_one_that_failed_says_so():
    manifest = changed(training_job(), "metadata.annotations", {RESTART_IN_PLACE: "true"})
    spec = observed_job(TRAININGJOB, custom(manifest)).observed.spec
    assert spec is not None
    assert [each.field for each in spec.ignored] == [f"metadata.annotations[{RESTART_IN_PLACE}]"]
    assert not spec.restarts_in_place


class TestNodes:
    """The nodes where containers of the job failed again and again."""

    def failed(self, node: str, times: int = nodes.FAILURES_ON_NODE) -> list[AnyEvent]:
        """Workers of a job that replaces them fail on a node, one after the other."""
        story = list[AnyEvent]()
        for index in range(1, times + 1):
            lost = worker(index, version=100 * index, phase="Failed", exits=exited(1), node=node)
            story += [
                pods(worker(index, node=node, version=100 * index - 1)),
                pods(lost),
                SlotsAssigned(slots=(workers(index + 1),), replaces=(workers(index),), reason="WorkersReplaced"),
            ]
        return story

    def made(self, story: Story) -> list[tuple[str, ...]]:
        return [step.avoid for step in story.steps(scheduler) if isinstance(step, CreatePod)]

    def test_new_pods_keep_off_them(self):
        running = a_running_job(2, of_workers="OnFailure")
        assert self.made(given(*running, *self.failed("node-1"))) == [("node-1",)]
        assert self.made(given(*running, *self.failed("node-1", 2))) == [()]

    def test_they_are_told_with_the_time(self):
        story = given(*a_running_job(2, of_workers="OnFailure"), *self.failed("node-1"))
        [told] = nodes.of_avoided(story.job)
        [failures] = nodes.avoided(story.job).values()
        assert told == (
            f"new pods keep off node-1 for 10 minutes from {failures.at.clock} on if others have room, as 3 failed "
            "there"
        )

    def test_after_the_time_they_are_as_any_other(self):
        story = [*a_running_job(2, of_workers="OnFailure"), *self.failed("node-1")]
        [due] = [due for due in next_due(given(*story).job) if due.name == AVOIDED]
        assert due.seconds == nodes.AVOIDED_SECONDS
        after = given(*story, TimePassed(anchor=due.anchor, timer=AVOIDED))
        assert (nodes.avoided(after.job), self.made(after)) == ({}, [()])

    def test_a_loss_that_is_not_the_pods_own_says_nothing_about_its_node(self):
        lost = [
            pods(worker(1, version=30, node="node-1", phase="Failed", deleting=True, exits=exited(137))),
            pods(worker(0, version=30, node="node-1", phase="Failed", disruption="EvictionByEvictionAPI")),
        ]
        assert given(*a_running_job(2), *lost).job.pods.failures_on == {}

    def test_a_pod_in_place_fails_on_its_node_too(self):
        assert [*nodes.avoided(failing(MOST_IN_PLACE).job)] == ["node-1"]

    def test_only_the_newest_are_counted(self):
        known: Any = {}
        for number in range(nodes.MOST_NODES + 3):
            known = nodes.with_failure(known, f"node-{number}", At(number, ""))
        assert [*known] == [f"node-{number}" for number in range(3, nodes.MOST_NODES + 3)]
        assert nodes.with_failure(known, "", At(99, "")) is known

    def test_a_pod_goes_there_only_if_no_other_has_room(self):
        theirs = {"weight": 1, "preference": {"matchExpressions": [{"key": "fast", "operator": "Exists"}]}}
        field = "preferredDuringSchedulingIgnoredDuringExecution"
        pod = {"spec": {"affinity": {"podAffinity": {}, "nodeAffinity": {field: [theirs]}}}}
        made = off_nodes(pod, ["node-1", "node-2"])["spec"]["affinity"]
        off = [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in ("node-1", "node-2")]
        assert made["nodeAffinity"] == {field: [theirs, {"weight": 100, "preference": {"matchFields": off}}]}
        assert made["podAffinity"] == {}
        assert off_nodes(pod, []) is pod
