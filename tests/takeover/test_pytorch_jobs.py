"""An elastic PyTorchJob that training-operator began, with the four services on a cluster in memory."""

from shared.cluster.kinds import SERVICES
from shared.frameworks.pytorchjob import PYTORCHJOB
from tests.frameworks.documents import variables
from tests.kit.world import NAMESPACE, World
from tests.takeover.recorded import put, recorded, uids

PYTORCHJOBS = PYTORCHJOB.resource
BERT = ["bert-worker-0", "bert-worker-1", "bert-worker-2"]


def a_world() -> World:
    """Two of three workers are there."""
    world = World(takes_over=True)
    put(world.store, recorded("pytorchjob-elastic"))
    return world


def shown(world: World) -> tuple[str, int]:
    """The column State, and how many workers run."""
    status = world.status(PYTORCHJOBS, "bert")
    return status["conditions"][-1]["type"], status["replicaStatuses"]["Worker"]["active"]


def scale(world: World, replicas: int) -> None:
    spec = {"pytorchReplicaSpecs": {"Worker": {"replicas": replicas}}}
    world.store.patch(PYTORCHJOBS, NAMESPACE, "bert", {"spec": spec})


async def test_it_goes_on_gets_its_third_worker_back_and_is_scaled_both_ways():
    world = a_world()
    before = uids(world)
    assert sorted(before) == BERT[:2]
    async with world:
        await world.until(lambda: sorted(uids(world)) == BERT and shown(world) == ("Running", 3))
        assert before.items() <= uids(world).items()
        # The others have their rendezvous there, and no pod of Muster's can take it over.
        assert variables(world.pods()["bert-worker-2"].manifest)["PET_RDZV_ENDPOINT"] == "bert-worker-0:23456"
        scale(world, 4)
        await world.until(lambda: shown(world) == ("Running", 4))
        scale(world, 2)
        await world.until(lambda: shown(world) == ("Running", 2))
        await world.quiet()
        assert uids(world) == before
        assert world.store.get(SERVICES, NAMESPACE, "bert-worker-2") is None
        assert world.status(PYTORCHJOBS, "bert")["startTime"] == "2029-12-31T22:00:00Z"
        assert world.count("JobRestarting") == 0
        world.exit_codes |= {"bert-worker-0": 0, "bert-worker-1": 0}
        await world.until(lambda: shown(world)[0] == "Succeeded")
