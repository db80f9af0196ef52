"""Scale requests of another controller, such as a workflow: answered, and blocking no other request."""

from shared.cluster.kinds import CONFIGMAPS
from shared.frameworks.scale_requests import SCALEOUTS
from shared.frameworks.training_job import TRAININGJOBS
from tests.kit.virtual_time import in_virtual_time
from tests.kit.world import NAMESPACE, a_scale_out, a_training_job
from tests.service.stage import Document, Stage


def owned_by_another(stage: Stage, request: Document) -> Document:
    """Any object may control a request; this one is there, so that the garbage collector leaves it alone."""
    held = stage.store.create(CONFIGMAPS, NAMESPACE, {"metadata": {"name": "nightly"}})
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "nightly", "uid": held.metadata["uid"]}
    request["metadata"]["ownerReferences"] = [owner | {"controller": True}]
    return request


@in_virtual_time
async def test_a_request_with_another_controller_is_refused_with_a_reason_and_blocks_no_other():
    async with Stage() as stage:
        stage.apply(TRAININGJOBS, a_training_job(workers=1))
        await stage.running()
        stage.apply(SCALEOUTS, owned_by_another(stage, a_scale_out(1, name="theirs")))
        stage.apply(SCALEOUTS, a_scale_out(1, name="ours"))
        await stage.phase("ScaleSucceeded", SCALEOUTS, "ours")
        await stage.phase("ScaleFailed", SCALEOUTS, "theirs")
        assert stage.condition(SCALEOUTS, "theirs", "ScaleFailed") == ("True", "OwnedByAnother")


@in_virtual_time
async def test_it_is_refused_once_and_not_by_the_next_job_of_that_name():
    async with Stage() as stage:
        stage.apply(TRAININGJOBS, a_training_job(workers=1))
        await stage.running()
        stage.apply(SCALEOUTS, owned_by_another(stage, a_scale_out(1, name="theirs")))
        await stage.phase("ScaleFailed", SCALEOUTS, "theirs")
        stage.delete(TRAININGJOBS, "resnet")
        await stage.until(lambda: stage.count("JobGone") == 1 and not stage.pods())
        stage.apply(TRAININGJOBS, a_training_job(workers=1))
        await stage.running()
        await stage.quiet()
        assert stage.count("ScaleRejected") == 1
        assert stage.status(SCALEOUTS, "theirs")["phase"] == "ScaleFailed"
