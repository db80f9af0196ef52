"""Ctrl-C, and a reader that reads no further: a command ends without a traceback, a program gets the interrupt."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

import pytest

from muster import crds
from muster.client.client import Client as AsyncClient
from muster.client.sync import Client, _Stream
from tests.muster.conftest import MakeSite

PATIENCE_SECONDS = 60.0
GOES_ON = "muster: only the waiting ended; what was asked for goes on"
MUSTER = (sys.executable, "-m", "muster")


async def until_it_speaks(pid: int) -> None:
    """Wait until this process has a socket: until then Python may not have begun to watch for signals.

    Raises:
        TimeoutError: It has none after `PATIENCE_SECONDS`.
    """
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await asyncio.to_thread(has_a_socket, pid):
            await asyncio.sleep(0.05)


def has_a_socket(pid: int) -> bool:
    """Whether this process has a socket open; false too if a file was closed while this looked."""
    try:
        return any(str(file.readlink()).startswith("socket:") for file in Path(f"/proc/{pid}/fd").iterdir())
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(
    ("words", "first", "said"),
    [
        pytest.param(("suspend", "trainingjob/resnet"), "trainingjob/resnet asked to suspend", GOES_ON, id="a wait"),
        pytest.param(("logs", "trainingjob/resnet", "-f"), "", "", id="logs that are followed"),
    ],
)
async def test_ctrl_c_ends_what_goes_on_with_130_in_at_most_a_line(
    a_site: MakeSite, words: tuple[str, ...], first: str, said: str
):
    async with a_site(crds.manifests()) as site:
        process = await asyncio.create_subprocess_exec(
            *MUSTER,
            *words,
            stdout=PIPE,
            stderr=PIPE,
            env={**os.environ, "KUBECONFIG": str(site.kubeconfig)},
            # A background job of a shell ignores Ctrl-C, and so would its child.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        try:
            assert process.stdout is not None
            if first:
                line = await asyncio.wait_for(process.stdout.readline(), PATIENCE_SECONDS)
                assert line.decode().strip() == first
            else:
                await until_it_speaks(process.pid)
            process.send_signal(signal.SIGINT)
            _, complaint = await asyncio.wait_for(process.communicate(), PATIENCE_SECONDS)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    assert (process.returncode, complaint.decode().strip()) == (130, said)


def test_a_reader_that_reads_no_further_gets_no_traceback():
    with subprocess.Popen([*MUSTER, "crds"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""


class Slow(AsyncClient):
    """A client whose stream takes a while to close."""

    closed = False

    async def numbers(self) -> AsyncGenerator[int, None]:
        try:
            yield 1
            await asyncio.sleep(60)
        finally:
            for _ in range(3):
                await asyncio.sleep(0)
            self.closed = True


class Waiting(Client):
    numbers = _Stream(Slow.numbers)


@pytest.fixture
def _interrupts() -> Iterator[None]:
    """As in a program; a process of the tests may ignore them."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_interrupts")
def test_an_interrupt_is_what_the_program_gets_and_the_stream_is_closed():
    slow = Slow()
    with Waiting(slow) as client:
        timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            [*client.numbers()]
        timer.join()
        assert slow.closed


def test_a_stream_may_outlive_its_client():
    with Waiting(Slow()) as client:
        numbers = client.numbers()
        assert next(numbers) == 1
    numbers.close()
