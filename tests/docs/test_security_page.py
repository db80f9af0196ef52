"""`SECURITY.md` names tests that are there, and every file of attacks."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ATTACKS = ROOT / "tests" / "security" / "attacks"


def test_every_wall_is_shown_by_a_test_that_is_there_and_every_attack_is_told_of():
    rows = [line for line in (ROOT / "SECURITY.md").read_text().splitlines() if line.startswith("- **")]
    named = {name for row in rows for name in re.findall(r"`([\w/]*test_\w+\.py)`", row)}
    assert {name for name in named if not ((ROOT if "/" in name else ATTACKS) / name).exists()} == set()
    assert {path.name for path in ATTACKS.glob("test_*.py")} == {name for name in named if "/" not in name}


def test_the_table_has_a_row_for_every_attacker_and_asset():
    page = (ATTACKS / "TABLE.md").read_text()
    marks = {
        mark
        for path in ATTACKS.glob("test_*.py")
        for mark in re.findall(r'mark\.attack\(\s*"([^"]+)",\s*"([^"]+)"', path.read_text())
    }
    missing = {mark for mark in marks if f"| {mark[0]} | {mark[1]} |" not in page}
    assert missing == set(), "run `make attacks INTO=tests/security/attacks/TABLE.md`"
