"""The table of `docs/compatibility.md`: every line of the contract is in it, and every test that it names exists."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
LINES = range(1, 36)


def rows() -> dict[int, list[str]]:
    """The tests that each line of the table names."""
    text = (ROOT / "docs" / "compatibility.md").read_text()
    found = re.findall(r"^\| (\d+) \|[^|]*\|([^|]*)\|$", text, re.MULTILINE)
    return {int(line): re.findall(r"`(test_\w+)`", tests) for line, tests in found}


def test_every_line_is_there_and_names_a_test() -> None:
    assert list(rows()) == list(LINES)
    assert [line for line, tests in rows().items() if not tests] == [34], "that there are tests is not tested"


def test_every_test_is_there() -> None:
    defined = {
        name
        for file in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^(?:async )?def (test_\w+)\(", file.read_text(), re.MULTILINE)
    }
    assert {name for tests in rows().values() for name in tests} <= defined
