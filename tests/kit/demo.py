"""`muster demo` and `muster try` as a new user starts them, and their processes."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LONGEST_SECONDS = 240.0
"""A demo that takes longer is killed, so that a test which waits for its next line ends."""


@contextmanager
def demo(folder: Path, *options: str, command: str = "demo") -> Iterator[subprocess.Popen[str]]:
    """`muster demo`, or another command, in a process group of its own, with all of its state under `folder`."""
    process = subprocess.Popen(
        [sys.executable, "-m", "muster", command, *options],
        env={**os.environ, "TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        # A shell's background job ignores Ctrl-C, and so would all that it starts.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509  one system call
    )
    bound = threading.Timer(LONGEST_SECONDS, process.kill)
    bound.start()
    try:
        yield process
    finally:
        bound.cancel()
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def until(process: subprocess.Popen[str], words: str) -> list[str]:
    """The lines that the demo prints, up to the first one with these words."""
    assert process.stdout is not None
    lines: list[str] = []
    for line in process.stdout:
        lines.append(line.rstrip("\n"))
        if words in line:
            return lines
    raise AssertionError(f"the demo ended and never printed {words!r}:\n{chr(10).join(lines)}")


def child(process: subprocess.Popen[str], words: str) -> int:
    """The process that the demo started with this word in its command line, or with a path that ends with it."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    commands = {int(pid): Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0") for pid in children}
    (found,) = [pid for pid, command in commands.items() if any(f"/{each}".endswith(f"/{words}") for each in command)]
    return found
