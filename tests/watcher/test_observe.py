"""What the log does not know yet, as stories: the cache shows something, and these facts are said, once."""

from collections.abc import Sequence

import msgspec
import pytest

from services.watcher.core.observe import Unrecorded, observe
from services.watcher.core.observed import Change, ObservedJob
from shared.eventlog import MAX_BODY
from shared.job.events.catalog import AnyEvent
from shared.job.events.status import JobFailed
from shared.job.events.watcher import (
    ChildGone,
    ChildrenObserved,
    JobDeleting,
    JobGone,
    JobObserved,
    JobOfAnother,
    JobRelabelled,
    PodsGone,
    PodsObserved,
    ScaleRequested,
    ScaleRequestGone,
)
from shared.job.naming import JobKey, Uid, config_name
from shared.job.spec import WORKER, JobSpec, Problem, ScaleSpec
from shared.job.views import Actor, ChildView, Exit
from shared.telling.causes.sentences import sentence
from tests.kit.builders import (
    R1,
    R2,
    a_created_job,
    a_running_job,
    a_spec,
    exited,
    labelled,
    launcher,
    observed,
    scale_out,
    scaling_out,
    worker,
)
from tests.kit.histories import KEY
from tests.watcher.watching import WAITING, Watching, a_request, a_resource, watching_a_running_job

replace = msgspec.structs.replace

PROBLEM = Problem(reason="NoContainers", field="spec", message="add a container")
SECOND_LIFE = JobKey(KEY.namespace, KEY.name, Uid("uid-2"))


def kinds(facts: Sequence[AnyEvent]) -> list[str]:
    return [type(fact).__name__ for fact in facts]


def a_labelled(version: int, *changes: Change, spec: JobSpec | None = None, **labels: str) -> ObservedJob:
    seen = a_resource(spec, version=version)
    return replace(seen, observed=replace(seen.observed, labels=(*labels.items(),)), changes=changes)


