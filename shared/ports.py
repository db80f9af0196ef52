"""Finds ports for servers that keep them over restarts."""

import os
import random
import socket

HOST = "127.0.0.1"

_given: set[int] = set()
"""Ports that this process gave out: the server on such a port may not have started yet."""

RANGE = "MUSTER_PORTS"
"""The environment variable with the range of ports for a process and its children, such as `10000-20000`."""
ALL = "10000-30000"
"""The default range, below the ports that a kernel gives to clients.

A client could take such a port while its server restarts, even one that connects to that server.
"""
TRIES = 1000


def free_port() -> int:
    """A port that was free a moment ago; each port is returned once.

    Raises `OSError` after `TRIES` ports that are taken.
    """
    first, last = map(int, os.environ.get(RANGE, ALL).split("-"))
    for _ in range(TRIES):
        # Random, so that two processes rarely get the same port; it guards no secret.
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
