"""What one event costs in the fold of a large job: calls in proportion to its pods, counted and not timed."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import msgspec
import pytest

from services.watcher.core.budgets import is_free
from shared.job.events.catalog import AnyEvent
from shared.job.events.event import At
from shared.job.events.watcher import NodeLost, PodsGone, PodsObserved
from shared.job.evolve import evolve
from shared.job.naming import Uid
from tests.kit.builders import a_created_job, a_running_job, exited, pods, worker
from tests.kit.histories import a_history

NOW = At(99, "2030-01-01T01:00:00.000Z")


def calls(of: Callable[[], object]) -> int:
    """How many functions, of Python and of C, are called."""
    counted = 0

    def count(_frame: FrameType, event: str, _what: Any) -> None:
        nonlocal counted
        counted += event.endswith("call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        of()
    finally:
        sys.setprofile(before)
    return counted


def all_gone(number: int) -> PodsGone:
    return PodsGone(uids=tuple(Uid(f"pod-{index}") for index in range(number)))


def all_failed(number: int, *, version: int = 30) -> PodsObserved:
    return pods(*(worker(index, version=version, phase="Failed", exits=exited(1)) for index in range(number)))


@pytest.mark.parametrize(
    ("begun", "event"),
    [
        pytest.param(a_running_job, all_gone, id="a running job is deleted"),
        pytest.param(a_created_job, all_failed, id="all workers have failed when they are first seen"),
    ],
)
def test_the_fold_of_a_loss_grows_with_the_workers_and_no_faster(
    begun: Callable[[int], list[AnyEvent]], event: Callable[[int], AnyEvent]
) -> None:
    costs = []
    for number in (50, 400):
        job, lost = a_history(begun(number)).job, event(number)
        assert len(evolve(job, lost, NOW).attempt.vacancies) == number
        costs.append(calls(lambda job=job, lost=lost: evolve(job, lost, NOW)))
    assert costs[1] < 10 * costs[0], f"8 times the workers take {costs[1] / costs[0]:.0f} times the calls"


def test_the_price_of_pods_that_ended_before_their_successors_came_grows_no_faster() -> None:
    costs = []
    for number in (50, 400):
        job, before = a_history(a_running_job(number)).job, all_failed(number, version=5)
        late = pods(*(msgspec.structs.replace(pod, uid=Uid(f"old-{pod.index}")) for pod in before.pods))
        assert not is_free(job, late)
        costs.append(calls(lambda job=job, late=late: is_free(job, late)))
    assert costs[1] < 10 * costs[0], f"8 times the workers take {costs[1] / costs[0]:.0f} times the calls"


def lost(*indices: int) -> NodeLost:
    return NodeLost(node="node-1", uids=tuple(Uid(f"pod-{index}") for index in indices), reason="NodeUnreachable")


def test_one_of_many_lost_nodes_costs_the_same_however_many_are_lost() -> None:
    costs = []
    for number in (50, 400):
        job = a_history([*a_running_job(number), lost(*range(number - 1))]).job
        costs.append(calls(lambda job=job, number=number: evolve(job, lost(number - 1), NOW)))
    assert costs[1] < 2 * costs[0], f"8 times the lost pods take {costs[1] / costs[0]:.0f} times the calls"
