"""Heads: lost history, disputed history, and a person who accepts that."""

from collections.abc import Sequence

import msgspec
import pytest

from services.scaler.core import Policy
from services.scaler.core.decide import decide as scaler
from services.scheduler.core.decide import decide as scheduler
from services.scheduler.core.effects import DeletePod
from services.watcher.core.heads import accepted, at_hand, fault
from services.watcher.core.observed import ObservedJob
from services.watcher.core.questions import Answers, Compare, Evidence, Named
from shared.frameworks.takeover import Inherited
from shared.job.chain import Head
from shared.job.events.catalog import AnyEvent
from shared.job.events.scaler import HostsPublished
from shared.job.events.status import JobSuspended, JobSuspending
from shared.job.events.watcher import HistoryAccepted, HistoryBroken, JobAdopted, JobObserved, PodsGone
from shared.job.integrity import Broken, Disputed
from shared.job.naming import Slot, Uid
from shared.job.spec import LAUNCHER, WORKER
from shared.job.state import Job
from shared.job.steps import Record
from shared.job.views import PodView, Slots, ranges
from tests.kit.builders import a_running_job, a_spec, exited, labelled, launcher, observed, pods, worker
from tests.kit.histories import a_history, stored
from tests.kit.replicas import a_replicated_spec, replica
from tests.kit.replicas import observed as a_replicated_job
from tests.watcher.watching import Watching, a_resource

replace = msgspec.structs.replace

HEAD = Head(7, "ab")
BROKEN = HistoryBroken(log="log-2", sequence=7, hash="ab", reason="OtherLog")


def judged(
    log: str = "log-1",
    *,
    began: int = 100,
    end: int = 100,
    known: str | None = "ab",
    kept: Named | None = None,
    empty: bool = False,
    alone: bool = True,
) -> object:
    """What is said of the head 7:ab of a log in the resource; event 5 of the job has the hash 55."""
    hashes = {5: "55"} | ({7: known} if known is not None else {})
    shown = Named(log, HEAD)
    evidence = Evidence(identity="log-1", began=began, end=end, shown=shown, kept=kept, hashes=hashes, empty=empty)
    return fault(evidence, alone=alone)


def recalled(kept: Named, *, empty: bool = False, alone: bool = True) -> object:
    """What is said of a checkpoint of a job whose resource shows no head."""
    evidence = Evidence(identity="log-1", began=100, end=100, kept=kept, hashes={5: "55", 7: "cd"}, empty=empty)
    return fault(evidence, alone=alone)


def broken(reason: str, log: str = "log-1") -> Broken:
    return Broken(log, HEAD, reason)


SAME = Named("log-1", HEAD)
RIGHT = Named("log-1", Head(5, "55"))
CHECKPOINTS = [
    pytest.param(None, id="no checkpoint"),
    pytest.param(SAME, id="the same"),
    pytest.param(RIGHT, id="one that the log leads to"),
    pytest.param(Named("log-2", HEAD), id="one of another log"),
]


def test_a_head_that_the_log_leads_to_is_right():
    assert judged() is None
    assert judged(end=7) is None
    assert judged(kept=RIGHT) is None
    assert judged(kept=SAME) is None


def test_a_head_that_the_fold_read_is_at_hand_unless_the_checkpoint_is_to_be_compared_first():
    history = a_history(a_running_job())
    shown = Named("log-1", history.head)
    found = at_hand(Compare(shown, recall=False), Answers(), history, "log-1")
    assert found is not None
    assert fault(found[1]) is None
    for question, log in (
        (Compare(replace(shown, log="log-2"), recall=False), "log-1"),
        (Compare(shown, recall=False), ""),
        (Compare(Named("log-1", replace(history.head, hash="ab")), recall=False), "log-1"),
        (Compare(None, recall=False), "log-1"),
        (Compare(shown, recall=True), "log-1"),
    ):
        assert at_hand(question, Answers(), history, log) is None
    assert at_hand(Compare(shown, recall=True), Answers(evidence=found), history, "log-1") is not None


@pytest.mark.parametrize("kept", CHECKPOINTS)
def test_a_head_of_another_log_is_lost_history_whatever_the_checkpoint_says(kept: Named | None):
    assert judged("log-2", kept=kept) == broken("OtherLog", "log-2")


@pytest.mark.parametrize("known", [None, "", "ab", "cd"])
def test_a_head_beyond_the_end_is_lost_history(known: str | None):
    assert judged(end=6, known=known) == broken("BeyondTheEnd")


