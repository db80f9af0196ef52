"""The ledger: every place is in one bucket at any moment, and a loss lands in its bucket, on its node."""

import msgspec
import pytest

from shared.eventlog import Stored
from shared.job.events.catalog import AnyEvent
from shared.job.events.event import At
from shared.job.events.scaler import WorkersReleased
from shared.job.events.scheduler import JobRestarted, SlotsAssigned
from shared.job.events.status import JobFailed, JobRestarting, JobSuspended, JobSuspending
from shared.job.events.watcher import DisruptionNoticed, NodeBack, NodeLost, PodsGone
from shared.job.fold import Histories
from shared.job.ledger import Place
from shared.job.naming import RESTART_REQUESTED, Uid
from shared.job.state import Job
from shared.job.views import Slots
from shared.telemetry.metrics import seconds_between
from tests.histories.recorded import Recording, recordings
from tests.kit.accounts import Account
from tests.kit.builders import (
    a_created_job,
    a_running_job,
    a_spec,
    exited,
    observed,
    pods,
    published,
    scaling_in,
    scaling_out,
    worker,
    workers,
)
from tests.kit.groups import a_running_group
from tests.kit.histories import log_of

WORKER_1 = Place("worker", 1)
LOST_1 = pods(worker(1, version=30, phase="Failed", exits=exited(1)))


class Told:
    """A ledger that was told events, and the jobs after them."""

    def __init__(self, events: list[Stored]) -> None:
        self.account = Account()
        self.ledger = self.account.ledger
        self.histories = Histories(self._note)
        for self._stored in events:
            self.histories.fold(self._stored)
        self.end = events[-1].logged or events[-1].time

    def _note(self, before: Job, event: AnyEvent, after: Job, time: str) -> None:
        at = At(self._stored.sequence, time, self._stored.logged)
        assert not self.account.note(before, event, after, at)

    def lane(self, place: Place) -> list[str]:
        """What the place did, one after the other."""
        return [f"{each.bucket}:{each.cause}".rstrip(":") for each in self.ledger.lanes[place]]


def told(*events: AnyEvent) -> Told:
    """The ledger of these events, one a second."""
    return Told(log_of(events))


@pytest.mark.parametrize("life", recordings("0.1.0"), ids=lambda life: life.name)
def test_in_every_recorded_life_a_place_is_in_one_bucket_at_a_time(life: Recording):
    assert not Told(life.events()).account.fault()


def test_a_node_that_is_away_for_37_seconds_costs_its_place_37_seconds():
    on_node = pods(worker(1, version=12, node="gpu-7"))
    lost = NodeLost(node="gpu-7", uids=(Uid("pod-1"),), reason="NodeUnreachable")
    quiet = [observed(a_spec(2))] * 36
    found = told(*a_running_job(2), on_node, lost, *quiet, NodeBack(node="gpu-7", uids=(Uid("pod-1"),)))
    [*_, outage, now] = found.ledger.lanes[WORKER_1]
    assert (outage.bucket, outage.cause, outage.node) == ("lost", "node", "gpu-7")
    assert seconds_between(outage.since, outage.until) == 37
    assert (now.bucket, now.until) == ("training", "")
    assert found.ledger.seconds(found.end)["lost", "node"] == {"worker": 37}


@pytest.mark.parametrize(
    ("then", "lane"),
    [
        pytest.param([], [], id="a place of a job that runs trains"),
        pytest.param([LOST_1], ["lost:crash"], id="a worker that failed is lost to a crash"),
        pytest.param(
            [
                LOST_1,
                JobRestarting(reason="WorkerFailed"),
                PodsGone(uids=(Uid("pod-1"),)),
                JobRestarted(attempt=1, reason="WorkerFailed"),
                SlotsAssigned(slots=(Slots(1, "worker", ((0, 1),)),)),
                pods(msgspec.structs.replace(worker(1, version=40, phase="Pending"), uid=Uid("again"), attempt=1)),
            ],
            ["lost:crash"],
            id="its place is lost until it trains again, over the whole restart",
        ),
        pytest.param(
            [JobRestarting(reason=RESTART_REQUESTED)], ["lost:restart"], id="a restart is the person's who asked for it"
        ),
        pytest.param(
            [pods(worker(1, version=30, deleting=True, phase="Failed", exits=exited(143)))],
            ["lost:deletion"],
            id="a deleted pod is lost to its deletion",
        ),
        pytest.param(
            [pods(worker(1, version=30, disruption="PreemptionByScheduler", phase="Failed", exits=exited(143)))],
            ["lost:preemption"],
            id="a preempted pod is lost to preemption",
        ),
        pytest.param(
            [
                DisruptionNoticed(node="a", uids=(Uid("pod-1"),), reason="SpotInterruption"),
                pods(worker(1, version=30, phase="Failed", exits=exited(143))),
            ],
            ["lost:node"],
            id="a worker whose node was announced to go is lost to the node",
        ),
        pytest.param(
            [
                pods(worker(1, version=29, deleting=True)),
                pods(worker(1, version=30, deleting=True, phase="Failed", exits=exited(143))),
            ],
            ["checkpointing", "lost:deletion"],
            id="a worker that is told to end has its time for a checkpoint, and is lost then",
        ),
        pytest.param(
            [*scaling_in(1), pods(worker(1, version=30, deleting=True))],
            ["draining"],
            id="a worker that a scale-in takes is leaving, also once it is told to end",
        ),
        pytest.param(
            [JobSuspending(reason="S"), JobSuspended(reason="S")], ["draining"], id="a suspended job gives it up"
        ),
        pytest.param([JobFailed(reason="X")], ["ended"], id="a pod that outlives its job"),
        pytest.param([JobFailed(reason="X"), PodsGone(uids=(Uid("pod-1"),))], ["ended"], id="until it is gone"),
    ],
)
def test_a_place_is_lost_to_the_cause_until_it_trains_again(then: list[AnyEvent], lane: list[str]):
    found = told(*a_running_job(2), *then)
    assert found.lane(WORKER_1) == ["node", "gang", "training", *lane]


