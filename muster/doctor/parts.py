"""The parts of an examination: each has a time limit, and its failure is one line."""

import asyncio
from collections.abc import Awaitable
from typing import NamedTuple

from muster.doctor.findings import Finding, fail, unknown
from muster.permissions import HOME
from shared.cluster.access import pod_namespace
from shared.errors import Refused, Trouble


class Wishes(NamedTuple):
    """The options of the command."""

    home: str
    """The namespace of the installation."""
    release: str = ""
    """The name of the Helm release, if the namespace has several."""
    timeout: float = 10.0
    """Seconds that each server has for each part."""


def home() -> str:
    """The default of the installation's namespace."""
    return pod_namespace() or HOME


async def part(check: str, whose: str, work: Awaitable[list[Finding]], seconds: float) -> list[Finding]:
    """The findings of `work`, or one line that says why there are none; `whose` names the server that is asked."""
    try:
        async with asyncio.timeout(seconds):
            return await work
    except TimeoutError:
        words = f"{whose} has not answered within {seconds:g} s"
        return [fail(check, words, "look at that server, or give it more time with --timeout")]
    except Trouble as trouble:
        return [troubled(check, trouble)]


def troubled(check: str, trouble: Trouble) -> Finding:
    """The finding about a check that failed: unknown if a right is missing, otherwise a failure."""
    if isinstance(trouble, Refused) and trouble.reason == "Forbidden":
        return unknown(check, str(trouble), "ask a person who may look, or for the right to look")
    return fail(check, str(trouble))
