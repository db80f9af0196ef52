"""Asking which hosts there are: the script that Horovod's elastic driver calls, and its `host:slots` lines."""

import asyncio
import re
import subprocess
from dataclasses import dataclass

SCRIPT_SECONDS = 5.0

# Only what can be a DNS name or an IPv4 address: anything else fails deep inside the resolver.
LABEL = r"[A-Za-z0-9_-]{1,63}"
LINE = re.compile(rf"(?P<name>{LABEL}(\.{LABEL})*\.?):(?P<slots>[1-9][0-9]{{0,5}})")


class HostsError(Exception):
    """The script gave no list that can be believed; the last one stays."""


@dataclass(frozen=True)
class Host:
    name: str
    slots: int

    def __str__(self) -> str:
        return f"{self.name}:{self.slots}"


async def discover(script: str) -> tuple[Host, ...]:
    """What the script lists now; an empty list is a list."""
    try:
        # In a thread, as asyncio in Python 3.11 warns of a process that is killed while it ends.
        ended = await asyncio.to_thread(
            subprocess.run,
            [script],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=SCRIPT_SECONDS,
        )
    except OSError as error:
        raise HostsError(f"{script} cannot be run: {error.strerror or error}") from error
    except subprocess.TimeoutExpired:
        raise HostsError(f"{script} did not end within {SCRIPT_SECONDS:g} s") from None
    if ended.returncode:
        raise HostsError(f"{script} ended with exit code {ended.returncode}")
    return parse(ended.stdout.decode(errors="replace"))


def parse(output: str) -> tuple[Host, ...]:
    """All lines or none: half a list would send healthy workers home."""
    found: dict[str, Host] = {}
    for line in filter(None, map(str.strip, output.splitlines())):
        match = LINE.fullmatch(line)
        if match is None:
            raise HostsError(f"{line[:80]!r} is not host:slots")
        if match["name"] in found:
            raise HostsError(f"{match['name']!r} is listed twice")
        found[match["name"]] = Host(match["name"], int(match["slots"]))
    return tuple(found.values())