class TestTheResource:
    def test_a_new_job_is_said_before_anything_about_it(self):
        watching = Watching()
        watching.show(a_resource(version=7))
        watching.show_pods(worker(0))
        (fact,) = watching.seen()
        assert isinstance(fact, JobObserved)
        assert (fact.generation, fact.version, fact.spec) == (1, 7, a_spec())

    def test_what_is_known_is_not_said_again_whatever_its_version(self):
        watching = Watching(observed(a_spec()))
        watching.show(a_resource(version=99))
        assert watching.seen() == []

    def test_other_labels_alone_are_said_without_the_spec_and_with_who_changed_them(self):
        watching = Watching(*labelled([observed(a_spec())], team="a"))
        by = Actor("kubectl-label", "Update")
        undone = Change(8, Actor("kubectl-edit", "Update"), 8)
        watching.show(a_labelled(9, undone, Change(9, by, 9, of_labels=True), team="b"))
        assert watching.settle() == [JobRelabelled(version=9, labels=(("team", "b"),), by=(by,))]
        assert (watching.job().spec, watching.job().resource.labels) == (a_spec(), (("team", "b"),))
        watching.fold(KEY, JobRelabelled(version=8, labels=()))
        assert watching.job().resource.labels == (("team", "b"),), "that was before"

    def test_who_changes_labels_has_no_part_in_an_edit_that_is_recorded_with_them(self):
        watching = Watching(*labelled([observed(a_spec())], team="a"))
        labeller, editor = Actor("kubectl-label", "Update"), Actor("kubectl-edit", "Update")
        changes = Change(8, labeller, 8, of_labels=True), Change(9, editor, 9)
        watching.show(a_labelled(9, *changes, spec=a_spec(3), team="b"))
        (fact,) = watching.settle()
        assert isinstance(fact, JobObserved)
        assert (fact.spec, fact.labels, fact.by, fact.writes) == (a_spec(3), (("team", "b"),), (editor,), (9,))

    def test_the_labels_of_a_job_that_an_older_release_recorded_are_said_once_and_not_as_a_change(self):
        of_older = Watching(observed(a_spec()))
        of_older.show(a_labelled(9))
        assert of_older.settle() == [], "it has none"
        of_older.show(a_labelled(9, team="a"))
        before = of_older.job()
        (fact,) = of_older.settle()
        assert fact == JobRelabelled(version=9, labels=(("team", "a"),))
        assert sentence(fact, before, of_older.job()) == "its labels were seen"
        changed = JobRelabelled(version=10, labels=())
        assert sentence(changed, of_older.job(), of_older.job()) == "its labels were changed"
        of_older.fold(KEY, changed)
        assert of_older.job().resource.labels == ()

    def test_the_labels_of_a_job_that_was_over_before_they_were_recorded_are_not_said(self):
        over = Watching(*a_running_job(2), JobFailed(reason="Failed"))
        over.show(a_labelled(9, team="a"))
        assert not [fact for fact in over.settle() if isinstance(fact, JobRelabelled)]
        later = Watching(*labelled([*a_running_job(2), JobFailed(reason="Failed")], team="a"))
        later.show(a_labelled(9, team="b"))
        assert [fact.labels for fact in later.settle() if isinstance(fact, JobRelabelled)] == [(("team", "b"),)]

    def test_an_adoption_does_not_wait_for_labels_which_a_full_log_takes_last(self):
        another = Watching(*labelled([observed(a_spec()), JobOfAnother(phase="Running")], team="a"))
        another.show(a_labelled(9, team="b"))
        assert not [fact for fact in another.settle() if isinstance(fact, JobRelabelled)]

    def test_while_changes_of_labels_are_merged_all_else_is_said(self):
        watching = Watching(*labelled([observed(a_spec())], team="a"))
        watching.show(a_labelled(9, team="b"))
        assert observe(watching.job(), watching.cache, but=Unrecorded(labels=True)).facts == ()
        watching.show(a_labelled(10, spec=a_spec(3), team="b"))
        assert [*map(type, observe(watching.job(), watching.cache, but=Unrecorded(labels=True)).facts)] == [JobObserved]

    def test_another_wish_in_the_same_generation_is_said_because_annotations_count_too(self):
        watching = Watching(observed(a_spec()))
        watching.show(a_resource(replace(a_spec(), suspend=True), version=9))
        assert kinds(watching.settle()) == ["JobObserved"]

    def test_an_older_version_is_not_said(self):
        watching = Watching(replace(observed(a_spec(2), generation=3), version=50))
        watching.show(a_resource(a_spec(9), version=49, generation=2))
        assert watching.seen() == []

    def test_problems_are_said_once_and_so_is_their_end(self):
        watching = Watching(observed(a_spec()))
        watching.show(a_resource(version=9, generation=2, problems=(PROBLEM,)))
        assert kinds(watching.settle()) == ["JobObserved"]
        watching.show(a_resource(version=10, generation=3))
        assert kinds(watching.settle()) == ["JobObserved"]
        assert watching.job().resource.problems == ()

    def test_of_a_job_that_starts_no_role_with_pods_is_taken_away_and_the_spec_before_counts(self):
        watching = Watching(*a_created_job(workers=2))
        before = watching.job().spec
        assert before is not None
        without = replace(before, roles=tuple(role for role in before.roles if role.name != WORKER))
        watching.show(a_resource(without, version=9, generation=2))
        assert kinds(watching.settle()) == ["JobObserved"]
        assert watching.job().spec == before
        assert [(problem.reason, problem.field) for problem in watching.job().resource.problems] == [
            ("RoleRemoved", "spec")
        ]
        assert "worker" in watching.job().resource.problems[0].message
        watching.show(a_resource(before, version=10, generation=3))
        assert kinds(watching.settle()) == ["JobObserved"]
        assert watching.job().resource.problems == ()

    @pytest.mark.parametrize("history", [[observed(a_spec(2))], a_running_job(workers=2)], ids=["no pods", "it runs"])
    def test_a_role_without_pods_may_be_taken_away_and_so_may_one_of_a_job_that_runs(self, history: list[AnyEvent]):
        watching = Watching(*history)
        without = replace(a_spec(2), roles=tuple(role for role in a_spec(2).roles if role.name != WORKER))
        watching.show(a_resource(without, version=9, generation=2))
        watching.settle()
        assert (watching.job().spec, watching.job().resource.problems) == (without, ())

    def test_a_deletion_is_said_with_the_finalizers_that_it_waits_for(self):
        watching = Watching(observed(a_spec()))
        watching.show(a_resource(version=9, deleting=True, finalizers=("example.com/hold",)))
        assert watching.settle() == [JobDeleting(version=9, finalizers=("example.com/hold",))]
        assert watching.job().resource.finalizers == ("example.com/hold",)

    def test_orphaning_is_said_when_it_is_seen_and_not_taken_back(self):
        watching = Watching(observed(a_spec()))
        watching.show(a_resource(version=9, deleting=True))
        assert watching.settle() == [JobDeleting(version=9)]
        watching.show(a_resource(version=10, deleting=True, orphan=True))
        assert watching.settle() == [JobDeleting(version=10, orphan=True)]
        # The garbage collector takes its finalizer off while another one still holds the resource.
        watching.show(a_resource(version=11, deleting=True))
        assert watching.settle() == []
        assert watching.job().resource.orphan

    def test_a_job_is_gone_only_when_its_own_get_said_so(self):
        watching = Watching(observed(a_spec()))
        assert watching.seen() == []
        watching.answer(there=False)
        assert watching.settle() == [JobGone(version=1_000)]

    def test_a_job_that_was_never_known_is_not_said_to_be_gone(self):
        watching = Watching()
        watching.answer(there=False)
        assert watching.seen() == []

    def test_the_namesake_of_a_job_does_not_keep_it_alive(self):
        watching = Watching(observed(a_spec()))
        watching.show(a_resource(key=SECOND_LIFE))
        watching.answer(there=False)
        assert kinds(watching.seen(KEY)) == ["JobGone"]
        assert kinds(watching.seen(SECOND_LIFE)) == ["JobObserved"]

    def test_a_job_that_is_seen_again_is_alive_again(self):
        watching = Watching(observed(a_spec()), JobDeleting(version=2), JobGone())
        watching.show(a_resource(version=20, generation=2))
        assert kinds(watching.settle()) == ["JobObserved"]
        assert not watching.job().resource.gone
        assert not watching.job().deleting

    def test_and_on_its_way_out_again_if_it_is(self):
        watching = Watching(observed(a_spec()), JobDeleting(version=2), JobGone())
        watching.show(a_resource(version=20, generation=2, deleting=True))
        assert kinds(watching.settle()) == ["JobObserved", "JobDeleting"]


