"""A port for a server that keeps it across restarts."""

import os
import random
import socket

HOST = "127.0.0.1"

_given: set[int] = set()
"""Ports that this process gave out: the server on such a port may not have started yet."""

RANGE = "MUSTER_PORTS"
"""The variable that keeps a process and its children to some of them, as `10000-20000`."""
ALL = "10000-30000"
"""Below every port that a kernel gives to clients: such a port may be taken, even by a client that calls itself,
in the moment in which a server that was killed comes back.
"""
TRIES = 1000


def free_port() -> int:
    """A port that was free a moment ago, outside the range of clients' ports; each port is returned once.

    Raises `OSError` if all that were tried are taken.
    """
    first, last = map(int, os.environ.get(RANGE, ALL).split("-"))
    for _ in range(TRIES):
        # Two processes that ask at the same time should not get the same answer; it guards no secret.
        port = random.randint(first, last)  # noqa: S311
        if port in _given:
            continue
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
        _given.add(port)
        return port
    raise OSError(f"of {TRIES} ports between {first} and {last} none is free")
