"""Commands that act on jobs of other kinds than TrainingJob: where a wish stands, and what their status says."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from muster.crds import manifests
from muster.replay import verified_jobs
from services.status.core.documents import document_of, with_head
from shared.cluster import Resource
from shared.cluster.objects import Custom
from shared.errors import Refused
from shared.frameworks.kinds import BUILT_IN, Kinds
from shared.frameworks.training_job import SUSPENDED
from shared.job.events.catalog import AnyEvent
from shared.job.events.status import JobCreated
from shared.job.events.watcher import JobObserved
from shared.job.naming import RESTART
from shared.telling.reading import everything
from shared.telling.targets import Asked, parse_target
from tests.kit.choirs import BANDS, CHOIRS, Band, Choir, a_band, a_choir
from tests.memory.cluster import MemoryCluster
from tests.memory.eventlog import MemoryEventLog
from tests.memory.store import MemoryStore
from tests.muster.conftest import NAME, PATIENCE_SECONDS, MakeSite, Said, Site, refused, restart, resume, suspend, to
from tests.muster.test_get import Log

KINDS = Kinds((*BUILT_IN, Choir(), Band()))
CREATED = {"type": "Created", "status": "True", "reason": "ChoirCreated"}
PAUSED = {"type": "Suspended", "status": "True", "reason": "ChoirSuspended"}
SINCE, LATER = "2030-01-01T00:00:00Z", "2030-01-01T00:01:00Z"


def runs(since: str = SINCE) -> dict[str, str]:
    return {"type": "Running", "status": "True", "reason": "ChoirRunning", "lastTransitionTime": since}


def asked(text: str) -> Asked:
    return parse_target(text, KINDS)


CHOIR, BAND = asked(f"choir/{NAME}"), asked(f"band/{NAME}")


pytestmark = pytest.mark.usefixtures("clock")


@pytest.fixture
async def site(a_site: MakeSite) -> AsyncIterator[Site]:
    async with a_site(manifests(KINDS)) as made:
        await made.cluster.create(CHOIRS, "default", a_choir(NAME))
        await made.cluster.create(BANDS, "default", a_band(NAME))
        yield made


async def held(site: Site, resource: Resource[Custom] = CHOIRS) -> Custom:
    found = await site.cluster.get(resource, "default", NAME)
    assert found is not None
    return found


async def shows(site: Site, *conditions: dict[str, str], **more: Any) -> None:
    """What the status service would write."""
    generation = (await held(site)).metadata.generation
    status = {"conditions": [CREATED, *conditions], "observedGeneration": generation} | more
    await site.cluster.patch(CHOIRS, "default", NAME, {"status": status}, subresource="status")


async def follows(
    work: Awaitable[None], said: Said, line: str, meanwhile: Callable[[], Awaitable[None]], times: int = 1
) -> None:
    """A command that waits, and what the services do once it showed a phase, the last of so many times."""
    waiting = asyncio.ensure_future(work)
    await said.until(f"choir/resnet {line}", times=times)
    assert not waiting.done()
    await meanwhile()
    await asyncio.wait_for(waiting, PATIENCE_SECONDS)


async def test_a_pause_is_asked_for_and_taken_back_where_the_kind_has_it(site: Site, said: Said):
    await shows(site, runs())
    work = suspend(site.cluster, CHOIR, "default", wait=True, timeout=10)
    await follows(work, said, "Running", lambda: shows(site, runs() | {"status": "False"}, PAUSED))
    job = await held(site)
    assert job.spec["runPolicy"] == {"suspend": True}
    assert not job.metadata.annotations
    assert "trainingjob" not in said.out
    work = resume(site.cluster, CHOIR, "default", wait=True, timeout=10)
    await follows(work, said, "Suspended", lambda: shows(site, PAUSED | {"status": "False"}, runs(LATER)), times=2)
    assert (await held(site)).spec["runPolicy"] == {"suspend": False}


async def test_what_has_no_such_field_is_not_suspended(site: Site, said: Said):
    before = await held(site, BANDS)
    complaint = await refused(suspend(site.cluster, BAND, "default", wait=True, timeout=10), said)
    assert complaint == "muster: band/resnet cannot be suspended: a Band has no field that asks for a pause"
    assert await held(site, BANDS) == before


async def test_a_definition_that_drops_the_field_is_said_so_and_nothing_waits(a_site: MakeSite, said: Said):
    definitions = manifests(KINDS)
    (choir,) = [crd for crd in definitions if crd["spec"]["names"]["kind"] == "Choir"]
    spec = choir["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    choir["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"] = spec | {
        "properties": {"roles": spec["properties"]["roles"]}
    }
    async with a_site(definitions) as site:
        await site.cluster.create(CHOIRS, "default", a_choir(NAME))
        complaint = await refused(suspend(site.cluster, CHOIR, "default", wait=True, timeout=10), said)
        assert "muster crds | kubectl apply -f -" in complaint
        assert SUSPENDED not in ((await held(site)).metadata.annotations or {})


async def test_a_restart_is_waited_for_by_its_conditions(site: Site, said: Said):
    await shows(site, runs())
    work = restart(site.cluster, CHOIR, "default", wait=True, timeout=10, value=lambda: "again")
    await follows(work, said, "Running", lambda: shows(site, runs(LATER)))
    assert ((await held(site)).metadata.annotations or {})[RESTART] == "again"


async def test_where_no_condition_tells_of_attempts_it_is_only_asked_for(site: Site, said: Said):
    class Loud(Band):
        def phase(self, status: dict[str, Any]) -> str:
            return str(status.get("phase") or "")

    (target,) = parse_target(f"band/{NAME}", Kinds((Loud(),))).targets
    await site.cluster.patch(BANDS, "default", NAME, {"status": {"phase": "Running"}}, subresource="status")
    await restart(site.cluster, Asked(NAME, (target,)), "default", wait=True, timeout=10)
    assert said.out.splitlines() == [
        "band/resnet asked to restart",
        "its status does not say when an attempt began; `muster history band/resnet --follow` does",
    ]


async def test_what_was_refused_has_nothing_to_restart(site: Site, said: Said):
    failed = {"type": "Failed", "status": "True", "reason": "ChoirFailedValidation"}
    await site.cluster.patch(CHOIRS, "default", NAME, {"status": {"conditions": [failed]}}, subresource="status")
    complaint = await refused(restart(site.cluster, CHOIR, "default", wait=True, timeout=10), said)
    assert "choir/resnet has not been admitted yet" in complaint


async def test_a_size_is_asked_for_where_kubectl_scale_finds_it(site: Site, said: Said):
    await shows(site, runs(), replicas=2)
    work = to(site.cluster, CHOIR, "default", 5, wait=True, timeout=10)
    await follows(work, said, "Running", lambda: shows(site, runs(), replicas=5))
    assert (await held(site)).spec["roles"]["singer"]["replicas"] == 5
    assert said.out.splitlines()[0] == "choir/resnet asked for 5 workers instead of 2"
    await to(site.cluster, CHOIR, "default", 5, wait=True, timeout=10)
    assert said.out.splitlines()[-1] == "choir/resnet has 5 workers already"


async def test_a_name_alone_means_the_training_job_or_the_only_one_and_of_several_others_none(site: Site, said: Said):
    await site.cluster.create(CHOIRS, "default", a_choir("vgg"))
    for name in (NAME, "vgg"):
        await suspend(site.cluster, asked(name), "default", wait=False, timeout=10)
    assert said.out == "trainingjob/resnet asked to suspend\nchoir/vgg asked to suspend\n"
    await site.cluster.create(BANDS, "default", a_band("vgg"))
    with pytest.raises(Refused, match=r"^there are several jobs default/vgg; say choir/vgg or band/vgg$"):
        await suspend(site.cluster, asked("vgg"), "default", wait=False, timeout=10)


async def test_kinds_that_are_not_served_here_have_no_job_that_could_be_meant(a_site: MakeSite, said: Said):
    async with a_site(manifests()) as site:
        await suspend(site.cluster, asked(NAME), "default", wait=False, timeout=10)
        await refused(suspend(site.cluster, asked("vgg"), "default", wait=False, timeout=10), said)
    assert said.err == "muster: no job default/vgg; -n names another namespace\n"


def begun(resource: Resource[Custom]) -> list[AnyEvent]:
    """A job of this kind that was seen and taken on."""
    framework = KINDS.find(resource.api_version, resource.kind)
    assert framework is not None
    spec = framework.parse(Custom(spec=(a_choir() if resource is CHOIRS else a_band())["spec"]))
    seen = JobObserved(kind=resource.kind, api_version=resource.api_version, generation=1, version=1, spec=spec)  # type: ignore[arg-type]
    return [seen, JobCreated(reason=f"{resource.kind}Created")]


@pytest.mark.parametrize("resource", [CHOIRS, BANDS], ids=["by conditions", "by a phase"])
async def test_the_status_of_every_kind_is_replayed(resource: Resource[Custom]):
    cluster, log = MemoryCluster(MemoryStore()), Log()
    made = await cluster.create(resource, "default", {"metadata": {"name": NAME}})
    log.add(*begun(resource), name=NAME, namespace="default", uid=made.metadata.uid)
    (history,), _ = await everything(MemoryEventLog(log.journal), ("facts.default.>", "jobs.default.>"))
    status = with_head(document_of(history.job, KINDS), "memory", history.head, history.time)
    for change, verdict in ((status, "identical"), ({"phase": "Odd"}, "different")):
        await cluster.patch(resource, "default", NAME, {"status": change}, subresource="status")
        (answer,) = (await verified_jobs(MemoryEventLog(log.journal), cluster, KINDS)).answers
        assert answer.verdict == verdict


async def test_jobs_are_listed_with_their_kinds():
    log = Log()
    log.add(*begun(CHOIRS), name=NAME, namespace="default")
    row = (await log.says(kinds=KINDS)).splitlines()[1]
    assert row.split()[:6] == ["default", "choir", NAME, "Created", "0/3", "0"]
    assert "choir.choirs.test.muster.dev" in await log.says(kinds=BUILT_IN)