class TestPods:
    @pytest.mark.parametrize(
        "view",
        [
            pytest.param(worker(1, version=90), id="a newer version of the same"),
            pytest.param(worker(1, version=9, ready=False), id="an older version"),
            pytest.param(worker(1, version=10, ready=False), id="the same version"),
        ],
    )
    def test_what_is_no_news_is_not_said(self, view: object):
        watching = watching_a_running_job()
        watching.show_pods(view)  # type: ignore[arg-type]
        assert watching.seen() == []

    @pytest.mark.parametrize(
        "change",
        [
            {"phase": "Succeeded"},
            {"ready": False},
            {"exits": exited(1)},
            {"reason": "Evicted"},
            {"node": "node-2"},
            {"deleting": True},
            {"deleting": True, "finalizers": ("example.com/keep",)},
            {"disruption": "PreemptionByScheduler"},
            {"hosts": 3},
        ],
        ids=lambda change: next(iter(change)),
    )
    def test_everything_that_a_decision_may_need_is_news(self, change: dict[str, object]):
        watching = watching_a_running_job()
        changed = replace(worker(1), version=90, **change)
        watching.show_pods(changed)
        assert watching.settle() == [PodsObserved(pods=(changed,))], "of the other pod nothing is said"

    def test_another_count_of_nodes_by_the_scheduler_is_not_said_again_and_another_reason_with_its_message_is(self):
        watching = watching_a_running_job()
        waits = worker(1, version=90, phase="Pending", reason="Unschedulable", message="0/3 nodes are available")
        watching.show_pods(waits)
        assert watching.settle() == [PodsObserved(pods=(waits,))]
        watching.show_pods(replace(waits, version=91, message="0/4 nodes are available"))
        assert watching.settle() == []
        pulls = replace(waits, version=92, reason="ErrImagePull", message="not found")
        watching.show_pods(pulls)
        assert watching.settle() == [PodsObserved(pods=(pulls,))]

    def test_each_step_of_a_pod_that_initializes_is_recorded(self):
        watching = watching_a_running_job()
        steps = ("init container fetch has not started", "init container fetch runs", "container main has not started")
        for version, step in enumerate(steps, start=90):
            watching.show_pods(worker(1, version=version, phase="Pending", reason="PodInitializing", message=step))
            watching.settle()
            assert watching.job().pods.views[Uid("pod-1")].message == step

    def test_last_words_that_the_log_lacks_are_no_news(self):
        # Another setting left them out: the pods of all jobs would be recorded again.
        watching = watching_a_running_job()
        watching.show_pods(worker(1, version=90, phase="Failed", exits=exited(1)))
        watching.settle()
        watching.show_pods(worker(1, version=91, phase="Failed", exits=(Exit("main", 1, "Error", "out of memory"),)))
        assert watching.settle() == []

    def test_the_node_of_a_pod_that_has_not_started_comes_with_what_happens_there(self):
        watching = watching_a_running_job()
        watching.show_pods(worker(1, version=90, phase="Pending", ready=False, node=""))
        watching.settle()
        watching.show_pods(worker(1, version=91, phase="Pending", ready=False, node="node-2"))
        assert watching.settle() == []
        watching.show_pods(worker(1, version=92, node="node-2"))
        assert kinds(watching.settle()) == ["PodsObserved"]

    def test_what_is_newer_than_the_list_is_not_gone(self):
        watching = watching_a_running_job()
        watching.take_pods("resnet-worker-1")
        watching.cache.pods.version = 9
        assert watching.seen() == []
        watching.cache.pods.version = 10
        assert kinds(watching.settle()) == ["PodsGone"]

    def test_a_pod_made_again_under_its_name_is_one_gone_and_one_new(self):
        watching = watching_a_running_job()
        again = replace(worker(1, version=90), uid=Uid("pod-1-again"))
        watching.show_pods(again)
        assert watching.settle() == [PodsObserved(pods=(again,)), PodsGone(uids=(Uid("pod-1"),))]

    def test_pods_and_children_that_go_while_their_job_may_be_gone_wait_for_its_get(self):
        watching = watching_a_running_job()
        watching.show(None)
        watching.take_pods("resnet-worker-0")
        watching.cache.set_child("ConfigMap", (KEY.namespace, config_name(KEY.name)), None)
        assert watching.seen() == []
        watching.answer(there=False)
        assert kinds(watching.settle()) == ["JobGone", "PodsGone", "ChildGone"]

    def test_nothing_of_them_is_said_either_while_nobody_is_asked(self):
        watching = watching_a_running_job()
        watching.cache.held_back = True
        watching.show(None)
        watching.take_pods("resnet-worker-0")
        assert watching.look().questions == ()
        assert watching.seen() == []

    def test_pods_and_children_of_a_job_that_its_get_finds_are_followed_although_its_list_lacks_it(self):
        watching = watching_a_running_job()
        watching.show(None)
        watching.take_pods("resnet-worker-0")
        watching.answer(there=True)
        assert kinds(watching.settle()) == ["PodsGone"]


