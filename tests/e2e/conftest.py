"""The whole stack as real processes, one for each module that asks."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from muster.stack import Stack
from tests.kit.operator import Operator


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def operator(tmp_path_factory) -> AsyncIterator[Operator]:
    """Everything up, with a short drain."""
    folder: Path = tmp_path_factory.mktemp("stack")
    audit = folder / "audit.jsonl"
    async with Stack(folder, settings={"MUSTER_DRAIN": "PT1S"}, audit=audit) as stack:
        operator = Operator(stack, audit)
        keeping = asyncio.create_task(operator.keep_running())
        yield operator
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
