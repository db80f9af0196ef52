"""Programs as people run them at a terminal, with a bound."""

import asyncio
import os
import shlex
import signal
from asyncio.subprocess import PIPE
from collections.abc import Mapping, Sequence
from contextlib import suppress
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
    """Run it to its end, with `environment` besides our own.

    What takes longer than `patience` seconds is killed with all that it started.

    Raises:
        TimeoutError: it was; with what it had written until then.
    """
    process = await asyncio.create_subprocess_exec(
        *words, stdin=PIPE, stdout=PIPE, stderr=PIPE, env={**os.environ, **(environment or {})}, start_new_session=True
    )
    ending = asyncio.ensure_future(process.communicate(given.encode()))
    try:
        await asyncio.wait([ending], timeout=patience)
    finally:
        if over := not ending.done():
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        out, complaint = await ending
    if over:
        raise TimeoutError(f"$ {shlex.join(words)}\n{out.decode()}{complaint.decode()}\nis not over in {patience:g} s")
    assert process.returncode is not None
    return Ended(process.returncode, out.decode(), complaint.decode())


async def established(*kubectl: str, of: Sequence[str], given: str = "") -> None:
    """Wait for definitions; `kubectl wait` refuses one whose conditions the API server has not written yet."""
    asking = (*kubectl, "wait", "--for=condition=Established", "--timeout=30s", *of)
    while "conditions accessor error" in (ended := await run(*asking, given=given)).complaint:
        await asyncio.sleep(0.05)
    assert not ended.code, ended.complaint
