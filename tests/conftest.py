"""Servers that all tests of a session share, and what several sessions side by side do not.

Here and nowhere else: of a fixture that several conftests import, each would start one of its own.
"""

import os
import tempfile
from pathlib import Path

import pytest

from shared import ports
from tests.kit.apiserver import certificates
from tests.kit.controlplane import control_plane
from tests.kit.nats import nats_cluster, nats_server
from tests.kit.recorder import KEPT_IN, Recorder, Recording

__all__ = ["certificates", "control_plane", "nats_cluster", "nats_server"]


def pytest_configure(config: pytest.Config) -> None:
    """A kubectl of the tests knows no cluster that had this port before.

    Of `pytest -n`: a port that one worker or its child was given, and does not listen on yet, no other is given.
    """
    cache = tempfile.TemporaryDirectory(prefix="kubectl-")
    config.add_cleanup(cache.cleanup)
    os.environ["KUBECACHEDIR"] = cache.name
    if folder := os.environ.get(KEPT_IN):
        recording = Recorder(Path(folder)).recording()
        config.pluginmanager.register(Recording(recording.__enter__()))
        config.add_cleanup(lambda: recording.__exit__(None, None, None))
    if (worker := getattr(config, "workerinput", None)) is None:
        return
    number, workers = int(worker["workerid"].removeprefix("gw")), worker["workercount"]
    first, last = map(int, ports.ALL.split("-"))
    share = (last - first) // workers
    first += number * share
    os.environ[ports.RANGE] = f"{first}-{first + share - 1}"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of `pytest -n`: the files that take longest come first, so that no worker is alone with one at the end."""
    if hasattr(config, "workerinput"):
        slow = [{item.path for item in items if item.get_closest_marker(mark)} for mark in ("e2e", "nats")]

        def late(item: pytest.Item) -> tuple[bool, ...]:
            # By file: within one the order stays.
            return item.path.parent.name != "simulation", *(item.path not in paths for paths in slow)

        items.sort(key=late)