@pytest.mark.parametrize("kept", CHECKPOINTS)
def test_a_head_that_was_beyond_the_end_is_lost_history_though_the_log_grew_past_it(kept: Named | None):
    assert judged(began=6, known="cd", kept=kept) == broken("BeyondTheEnd")
    assert judged(began=6, known="", kept=kept) == broken("BeyondTheEnd")


def test_a_head_of_an_event_that_came_since_is_right():
    assert judged(began=6) is None


@pytest.mark.parametrize("kept", CHECKPOINTS)
def test_a_job_with_a_head_and_no_event_in_the_log_has_lost_its_history(kept: Named | None):
    assert judged(known="", empty=True, kept=kept if kept != RIGHT else None) == broken("HistoryLost")


def test_a_wrong_hash_against_log_and_checkpoint_is_a_dispute():
    assert judged(known="cd", kept=RIGHT) == Disputed(head=HEAD, ours=RIGHT.head)
    assert judged(known="", kept=RIGHT) == Disputed(head=HEAD, ours=RIGHT.head)


@pytest.mark.parametrize(
    "kept",
    [
        pytest.param(None, id="no checkpoint"),
        pytest.param(SAME, id="the same"),
        pytest.param(Named("log-1", Head(5, "ff")), id="one that the log does not lead to"),
        pytest.param(Named("log-1", Head(6, "66")), id="one that cannot be compared"),
        pytest.param(Named("log-2", Head(5, "55")), id="one of another log"),
    ],
)
def test_a_wrong_hash_without_a_checkpoint_on_the_logs_side_is_lost_history(kept: Named | None):
    assert judged(known="cd", kept=kept) == broken("HashMismatch")


def test_what_cannot_be_compared_is_not_judged():
    assert judged(known=None) is None


def test_a_checkpoint_raises_a_doubt_without_a_head_in_the_resource():
    assert recalled(Named("log-1", Head(101, "ab"))) == Broken("log-1", Head(101, "ab"), "BeyondTheEnd")
    assert recalled(SAME) == broken("HashMismatch")
    assert recalled(SAME, empty=True) == broken("HistoryLost")
    assert recalled(RIGHT) is None


def test_a_checkpoint_of_another_log_counts_only_while_this_log_has_nothing_of_the_job():
    assert recalled(Named("log-2", HEAD), empty=True) == broken("OtherLog", "log-2")
    assert recalled(Named("log-2", HEAD)) is None


def test_a_checkpoint_raises_no_doubt_by_itself_after_an_acceptance():
    assert recalled(Named("log-1", Head(101, "ab")), alone=False) is None
    assert judged(kept=Named("log-1", Head(101, "ab")), alone=False) is None


class TestAsking:
    def watching(self, resource: ObservedJob, *, found: bool = False, events: Sequence[AnyEvent] = ()) -> Watching:
        watching = Watching(*events)
        if found:
            watching.cache.scalable.version = 0
        watching.show(resource)
        watching.cache.scalable.version = 1_000
        return watching

    def test_of_a_new_job_nothing_is_asked(self):
        watching = self.watching(a_resource())
        assert watching.look().questions == ()
        assert [type(fact).__name__ for fact in watching.seen()] == ["JobObserved"]

    def test_nothing_is_recorded_before_a_shown_head_was_compared(self):
        watching = self.watching(replace(a_resource(), log="log-1", head=HEAD))
        seen = watching.look()
        assert seen.questions == (Compare(SAME, recall=False),)
        assert (seen.facts, seen.trusted) == ((), False)

    def test_a_job_that_was_there_first_is_compared_with_its_checkpoint(self):
        seen = self.watching(a_resource(), found=True).look()
        assert seen.questions == (Compare(None, recall=True),)
        assert (seen.facts, seen.trusted) == ((), False)

    def test_a_status_of_which_the_log_knows_nothing_is_compared_with_the_checkpoint(self):
        resource = replace(a_resource(), reached=Inherited(phase="Running"))
        assert self.watching(resource).look().questions == (Compare(None, recall=True),)
        assert self.watching(resource, events=[observed(a_spec())]).look().questions == ()

    def test_a_newer_head_is_compared_while_facts_go_on(self):
        watching = self.watching(replace(a_resource(), log="log-1", head=Head(8, "88")))
        before = Compare(SAME, recall=False)
        evidence = Evidence(identity="log-1", began=0, end=9, shown=SAME, hashes={7: "ab"})
        watching.answers = Answers(evidence=(before, evidence))
        seen = watching.look()
        assert seen.questions == (Compare(Named("log-1", Head(8, "88")), recall=False),)
        assert [type(fact).__name__ for fact in seen.facts] == ["JobObserved"]

    def test_a_doubt_is_the_only_thing_that_is_recorded_and_is_recorded_once(self):
        watching = self.watching(replace(a_resource(), log="log-1", head=HEAD))
        evidence = Evidence(identity="log-1", began=9, end=9, shown=SAME, hashes={7: ""}, empty=True)
        watching.answers = Answers(evidence=(Compare(SAME, recall=False), evidence))
        (fact,) = watching.settle()
        assert isinstance(fact, HistoryBroken)
        assert (fact.reason, fact.kind) == ("HistoryLost", "TrainingJob")
        assert watching.look().warning is not None


