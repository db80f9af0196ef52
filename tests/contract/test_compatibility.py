"""`LINES.md` has every line of the contract, and each line has tests of its number."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
LINES = range(1, 36)


def test_every_line_is_on_the_page() -> None:
    page = Path(__file__).with_name("LINES.md").read_text()
    assert [int(line) for line in re.findall(r"^(\d+)\. ", page, re.MULTILINE)] == list(LINES)


def test_every_line_has_a_test_of_its_number() -> None:
    texts = (file.read_text() for file in (ROOT / "tests").rglob("test_*.py"))
    numbers = {int(line) for text in texts for line in re.findall(r"def test_(\d+)_", text)}
    assert set(LINES) - numbers == {34}, "that there are tests is not tested"
