"""A disk that is full when the archiver writes or purges: what it did not read back stays in the log."""

import asyncio
import contextlib
import os
import shlex
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from services.archive.archiving import ArchiveFigures
from shared.errors import Transient
from shared.eventlog import server as servers
from shared.eventlog.account import ADMIN, ARCHIVER
from shared.eventlog.archive import Archive
from shared.eventlog.server import NatsServer, configuration
from shared.eventlog.setup import set_up
from shared.eventlog.subject import archived_under
from shared.telling.reading import line_of
from tests.archive.test_archiver import archive, kept, left
from tests.kit.nats import connected, read_to_end
from tests.kit.sealed import a_key, a_sealed_life

pytestmark = pytest.mark.nats

MOUNT = 'mount -t tmpfs -o size=32m none "$0" && echo mounted && exec sleep infinity'


class Disk:
    """A file system of the server's own, in a namespace that only it and this test see."""

    def __init__(self, holder: int, store: Path) -> None:
        self._filler = Path(f"/proc/{holder}/root{store}/filler")

    def fill(self) -> None:
        with self._filler.open("ab", buffering=0) as file:
            for size in (2**20, 2**10):
                with contextlib.suppress(OSError):
                    while file.write(bytes(size)) == size:
                        pass
        assert not os.statvfs(self._filler).f_bavail

    def empty(self) -> None:
        self._filler.unlink()


@contextlib.asynccontextmanager
async def a_server_on_a_disk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[NatsServer, Disk]]:
    (store := folder / "store").mkdir()
    apart = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", MOUNT, str(store))
    holder = await asyncio.create_subprocess_exec(*apart, stdout=asyncio.subprocess.PIPE)
    assert holder.stdout is not None
    try:
        if await holder.stdout.readline() != b"mounted\n":
            pytest.skip("this machine does not permit namespaces")
        inside = f"nsenter --preserve-credentials --user --mount --target {holder.pid}"
        program = folder / "nats-server"
        program.write_text(f'#!/bin/sh\nexec {inside} {shlex.quote(servers._program())} "$@"\n')
        program.chmod(0o700)
        monkeypatch.setattr(servers, "_program", lambda: str(program))
        # The server's share of a disk may be more than is free.
        jetstream = configuration(folder, 0, {})["jetstream"] | {"max_file_store": 2**34}
        async with NatsServer(folder, more={"jetstream": jetstream}) as server:
            await set_up(server.url, password=server.users[ADMIN])
            yield server, Disk(holder.pid, store)
    finally:
        with contextlib.suppress(ProcessLookupError):
            holder.kill()
        await holder.wait()


@pytest.mark.parametrize("step", ["store", "purge"])
async def test_a_disk_that_is_full_at_a_step_loses_and_doubles_no_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
):
    monkeypatch.setattr("shared.eventlog.archive._PATIENCE", 0.2)
    keys = [a_key("team-a", f"job-{number}") for number in range(5)]
    async with a_server_on_a_disk(tmp_path, monkeypatch) as (server, disk):
        async with connected(server, ADMIN) as log, connected(server, ARCHIVER) as mine:
            for key in keys:
                await a_sealed_life(log, key)
            before = [line_of(event) for event in await read_to_end(log)]
            with monkeypatch.context() as trouble:
                trouble.setattr(Archive, step, _once_full(disk, getattr(Archive, step)))
                with pytest.raises(Transient):
                    await archive(mine, "team-a")
        disk.empty()
        await server.restart()
        async with connected(server, ADMIN) as log, connected(server, ARCHIVER) as mine:
            await archive(mine, "team-a", figures=ArchiveFigures())
            assert [len(await left(log, key)) for key in keys] == [1] * len(keys)
            assert await kept(log, "team-a") == len(keys)
            lines = [line.decode() async for part in log.archive.parts(archived_under()) for line in part.lines]
    # The first one is the log's own.
    assert sorted(lines) == sorted(before[1:])


def _once_full(disk: Disk, do: Callable[..., Any]) -> Callable[..., Any]:
    async def doing(*given: Any) -> Any:
        disk.fill()
        return await do(*given)

    return doing
