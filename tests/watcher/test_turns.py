"""What pods change by turns is recorded once; a container that crashed beside a training is told until it is well."""

import msgspec
import pytest

from services.watcher.core.turns import WELL_SECONDS, of_crashes
from shared.cluster.kinds import PODS
from shared.frameworks.training_job import TRAININGJOBS
from shared.job.events.watcher import HistoryBroken, PodsObserved, TimePassed
from shared.job.naming import Uid
from shared.job.timers import Timer
from shared.job.views import PodView
from shared.job.waiting import waiting
from tests.kit.builders import exited, worker
from tests.kit.histories import KEY
from tests.kit.world import World
from tests.watcher.watching import Watching, watching_a_running_job

CRASHES = {"reason": "CrashLoopBackOff", "message": "container proxy exited with 4 (Error)"}


def crashed(version: int) -> PodView:
    return worker(1, version=version, **CRASHES)


def runs_again(version: int, restarts: int) -> PodView:
    return worker(1, version=version, runs_again=restarts, **CRASHES)


def timers(watching: Watching) -> list[Timer]:
    return [*of_crashes(watching.job(), watching.cache)]


def a_job_with_a_crash() -> Watching:
    watching = watching_a_running_job()
    watching.show_pods(crashed(90))
    assert watching.settle() == [PodsObserved(pods=(crashed(90),))]
    return watching


def passes(watching: Watching) -> None:
    (timer,) = timers(watching)
    assert timer.seconds == WELL_SECONDS
    watching.fold(KEY, TimePassed(anchor=timer.anchor, timer=timer.name))


def test_what_crashed_is_told_until_it_has_run_for_long():
    watching = a_job_with_a_crash()
    assert timers(watching) == [], "it does not run"
    watching.show_pods(runs_again(91, 1))
    assert watching.settle() == []
    assert waiting(watching.job()) is not None
    passes(watching)
    assert (waiting(watching.job()), watching.settle(), timers(watching)) == (None, [], [])


def test_each_crash_begins_the_time_anew_and_is_not_recorded():
    watching = a_job_with_a_crash()
    watching.show_pods(runs_again(91, 1))
    (first,) = timers(watching)
    watching.show_pods(crashed(92))
    assert timers(watching) == []
    watching.show_pods(runs_again(93, 2))
    (second,) = timers(watching)
    assert first.anchor == second.anchor
    assert first.name != second.name, "the clock measures another one from its start"
    assert watching.settle() == []


@pytest.mark.parametrize(
    "again",
    [
        pytest.param(crashed(95), id="which waits"),
        pytest.param(runs_again(95, 2), id="which runs already when it is seen"),
    ],
)
def test_a_crash_of_what_was_well_is_told_anew(again: PodView):
    watching = a_job_with_a_crash()
    watching.show_pods(runs_again(91, 1))
    passes(watching)
    deleted = msgspec.structs.replace(runs_again(94, 1), finalizers=("a/b",))
    watching.show_pods(deleted)
    [fact] = watching.settle()
    assert isinstance(fact, PodsObserved)
    assert fact.pods[0].reason == "", "another change brings no crash back"
    watching.show_pods(msgspec.structs.replace(again, finalizers=("a/b",)))
    assert len(watching.settle()) == 1
    assert waiting(watching.job()) is not None


def test_what_is_well_stays_so_when_the_pod_is_not_ready_for_a_moment():
    watching = a_job_with_a_crash()
    watching.show_pods(runs_again(91, 1))
    passes(watching)
    watching.show_pods(worker(1, version=92, ready=False, reason="NodeNotReady", message=""))
    assert len(watching.settle()) == 1
    watching.show_pods(runs_again(93, 1))
    assert len(watching.settle()) == 1
    assert (waiting(watching.job()), timers(watching)) == (None, [])


def test_a_history_on_hold_measures_no_time():
    watching = a_job_with_a_crash()
    watching.show_pods(runs_again(91, 1))
    broken = HistoryBroken(log="b", sequence=9, hash="c", reason="HistoryLost", kind="TrainingJob")
    watching.fold(KEY, broken)
    assert watching.job().halted
    assert timers(watching) == []


