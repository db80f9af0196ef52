"""`docs/comparison.md`: what it says of Muster is so."""

import re
from pathlib import Path

import pytest

import muster.client
from shared.frameworks.kinds import BUILT_IN

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "comparison.md").read_text()
ROWS = {
    cells[0]: cells[-1]
    for line in PAGE.splitlines()
    if len(cells := [cell.strip() for cell in line.strip("|").split("|")]) == 8
}
"""Of each row of the second table what it says of Muster."""
KINDS = {framework.resource.kind: framework for framework in BUILT_IN}


def test_the_kinds_that_it_names_are_run():
    named = {*re.findall(r"\b\w+Jobs?\b", PAGE)} - {"jobs"}
    assert {name.removesuffix("s") for name in named} - {"Job"} <= KINDS.keys()


def test_there_is_a_python_client_where_it_says_so():
    told = ROWS["a Python client"]
    assert "`muster.client`" in told
    assert callable(muster.client.connect)
    # That one trains by its test.
    assert "Kubeflow's SDK" in told
    assert "from kubeflow.trainer import" in (DOCS.parent / "examples" / "kubeflow" / "sdk.py").read_text()


def test_the_kinds_in_queues_are_those_of_the_page_about_kueue():
    told = {*re.findall(r"\b(\w+Job)\b", ROWS["queues and quota"])}
    kueue = (DOCS / "kueue.md").read_text()
    stock = {*re.findall(r"^\s*- (?:kubeflow\.org|trainer\.kubeflow\.org)/(\w+)$", kueue, re.MULTILINE)}
    queued = {name for name, framework in KINDS.items() if framework.is_queued}
    assert {name.lower() for name in told} == stock | {name.lower() for name in queued}


@pytest.mark.parametrize("row", ["elastic PyTorch", "start with the size that fits"])
def test_the_fields_of_elastic_jobs_are_those_of_their_definitions(row: str):
    fields = {*re.findall(r"`(\w+)`", ROWS[row])}
    definitions = "".join(str(KINDS[kind].definition) for kind in ("PyTorchJob",))
    runtimes = (Path(__file__).parents[2] / "shared" / "frameworks" / "trainer_schemas.py").read_text()
    assert fields
    assert [field for field in fields if field not in definitions + runtimes] == []
