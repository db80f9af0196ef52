"""Servers that all tests of a session share, and what several sessions side by side do not.

Here and nowhere else: of a fixture that several conftests import, each would start one of its own.
"""

import pytest

from shared import ports
from tests.kit.apiserver import certificates
from tests.kit.controlplane import control_plane
from tests.kit.nats import nats_cluster, nats_server

__all__ = ["certificates", "control_plane", "nats_cluster", "nats_server"]


def pytest_configure(config: pytest.Config) -> None:
    """Of `pytest -n`: a port that one worker was given, and does not listen on yet, no other one is given."""
    if (worker := getattr(config, "workerinput", None)) is None:
        return
    number, workers = int(worker["workerid"].removeprefix("gw")), worker["workercount"]
    share = (ports.LAST - ports.FIRST) // workers
    ports.FIRST += number * share
    ports.LAST = ports.FIRST + share - 1


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of `pytest -n`: the files that take longest come first, so that no worker is alone with one at the end."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: item.get_closest_marker("e2e") is None)