class TestManyPods:
    @staticmethod
    def talkative(index: int) -> object:
        """As long as a view gets: every name of the greatest length."""
        exits = tuple(Exit("c" * 61 + f"{side:02}", 137, "ContainerStatusUnknown") for side in range(4))
        return replace(
            worker(index, version=10**9, phase="Failed", reason="ContainerStatusUnknown", node="n" * 253),
            uid=Uid(f"{index:036}"),
            name=f"{'j' * 50}-worker-{index}",
            exits=exits,
            disruption="DeletionByTaintManager",
        )

    def test_a_thousand_are_several_events_and_each_fits_the_log(self):
        watching = Watching(*a_created_job(workers=1_000))
        watching.show(a_resource(a_spec(1_000), version=1))
        watching.show_pods(*(self.talkative(index) for index in range(1_000)))  # type: ignore[arg-type]
        facts = watching.settle()
        assert len(facts) > 1
        assert all(len(msgspec.json.encode(fact)) < MAX_BODY for fact in facts)
        told = [pod.index for fact in facts if isinstance(fact, PodsObserved) for pod in fact.pods]
        assert told == list(range(1_000)), "each once, in order"

    def test_ordinary_ones_are_few_events(self):
        watching = Watching(*a_created_job(workers=1_000))
        watching.show(a_resource(a_spec(1_000), version=1))
        watching.show_pods(*(worker(index, node="node-1") for index in range(1_000)))
        assert len(watching.settle()) <= 2

    def test_seven_thousand_that_vanish_at_once_fit_too(self):
        watching = Watching(*a_created_job(workers=7_000))
        watching.show(a_resource(a_spec(7_000), version=1))
        watching.show_pods(*(replace(worker(index), uid=Uid(f"{index:036}")) for index in range(7_000)))
        watching.settle()
        watching.take_pods(*(f"resnet-worker-{index}" for index in range(7_000)))
        facts = []
        for _ in range(2):
            # They end the attempt, so that their job is asked for: of all, and of those that the first event leaves.
            watching.answer(there=True)
            facts += watching.settle()
        assert set(kinds(facts)) == {"PodsGone"}
        assert all(len(msgspec.json.encode(fact)) < MAX_BODY for fact in facts)
        assert not watching.job().pods.views


