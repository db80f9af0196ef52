"""Scale requests of another controller, such as a workflow: answered, and blocking no other request."""

from shared.cluster.kinds import CONFIGMAPS
from shared.frameworks.scale_requests import SCALEOUTS
from shared.frameworks.training_job import TRAININGJOBS
from tests.kit.world import NAMESPACE, Document, World, a_scale_out


def owned_by_another(world: World, request: Document) -> Document:
    """Any object may control a request; this one is there, so that the garbage collector leaves it alone."""
    held = world.store.create(CONFIGMAPS, NAMESPACE, {"metadata": {"name": "nightly"}})
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "nightly", "uid": held.metadata["uid"]}
    request["metadata"]["ownerReferences"] = [owner | {"controller": True}]
    return request


async def test_a_request_with_another_controller_is_refused_once_with_a_reason_and_blocks_no_other(world: World):
    await world.trains(workers=1)
    world.apply(SCALEOUTS, owned_by_another(world, a_scale_out(1, name="theirs")))
    world.apply(SCALEOUTS, a_scale_out(1, name="ours"))
    await world.phase("ScaleSucceeded", SCALEOUTS, "ours")
    await world.phase("ScaleFailed", SCALEOUTS, "theirs")
    assert world.condition(SCALEOUTS, "theirs", "ScaleFailed") == ("True", "OwnedByAnother")
    world.delete(TRAININGJOBS, "resnet")
    await world.until(lambda: world.count("JobGone") == 1 and not world.pods())
    await world.trains(workers=1)
    await world.quiet()
    assert world.count("ScaleRejected") == 1, "the next job of that name has nothing to do with it"
    assert world.status(SCALEOUTS, "theirs")["phase"] == "ScaleFailed"