def test_a_place_that_was_released_for_its_node_is_lost_until_its_next_pod_trains():
    """In a kind that replaces pods under their names the next one waits for the end of this one, or for a back-off."""
    released = WorkersReleased(request=Uid(""), slots=(workers(1),), reason="Disrupted")
    notice = DisruptionNoticed(node="a", uids=(Uid("pod-1"),), reason="SpotInterruption")
    gone = [notice, published(2, 0), released, PodsGone(uids=(Uid("pod-1"),))]
    made = SlotsAssigned(slots=(workers(1),), replaces=(workers(1),), reason="PodsReplaced")
    again = pods(msgspec.structs.replace(worker(1, version=40), uid=Uid("pod-1b")))
    found = told(*a_running_group(2), *gone, published(3, 0), made, again)
    assert found.lane(WORKER_1)[-2:] == ["lost:node", "training"]
    assert found.ledger.seconds(found.end)["lost", "node"] == {"worker": 4}


def test_a_worker_that_joins_is_scaling_until_the_request_is_over():
    found = told(*a_running_job(2), *scaling_out(2), pods(worker(2, version=50)))
    assert found.lane(Place("worker", 2)) == ["node", "scaling"]
    assert found.lane(WORKER_1) == ["node", "gang", "training"]


AGAIN = [
    JobRestarting(reason="WorkerFailed"),
    JobRestarted(attempt=1, reason="WorkerFailed"),
    SlotsAssigned(slots=(Slots(1, "worker", ((0, 1),)),)),
]
PREEMPTED = pods(worker(1, version=30, disruption="PreemptionByScheduler", phase="Failed", exits=exited(143)))


@pytest.mark.parametrize(
    ("events", "lane"),
    [
        pytest.param([*a_running_job(2), LOST_1], ["training"], id="an elastic group trains on without another worker"),
        pytest.param(
            [*a_running_job(2), LOST_1, *AGAIN],
            ["training", "lost:crash"],
            id="of two attempts in one place the newer one counts",
        ),
        pytest.param(
            [*a_running_job(2), PREEMPTED, JobRestarting(reason="Disrupted", counted=False)],
            ["training", "lost:preemption"],
            id="an attempt that a preemption ended is lost to it for all",
        ),
        pytest.param(
            [*a_created_job(2), JobRestarting(reason="LauncherUnschedulable")],
            [],
            id="an attempt that found no node for its launcher goes on waiting for nodes",
        ),
    ],
)
def test_what_happens_to_others_reaches_a_place_only_where_its_group_needs_them(
    events: list[AnyEvent], lane: list[str]
):
    assert told(*events).lane(Place("worker", 0)) == ["node", *(["gang"] if lane else []), *lane]


@pytest.mark.parametrize(
    ("life", "place", "lane"),
    [
        pytest.param(
            "test_without_kueue_other_jobs_run_and_those_in_queues_wait_for_it",
            Place("worker", 0),
            ["quota", "node", "gang", "training"],
            id="a job in a queue waits for quota",
        ),
        pytest.param(
            "test_a_worker_that_was_lost_before_is_made_again_and_nothing_else",
            Place("chief", 0),
            ["lost:hold", "lost:deletion", "training"],
            id="a strict group is lost with one of it, and on hold no place trains",
        ),
        pytest.param(
            "test_a_dead_worker_leaves_at_once_and_is_replaced",
            Place("worker", 2),
            ["lost:deletion", "training"],
            id="a replacement under another index is lost until it trains",
        ),
    ],
)
def test_a_recorded_life_has_its_lanes(life: str, place: Place, lane: list[str]):
    lives = [Told(each.events()) for each in recordings("0.1.0") if each.name == life]
    assert lane in [found.lane(place) for found in lives if place in found.ledger.lanes]