class TestEpochs:
    """An etcd restored from a backup counts again: lower versions, and perhaps other objects."""

    @staticmethod
    def restored() -> Watching:
        watching = watching_a_running_job()
        watching.restarted(version=6)
        watching.cache.epoch = 1
        watching.show(a_resource(version=1))
        watching.show_pods(worker(0, version=3, ready=False), launcher(version=4))
        return watching

    def test_everything_is_looked_at_afresh_and_then_there_is_silence(self):
        watching = self.restored()
        config = ChildView(kind="ConfigMap", name=config_name("resnet"), uid=Uid("config"), version=2, ours=True)
        watching.show_child(config)
        watching.settle()
        job = watching.job()
        assert job.resource.epoch == 1
        assert not job.pods.views[Uid("pod-0")].ready, "a lower version, and news"
        assert Uid("pod-1") not in job.pods.views, "newer than the LIST only by the other store's count"
        assert job.objects.children == {("ConfigMap", "resnet-config"): config}
        assert watching.seen() == []

    def test_many_pods_are_all_looked_at_even_in_several_events(self):
        watching = Watching(*a_created_job(workers=1_000))
        watching.show(a_resource(a_spec(1_000), version=1))
        watching.show_pods(*(worker(index, version=900) for index in range(1_000)))
        watching.settle()
        watching.restarted(version=50)
        watching.cache.epoch = 1
        watching.show(a_resource(a_spec(1_000), version=1))
        watching.show_pods(*(worker(index, version=40, ready=False) for index in range(1_000)))
        watching.settle()
        assert not any(pod.ready for pod in watching.job().pods.views.values())

    def test_within_the_new_epoch_versions_count_as_ever(self):
        watching = self.restored()
        watching.settle()
        watching.show_pods(worker(0, version=2))
        assert watching.seen() == []
        watching.show_pods(worker(0, version=5))
        assert kinds(watching.settle()) == ["PodsObserved"]

    def test_a_job_that_the_backup_does_not_have_is_gone_once_confirmed(self):
        watching = watching_a_running_job()
        watching.restarted(version=6)
        watching.cache.epoch = 1
        watching.answer(there=False)
        facts = watching.settle()
        assert JobGone(version=6) in facts
        assert not watching.job().pods.views

    def test_a_deletion_that_the_backup_takes_back_is_over(self):
        watching = watching_a_running_job()
        watching.fold(KEY, JobDeleting(version=99))
        watching.restarted(version=6)
        watching.cache.epoch = 1
        watching.show(a_resource(version=1))
        watching.settle()
        assert not watching.job().deleting

    def test_who_saw_an_older_store_says_nothing(self):
        watching = self.restored()
        watching.settle()
        watching.restarted(version=2_000)
        watching.show(a_resource(a_spec(9), version=1_999, generation=9))
        watching.show_pods(worker(0, version=1_999))
        assert watching.seen() == []


