"""`muster history accept`: the resource names the head that raised the doubt."""

import pytest
import typer

from muster.history import annotate
from shared.cluster import Resource
from shared.cluster.objects import Custom
from shared.frameworks.kinds import BUILT_IN
from shared.frameworks.tfjob import TFJOB
from shared.frameworks.training_job import TRAININGJOBS
from shared.job.chain import Head
from shared.job.events.watcher import HistoryBroken, HistoryDisputed
from shared.job.naming import ACCEPT_HISTORY, JobKey, Uid
from shared.job.state import Job
from shared.telling.targets import Target
from tests.frameworks.documents import changed, tf_job
from tests.kit.builders import a_running_job
from tests.kit.histories import a_history
from tests.kit.world import NAMESPACE, a_training_job
from tests.memory.cluster import MemoryCluster
from tests.memory.store import MemoryStore

LOST = HistoryBroken(log="other", sequence=9, hash="ab", reason="OtherLog")
DISPUTED = HistoryDisputed(theirs=Head(9, "ab"), ours=Head(8, "cd"))


class Site:
    """A job of a kind, and its history."""

    def __init__(self, kind: Resource[Custom] = TRAININGJOBS) -> None:
        self.kind = kind
        self.store = MemoryStore()
        manifest = (
            a_training_job() if kind == TRAININGJOBS else changed(tf_job(Worker=1), "metadata", {"name": "resnet"})
        )
        held = self.store.create(kind, NAMESPACE, manifest)
        self.key = JobKey(NAMESPACE, "resnet", Uid(held.metadata["uid"]))

    async def accept(self, job: Job) -> str:
        return await annotate(MemoryCluster(self.store), Target(self.kind, "resnet"), job, BUILT_IN)

    def accepted(self) -> str | None:
        held = self.store.get(self.kind, NAMESPACE, "resnet")
        assert held is not None
        head: str | None = (held.metadata.get("annotations") or {}).get(ACCEPT_HISTORY)
        return head


@pytest.mark.parametrize("doubt", [pytest.param(LOST, id="lost"), pytest.param(DISPUTED, id="disputed")])
async def test_the_head_comes_from_the_log_where_the_resource_shows_none(doubt: HistoryBroken | HistoryDisputed):
    site = Site()
    await site.accept(a_history([*a_running_job(), doubt], site.key).job)
    assert site.accepted() == "9:ab"


async def test_a_job_of_any_kind_is_found_though_the_log_has_nothing_but_its_loss():
    site = Site(TFJOB.resource)
    lost = HistoryBroken(
        log="other", sequence=9, hash="ab", reason="HistoryLost", kind="TFJob", api_version=TFJOB.resource.api_version
    )
    await site.accept(a_history([lost], site.key).job)
    assert site.accepted() == "9:ab"


async def test_a_whole_history_is_not_accepted(capsys: pytest.CaptureFixture[str]):
    site = Site()
    with pytest.raises(typer.Exit):
        await site.accept(a_history(a_running_job(), site.key).job)
    assert "nothing to accept" in capsys.readouterr().err
    assert site.accepted() is None


async def test_a_namesake_of_the_job_is_left_alone(capsys: pytest.CaptureFixture[str]):
    site = Site()
    earlier = JobKey(NAMESPACE, "resnet", Uid("an-earlier-one"))
    with pytest.raises(typer.Exit):
        await site.accept(a_history([*a_running_job(), LOST], earlier).job)
    assert "with the uid an-earlier-one" in capsys.readouterr().err
    assert site.accepted() is None
