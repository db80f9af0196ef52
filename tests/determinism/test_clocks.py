"""The clocks of the authors decide nothing: with other clocks a log folds to the same, but for the times it shows."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from shared.eventlog import Stored
from shared.eventlog.subject import split
from tests.determinism.fold import Prefix, prefixes
from tests.histories.recorded import recordings
from tests.kit.builders import a_spec
from tests.kit.histories import chained
from tests.kit.loop import Loop

HOURS = {"watcher": -5, "scheduler": 11, "scaler": 2, "status": -17}
"""How much each author's clock is wrong."""

TIME = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z|\d\d:\d\d:\d\d UTC")
EACH = 10
"""Every tenth recording of the release."""


def with_clocks(log: Sequence[Stored], hours: Mapping[str, int]) -> list[Stored]:
    """The log as it would be if these clocks were wrong; its chain is made anew."""
    found = []
    for stored in log:
        time = datetime.fromisoformat(stored.time) + timedelta(hours=hours.get(split(stored.subject)[1], 0))
        told = time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        found.append(msgspec.structs.replace(stored, time=told))
    return chained(found)


def without_times(prefix: Prefix) -> tuple[int, bytes, bytes, bytes]:
    return (prefix.sequence, *(TIME.sub(b"-", part) for part in (prefix.state, prefix.documents, prefix.steps)))


def lived(seed: int) -> list[Stored]:
    loop = Loop(seed, a_spec(4, least=2, most=6))
    loop.run(lambda loop: loop.job.over or len(loop.log) > 150)
    return loop.log


LOGS = [
    *(pytest.param(each.events(), id=each.name) for each in recordings("0.1.0")[::EACH]),
    *(pytest.param(lived(seed), id=f"simulation {seed}") for seed in range(4)),
]


@pytest.mark.parametrize("log", LOGS)
def test_other_clocks_change_nothing_but_the_times_that_are_shown(log: list[Stored]):
    other = with_clocks(log, HOURS)
    assert [*map(without_times, prefixes(other))] == [*map(without_times, prefixes(log))]


def test_a_clock_that_is_right_changes_nothing():
    log = lived(0)
    assert with_clocks(log, {}) == log


def test_no_module_of_the_fold_reckons_with_times():
    """Times are text there: only an anchor's sequence says what came first, and only the watcher measures."""
    texts = {file.name: file.read_text() for file in (Path(__file__).parents[2] / "shared" / "job").rglob("*.py")}
    assert texts
    assert [name for name, text in texts.items() if "datetime" in text] == []