class TestChildren:
    SERVICE = ChildView(kind="Service", name="resnet", uid=Uid("svc"), version=5, ours=True)
    CONFIG = ChildView(kind="ConfigMap", name="resnet-config", uid=Uid("config"), version=6, ours=True, hosts=1)

    def watching(self) -> Watching:
        watching = Watching(*a_created_job())
        watching.show(a_resource(version=1))
        watching.show_child(self.SERVICE)
        watching.show_child(self.CONFIG)
        return watching

    def test_new_ones_are_said_together_and_once(self):
        assert self.watching().settle() == [ChildrenObserved(children=(self.CONFIG, self.SERVICE))]

    def test_hosts_files_that_were_written_again_are_news_and_those_of_a_job_that_is_over_are_not(self):
        watching = self.watching()
        watching.settle()
        watching.show_child(replace(self.SERVICE, version=7))
        assert watching.seen() == []
        edited = replace(self.CONFIG, version=7)
        watching.show_child(edited)
        assert watching.settle() == [ChildrenObserved(children=(edited,))]
        watching.fold(KEY, JobFailed(reason="LauncherLost"))
        watching.show_child(replace(self.CONFIG, version=8))
        assert watching.seen() == []

    def test_one_made_again_is_news(self):
        watching = self.watching()
        watching.settle()
        watching.show_child(replace(self.SERVICE, uid=Uid("svc-2")))
        assert kinds(watching.settle()) == ["ChildrenObserved"]
        assert watching.job().objects.children["Service", "resnet"].uid == "svc-2"

    def test_a_removed_one_is_gone_when_it_was_listed_and_is_not_newer(self):
        watching = self.watching()
        watching.settle()
        watching.cache.set_child("Service", (KEY.namespace, "resnet"), None)
        watching.cache.children["Service"].version = 4
        assert watching.seen() == []
        watching.cache.children["Service"].version = 0
        assert watching.seen() == []
        watching.cache.children["Service"].version = 5
        assert watching.settle() == [ChildGone(kind="Service", name="resnet", uid=Uid("svc"))]


