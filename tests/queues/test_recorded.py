"""The real Kueue decides what the recordings say.  `REWRITE_GOLDEN=1` records anew."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio

from tests.kit.operator import Operator
from tests.queues.lives import LIVES, QUOTA, RESOURCES
from tests.queues.manager import muster_and_kueue
from tests.queues.recording import Chapters, Recorder, decisions, load, save

pytestmark = [pytest.mark.kueue, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def operator(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Operator]:
    """Muster and Kueue."""
    async with muster_and_kueue(tmp_path_factory.mktemp("stack"), QUOTA, MUSTER_KUEUE="true") as (operator, _):
        yield operator


@pytest.mark.parametrize(("job", "live"), LIVES.items())
async def test_kueue_decides_what_was_recorded(
    operator: Operator, job: str, live: Callable[[Operator, Chapters], Awaitable[None]]
):
    recorder = Recorder(operator, job, RESOURCES[job])
    await live(operator, recorder)
    if os.environ.get("REWRITE_GOLDEN"):
        save(job, recorder.written)
    assert decisions(recorder.written) == decisions(load(job))
    await operator.kubectl("delete", RESOURCES[job].plural, job)
