"""A job that is suspended, resumed and restarted from the command line, and asked why."""

import json
import re

import pytest

from shared.frameworks.training_job import TRAININGJOBS
from tests.kit.hosts import EMBEDDED
from tests.kit.operator import UNTIL_TOLD, Operator, a_job

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

CLUSTERS = EMBEDDED


def phases(told: str) -> list[str]:
    """What a command said of the job, and not of the waiting."""
    return [line.removeprefix("trainingjob/asked ") for line in told.splitlines() if line.startswith("trainingjob/")]


async def test_a_job_is_paused_goes_on_begins_again_and_can_say_why(operator: Operator):
    await operator.apply(a_job("asked", UNTIL_TOLD))
    await operator.phase("Running", TRAININGJOBS, "asked")
    told = await operator.muster("suspend", "trainingjob/asked")
    assert told.splitlines()[0] == "trainingjob/asked asked to suspend"
    assert phases(told)[-1].startswith("Suspended")
    assert "is suspended already" in await operator.muster("suspend", "asked")
    assert "muster resume trainingjob/asked" in await operator.muster("restart", "asked", code=1)
    # A real API server keeps who wrote it.
    assert re.search("the job was edited( by muster)? to suspend it", await operator.muster("why", "asked"))
    told = await operator.muster("resume", "asked")
    assert phases(told)[-1].startswith("Running")
    before = (await operator.job("asked")).attempt.number
    told = await operator.muster("restart", "asked")
    assert phases(told)[-1].startswith("Running")
    assert (await operator.job("asked")).attempt.number == before + 1
    assert "attempt 3 begins, not counted as a restart" in await operator.muster("why", "asked")
    await operator.muster("suspend", "asked", "--no-wait")
    told = await operator.muster("resume", "asked")
    assert phases(told)[-1].startswith("Running")
    # Nothing says that it is paused at all when both were asked for before anybody looked.
    assert (await operator.job("asked")).attempt.number in (before + 1, before + 2)
    before = (await operator.job("asked")).attempt.number
    await operator.muster("restart", "asked", "--no-wait")
    await operator.muster("restart", "asked")
    assert (await operator.job("asked")).attempt.number in (before + 1, before + 2)
    chain = json.loads(await operator.muster("why", "trainingjob/asked", "worker-1", "--json"))
    assert re.fullmatch("the job was edited( by muster)? to restart it", chain[-1]["text"])
    await operator.tell_to_end("asked")
    await operator.phase("Succeeded", TRAININGJOBS, "asked")
    for command in ("suspend", "resume", "restart"):
        assert "is over (Succeeded)" in await operator.muster(command, "asked", code=1)
    assert "knows no job default/nobody" in await operator.muster("why", "nobody", code=1)