def a_broken_job(*events: JobObserved) -> Job:
    return a_history([*events, BROKEN]).job


def accepting(wish: str) -> ObservedJob:
    return replace(a_resource(), accept=wish)


def alive(*views: PodView) -> dict[Uid, PodView]:
    return {view.uid: view for view in views}


def test_only_exactly_that_head_accepts_the_loss():
    job = a_broken_job(observed(a_spec()))
    assert accepted(job, accepting("7:ab"), {}) == [HistoryAccepted(sequence=7, hash="ab")]
    for wish in ("", "7:ac", "17:ab", "7:a", "7", "ab", "7:ab ", "log-2/7:ab", "true"):
        assert accepted(job, accepting(wish), {}) == [], wish


def test_there_is_nothing_to_accept_in_a_whole_history():
    assert accepted(a_history(a_running_job()).job, accepting("7:ab"), {}) == []


def test_an_end_that_decides_is_taken_on_with_what_is_there():
    done = launcher(phase="Succeeded", exits=exited(0))
    adopted, _ = accepted(a_broken_job(observed(a_spec())), accepting("7:ab"), {done.uid: done})
    assert isinstance(adopted, JobAdopted)
    assert adopted.slots == (Slots(0, LAUNCHER, ((0, 0),)),)


@pytest.mark.parametrize("knows", [True, False], ids=["the log knows the spec", "the resource alone has it"])
def test_of_a_job_that_needs_every_pod_those_that_are_missing_are_known(*, knows: bool):
    known = a_replicated_job(a_replicated_spec())
    chief, failed = replica("chief", 0), replica("worker", 1, phase="Failed")
    job = a_broken_job(known) if knows else a_history([BROKEN]).job
    resource = replace(accepting("7:ab"), observed=known)
    adopted, _ = accepted(job, resource, {chief.uid: chief, failed.uid: failed})
    assert isinstance(adopted, JobAdopted)
    assert adopted.slots == (Slots(0, "chief", ((0, 0),)), Slots(0, WORKER, ((1, 1),)))
    assert adopted.lost == (Slots(0, WORKER, ((0, 0),)),)


def test_pods_that_live_are_taken_on_before_going_on():
    job = a_broken_job(observed(a_spec()))
    pods = alive(worker(0), worker(4), launcher(), worker(2, phase="Failed"), worker(3, deleting=True))
    adopted, go_on = accepted(job, accepting("7:ab"), pods)
    assert adopted == JobAdopted(
        source="AcceptedLoss",
        attempt=0,
        slots=(Slots(0, LAUNCHER, ((0, 0),)), Slots(0, WORKER, ((0, 0), (4, 4)))),
        next_index=5,
    )
    assert go_on == HistoryAccepted(sequence=7, hash="ab")


def test_an_attempt_of_which_no_pod_has_a_node_begins_anew_with_its_pods():
    """Some were not made yet, and those of a gang would wait for them for ever."""
    waits = alive(*(worker(index, phase="Pending", ready=False, ran=False) for index in (1, 2)))
    assert accepted(a_broken_job(observed(a_spec())), accepting("7:ab"), waits) == [
        HistoryAccepted(sequence=7, hash="ab")
    ]


def test_a_job_whose_status_says_that_it_is_over_stays_over():
    reached = Inherited(phase="Succeeded", end="Succeeded", completion_time="2030-01-01T00:00:00Z", restarts=2)
    resource = replace(accepting("7:ab"), log="log-1", head=HEAD, reached=reached)
    history = a_history([BROKEN])
    for event in accepted(history.job, resource, {}):
        history.fold(stored(history, event))
    history.fold(stored(history, observed(a_spec())))
    assert (history.job.status.phase, history.job.status.completion_time, history.job.retries.restarts) == (
        "Succeeded",
        "2030-01-01T00:00:00Z",
        2,
    )
    assert [*scheduler(history.job), *scaler(history.job, Policy())] == []


