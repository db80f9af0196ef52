"""Which lost pods are replaced, when, and which are told as not replaced: the corners of
`shared/job/policies/replacement.py`.
"""

import msgspec
import pytest

from shared.job.events.catalog import AnyEvent
from shared.job.events.scaler import ScaleSucceeded
from shared.job.events.scheduler import SlotsAssigned
from shared.job.events.status import JobCreated, JobRunning
from shared.job.events.watcher import DisruptionNoticed, JobAdopted, NodeLost, PodsGone, TimePassed
from shared.job.naming import Uid
from shared.job.policies import replacement
from shared.job.spec import LAUNCHED, LAUNCHED_TOGETHER, RENDEZVOUS, Handling, RestartPolicy, RoleSpec
from shared.job.timers import STEADY
from shared.job.views import Slots
from tests.kit.builders import a_running_job, a_spec, exited, observed, pods, scaling_in, scaling_out, worker, workers
from tests.kit.groups import a_group_spec, growing
from tests.kit.replicas import (
    CHIEF,
    TOGETHER,
    WORKERS,
    a_replicated_spec,
    a_running_replicated_job,
    ended,
    led_by_workers,
    replica,
)
from tests.kit.stories import given

replace = msgspec.structs.replace

NEVER, USED_UP = "restartPolicy: Never", "backoffLimit is used up"


def replaced(*events: AnyEvent) -> list[int]:
    """The indices of the pods to replace, in their order."""
    return [slot.index for slot in replacement.replaceable(given(*events).job)]


def told(*events: AnyEvent) -> list[tuple[int, str]]:
    """The indices of the workers that are told as not replaced, in their order, and why not."""
    return [(slot.index, why) for slot, why in replacement.unreplaced(given(*events).job).items()]


def failed(index: int) -> AnyEvent:
    return pods(worker(index, version=40, phase="Failed", exits=exited(1)))


def deleted(index: int) -> AnyEvent:
    return PodsGone(uids=(Uid(f"pod-{index}"),))


def smaller(before: int, policy: RestartPolicy = "OnFailure") -> list[AnyEvent]:
    """A job of so many workers, whose last one failed; then a person asks for one less, which it already has."""
    return [
        *a_running_job(before, of_workers=policy),
        failed(before - 1),
        observed(a_spec(before - 1, of_workers=policy), generation=2),
        ScaleSucceeded(request=Uid("replicas-2"), reason="AlreadyThatSize"),
    ]


def beyond(size: int, *, there: int, policy: RestartPolicy = "Always") -> list[AnyEvent]:
    """A job that another operator scaled in to `size` before it deleted any of the workers that were there."""
    running = a_running_job(there, of_workers=policy)
    return [
        *running[:2],
        pods(*(worker(index) for index in range(there))),
        JobAdopted(source="AnotherOperator", attempt=0, slots=(workers(*range(there)),), size=size),
        running[-1],
    ]


class TestReplaced:
    def test_of_several_the_lowest_is_the_one_that_the_limit_allows(self):
        assert replaced(*a_running_job(3, of_workers="Always", backoff_limit=1), failed(2), failed(1)) == [1]

    def test_of_several_no_more_than_are_missing(self):
        assert replaced(*beyond(2, there=3), failed(1), failed(2)) == [1]

    def test_a_worker_that_is_about_to_leave_leaves_no_place_for_a_lost_one(self):
        assert replaced(*smaller(3), *scaling_in(1)) == []

    def test_the_new_worker_of_an_edit_is_replaced_within_the_limit_of_the_job(self):
        assert replaced(*growing(2), failed(2)) == [2]
        assert replaced(*growing(2, backoff_limit=0), failed(2)) == []

    def test_a_leader_that_succeeded_is_not_replaced_while_others_of_its_role_run(self):
        assert replaced(*a_running_replicated_job(led_by_workers("All", policy="Always")), ended("worker", 0, 0)) == []

    @pytest.mark.parametrize(("restarts", "indices"), [("Pod", [0]), ("Job", [])])
    def test_a_leader_for_which_the_whole_job_restarts_is_not_replaced_alone(self, restarts: str, indices: list[int]):
        spec = a_replicated_spec("Always", handling=replace(TOGETHER, restarts=restarts))
        assert replaced(*a_running_replicated_job(spec), ended("chief", 0, 3)) == indices

    @pytest.mark.parametrize(("final", "indices"), [(False, [1]), (True, [])])
    def test_under_exit_code_out_of_memory_is_retried_unless_the_kind_says_otherwise(
        self, final: bool, indices: list[int]
    ):
        killed = pods(worker(1, version=40, phase="Failed", exits=exited(137, "OOMKilled")))
        handling = Handling(out_of_memory_is_final=final)
        assert replaced(*a_running_job(2, of_workers="ExitCode", handling=handling), killed) == indices


@pytest.mark.parametrize(
    ("handling", "indices"),
    [
        pytest.param(LAUNCHED_TOGETHER, [1], id="under its name, as nothing failed"),
        pytest.param(LAUNCHED, [], id="not under a new name, as restartPolicy says so"),
    ],
)
def test_a_deleted_worker_comes_back_under_never(handling: Handling, indices: list[int]):
    story = a_running_job(3, handling=handling)
    assert replaced(*story, failed(2), deleted(1)) == indices


