"""One part of an examination: bounded in time, and failing alone, in one line."""

import asyncio
from collections.abc import Awaitable
from typing import NamedTuple

from muster.doctor.findings import Finding, fail, unknown
from muster.permissions import HOME
from shared.cluster.access import pod_namespace
from shared.errors import Refused, Trouble


class Wishes(NamedTuple):
    """What the person who asks has said."""

    home: str
    """The namespace that Muster is installed in."""
    release: str = ""
    """Of several installations there, the one of this name."""
    timeout: float = 10.0
    """Seconds that each server has for each part."""


def home(namespace: str) -> str:
    """Where Muster is installed when nobody says so; `namespace` is the one that it works in, if it is only one."""
    return pod_namespace() or namespace or HOME


async def part(check: str, whose: str, work: Awaitable[list[Finding]], seconds: float) -> list[Finding]:
    """What `work` finds, or the one line that says why it could not; `whose` answers it waits for, in words."""
    try:
        async with asyncio.timeout(seconds):
            return await work
    except TimeoutError:
        words = f"{whose} has not answered within {seconds:g} s"
        return [fail(check, words, "look at that server, or give it more time with --timeout")]
    except Trouble as trouble:
        return [troubled(check, trouble)]


def troubled(check: str, trouble: Trouble) -> Finding:
    """What may not be looked at is unknown; anything else that goes wrong is."""
    if isinstance(trouble, Refused) and trouble.reason == "Forbidden":
        return unknown(check, str(trouble), "ask somebody who may, or for the right to look")
    return fail(check, str(trouble))
