"""Kueue's calls, recorded from the real one, over Muster's jobs on a cluster without Kueue.

`test_recorded.py` records them.
"""

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio

from tests.kit import kueue
from tests.kit.hosts import embedded
from tests.kit.operator import Operator, an_operator
from tests.queues.jobs import POOL, queues
from tests.queues.lives import LIVES, QUOTA, RESOURCES
from tests.queues.recording import Chapters, Player, load

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def operator(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Operator]:
    """Muster, and Kueue's definitions."""
    async with an_operator(tmp_path_factory.mktemp("stack"), embedded(), MUSTER_KUEUE="true") as operator:
        await operator.apply(*kueue.DEFINITIONS)
        await operator.established(*(f"crd/{each['metadata']['name']}" for each in kueue.DEFINITIONS))
        await operator.kubectl("label", "nodes", "--all", f"{POOL}=a")
        await operator.apply(*queues(cpu=QUOTA))
        yield operator


@pytest.mark.parametrize(("job", "live"), LIVES.items())
async def test_a_job_lives_as_kueue_has_decided(
    operator: Operator, job: str, live: Callable[[Operator, Chapters], Awaitable[None]]
):
    await live(operator, Player(operator, job, RESOURCES[job], load(job)))
    await operator.kubectl("delete", RESOURCES[job].plural, job)
