"""Kubernetes Events about pods of which no container begins: which words count, and whom the watcher asks about."""

from datetime import UTC, datetime, timedelta

import pytest

from services.watcher.core.questions import MOST_ASKED, Answers, Hear, Heard, heard
from shared.cluster.objects import KubernetesEvent
from shared.job.events.watcher import PodsObserved, TimePassed
from shared.job.text import MOST_MESSAGE
from shared.job.timers import WAITING
from shared.job.views import PodView
from shared.job.waiting import told, waiting
from tests.kit.builders import a_created_job, a_spec, pods, worker
from tests.kit.histories import KEY
from tests.watcher.objects import read
from tests.watcher.watching import Watching, a_resource

BEGAN = datetime(2030, 1, 1, tzinfo=UTC)
NO_CONFIG = 'MountVolume.SetUp failed for volume "config" : configmap "settings" not found'
NO_SECRET = 'MountVolume.SetUp failed for volume "keys" : secret "keys" not found'
TIMED_OUT = "Unable to attach or mount volumes: unmounted volumes=[config], unattached volumes=[]: timed out"
HELD = 'Multi-Attach error for volume "pvc-1" Volume is already used by pod(s) other'
CREATING = {"phase": "Pending", "ready": False, "ran": False, "reason": "ContainerCreating", "node": "node-1"}


def said(reason: str, message: str = "", *, at: int = 0, kind: str = "Warning", new: bool = False) -> KubernetesEvent:
    """An Event that was said last so many seconds after the pod began; `new` in the shape of events.k8s.io."""
    time = BEGAN + timedelta(seconds=at)
    first, last = BEGAN.isoformat(timespec="microseconds"), time.isoformat(timespec="microseconds")
    times = {"eventTime": first, "series": {"count": 9, "lastObservedTime": last}, "lastTimestamp": None}
    older = {"eventTime": None, "series": None, "lastTimestamp": time.isoformat().replace("+00:00", "Z")}
    return read({"type": kind, "reason": reason, "message": message, **(times if new else older)}, KubernetesEvent)


def sandbox(number: int, *, at: int = 0) -> KubernetesEvent:
    return said("FailedCreatePodSandBox", f'cannot set up sandbox "{number:064x}": no address', at=at)


@pytest.mark.parametrize(
    ("events", "words"),
    [
        pytest.param([], Heard(), id="nothing is said"),
        pytest.param([said("FailedMount", NO_CONFIG)], Heard("FailedMount", NO_CONFIG), id="a volume"),
        pytest.param([said("FailedMount", NO_CONFIG, new=True)], Heard("FailedMount", NO_CONFIG), id="in a series"),
        pytest.param(
            [said("FailedMount", NO_CONFIG, at=9, new=True), said("FailedMount", NO_SECRET, at=5)],
            Heard("FailedMount", NO_CONFIG),
            id="the newest",
        ),
        pytest.param(
            [said("FailedMount", NO_CONFIG), said("FailedMount", NO_SECRET)],
            Heard("FailedMount", NO_SECRET),
            id="two in one second",
        ),
        pytest.param(
            [said("FailedMount", TIMED_OUT, at=700), said("FailedAttachVolume", HELD, at=1)],
            Heard("FailedAttachVolume", HELD),
            id="the cause, said once, before what is said every two minutes",
        ),
        pytest.param([said("FailedMount", TIMED_OUT)], Heard("FailedMount", TIMED_OUT), id="the effect alone"),
        pytest.param(
            [said("FailedMount", NO_CONFIG), said("FailedMount", TIMED_OUT, at=3_000)],
            Heard("FailedMount", TIMED_OUT),
            id="the effect, where a cause is long past",
        ),
        pytest.param(
            [said("FailedAttachVolume", HELD), said("SuccessfulAttachVolume", at=9, kind="Normal")],
            Heard(),
            id="it is attached",
        ),
        pytest.param(
            [said("FailedMount", f"(combined from similar events): {NO_CONFIG}")],
            Heard("FailedMount", NO_CONFIG),
            id="many that differ",
        ),
        pytest.param(
            [said("FailedMount", NO_CONFIG), said("Pulling", at=3, kind="Normal")], Heard(""), id="it is over"
        ),
        pytest.param(
            [said("Pulling", kind="Normal"), said("FailedMount", NO_CONFIG, at=3)],
            Heard("FailedMount", NO_CONFIG),
            id="it came after another beginning",
        ),
        pytest.param(
            [said("FailedScheduling", "no room"), said("DNSConfigForming", "too many"), said("Scheduled")],
            Heard(),
            id="warnings that keep no container from its beginning",
        ),
        pytest.param([read({"type": "Warning", "reason": "FailedMount"}, KubernetesEvent)], Heard(), id="no time"),
    ],
)
def test_the_words_that_count(events: list[KubernetesEvent], words: Heard):
    assert heard(events, None) == words
    assert heard(reversed(events), None) == words


def test_words_stay_while_they_are_said_and_give_way_once_they_are_not():
    both = [said("FailedMount", NO_CONFIG, at=100), said("FailedMount", NO_SECRET, at=110)]
    known = worker(0, **{**CREATING, "reason": "FailedMount", "message": NO_CONFIG})
    assert heard(both, known).message == NO_CONFIG
    later = [both[0], said("FailedMount", NO_SECRET, at=300)]
    assert heard(later, known).message == NO_SECRET


