"""A job that is over stays over when its history is purged and its checkpoint is lost, in every kind."""

import pytest

from shared.frameworks.kinds import BUILT_IN
from tests.frameworks.documents import Document, of_each_kind
from tests.kit.world import NAMESPACE, World
from tests.service.test_heads import BEGINNINGS, purged_of


@pytest.mark.parametrize("pruned", [False, True], ids=["with its head", "by a definition that drops our head"])
@pytest.mark.parametrize(
    "document", [pytest.param(each, id=f"{each['kind']} {each['apiVersion']}") for each in of_each_kind(2)]
)
async def test_a_finished_job_of_any_kind_is_never_begun_again(document: Document, *, pruned: bool):
    at, name = (document["apiVersion"], document["kind"]), document["metadata"]["name"]
    (resource,) = (kind.resource for kind in BUILT_IN if (kind.resource.api_version, kind.resource.kind) == at)
    async with World() as lost:
        uid = lost.apply(resource, {"metadata": {"name": name}, "spec": document["spec"]}).metadata["uid"]
        await lost.until(lambda: lost.job(name).status.phase == "Running")
        lost.exit_codes |= dict.fromkeys(lost.pods(), 0)
        await lost.until(lambda: lost.job(name).over)
        await lost.quiet()
    if pruned:
        lost.store.patch(resource, NAMESPACE, name, {"status": {"history": None}}, subresource="status")
    before = lost.status(resource, name)
    async with World(of=lost, journal=purged_of(lost.journal, uid, forgets=True)) as world:
        await world.until(lambda: world.count("JobOfAnother" if pruned else "HistoryBroken") == 1)
        await world.pass_seconds(100)
        assert world.life(uid).halted
        assert [world.count(kind) for kind in BEGINNINGS] == [0] * len(BEGINNINGS)
        assert world.status(resource, name) == before