def test_a_training_that_succeeded_stays_so_when_another_container_fails_the_pod():
    watching = watching_a_running_job()
    ended = worker(1, version=90, phase="Succeeded", exits=exited(0), ready=False, lingers=True)
    watching.show_pods(ended)
    watching.settle()
    watching.show_pods(worker(1, version=91, ready=False, reason="PodFailed", message="the kubelet ends the pod"))
    watching.settle()
    pod = watching.job().pods.views[Uid("pod-1")]
    assert (pod.phase, pod.exits, pod.reason) == ("Succeeded", exited(0), "")


def test_a_time_that_another_trouble_overtook_ends_nothing():
    watching = a_job_with_a_crash()
    watching.show_pods(runs_again(91, 1))
    (timer,) = timers(watching)
    other = worker(1, version=92, reason="ErrImagePull", message="not found")
    watching.show_pods(other)
    watching.settle()
    watching.fold(KEY, TimePassed(anchor=timer.anchor, timer=timer.name))
    assert watching.job().pods.views[Uid("pod-1")].reason == "ErrImagePull"


def test_a_pod_that_runs_again_wakes_its_job_for_the_time():
    watching = a_job_with_a_crash()
    at = (KEY.namespace, "resnet-worker-1")
    assert watching.cache.set_pod(at, (KEY, runs_again(91, 1))) == (KEY,)
    assert watching.cache.set_pod(at, (KEY, runs_again(92, 1))) == ()


async def test_a_status_tells_of_a_crash_beside_the_training_for_ten_minutes_after_it(world: World):
    await world.trains(workers=1)
    held = world.pods()["resnet-worker-0"]
    [main] = held.manifest["status"]["containerStatuses"]
    end = {"terminated": {"exitCode": 4, "reason": "Error"}}
    proxy = {"name": "proxy", "restartCount": 1, "state": {"running": {}}, "lastState": end}
    world.store.patch(PODS, *held.at, {"status": {"containerStatuses": [main, proxy]}}, subresource="status")

    def told() -> str:
        return str(world.status(TRAININGJOBS, "resnet")["conditions"])

    await world.until(lambda: "container proxy exited with 4" in told())
    before = len(world.types())
    await world.pass_seconds(WELL_SECONDS - 10)
    assert "container proxy exited with 4" in told()
    await world.pass_seconds(20)
    assert "container proxy exited with 4" not in told()
    assert world.types()[before:] == ["TimePassed"]


@pytest.mark.parametrize("failed", ["ErrImagePull", "RegistryUnavailable", "SignatureValidationFailed"])
def test_the_tries_to_pull_an_image_are_recorded_once_with_their_cause(failed: str):
    watching = watching_a_running_job()
    cause = worker(1, version=90, phase="Pending", ready=False, reason=failed, message="not found")
    for seen in (msgspec.structs.replace(cause, version=89, reason="ImagePullBackOff", message="waits"), cause):
        watching.show_pods(seen)
        assert watching.settle() == [PodsObserved(pods=(seen,))]
    for version in range(91, 99, 2):
        watching.show_pods(msgspec.structs.replace(cause, version=version, reason="ImagePullBackOff", message="waits"))
        assert watching.settle() == []
        watching.show_pods(msgspec.structs.replace(cause, version=version + 1))
        assert watching.settle() == []
    other = msgspec.structs.replace(cause, version=99, reason="CreateContainerConfigError", message="no secret")
    watching.show_pods(other)
    assert watching.settle() == [PodsObserved(pods=(other,))]
    watching.show_pods(msgspec.structs.replace(cause, version=100))
    watching.settle()
    waits = msgspec.structs.replace(cause, version=101, reason="ImagePullBackOff", message="waits", node="node-1")
    watching.show_pods(msgspec.structs.replace(waits, finalizers=("a/b",)))
    watching.settle()
    assert watching.job().pods.views[Uid("pod-1")].message == "not found"
