"""A launcher that finds no node while its workers hold theirs: told, and after a time the places are given back."""

from typing import Any

import msgspec
import pytest

from services.status.core.announce import announcements
from services.status.core.decide import decide as status
from services.status.core.effects import Announce
from shared.frameworks.kinds import BUILT_IN
from shared.job.events.catalog import AnyEvent
from shared.job.events.scheduler import JobRestarted, SlotsAssigned, SlotsReleased
from shared.job.events.status import JobFailed, JobRestarting, JobRunning
from shared.job.events.watcher import ChildrenObserved, PodsGone, TimePassed
from shared.job.naming import Uid
from shared.job.policies import nodes
from shared.job.spec import LAUNCHER, WORKER
from shared.job.steps import Record
from shared.job.timers import LAUNCHER_WAIT
from shared.job.timing import next_due
from shared.job.views import PodView, Slots
from tests.kit.builders import (
    a_ready_job,
    a_spec,
    hosts_file,
    launcher,
    observed,
    pods,
    published,
    service,
    worker,
)
from tests.kit.stories import given

NO_NODE = pods(launcher(phase="Pending", reason="Unschedulable", message="0/1 nodes are available: 1 Too many pods."))


def a_job_whose_launcher_waits(**spec: Any) -> list[AnyEvent]:
    return [
        *a_ready_job(workers=2, **spec),
        published(1, 0, 1),
        ChildrenObserved(children=(*service().children, *hosts_file(1).children)),
        SlotsAssigned(slots=(Slots(0, LAUNCHER, ((0, 0),)),), reason="WorkersReady"),
        NO_NODE,
    ]


def waits(events: list[AnyEvent]) -> list[int]:
    return [timer.seconds for timer in next_due(given(*events).job) if timer.name == LAUNCHER_WAIT]


def restarts(*events: AnyEvent) -> list[JobRestarting]:
    steps = given(*events).steps(status)
    return [step.event for step in steps if isinstance(step, Record) and isinstance(step.event, JobRestarting)]


def over(events: list[AnyEvent]) -> TimePassed:
    return TimePassed(anchor=len(events), timer=LAUNCHER_WAIT)


def test_the_wait_is_bounded_and_the_next_attempt_counts_against_no_limit():
    events = a_job_whose_launcher_waits()
    (seconds,) = waits(events)
    assert nodes.SHORTEST_SECONDS <= seconds < nodes.SHORTEST_SECONDS + nodes.SPREAD_SECONDS
    assert restarts(*events) == []
    (restart,) = restarts(*events, over(events))
    assert (restart.reason, restart.counted) == ("LauncherUnschedulable", False)


def test_a_launcher_that_has_a_node_waits_no_longer():
    events = a_job_whose_launcher_waits()
    placed = pods(launcher(version=30, phase="Pending", reason="ContainerCreating"))
    assert waits([*events, placed]) == []
    assert restarts(*events, placed, over(events)) == []


def test_the_limit_of_the_job_itself_has_precedence():
    assert waits(a_job_whose_launcher_waits(scheduling_timeout_seconds=600)) == []


def attempts_without_a_node(count: int) -> list[AnyEvent]:
    """So many attempts of one job that ended because its launcher found no node; the next one waits for its own."""
    events = a_job_whose_launcher_waits(restart="OnFailure")
    made = [launcher(), worker(0), worker(1)]
    for number in range(1, count + 1):
        gone = PodsGone(uids=tuple(pod.uid for pod in made))
        made = [
            of_attempt(number, pod) for pod in (launcher(phase="Pending", reason="Unschedulable"), worker(0), worker(1))
        ]
        events += [
            JobRestarting(reason="LauncherUnschedulable", counted=False),
            SlotsReleased(slots=(Slots(number - 1, WORKER, ((0, 1),)), Slots(number - 1, LAUNCHER, ((0, 0),)))),
            gone,
            JobRestarted(attempt=number, counted=False),
            SlotsAssigned(slots=(Slots(number, WORKER, ((0, 1),)),)),
            pods(*made[1:]),
            SlotsAssigned(slots=(Slots(number, LAUNCHER, ((0, 0),)),)),
            pods(made[0]),
        ]
    return events


def of_attempt(number: int, pod: PodView) -> PodView:
    uid = Uid(f"{pod.uid}-{number}")
    return msgspec.structs.replace(pod, uid=uid, attempt=number, version=1_000 * number)


LAST = nodes.MOST_ATTEMPTS - 1


def ends(events: list[AnyEvent]) -> AnyEvent:
    (step,) = [step for step in given(*events, over(events)).steps(status) if isinstance(step, Record)]
    assert step.because.sequence == len(events) + 1, "the timer made the decision"
    return step.event


def test_a_launcher_that_no_node_fits_ends_its_job_after_so_many_attempts_in_a_row():
    assert isinstance(ends(attempts_without_a_node(LAST - 1)), JobRestarting)
    events = attempts_without_a_node(LAST)
    end = ends(events)
    assert isinstance(end, JobFailed)
    assert end.reason == "LauncherNeverPlaced"
    assert end.message.startswith(f"the launcher found no node in {nodes.MOST_ATTEMPTS} attempts in a row")
    assert "schedulingTimeoutSeconds" in end.message


def test_the_last_wait_says_that_the_job_ends_and_those_before_which_attempt_follows():
    for count, rest in ((1, "another attempt follows (3 of 20 in a row)"), (LAST, "the job ends: it is the 20th")):
        told = nodes.of_launcher_wait(given(*attempts_without_a_node(count)).job)
        assert told is not None
        assert rest in told[2]


@pytest.mark.parametrize(
    "news",
    [
        pytest.param([JobRunning(reason="TrainingJobRunning")], id="it ran"),
        pytest.param([JobRestarting(reason="WorkerFailed")], id="an attempt ended for another reason"),
        pytest.param([msgspec.structs.replace(observed(a_spec(2), generation=9), version=90)], id="it was edited"),
        pytest.param(
            [msgspec.structs.replace(observed(a_spec(2, word="now"), generation=1), version=90)],
            id="a person asked for a restart",
        ),
    ],
)
def test_the_attempts_are_counted_anew_once(news: list[AnyEvent]):
    job = given(*attempts_without_a_node(LAST), *news).job
    assert job.retries.unplaced == 0


def test_jobs_give_their_places_back_at_different_times():
    job = given(*a_job_whose_launcher_waits()).job
    keys = [msgspec.structs.replace(job.key, uid=Uid(f"uid-{number}")) for number in range(10)]
    assert len({nodes.launcher_wait(msgspec.structs.replace(job, key=key)) for key in keys}) > 5


def test_the_status_and_an_event_say_so():
    job = given(*a_job_whose_launcher_waits()).job
    sentence = "LauncherUnschedulable: resnet-launcher finds no node while 2 workers of its job hold theirs; "
    told = {known["type"]: known["message"] for known in BUILT_IN.of(job).status(job)["conditions"]}
    assert told["LauncherCreated"].startswith(sentence)
    assert "Too many pods" in told["LauncherCreated"]
    events = [step for step in announcements(job) if isinstance(step, Announce)]
    assert [step.reason for step in events if step.message.startswith(sentence)] == ["LauncherUnschedulable"]
