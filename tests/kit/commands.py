"""Programs as people run them at a terminal, with a bound."""

import asyncio
import os
from asyncio.subprocess import PIPE
from collections.abc import Mapping, Sequence
from typing import NamedTuple

PATIENCE_SECONDS = 60.0


class Ended(NamedTuple):
    """What is left of a program."""

    code: int
    out: str
    complaint: str


async def run(
    *words: str, given: str = "", environment: Mapping[str, str] | None = None, patience: float = PATIENCE_SECONDS
) -> Ended:
    """Run it to its end, with `environment` besides our own; what takes longer than `patience` seconds is killed."""
    process = await asyncio.create_subprocess_exec(
        *words, stdin=PIPE, stdout=PIPE, stderr=PIPE, env={**os.environ, **(environment or {})}
    )
    try:
        out, complaint = await asyncio.wait_for(process.communicate(given.encode()), patience)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return Ended(process.returncode, out.decode(), complaint.decode())


async def established(*kubectl: str, of: Sequence[str], given: str = "") -> None:
    """Wait for definitions; `kubectl wait` refuses one whose conditions the API server has not written yet."""
    asking = (*kubectl, "wait", "--for=condition=Established", "--timeout=30s", *of)
    while "conditions accessor error" in (ended := await run(*asking, given=given)).complaint:
        await asyncio.sleep(0.05)
    assert not ended.code, ended.complaint
