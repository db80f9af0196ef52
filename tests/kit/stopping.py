"""Processes that stand still for a while: a stopped virtual machine, a node without memory, a debugger."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager


def stop(child: int) -> None:
    """Stop a process that we started; when this returns, none of its threads runs any more.

    The signal alone stops the thread that takes it, and on a busy machine the others go on for a while.
    """
    os.kill(child, signal.SIGSTOP)
    os.waitid(os.P_PID, child, os.WSTOPPED)


def go_on(child: int) -> None:
    os.kill(child, signal.SIGCONT)


@contextmanager
def stopped(*children: int) -> Iterator[None]:
    """They stand still, and go on afterwards."""
    for child in children:
        stop(child)
    try:
        yield
    finally:
        for child in children:
            go_on(child)
