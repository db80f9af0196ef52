"""The table of attackers and assets in `TABLE.md` beside this file, made by a run of the attacks (`make attacks`).

Each attack has a mark: `@pytest.mark.attack(attacker, asset)`.
"""

import argparse
from collections import defaultdict
from collections.abc import Iterator

import pytest

from tests.kit.tables import Place

MARK = "attack"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--attacks-into", metavar="FILE", help="put the table of attackers and assets into a page")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if (mark := item.get_closest_marker(MARK)) is not None:
            item.user_properties.append((MARK, mark.args))


def pytest_configure(config: pytest.Config) -> None:
    if (into := config.getoption("--attacks-into")) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Table(into))


class Table:
    """Counts attacks and those that succeeded, by attacker and asset."""

    def __init__(self, into: str) -> None:
        parser = argparse.ArgumentParser()
        place = Place(parser, "attacks")
        self._put = place.of(parser.parse_args(["--into", into]))
        self._counts: defaultdict[tuple[str, str], list[bool]] = defaultdict(list)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        mark = dict(report.user_properties).get(MARK)
        if mark is None or not (report.when == "call" or report.failed):
            return
        attacker, asset = mark
        # What is expected to fail, as no wall stands there yet, succeeded all the same.
        self._counts[attacker, asset].append(report.failed or (report.skipped and hasattr(report, "wasxfail")))

    def pytest_sessionfinish(self) -> None:
        self._put("\n".join(self._lines()))

    def _lines(self) -> Iterator[str]:
        yield "| who | reaches for | attacks | succeeded |"
        yield "| --- | --- | ---: | ---: |"
        for (attacker, asset), outcomes in sorted(self._counts.items()):
            yield f"| {attacker} | {asset} | {len(outcomes)} | {sum(outcomes)} |"
