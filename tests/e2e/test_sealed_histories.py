"""The end of a history: sealed, archived, purged, and still told; services in real processes."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from services.archive.__main__ import serve
from shared.eventlog import api
from shared.eventlog.account import ADMIN, ARCHIVER, STREAM
from shared.eventlog.subject import FAMILIES
from shared.frameworks.training_job import TRAININGJOBS
from shared.process.serving import meanwhile
from shared.process.settings import Settings
from tests.kit.hosts import EMBEDDED, MakeHost
from tests.kit.nats import at
from tests.kit.operator import UNTIL_TOLD, Operator, a_job, an_operator

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

CLUSTERS = EMBEDDED


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def operator(host: MakeHost, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Operator]:
    async with an_operator(tmp_path_factory.mktemp("stack"), host, MUSTER_SEAL_AFTER="PT1S") as operator:
        yield operator


async def test_a_job_that_is_gone_leaves_the_log_and_is_still_told(operator: Operator):
    nats = operator.stack.nats
    archiver = Settings(NATS_URL=nats.url, NATS_USER=ARCHIVER, NATS_PASSWORD=nats.users[ARCHIVER])
    await operator.apply(a_job("over", UNTIL_TOLD))
    await operator.phase("Running", TRAININGJOBS, "over")
    await operator.tell_to_end("over")
    await operator.phase("Succeeded", TRAININGJOBS, "over")
    uid = (await operator.job("over")).key.uid
    told = await operator.muster("history", "trainingjob/over")
    await operator.delete("over")

    async def sealed() -> bool:
        return "JobSealed" in await operator.types("over")

    async def only_the_seal() -> bool:
        return await operator.types("over") == ["JobSealed"]

    await operator.until(sealed, lambda: "the history is not sealed")
    async with meanwhile(serve(archiver)):
        await operator.until(only_the_seal, lambda: "the events are still in the log")
    for service in operator.stack.services:
        operator.crash(service)
    archived = await operator.muster("history", "trainingjob/over")
    assert archived.splitlines()[1 : len(told.splitlines()) - 1] == told.splitlines()[1:-1]
    assert "succeeded" in (await operator.muster("why", "trainingjob/over")).lower()
    assert "Succeeded" in await operator.muster("report", "trainingjob/over")
    # The name is free for another job, which knows nothing of the one before.
    await operator.apply(a_job("over", UNTIL_TOLD))
    await operator.phase("Running", TRAININGJOBS, "over")
    assert "Succeeded" in await operator.muster("report", "trainingjob/over", "--uid", uid)
    await operator.tell_to_end("over")
    await operator.phase("Succeeded", TRAININGJOBS, "over")


async def test_a_purge_of_a_quiet_job_under_running_services_is_told_and_holds_it(operator: Operator):
    await operator.apply(a_job("quiet", UNTIL_TOLD))
    await operator.phase("Running", TRAININGJOBS, "quiet")
    nats = operator.stack.nats
    async with at(nats, ADMIN) as admin:
        for family in FAMILIES:
            await api.call(admin, f"STREAM.PURGE.{STREAM}", {"filter": f"{family}.default.quiet.>"}, dict)

    async def held() -> bool:
        history = await operator.history("quiet")
        return history.job.integrity.doubt is not None

    await operator.until(held, lambda: "no service has missed the events")
    assert "of default/quiet, and this service has read" in operator.last_words()
    await operator.delete("quiet")

    async def gone() -> bool:
        return bool((await operator.job("quiet")).resource.gone)

    await operator.until(gone, lambda: "its end is not in the log")
