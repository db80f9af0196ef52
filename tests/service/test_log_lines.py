"""Each line of a process' log is one JSON object, also where the event loop or a library writes it."""

import json
import sys

import pytest

from tests.kit.commands import run

pytestmark = pytest.mark.real_time

PROGRAM = """
import asyncio, logging, uvloop
from shared.telemetry.logs import configure
configure("watcher")
async def work():
    asyncio.get_running_loop().call_soon(lambda: 1 / 0)
    await asyncio.sleep(0.01)
uvloop.run(work())
logging.getLogger("aiohttp.server").warning("a %s", "fault")
"""


async def test_the_tracebacks_of_the_event_loop_are_lines_of_the_log():
    ended = await run(sys.executable, "-c", PROGRAM)
    assert ended.code == 0, ended.complaint
    loop, library = map(json.loads, ended.complaint.splitlines())
    assert (loop["logger"], loop["level"], loop["service"]) == ("asyncio", "error", "watcher")
    assert "ZeroDivisionError" in loop["exception"]
    assert (library["event"], library["level"]) == ("a fault", "warning")
