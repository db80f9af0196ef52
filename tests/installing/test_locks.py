"""The two locks of a checkout: one for running, one for what development takes on top."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def locked(name: str) -> dict[str, str]:
    """Each package's whole entry, by its name; one with several versions has an entry for each Python."""
    entries = re.split(r"\n(?=\S)", (ROOT / name).read_text().strip())
    return {entry.split(" \\", 1)[0]: entry for entry in entries}


def names(lock: dict[str, str]) -> set[str]:
    return {entry.partition("==")[0] for entry in lock}


def test_the_lock_for_running_has_no_tool_of_development():
    tools = {re.split(r"[^\w.-]", one, maxsplit=1)[0].lower() for one in PROJECT["dependency-groups"]["dev"]}
    assert tools <= names(locked("requirements-dev.lock"))
    assert sorted(tools & names(locked("requirements.lock"))) == []


def test_what_both_locks_name_is_the_same():
    running, developing = locked("requirements.lock"), locked("requirements-dev.lock")
    both = names(running) & names(developing)
    assert both, "rich, at least, is needed for both"
    assert [entry for entry in developing if entry.partition("==")[0] in both and entry not in running] == []
    assert [entry for entry in running.keys() & developing.keys() if running[entry] != developing[entry]] == []


def test_the_locks_have_hashes_and_no_addresses():
    for name in ("requirements.lock", "requirements-dev.lock"):
        entries = locked(name)
        assert [entry for entry, whole in entries.items() if "--hash=sha256:" not in whole] == []
        assert not re.search(r"://|--index|--find-links", "\n".join(entries.values()))
