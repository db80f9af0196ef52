"""The table of what trained: a run replaces the row of the same versions, and leaves the others and the page alone."""

import re
from pathlib import Path

from tests.frameworks_real.table import BEGIN, END, HEAD, TABLE, Run, with_runs

OLD = Run("pytorch", "torch 1.12.1, Python 3.10", "grows", 70, "2026-01-01")
NEW = Run("pytorch", "torch 2.15.0, Python 3.13", "grows", 80, "2026-11-28")


def test_a_run_replaces_the_row_of_the_same_versions_and_leaves_the_others():
    page = with_runs(f"before\n{BEGIN}\n{END}\nafter\n", [OLD])
    both = with_runs(page, [NEW, OLD._replace(seconds=60)])
    rows = f"{OLD._replace(seconds=60).row}\n{NEW.row}\n"
    assert both == f"before\n{BEGIN}\n{HEAD}{rows}{END}\nafter\n"
    assert with_runs(both, []) == both


def test_the_versions_of_the_page_are_those_that_trained():
    page = (Path(__file__).parents[2] / "docs" / "frameworks.md").read_text()
    rows = re.findall(r"^\| [A-Z][^|]* \| ([\d., and;]+) \|$", page, re.MULTILINE)
    named = {version for row in rows for version in re.findall(r"\d+(?:\.\d+)+", row)}
    trained = TABLE.read_text()
    assert len(named) > 12
    assert {version for version in named if not re.search(rf"\b{re.escape(version)}\b", trained)} == set()
