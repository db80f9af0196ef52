from pathlib import Path

import pytest

from muster.crds import manifests, render
from shared.frameworks.kinds import Kinds
from shared.frameworks.schemas import rule
from shared.frameworks.training_job import TRAININGJOB
from tests.crds.admission import Document
from tests.crds.structural_rules import faults

CRDS = Path(__file__).parents[2] / "crds"
RENDERED = render()
OURS = manifests(Kinds((TRAININGJOB,)))
ANNOTATION_BYTES = 262_144
"""What `kubectl apply` may remember of an object, in an annotation."""


def test_the_folder_holds_what_the_models_say() -> None:
    assert {path.name: path.read_text() for path in CRDS.glob("*.yaml")} == RENDERED, (
        "run `python -m muster.crds` and review the diff"
    )


@pytest.mark.parametrize("name", RENDERED)
def test_definitions_are_small_enough_to_apply(name: str) -> None:
    assert len(RENDERED[name].encode()) < ANNOTATION_BYTES / 8


def test_names_differ_within_a_group() -> None:
    names = [
        (crd["spec"]["group"], name)
        for crd in manifests()
        for name in {crd["spec"]["names"]["plural"], crd["spec"]["names"]["singular"]}
    ]
    assert len(set(names)) == len(names)


def test_short_names_differ() -> None:
    names = [name for crd in manifests() for name in crd["spec"]["names"].get("shortNames", ())]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param({"type": "object"}, id="an object that would be pruned"),
        pytest.param({"type": "integer"}, id="a number without a range"),
        pytest.param({"anyOf": [{"type": "string"}, {"type": "null"}]}, id="a choice of types"),
        pytest.param({"$ref": "#/$defs/Pod"}, id="a reference"),
        pytest.param({"type": "array"}, id="a list of anything"),
        pytest.param(
            {
                "type": "object",
                "properties": {"list": {"type": "array", "items": {"type": "string"}}},
                "x-kubernetes-validations": [rule("self.list.exists(word, word == 'a')", "say a")],
            },
            id="a rule about each item of a list without a bound",
        ),
    ],
)
def test_the_lint_sees(schema: Document) -> None:
    assert list(faults({"type": "object", "properties": {"field": schema}}))
