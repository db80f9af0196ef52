"""A port for a server that keeps it across restarts."""

import random
import socket

HOST = "127.0.0.1"

_given: set[int] = set()
"""By this process: nobody listens yet on a port for a server that is still to be started."""

FIRST, LAST = 10000, 30000
"""Below every port that a kernel gives to clients: such a port may be taken, even by a client that calls itself,
in the moment in which a server that was killed comes back.
"""


def free_port() -> int:
    """A port of this machine that nobody listened on a moment ago, outside the range of clients' ports; each once."""
    while True:
        # Two processes that ask at the same time should not get the same answer; it guards no secret.
        port = random.randint(FIRST, LAST)  # noqa: S311
        if port in _given:
            continue
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
        _given.add(port)
        return port
