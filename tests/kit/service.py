"""One service as a process: its environment, the lines it says, and what probes hear of it."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from devcluster.child import Child
from shared.ports import free_port
from tests.kit.nats import until

PATIENCE_SECONDS = 60.0


class Service:
    """A running service process."""

    def __init__(self, name: str, folder: Path, environment: Mapping[str, str], *command: str) -> None:
        """`command` is of the package's own modules; without it the service is started alone."""
        self.name = name
        self.port = free_port()
        self.child = Child(
            f"the {name}",
            [sys.executable, "-m", *(command or (f"services.{name}",))],
            folder / f"{name}.log",
            {**environment, "MUSTER_HEALTH_PORT": str(self.port)},
        )

    def lines(self, event: str = "") -> list[dict[str, Any]]:
        """What it said, all of it or one constant message; a line that is no JSON fails the test."""
        # The last piece is empty, or a line that is being written.
        *whole, _ = self.child.log.read_text().split("\n")
        try:
            said = [json.loads(line) for line in whole]
        except ValueError as error:
            raise AssertionError("\n".join(whole)) from error
        return [line for line in said if event in ("", line["event"])]

    async def says(self, event: str, *words: str, times: int = 1) -> dict[str, Any]:
        """Wait for the line with this message that is the `times`-th; its `why` has all the words."""

        async def said() -> bool:
            assert self.child.running, self.child.log.read_text()
            return len(self.lines(event)) >= times

        try:
            await until(said, within=PATIENCE_SECONDS)
        except TimeoutError as error:
            raise AssertionError(f"{event!r} was not said {times} times:\n{self.child.log.read_text()}") from error
        line = self.lines(event)[times - 1]
        for word in words:
            assert word in line["why"], f"{word!r} is not in {line['why']!r}"
        return line

    async def complains(self, *words: str) -> None:
        """Wait for a line that it is not ready whose `why` has all the words, whatever else it says."""

        async def said() -> bool:
            return any(all(word in line["why"] for word in words) for line in self.lines("not ready"))

        try:
            await until(said, within=PATIENCE_SECONDS)
        except TimeoutError as error:
            raise AssertionError(f"{words} were not said:\n{self.child.log.read_text()}") from error

    async def probed(self, path: str) -> tuple[int, dict[str, Any]]:
        """Status and answer of a probe; 0 if no process listens, or the process is ending."""
        try:
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"http://127.0.0.1:{self.port}/{path}") as answer,
            ):
                return answer.status, await answer.json()
        except aiohttp.ClientConnectionError:
            return 0, {}

    async def becomes(self, status: int) -> dict[str, Any]:
        """Wait until readiness probes hear this status; return the answer."""

        async def there() -> bool:
            return (await self.probed("readyz"))[0] == status

        try:
            await until(there, within=PATIENCE_SECONDS)
        except TimeoutError as error:
            heard = await self.probed("readyz")
            raise AssertionError(f"{heard}, not {status}:\n{self.child.log.read_text()}") from error
        return (await self.probed("readyz"))[1]


@asynccontextmanager
async def a_service(name: str, folder: Path, environment: Mapping[str, str], *command: str) -> AsyncIterator[Service]:
    """Started, and ended in order when the context is left."""
    service = Service(name, folder, environment, *command)
    service.child.start()
    try:
        yield service
        assert service.child.running, service.child.log.read_text()
    finally:
        await asyncio.wait_for(service.child.stop(), PATIENCE_SECONDS)