def test_each_loss_waits_for_its_own_back_off():
    again = SlotsAssigned(slots=(workers(3),), replaces=(workers(2),), reason="WorkersReplaced")
    story = [*a_running_job(3, of_workers="Always"), failed(2), again, failed(1), failed(0)]
    first = TimePassed(anchor=len(story) - 1, timer=replacement.timer_name(10))
    job = given(*story, first).job
    due = [slot.index for slot, lost in job.attempt.vacancies.items() if replacement.due(job, lost)]
    assert due == [1]


class TestToldAsNotReplaced:
    def test_the_newest_first_with_the_reason_of_each(self):
        assert told(*a_running_job(3), failed(1), deleted(0)) == [(0, NEVER), (1, NEVER)]
        assert told(*a_running_job(3, of_workers="Always", backoff_limit=0), failed(1)) == [(1, USED_UP)]

    def test_one_that_is_replaced_is_not(self):
        limited = a_running_job(3, of_workers="Always", backoff_limit=1)
        assert told(*limited, failed(2), failed(1)) == [(2, USED_UP)]

    def test_one_that_is_not_missed_is_not(self):
        assert told(*smaller(3)) == []
        assert told(*smaller(3), deleted(1)) == []

    def test_no_more_than_are_missed(self):
        assert told(*smaller(3, "Never"), deleted(1)) == [(1, NEVER)]

    def test_beyond_the_size_none_is(self):
        assert told(*beyond(2, there=5, policy="Never"), failed(3), failed(4)) == []

    def test_one_that_succeeded_is_not(self):
        done = pods(worker(1, version=40, phase="Succeeded", exits=exited(0)))
        assert told(*a_running_job(3), deleted(2), done) == [(2, NEVER)]

    def test_one_that_an_open_request_adds_or_removes_is_not(self):
        short = [*a_running_job(3), deleted(0)]
        assert told(*short, *scaling_out(3, limit=0), failed(3)) == [(0, NEVER)]
        assert told(*short, *scaling_in(2), failed(2)) == [(0, NEVER)]

    def test_one_of_another_role_is_not_and_takes_no_place_of_a_worker(self):
        spec = a_replicated_spec("Never", handling=replace(TOGETHER, strict=False))
        chief, others = spec.roles
        both = [ended("worker", 1, 3), ended("chief", 0, 3)]
        for policy, lost in (("Never", []), ("Always", [CHIEF])):
            kept = replace(spec, roles=(replace(chief, restart_policy=policy), others))
            job = given(*a_running_replicated_job(kept), *both).job
            assert list(replacement.replaceable(job)) == lost
            assert replacement.unreplaced(job) == {WORKERS[1]: NEVER}


STORE = replica(RENDEZVOUS, 0)
ANNOUNCED = DisruptionNoticed(node="node-1", uids=(STORE.uid,), reason="SpotInterruption", seconds=120)
NODE_LOST = NodeLost(node="node-1", uids=(STORE.uid,), reason="NodeUnreachable")
PLACE = Slots(0, RENDEZVOUS, ((0, 0),))
AGAIN = [
    PodsGone(uids=(STORE.uid,)),
    SlotsAssigned(slots=(PLACE,), reason="PodsReplaced", replaces=(PLACE,)),
    pods(replace(STORE, uid=Uid("store-again"), version=40)),
]


@pytest.mark.parametrize(
    ("before", "reason"),
    [
        pytest.param([], "Error", id="it runs"),
        pytest.param([ANNOUNCED], "Error", id="its node is announced to go, and it runs"),
        pytest.param([pods(replace(STORE, version=30, disruption="Evicted"))], "RendezvousLost", id="it is evicted"),
        pytest.param(
            [pods(replace(STORE, version=30, disruption="Evicted")), pods(replace(STORE, version=31))],
            "Error",
            id="its eviction is off",
        ),
        pytest.param([pods(replace(STORE, version=30, deleting=True))], "RendezvousLost", id="it is being deleted"),
        pytest.param([NODE_LOST], "RendezvousLost", id="its node is lost"),
        pytest.param([PodsGone(uids=(STORE.uid,))], "RendezvousLost", id="it is gone"),
        pytest.param(AGAIN, "RendezvousLost", id="it is there again, for a short time"),
        pytest.param([*AGAIN, TimePassed(anchor=7, timer=STEADY)], "Error", id="it is there again, and was steady"),
    ],
)
def test_a_crash_is_the_workers_own_as_long_as_the_store_of_its_group_runs(before: list[AnyEvent], reason: str):
    spec = a_group_spec(2)
    role = RoleSpec(name=RENDEZVOUS, replicas=1, container="main", stem="resnet-rdzv-")
    group = [
        observed(replace(spec, roles=(*spec.roles, role))),
        JobCreated(reason="TrainingJobCreated"),
        SlotsAssigned(slots=(workers(0, 1), PLACE), reason="JobCreated"),
        pods(worker(0), worker(1), STORE),
        JobRunning(reason="TrainingJobRunning"),
    ]
    assert given(*group, *before, failed(1)).job.status.failures[-1].reason == reason
