"""The demo as a new user runs it, and interrupted at any moment: nothing is left."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e

STOP_SECONDS = 20.0
LONGEST_SECONDS = 120.0


@contextmanager
def demo(folder: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """`muster demo` in a process group of its own, with all of its state under `folder`."""
    process = subprocess.Popen(
        [sys.executable, "-m", "muster", "demo", *options],
        env={**os.environ, "TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        # A shell's background job ignores Ctrl-C, and so would all that it starts.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509  one system call
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def left_behind(folder: Path) -> list[str]:
    """Processes, mounts and files that mention the folder."""
    found = [f"file {path}" for path in folder.iterdir()]
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                words = (entry / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if str(folder) in words:
                found.append(f"process {entry.name}: {words}")
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    return [*found, *(f"mount {line}" for line in mounts if str(folder) in line)]


def interfaces() -> set[str]:
    return {entry.name for entry in Path("/sys/class/net").iterdir()}


def nothing_left(folder: Path) -> list[str]:
    """What is left once the kernel had a moment to end orphans; empty when all is gone."""
    deadline = time.monotonic() + 5
    while (left := left_behind(folder)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


@pytest.mark.parametrize(
    "after",
    [
        pytest.param("", id="at once"),
        pytest.param("up: ", id="when all is up"),
        pytest.param("is Running", id="while it trains"),
        pytest.param("applied scaleout", id="while it scales"),
    ],
)
def test_an_interrupted_demo_leaves_nothing(tmp_path: Path, after: str):
    before = interfaces()
    with demo(tmp_path) as process:
        assert process.stdout is not None
        if after:
            assert any(after in line for line in process.stdout), f"never said {after!r}"
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=STOP_SECONDS)
        assert process.returncode in (130, -signal.SIGINT), said
    assert nothing_left(tmp_path) == []
    assert interfaces() == before


def test_a_killed_demo_leaves_no_process(tmp_path: Path):
    with demo(tmp_path) as process:
        assert process.stdout is not None
        assert any("is Running" in line for line in process.stdout)
        process.kill()
        process.wait()
    assert [left for left in nothing_left(tmp_path) if not left.startswith("file")] == []
