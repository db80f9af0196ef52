"""Every manifest that needs nothing runs on the embedded cluster, all on one, and so do the commands on top of it."""

import shlex
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from devcluster.cluster import Devcluster
from shared.frameworks.scale_requests import REQUESTS
from tests.examples.table import EXAMPLES, READY, Example
from tests.kit.operator import Operator, an_operator

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def operator(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Operator]:
    """All of them are applied, in the order of the table."""
    async with an_operator(tmp_path_factory.mktemp("stack"), Devcluster) as operator:
        for example in READY:
            await operator.kubectl("apply", "-f", str(EXAMPLES / example.file))
        yield operator


async def comes_to(operator: Operator, example: Example, state: str) -> None:
    """Wait until the job's history, or the status of a request, says so."""
    kind, name = example.manifest["kind"], example.manifest["metadata"]["name"]

    async def there() -> bool:
        if kind in REQUESTS:
            return (await operator.status(REQUESTS[kind], name)).get("phase") == state
        return f"Job{state}" in await operator.types(name)

    await operator.until(there, lambda: f"{example.file} does not come to {state}")


@pytest.mark.parametrize("example", READY, ids=lambda example: example.file)
async def test_an_example_comes_to_the_state_that_the_table_says(operator: Operator, example: Example):
    await comes_to(operator, example, example.comes_to)


@pytest.mark.parametrize(
    "example", [example for example in READY if example.commands], ids=lambda example: example.file
)
async def test_the_commands_on_top_of_an_example_work(operator: Operator, example: Example):
    for command in example.commands:
        program, *words = shlex.split(command)
        await {"kubectl": operator.kubectl, "muster": operator.muster}[program](*words)
    if example.comes_to == "Suspended":
        await comes_to(operator, example, "Succeeded")


async def test_one_word_lists_the_jobs_of_all_kinds(operator: Operator):
    listed = {line.rpartition("/")[2] for line in (await operator.kubectl("get", "muster", "-o", "name")).split()}
    # One with a time to live may be deleted by now.
    lasting = [example for example in READY if "ttlSecondsAfterFinished" not in example.text]
    assert {example.manifest["metadata"]["name"] for example in lasting} - listed == set()


async def test_jobs_that_run_beside_each_other_never_want_one_name(operator: Operator):
    conflicts = [one.subject for one in await operator.log() if b"NameConflict" in one.body]
    assert conflicts == []
