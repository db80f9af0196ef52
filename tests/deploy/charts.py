"""The chart for tests: the sets of values that have golden files, and helm where it is.

`REWRITE_GOLDEN=1`, which `make chart` sets, writes the golden files anew.  That of the default values is the whole; of
another set a file has only what differs from them.
"""

import os
import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

from devcluster.binaries import MissingProgram, find
from tests.deploy.rendering import CHART, documents, render

FOLDER = Path(__file__).parent
SETS = sorted(path.stem for path in (FOLDER / "values").glob("*.yaml"))


def require(program: str = "helm") -> Path:
    """Skip the test where it is missing, with the words that say what to do."""
    try:
        return find(program)
    except MissingProgram as missing:
        pytest.skip(str(missing))


@cache
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


def otherwise(name: str) -> str:
    """What a set of values makes otherwise than the default: which documents it lacks, and those of its own."""
    base, own = _parts(rendered("default")), _parts(rendered(name))
    lacks = [f"# without {kind} {known}\n" for kind, known in base if (kind, known) not in own]
    return "".join([*lacks, *(f"---\n{text}" for key, text in own.items() if base.get(key) != text)])


def _parts(text: str) -> dict[tuple[str, str], str]:
    """The text of each document, by its kind and name."""
    parts = [part for part in re.split("^---\n", text, flags=re.MULTILINE) if part.strip()]
    found = [(document, part) for part in parts for document in documents(part)]
    return {(document["kind"], document["metadata"]["name"]): part for document, part in found}


def linted(*options: str) -> subprocess.CompletedProcess[str]:
    command = [str(require()), "lint", "--strict", str(CHART), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def rewriting() -> bool:
    return os.environ.get("REWRITE_GOLDEN") == "1"