def test_the_status_of_another_log_ends_no_job_that_this_log_has_begun():
    reached = Inherited(phase="Succeeded", end="Succeeded")
    resource = replace(accepting("7:ab"), log="log-2", head=HEAD, reached=reached)
    job = a_history([*a_running_job(), BROKEN]).job
    assert accepted(job, resource, {}) == [HistoryAccepted(sequence=7, hash="ab")]
    restored = a_history([*a_running_job(), replace(BROKEN, log="log-1", reason="BeyondTheEnd")]).job
    adopted, _ = accepted(restored, resource, {})
    assert isinstance(adopted, JobAdopted)
    assert adopted.phase == "Succeeded"


def test_a_job_whose_last_pod_had_ended_is_adopted_once():
    watching = Watching(BROKEN)
    watching.show(accepting("7:ab"))
    watching.show_pods(launcher(phase="Failed", exits=exited(1)))
    said = [type(fact).__name__ for fact in watching.settle()]
    assert said == ["PodsObserved", "JobAdopted", "HistoryAccepted", "JobObserved"]


def test_an_accepted_loss_does_not_wait_for_labels_which_a_full_log_takes_last():
    watching = Watching(*labelled(a_running_job(), team="a"), BROKEN)
    resource = accepting("7:ab")
    watching.show(replace(resource, observed=replace(resource.observed, version=9, labels=(("team", "b"),))))
    watching.show_pods(worker(0), worker(1), launcher())
    said = [type(fact).__name__ for fact in watching.settle()]
    assert said.index("HistoryAccepted") < said.index("JobRelabelled")


def test_where_the_store_was_restored_too_the_job_is_said_before_its_pods():
    watching = Watching(*a_running_job(workers=1), BROKEN)
    watching.restarted(version=6)
    watching.cache.epoch = 1
    watching.show(accepting("7:ab"))
    watching.show_pods(worker(0, version=3, ready=False))
    said = [type(fact).__name__ for fact in watching.settle()]
    assert said.index("HistoryAccepted") < said.index("JobObserved") < said.index("PodsObserved")


def test_the_newest_attempt_is_the_one_that_lives():
    job = a_broken_job(observed(a_spec()))
    newest = replace(worker(1), attempt=2, uid=Uid("new"))
    adopted, _ = accepted(job, accepting("7:ab"), alive(worker(0), worker(1), newest))
    assert isinstance(adopted, JobAdopted)
    assert (adopted.attempt, adopted.slots) == (2, (Slots(2, WORKER, ((1, 1),)),))


def test_a_history_that_knows_its_slots_needs_no_adoption():
    job = a_history([*a_running_job(), BROKEN]).job
    assert accepted(job, accepting("7:ab"), alive(worker(0))) == [HistoryAccepted(sequence=7, hash="ab")]


@pytest.mark.parametrize(
    ("gone", "there", "slots", "size"),
    [
        pytest.param([], [0, 1, 2, 3], [0, 1, 2, 3], 4, id="a scale-out was lost"),
        pytest.param([1], [0, 2], [0, 2], 2, id="a replacement was lost"),
        pytest.param([1], [0, 2, 3], [0, 2, 3], 3, id="a scale-out was lost, and a worker since"),
    ],
)
def test_workers_whose_slots_the_log_has_lost_are_taken_on(
    gone: list[int], there: list[int], slots: list[int], size: int
):
    history = a_history([*a_running_job(), BROKEN])
    history.fold(stored(history, pods(*(worker(index, version=50) for index in there))))
    for index in gone:
        history.fold(stored(history, PodsGone(uids=(Uid(f"pod-{index}"),))))
    for event in accepted(history.job, accepting("7:ab"), history.job.pods.views):
        history.fold(stored(history, event))
    job = history.job
    assert ([slot.index for slot in job.attempt.workers], job.scaling.size) == (slots, size)
    assert [step for step in scheduler(job) if isinstance(step, DeletePod)] == []
    assert scaler(job, Policy()) == [Record(HostsPublished(version=2, members=ranges(slots)))]


def test_of_a_suspended_job_no_pod_is_taken_on():
    suspended = [*a_running_job(), JobSuspending(reason="Suspended"), JobSuspended(reason="Suspended"), BROKEN]
    job = a_history(suspended).job
    assert accepted(job, accepting("7:ab"), alive(worker(3))) == [HistoryAccepted(sequence=7, hash="ab")]


def test_after_the_acceptance_the_job_goes_on_with_what_was_there():
    history = a_history([observed(a_spec()), BROKEN])
    for event in accepted(history.job, accepting("7:ab"), alive(worker(0), worker(1), launcher())):
        history.fold(stored(history, event))
    assert not history.held
    assert not history.job.halted
    assert history.job.attempt.slots == {Slot(0, WORKER, 0), Slot(0, WORKER, 1), Slot(0, LAUNCHER, 0)}
