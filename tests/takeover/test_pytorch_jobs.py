"""An elastic PyTorchJob that training-operator began, with the four services on a cluster in memory."""

import pytest

from shared.cluster.kinds import PODS, SERVICES
from shared.frameworks.pytorchjob import PYTORCHJOB
from tests.kit.virtual_time import in_virtual_time
from tests.kit.world import AUTHORS, NAMESPACE
from tests.service.stage import Stage
from tests.takeover.recorded import put, recorded

PYTORCHJOBS = PYTORCHJOB.resource
BERT = ["bert-worker-0", "bert-worker-1", "bert-worker-2"]


def a_stage() -> Stage:
    """Two of three workers are there."""
    stage = Stage(takes_over=True)
    put(stage.store, recorded("pytorchjob-elastic"))
    return stage


def uids(stage: Stage) -> dict[str, str]:
    return {name: held.metadata["uid"] for name, held in stage.pods().items()}


def shown(stage: Stage) -> tuple[str, int]:
    """The column State, and how many workers run."""
    status = stage.status(PYTORCHJOBS, "bert")
    return status["conditions"][-1]["type"], status["replicaStatuses"]["Worker"]["active"]


def scale(stage: Stage, replicas: int) -> None:
    spec = {"pytorchReplicaSpecs": {"Worker": {"replicas": replicas}}}
    stage.store.patch(PYTORCHJOBS, NAMESPACE, "bert", {"spec": spec})


@in_virtual_time
async def test_it_goes_on_gets_its_third_worker_back_and_is_scaled_both_ways():
    stage = a_stage()
    before = uids(stage)
    assert sorted(before) == BERT[:2]
    async with stage:
        await stage.until(lambda: sorted(uids(stage)) == BERT and shown(stage) == ("Running", 3))
        assert before.items() <= uids(stage).items()
        scale(stage, 4)
        await stage.until(lambda: shown(stage) == ("Running", 4))
        scale(stage, 2)
        await stage.until(lambda: shown(stage) == ("Running", 2))
        await stage.quiet()
        assert uids(stage) == before
        assert stage.store.get(SERVICES, NAMESPACE, "bert-worker-2") is None
        assert stage.status(PYTORCHJOBS, "bert")["startTime"] == "2029-12-31T22:00:00Z"
        assert stage.count("JobRestarting") == 0
        stage.exit_codes |= {"bert-worker-0": 0, "bert-worker-1": 0}
        await stage.until(lambda: shown(stage)[0] == "Succeeded")


@in_virtual_time
async def test_a_container_that_its_kubelet_starts_again_is_no_end_of_its_pod():
    """training-operator leaves OnFailure to the kubelet, in the pods themselves."""
    stage = a_stage()
    before = uids(stage)
    failed = {"name": "pytorch", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}
    stage.odd.add("bert-worker-1")
    async with stage:
        await stage.until(lambda: sorted(uids(stage)) == BERT and shown(stage) == ("Running", 3))
        status = {"phase": "Running", "containerStatuses": [failed]}
        stage.store.patch(PODS, NAMESPACE, "bert-worker-1", {"status": status}, subresource="status")
        await stage.quiet()
        assert before.items() <= uids(stage).items()


@pytest.mark.parametrize("turn", range(1, 12))
@in_virtual_time
async def test_all_services_may_die_at_any_event_of_it(turn: int):
    stage = a_stage()
    before = uids(stage)
    async with stage:
        await stage.until(lambda: len(stage.journal.events) > turn)
        for author in AUTHORS:
            await stage.kill(author)
        for author in AUTHORS:
            await stage.start(author)
        await stage.until(lambda: sorted(uids(stage)) == BERT and shown(stage) == ("Running", 3))
        await stage.quiet()
        assert before.items() <= uids(stage).items()
        assert (stage.count("JobAdopted"), stage.count("SlotsAssigned")) == (1, 1)