class TestRequests:
    def test_the_names_of_pods_are_recorded_once_there_is_a_job(self):
        watching = Watching()
        spec = ScaleSpec(kind="ScaleIn", job=KEY.name, workers="0-1")
        watching.show_requests(msgspec.structs.replace(a_request("in"), kind="ScaleIn", spec=spec))
        (fact,) = watching.settle(WAITING)
        assert len(msgspec.json.encode(fact)) < 1_000
        assert watching.seen(WAITING) == [], "and not again and again"
        watching.show(a_resource())
        watching.settle(KEY)
        (known,) = watching.job().scaling.requests.values()
        assert known.spec == spec

    @pytest.mark.parametrize(
        ("workers", "kept"),
        [
            pytest.param("0-1", ("0-1", ""), id="as many as the job has"),
            pytest.param("1,5", ("1,5", ""), id="another one is refused when its turn comes"),
            pytest.param("0-2", ("", "resnet-worker-2"), id="more than it has: one that no worker has"),
            pytest.param("0-999", ("", "resnet-worker-2"), id="a thousand"),
        ],
    )
    def test_of_more_names_than_the_job_has_workers_one_is_recorded(self, workers: str, kept: tuple[str, str]):
        watching = Watching(*a_running_job(workers=2))
        watching.show(a_resource(version=1))
        watching.show_pods(launcher(), worker(0), worker(1))
        spec = ScaleSpec(kind="ScaleIn", job=KEY.name, workers=workers)
        request = msgspec.structs.replace(a_request("in"), kind="ScaleIn", spec=spec)
        watching.show_requests(request)
        watching.settle()
        known = watching.job().scaling.requests[request.uid]
        assert known.spec is not None
        assert (known.spec.workers, known.spec.stranger) == kept
        watching.show_requests(msgspec.structs.replace(request, owner=KEY.uid, version=request.version + 1))
        (again,) = watching.settle()
        assert isinstance(again, ScaleRequested)
        assert (again.owner, again.spec, again.problems) == (KEY.uid, None, ()), "the log has it once"
        assert watching.job().scaling.requests[request.uid].spec == known.spec

    def test_nothing_is_placed_before_jobs_and_requests_were_listed(self):
        for level in range(3):
            watching = Watching()
            watching.show_requests(a_request("out"))
            [watching.cache.scalable, *watching.cache.requests.values()][level].version = 0
            assert watching.seen(WAITING) == []

    def test_they_are_said_in_the_order_in_which_they_were_made(self):
        watching = Watching(observed(a_spec()))
        watching.show(a_resource(version=1))
        watching.show_requests(
            a_request("late", created="2030-01-01T00:00:09Z", version=5),
            a_request("same-second-later", version=9),
            a_request("same-second-first", version=8),
        )
        watching.settle()
        assert list(watching.job().scaling.requests) == ["same-second-first", "same-second-later", "late"]

    def test_when_the_job_comes_they_move_in_the_order_first_seen(self):
        watching = Watching()
        # The clock of a second API server may be behind: what counts is what was seen first.
        watching.show_requests(a_request("first", created="2030-01-01T00:00:09Z"))
        watching.settle(WAITING)
        watching.show_requests(a_request("second"))
        watching.settle(WAITING)
        watching.show(a_resource())
        watching.settle(WAITING, KEY)
        assert list(watching.job().scaling.requests) == ["first", "second"]
        assert not watching.job(WAITING).scaling.requests

    def test_none_leaves_the_waiting_room_before_it_arrived(self):
        watching = Watching()
        watching.show_requests(a_request("first"), a_request("second"))
        watching.settle(WAITING)
        watching.show(a_resource())
        assert watching.seen(WAITING) == []
        watching.settle(KEY)
        assert watching.settle(WAITING) == [
            ScaleRequestGone(uid=Uid("first"), reason="Bound"),
            ScaleRequestGone(uid=Uid("second"), reason="Bound"),
        ]

    def test_one_whose_job_has_come_does_not_fail_for_its_absence(self):
        watching = Watching()
        watching.show_requests(a_request("out"))
        watching.settle(WAITING)
        assert watching.look(WAITING).trusted
        watching.show(a_resource())
        assert not watching.look(WAITING).trusted

    def test_one_that_is_deleted_while_it_waits_is_deleted(self):
        watching = Watching()
        watching.show_requests(a_request("out"))
        watching.settle(WAITING)
        watching.take_request("out")
        assert watching.settle(WAITING) == [ScaleRequestGone(uid=Uid("out"), reason="Deleted")]

    def test_an_owner_that_a_person_removed_is_not_said_for_ever(self):
        watching = Watching(observed(a_spec()))
        watching.show(a_resource(version=1))
        watching.show_requests(a_request("out", owner=KEY.uid))
        watching.settle()
        watching.show_requests(a_request("out", version=10))
        watching.settle()
        assert watching.job().scaling.requests[Uid("out")].owner == KEY.uid

    def test_an_owned_one_never_binds_to_another_job_of_that_name(self):
        watching = Watching(observed(a_spec()), JobGone())
        watching.show_requests(a_request("out", owner=KEY.uid))
        watching.show(a_resource(key=SECOND_LIFE))
        watching.settle(SECOND_LIFE, KEY, WAITING)
        assert not watching.job(SECOND_LIFE).scaling.requests
        assert not watching.job(WAITING).scaling.requests

    def test_an_unowned_one_whose_job_went_waits_again_and_goes_to_the_next(self):
        watching = Watching(observed(a_spec()))
        watching.show(a_resource(version=1))
        watching.show_requests(a_request("out"))
        watching.settle()
        watching.show(None)
        watching.answer(there=False)
        watching.settle(KEY, WAITING)
        assert list(watching.job(WAITING).scaling.requests) == ["out"]
        watching.show(a_resource(key=SECOND_LIFE))
        watching.settle(SECOND_LIFE, WAITING, KEY)
        assert list(watching.job(SECOND_LIFE).scaling.requests) == ["out"]
        assert not watching.job(WAITING).scaling.requests

    def test_an_unowned_one_that_a_job_began_does_not_run_again_for_the_next_of_that_name(self):
        ran, begun = scaling_out(2), a_request("scaleout-request-1")
        watching = Watching(*a_running_job(), msgspec.structs.replace(ran[0], owner=Uid("")), *ran[1:], JobGone())
        watching.show(a_resource(key=SECOND_LIFE))
        watching.show_requests(replace(begun, uid=Uid("request-1")), a_request("new"))
        watching.settle(SECOND_LIFE, WAITING, KEY)
        assert list(watching.job(SECOND_LIFE).scaling.requests) == ["new"]

    def test_an_orphan_that_ran_stays_until_it_shows_its_end_and_one_that_waits_does_not(self):
        ran = a_request("scaleout-request-1", version=50)
        watching = Watching(*a_running_job(), *scaling_out(2), scale_out(1, request=R2), JobGone())
        watching.show_requests(replace(ran, uid=R1), replace(ran, name="scaleout-request-2", uid=R2))
        watching.settle(WAITING, KEY)
        assert {uid: bool(known.gone) for uid, known in watching.job().scaling.requests.items()} == {R1: False}
        assert list(watching.job(WAITING).scaling.requests) == [R2]
        watching.show_requests(replace(ran, uid=R1, version=51, phase="ScaleFailed"))
        assert watching.look(WAITING).wakes == (KEY,), "no owner names its history any more"
        assert watching.look().wakes == (), "and that wakes no other"
        assert watching.settle() == [ScaleRequestGone(uid=R1, reason="Bound")]
        assert watching.seen(WAITING) == []

    def test_a_changed_wish_is_said_while_it_waits_and_not_after(self):
        watching = Watching(observed(a_spec()))
        watching.show(a_resource(version=1))
        one = a_request("out", owner=KEY.uid)
        watching.show_requests(one)
        watching.settle()
        assert one.spec is not None
        watching.show_requests(replace(one, version=10, spec=replace(one.spec, count=5)))
        assert kinds(watching.settle()) == ["ScaleRequested"]
        running = watching_a_running_job(*scaling_out(2))
        running.show_requests(
            replace(one, uid=Uid("request-1"), name="scaleout-request-1", spec=replace(one.spec, count=5))
        )
        assert running.seen() == []

    def test_one_that_is_deleted_while_it_runs_is_said(self):
        watching = watching_a_running_job(*scaling_out(2))
        assert watching.settle() == [ScaleRequestGone(uid=Uid("request-1"), reason="Deleted")]
