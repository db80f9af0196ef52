"""The schemas in the repository are those of the models, and keep the promise of each release."""

import copy
from pathlib import Path
from typing import Any

import msgspec
import pytest
from jsonschema import Draft7Validator, Draft202012Validator

from muster.schemas import KINDS, asyncapi, of_all, of_type
from tests.docs.schemas import FOLDER, RELEASED, breaks, files

WRITTEN = (Path(__file__).parents[1] / "histories" / "events.jsonl").read_bytes().splitlines()
ANY = Draft202012Validator(msgspec.json.decode(msgspec.json.encode(of_all())))


def test_the_schemas_are_those_of_the_models():
    found = {path.name: path.read_bytes() for path in FOLDER.glob("*.json")}
    assert found == files(), "run make pages"


@pytest.mark.parametrize("path", sorted(RELEASED.glob("*.json")), ids=lambda path: path.stem)
def test_what_a_release_promised_holds(path: Path):
    assert breaks(msgspec.json.decode(path.read_bytes()), of_all()["$defs"]) == []


ASYNCAPI = Draft7Validator(msgspec.json.decode(Path(__file__).with_name("asyncapi-3.0.0.schema.json").read_bytes()))


def test_the_asyncapi_document_is_one_by_the_schema_of_asyncapi():
    document = msgspec.json.decode((FOLDER / "asyncapi.json").read_bytes())
    assert [error.message for error in ASYNCAPI.iter_errors(document)] == []
    channel = next(iter(document["channels"].values()))
    channel["adress"] = channel.pop("address")
    assert not ASYNCAPI.is_valid(document)


def changed(*path: str, value: Any = None) -> dict[str, Any]:
    """The parts of today's schema with another value there, or without what is there."""
    parts: dict[str, Any] = copy.deepcopy(of_all()["$defs"])
    place = parts
    for step in path[:-1]:
        place = place[step]
    if value is None:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return parts


FIELD = ("SlotsAssigned", "properties", "reason")


@pytest.mark.parametrize(
    ("now", "sentence"),
    [
        pytest.param(changed("SlotsAssigned"), "SlotsAssigned is gone", id="a type is gone"),
        pytest.param(changed("Slots"), "Slots is gone", id="a part is gone"),
        pytest.param(changed(*FIELD), "SlotsAssigned.reason is gone", id="a field is gone"),
        pytest.param(changed(*FIELD, "type", value="integer"), "SlotsAssigned.reason was", id="another type of value"),
        pytest.param(
            changed("SlotsAssigned", "required", value=["type", "slots", "reason"]),
            "SlotsAssigned.reason is required in one of the two only",
            id="old events would lack it",
        ),
        pytest.param(
            changed("SlotsAssigned", "required", value=["type"]),
            "SlotsAssigned.slots is required in one of the two only",
            id="programs would lack it",
        ),
        pytest.param(
            changed("SlotsAssigned", "properties", "type", "enum", value=["Other"]),
            "SlotsAssigned.type was",
            id="a word is gone",
        ),
    ],
)
def test_a_change_that_breaks_programs_is_told(now: dict[str, Any], sentence: str):
    told = breaks(of_all()["$defs"], now)
    assert len(told) == 1
    assert told[0].startswith(sentence)


@pytest.mark.parametrize(
    "now",
    [
        pytest.param(changed("New", value={"type": "object"}), id="a type"),
        pytest.param(changed("SlotsAssigned", "properties", "more", value={"type": "string"}), id="a field"),
        pytest.param(changed("SlotsAssigned", "description", value="in other words"), id="a description"),
        pytest.param(changed(*FIELD, "default", value="Else"), id="a default"),
        pytest.param(
            changed("SlotsAssigned", "properties", "type", "enum", value=["SlotsAssigned", "More"]), id="a word"
        ),
    ],
)
def test_what_may_be_added_breaks_nothing(now: dict[str, Any]):
    assert breaks(of_all()["$defs"], now) == []


def test_every_reference_leads_somewhere():
    for document in (of_all(), asyncapi(), *map(of_type, KINDS)):
        for reference in references(document):
            place = document
            for step in reference.removeprefix("#/").split("/"):
                place = place[step]


def references(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        return own + [found for each in value.values() for found in references(each)]
    return [found for each in value for found in references(each)] if isinstance(value, list) else []


@pytest.mark.parametrize("line", WRITTEN, ids=lambda line: msgspec.json.decode(line)["type"])
def test_every_event_that_was_ever_written_fits_the_schemas(line: bytes):
    event = msgspec.json.decode(line)
    Draft202012Validator(msgspec.json.decode(msgspec.json.encode(of_type(event["type"])))).validate(event)
    ANY.validate(event)


@pytest.mark.parametrize("body", [{}, [], {"type": "JobTeleported"}, {"type": "JobGone", "version": "nine"}])
def test_what_no_release_wrote_does_not_fit(body: Any):
    assert not ANY.is_valid(body)
