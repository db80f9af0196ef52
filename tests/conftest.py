"""Servers that all tests of a session share, and what several sessions side by side do not.

Here and nowhere else: of a fixture that several conftests import, each would start one of its own.
"""

import gc
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from shared import ports
from tests.kit.apiserver import certificates
from tests.kit.controlplane import control_plane
from tests.kit.nats import nats_cluster, nats_server
from tests.kit.recorder import KEPT_IN, Recorder, Recording

__all__ = ["certificates", "control_plane", "nats_cluster", "nats_server"]

FOLDERS = {"node": ("e2e", "node"), "page": ("page",)}
"""Of tests with a mark: who asks for that mark alone imports no others, which takes longer than many a test."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the files that have no test with the mark asked for."""
    folders = FOLDERS.get(config.option.markexpr)
    return True if folders and collection_path.is_file() and not _within(collection_path, folders) else None


def _within(path: Path, folders: Sequence[str]) -> bool:
    return path.relative_to(Path(__file__).parent).parts[0] in folders


def pytest_itemcollected(item: pytest.Item) -> None:
    """Raises `UsageError` for a test that would be left out where its mark is asked for."""
    for mark, folders in FOLDERS.items():
        if item.get_closest_marker(mark) and not _within(item.path, folders):
            raise pytest.UsageError(f"{item.nodeid}: a test with the mark {mark} has its place in {folders}")


def pytest_collection_finish() -> None:
    """What was imported and collected stays: the collector of garbage need not look at it again and again."""
    gc.collect()
    gc.freeze()


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
        slow = [{item.path for item in items if item.get_closest_marker(mark)} for mark in ("e2e", "real", "nats")]

        def late(item: pytest.Item) -> tuple[bool, ...]:
            # By file: within one the order stays.
            return item.path.parent.name != "simulation", *(item.path not in paths for paths in slow)

        items.sort(key=late)
