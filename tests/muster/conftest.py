"""An API server in the test's own process, with the definitions of our kinds, as the commands meet it."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import typer

from devcluster.apiserver.call import User
from devcluster.apiserver.objects import Objects
from devcluster.apiserver.server import ApiServer
from devcluster.apiserver.store import Store
from devcluster.certificates import server_context
from devcluster.kubeconfig import write_kubeconfig
from muster import crds, following
from muster.asking import failure_in_one_line
from muster.commands import carry_out
from muster.stack import CRDS
from muster.steering import ask_for, ask_to_restart, ask_to_resume, ask_to_suspend
from shared.cluster.kube import KubeCluster
from shared.frameworks.training_job import TRAININGJOBS
from tests.kit.commands import Ended
from tests.kit.operator import a_job

TOKEN = "the-token"
NAME = "resnet"
PATIENCE_SECONDS = 60.0


class Site:
    """A cluster with one job in it, and a services' hand on its status."""

    def __init__(self, cluster: KubeCluster, kubeconfig: Path) -> None:
        self.cluster = cluster
        self.kubeconfig = kubeconfig

    async def status(self, phase: str, *conditions: dict[str, Any], **more: Any) -> None:
        """What the status service would write once it knows the newest spec."""
        status = {"phase": phase, "conditions": list(conditions), "replicaStatuses": {}, "restartCount": 0}
        status |= {"observedGeneration": (await self.job()).metadata.generation} | more
        await self.cluster.patch(TRAININGJOBS, "default", NAME, {"status": status}, subresource="status")

    async def job(self) -> Any:
        found = await self.cluster.get(TRAININGJOBS, "default", NAME)
        assert found is not None
        return found

    async def delete(self) -> None:
        await self.cluster.delete(TRAININGJOBS, "default", NAME, uid=(await self.job()).metadata.uid)

    async def annotations(self) -> dict[str, str]:
        return (await self.job()).metadata.annotations or {}


class Said:
    """What a command has printed so far."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self._out = self._err = ""

    @property
    def out(self) -> str:
        self._read()
        return self._out

    @property
    def err(self) -> str:
        self._read()
        return self._err

    async def until(self, line: str, *, times: int = 1) -> None:
        """Wait until a line of it is there, so many times."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while self.out.splitlines().count(line) < times:
                await asyncio.sleep(0.005)

    def _read(self) -> None:
        captured = self._capsys.readouterr()
        self._out += captured.out
        self._err += captured.err


class Clock:
    """What the waiting goes by: it stands still until a test moves it."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def refused(work: Awaitable[None], said: Said, *, code: int = 1) -> str:
    """The last line with which a command ends, and its exit code is this."""
    with pytest.raises(typer.Exit) as end, failure_in_one_line():
        async with asyncio.timeout(PATIENCE_SECONDS):
            await work
    assert end.value.exit_code == code
    return said.err.splitlines()[-1]


def command(ask: Callable[..., Awaitable[following.Change]], **given: Any) -> Callable[..., Awaitable[None]]:
    """The command that asks so, and prints the outcome."""

    async def carried_out(*args: Any, wait: bool, timeout: int, **more: Any) -> None:
        asking = ask(*args, **dict.fromkeys(given, wait), **more)
        await following.carried_out(args[0], asking, wait=wait, timeout=timeout)

    return carried_out


to, suspend, resume = map(command, (ask_for, ask_to_suspend, ask_to_resume))
restart = command(ask_to_restart, wait=True)

Say = Callable[..., Ended]
MakeSite = Callable[[list[dict[str, Any]]], AbstractAsyncContextManager[Site]]


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Said:
    return Said(capsys)


@pytest.fixture
def say(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Say:
    """The program in this process: what needs no signal, and no other program, is said in a fraction of the time."""

    def said(*words: str) -> Ended:
        monkeypatch.setattr(sys, "argv", ["muster", *words])
        monkeypatch.setenv("COLUMNS", "200")
        with patch.dict(os.environ):
            return Ended(carry_out(plugin=False), *capsys.readouterr())

    return said


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(following, "monotonic", clock)
    monkeypatch.setattr(following, "LOOK_SECONDS", 0.01)
    return clock


@pytest.fixture
def a_site(certificates: Path, tmp_path: Path) -> MakeSite:
    """Makes a site from the definitions that its cluster has."""

    @asynccontextmanager
    async def make(definitions: list[dict[str, Any]]) -> AsyncIterator[Site]:
        server = ApiServer(Objects(Store(history=50)), {TOKEN: User("tester", "1", ("testers",))}, "node-token")
        async with server.serving(0, server_context(certificates)) as port:
            kubeconfig = tmp_path / "kubeconfig"
            write_kubeconfig(
                kubeconfig,
                server=f"https://127.0.0.1:{port}",
                authority=(certificates / "ca.crt").read_bytes(),
                user="tester",
                token=TOKEN,
            )
            cluster = await KubeCluster.connect(kubeconfig)
            try:
                for definition in definitions:
                    await cluster.create(CRDS, "", definition)
                await cluster.create(TRAININGJOBS, "default", a_job(NAME, "true"))
                yield Site(cluster, kubeconfig)
            finally:
                await cluster.close()

    return make


@pytest.fixture
async def site(a_site: MakeSite) -> AsyncIterator[Site]:
    """With the definitions of this release."""
    async with a_site(crds.manifests()) as made:
        yield made
