"""Finds ports for servers that keep them over restarts."""

import os
import random
import socket
from collections import deque

HOST = "127.0.0.1"

_claims: deque[int] = deque()
"""Sockets that hold the ports which this process gave out, as the servers on them may not have started yet.

Each socket is bound to the port's number for datagrams, which no server here uses: so no other process gets it either.
"""
MOST_CLAIMS = 256
"""The older ones are given up: their servers listen, or are over."""

RANGE = "MUSTER_PORTS"
"""The environment variable with the range of ports for a process and its children, such as `10000-20000`."""
ALL = "10000-30000"
"""The default range, below the ports that a kernel gives to clients.

A client could take such a port while its server restarts, even one that connects to that server.
"""
TRIES = 1000


def free_port() -> int:
    """A port on which nothing listens, and which no other process gets from here for now.

    Raises `OSError` after `TRIES` ports that are taken.
    """
    first, last = map(int, os.environ.get(RANGE, ALL).split("-"))
    for _ in range(TRIES):
        # Random, as a range may be full at its start; it guards no secret.
        port = random.randint(first, last)  # noqa: S311
        claim = socket.socket(type=socket.SOCK_DGRAM)
        try:
            claim.bind((HOST, port))
            with socket.socket() as probe:
                probe.bind((HOST, port))
        except OSError:
            claim.close()
            continue
        _claims.append(claim.detach())
        if len(_claims) > MOST_CLAIMS:
            os.close(_claims.popleft())
        return port
    raise OSError(f"of {TRIES} ports between {first} and {last} none is free")
