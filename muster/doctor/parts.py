"""One part of an examination: it has a time limit, and its failure is one line."""

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
    """The namespace that Muster is installed in."""
    release: str = ""
    """Of several installations there, the one of this name."""
    timeout: float = 10.0
    """Seconds that each server has for each part."""


def home(namespace: str) -> str:
    """The installation's namespace where no option names it; `namespace` is the one that it is limited to, if any."""
    return pod_namespace() or namespace or HOME


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
    """A refusal for want of a right is unknown; any other trouble is a failure."""
    if isinstance(trouble, Refused) and trouble.reason == "Forbidden":
        return unknown(check, str(trouble), "ask a person who may look, or for the right to look")
    return fail(check, str(trouble))
