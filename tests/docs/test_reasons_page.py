"""`docs/reasons.md`: written from the catalogue, and complete."""

import re
from pathlib import Path

from shared.job.reasons import CATALOGUE
from tests.docs.reasons_page import page

WRITTEN = (Path(__file__).parents[2] / "docs" / "reasons.md").read_text()


def test_the_page_is_the_one_that_the_code_writes():
    assert page() == WRITTEN, "run `make pages` and review the diff"


def test_every_reason_has_a_line():
    lines = re.findall(r"^- (.*?): ", WRITTEN, re.MULTILINE)
    named = [name for line in lines for name in re.findall(r"`(\S+)`", line)]
    assert len(named) == sum(len(part) for part in CATALOGUE.values())
    assert "<kind>Running" in named
