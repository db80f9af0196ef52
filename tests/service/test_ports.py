"""Ports for servers: no two processes, and no two distributions in one, are given the same."""

import subprocess
import sys

import pytest

from devcluster import cluster
from shared import ports

OTHERS = "from shared.ports import free_port\nprint(*sorted(free_port() for _ in range(4)), flush=True)\ninput()"


def test_a_port_is_given_to_one_alone(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(ports.RANGE, "9741-9752")
    with subprocess.Popen([sys.executable, "-c", OTHERS], stdin=-1, stdout=-1, text=True) as process:
        assert process.stdout is not None
        theirs = [*map(int, process.stdout.readline().split())]
        ours = [*(ports.free_port() for _ in range(4)), *(cluster.free_port() for _ in range(4))]
        assert sorted(theirs + ours) == [*range(9741, 9753)]
        with pytest.raises(OSError, match="none is free"):
            ports.free_port()
        process.communicate("\n")
