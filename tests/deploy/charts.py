"""The chart for tests: the sets of values that have golden files, and helm where it is.

`REWRITE_GOLDEN=1`, which `make chart` sets, writes the golden files anew.
"""

import os
import re
import subprocess
from pathlib import Path

import pytest

from devcluster.binaries import MissingProgram, find
from tests.deploy.rendering import CHART, documents, render

FOLDER = Path(__file__).parent
SETS = sorted(path.stem for path in (FOLDER / "values").glob("*.yaml"))


def require_helm() -> Path:
    """Skip the test where helm is missing, with the words that say what to do."""
    return _require("helm")


def require_nats() -> str:
    """The command line of NATS; the test is skipped where it is missing, with the words that say what to do."""
    return str(_require("nats"))


def _require(program: str) -> Path:
    try:
        return find(program)
    except MissingProgram as missing:
        pytest.skip(str(missing))


def rendered(name: str) -> str:
    """A set of values, without chance: random passwords are stars."""
    text = render("--values", str(FOLDER / "values" / f"{name}.yaml"))
    for document in documents(text):
        if document["kind"] == "Secret":
            for value in [*document.get("data", {}).values(), *document.get("stringData", {}).values()]:
                text = re.sub(rf"{re.escape(value)}(?=[\"\s])", "Kioq", text)
    return text


def golden(name: str) -> Path:
    return FOLDER / "golden" / f"{name}.yaml"


def linted(*options: str) -> subprocess.CompletedProcess[str]:
    command = [str(require_helm()), "lint", "--strict", str(CHART), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def rewriting() -> bool:
    return os.environ.get("REWRITE_GOLDEN") == "1"