def test_what_every_try_changes_makes_no_other_words():
    first = heard([sandbox(1)], None)
    known = worker(0, **{**CREATING, "reason": first.reason, "message": first.message})
    assert heard([sandbox(1), sandbox(2, at=400)], known) == first


def test_the_id_of_a_request_makes_no_other_words():
    words = "AttachVolume.Attach failed: RequestID: 3b1c5a1b-5a1b-4c2d-9e8f-0123456789a"
    known = worker(0, **{**CREATING, "reason": "FailedAttachVolume", "message": f"{words}b"})
    other = said("FailedAttachVolume", f"{words}c".replace("5a1b-4c2d", "77fe-4abc"))
    assert heard([other], known).message == known.message


def test_a_pod_whose_init_container_runs_has_its_volumes():
    view = worker(0, **{**CREATING, "reason": "PodInitializing", "message": "init container fetch runs"})
    assert not hears(a_waiting_job(view))


def test_words_are_cleaned_and_bounded():
    words = heard([said("FailedMount", "\x1b[31m" + "x" * 5_000)], None).message
    assert len(words) <= MOST_MESSAGE
    assert words.isprintable()


def a_job_of(*views: PodView) -> Watching:
    """A job whose pods were just seen."""
    watching = Watching(*a_created_job(len(views)), pods(*views))
    watching.show(a_resource(a_spec(len(views)), version=1))
    watching.show_pods(*views)
    return watching


def a_waiting_job(*views: PodView) -> Watching:
    """Its pods wait for longer than those of every start."""
    watching = a_job_of(*views)
    wait = waiting(watching.job())
    assert wait is not None
    watching.fold(KEY, TimePassed(anchor=wait.since.sequence, timer=WAITING))
    return watching


def hears(watching: Watching) -> list[str]:
    return [question.uid for question in watching.look().questions if isinstance(question, Hear)]


def test_nobody_asks_about_pods_that_are_created_as_usual():
    assert not hears(a_job_of(worker(0, **CREATING)))


@pytest.mark.parametrize("reason", ["", "ContainerCreating", "PodInitializing"])
def test_a_pod_of_which_no_container_begins_is_asked_about_and_told(reason: str):
    view = worker(0, **{**CREATING, "reason": reason})
    watching = a_waiting_job(view)
    assert hears(watching) == [view.uid]
    watching.answers = Answers(heard={Hear(view.uid): Heard("FailedMount", NO_CONFIG)})
    (fact,) = watching.settle()
    assert isinstance(fact, PodsObserved)
    wait = told(watching.job())
    assert wait is not None
    assert (wait.reason, wait.message) == ("FailedMount", f"resnet-worker-0: FailedMount: {NO_CONFIG}")
    assert wait.condition == "WorkersReady"
    assert hears(watching) == [view.uid], "it may change"
    # Another watcher, which has heard nothing yet, and Events that are no longer kept.
    watching.answers = Answers()
    assert not watching.settle()


def test_it_is_told_no_longer_once_the_containers_begin():
    view = worker(0, **CREATING)
    watching = a_waiting_job(view)
    watching.answers = Answers(heard={Hear(view.uid): Heard("FailedMount", NO_CONFIG)})
    watching.settle()
    watching.answers = Answers(heard={Hear(view.uid): Heard("")})
    assert len(watching.settle()) == 1
    assert watching.job().pods.views[view.uid].reason == "ContainerCreating"
    watching.show_pods(worker(0, version=30))
    watching.settle()
    assert told(watching.job()) is None


def test_a_pod_that_changes_in_another_way_keeps_its_words():
    view = worker(0, **CREATING)
    watching = a_waiting_job(view)
    watching.answers = Answers(heard={Hear(view.uid): Heard("FailedMount", NO_CONFIG)})
    watching.settle()
    watching.answers = Answers()
    watching.show_pods(worker(0, version=30, disruption="EvictionByEvictionAPI", **CREATING))
    watching.settle()
    pod = watching.job().pods.views[view.uid]
    assert (pod.version, pod.reason, pod.message) == (30, "FailedMount", NO_CONFIG)


def test_of_a_thousand_pods_some_are_asked_about_and_then_one():
    views = [worker(index, **{**CREATING, "node": f"node-{index // 8}"}) for index in range(1_000)]
    watching = a_waiting_job(*views)
    assert hears(watching) == [views[8 * node].uid for node in range(MOST_ASKED)]
    watching.answers = Answers(heard={Hear(views[16].uid): Heard("NetworkNotReady", "no network")})
    assert len(watching.settle()) == 1
    assert hears(watching) == [views[16].uid]


def test_a_pod_with_another_reason_is_not_asked_about():
    views = worker(0, **{**CREATING, "reason": "ImagePullBackOff"}), worker(1, **CREATING)
    assert not hears(a_waiting_job(*views))


def test_a_pod_that_waits_for_the_claim_of_its_devices_is_asked_about_before_it_has_a_node():
    words = 'PodResourceClaim gpu: resource claim template "gpu" not found'
    view = worker(0, **{**CREATING, "reason": "", "node": ""})
    assert hears(a_waiting_job(view)) == [view.uid]
    assert heard([said("FailedResourceClaimCreation", words)], view) == Heard("FailedResourceClaimCreation", words)
