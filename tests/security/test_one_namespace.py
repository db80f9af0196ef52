"""Services of one namespace on a log and a cluster that hold others: theirs alone is read, decided and touched."""

from shared.cluster.kinds import PODS
from shared.runtime.run import Runtime
from tests.kit.world import NAMESPACE, TRAININGJOBS, World, a_scale_out, a_training_job
from tests.kit.world import SCALEOUTS as REQUESTS

OTHER = "team-b"
JOB = ["resnet-launcher", "resnet-worker-0", "resnet-worker-1"]


def of_other(world: World) -> int:
    """How many events the log has of the other namespace."""
    return sum(stored.subject.split(".")[1] == OTHER for stored in world.journal.events)


def runtimes(world: World) -> list[Runtime]:
    return [runtime for runtime, _ in world._running.values()]


async def test_a_job_of_another_namespace_is_not_seen():
    async with World(namespace=NAMESPACE) as world:
        world.apply(TRAININGJOBS, a_training_job(workers=2), OTHER)
        world.apply(TRAININGJOBS, a_training_job(workers=2))
        await world.running()
        await world.quiet()
        assert sorted(world.pods()) == JOB
        assert world.pods(OTHER) == {}
        assert of_other(world) == 0


async def test_services_of_one_namespace_ignore_the_log_of_others():
    async with World() as world:
        world.apply(TRAININGJOBS, a_training_job(workers=2))
        await world.running()
        world.apply(TRAININGJOBS, a_training_job(workers=2), OTHER)
        await world.until(lambda: world.status(TRAININGJOBS, "resnet", OTHER).get("phase") == "Running")
        await world.quiet()
        for author in ("watcher", "scheduler", "scaler", "status"):
            await world.kill(author)
        # The log ends with the other namespace, which the services of this one never read.
        assert world.journal.events[-1].subject.split(".")[1] == OTHER
        known = of_other(world)
        async with World(sharing=world, namespace=NAMESPACE) as alone:
            alone.store.remove(PODS, OTHER, "resnet-worker-0")
            alone.delete(TRAININGJOBS, "resnet", OTHER)
            alone.apply(REQUESTS, a_scale_out(1))
            await alone.phase("ScaleSucceeded", REQUESTS, "out")
            await alone.quiet()
            assert of_other(alone) == known
            assert all(history.job.key.namespace == NAMESPACE for m in runtimes(alone) for history in m.histories)


async def test_two_of_them_share_a_log():
    async with World(namespace=NAMESPACE) as one, World(sharing=one, namespace=OTHER) as other:
        one.apply(TRAININGJOBS, a_training_job(workers=2))
        one.apply(TRAININGJOBS, a_training_job(workers=1), OTHER)
        await one.running()
        await other.until(lambda: other.status(TRAININGJOBS, "resnet", OTHER).get("phase") == "Running")
        assert sorted(one.pods()) == JOB
        assert sorted(other.pods(OTHER)) == JOB[:2]


async def test_an_empty_namespace_is_read_to_its_end():
    async with World(namespace=NAMESPACE) as world:
        await world.until(lambda: all(runtime.current for runtime in runtimes(world)), "current")
