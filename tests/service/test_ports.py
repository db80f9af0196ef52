"""Ports for servers: no two processes, and no two distributions in one, are given the same; each has a budget."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from devcluster import cluster
from shared import ports

ROOT = Path(__file__).parents[2]
SOURCES = {
    str(path.relative_to(ROOT)): path.read_text()
    for folder in ("services", "shared", "muster")
    for path in (ROOT / folder).rglob("*.py")
}
OPENS = re.compile(
    r"\b(?:\w+Site|run_app|start_server|start_unix_server|create_server|create_datagram_endpoint)\(|\.listen\(\d*\)"
)

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


def test_one_module_opens_every_port():
    assert [name for name, text in SOURCES.items() if OPENS.search(text)] == ["shared/process/bounds.py"]


def test_the_table_of_ports_has_every_budget():
    named = {name for text in SOURCES.values() for name in re.findall(r'= Budget\(\s*port="(\w+)"', text)}
    assert sum(text.count("= Budget(") for text in SOURCES.values()) == len(named)
    table = (ROOT / "docs" / "permissions.md").read_text()
    assert set(re.findall(r"^- `(\w+)`, reached by", table, re.MULTILINE)) == named
