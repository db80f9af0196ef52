"""Events: written once, read for ever; each by its one author.

`tests/histories/events.jsonl` holds every event as some release wrote it.  A line is never changed or removed: a new
shape is a new line, which `REWRITE_GOLDEN=1` appends.
"""

import os
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from shared.eventlog.account import AUDIT
from shared.eventlog.account import AUTHORS as USERS
from shared.job.events.catalog import AUTHORS, FACTS, AnyEvent, Decision, Fact, Malformed, UnknownEvent, read_event
from shared.job.events.event import Author, EffectRefused
from shared.job.events.watcher import JobGone
from tests.job.examples import EXAMPLES

HISTORIES = Path(__file__).parent.parent / "histories" / "events.jsonl"


def lines() -> list[bytes]:
    return HISTORIES.read_bytes().splitlines()


def tag_of(line: bytes) -> str:
    tag: str = msgspec.json.decode(line)["type"]
    return tag


def name_of(event: AnyEvent) -> str:
    return type(event).__name__


def test_there_is_an_example_of_every_type():
    missing = {type_.__name__ for type_ in get_args(AnyEvent)} - {name_of(event) for event in EXAMPLES}
    assert not missing, f"add an example to tests/job/examples.py of: {', '.join(sorted(missing))}"
    assert len(EXAMPLES) == len(get_args(AnyEvent))


@pytest.mark.parametrize("event", EXAMPLES, ids=name_of)
def test_the_current_shape_of_each_event_is_on_record(event: AnyEvent):
    line = msgspec.json.encode(event)
    if os.environ.get("REWRITE_GOLDEN") == "1" and line not in lines():
        HISTORIES.write_bytes(b"".join(known + b"\n" for known in [*lines(), line]))
    assert line in lines(), "its shape is new: append it with REWRITE_GOLDEN=1 pytest tests/job/test_events.py"


@pytest.mark.parametrize("line", lines(), ids=tag_of)
def test_every_event_that_was_ever_written_is_read(line: bytes):
    event = read_event(line, tag_of(line))
    assert event.__struct_config__.tag == tag_of(line)
    assert says(msgspec.json.decode(msgspec.json.encode(event)), msgspec.json.decode(line))


def says(now: Any, then: Any) -> bool:
    """What was said then is said now; fields that came later have their defaults."""
    if isinstance(then, dict) and isinstance(now, dict):
        return all(field in now and says(now[field], value) for field, value in then.items())
    if isinstance(then, list) and isinstance(now, list):
        return len(now) == len(then) and all(map(says, now, then))
    return bool(now == then)


@pytest.mark.parametrize("event", EXAMPLES, ids=name_of)
def test_an_event_is_what_it_was_after_the_wire(event: AnyEvent):
    assert read_event(msgspec.json.encode(event), name_of(event)) == event


@pytest.mark.parametrize("event", EXAMPLES, ids=name_of)
def test_what_a_newer_release_added_is_ignored(event: AnyEvent):
    richer = msgspec.json.decode(msgspec.json.encode(event)) | {"fromTheFuture": {"a": [1]}}
    assert read_event(msgspec.json.encode(richer), name_of(event)) == event


def test_defaults_are_stored_so_that_changing_one_does_not_rewrite_the_past():
    line = msgspec.json.encode(JobGone(version=60))
    assert b'"reason":"Deleted"' in line


def test_every_type_is_a_fact_or_a_decision_and_its_tag_is_its_name():
    assert not set(get_args(Fact)) & set(get_args(Decision))
    assert set(get_args(Fact)) == FACTS
    for kind in get_args(AnyEvent):
        assert kind.__struct_config__.tag == kind.__name__


def test_every_type_has_exactly_one_author_but_a_refusal():
    assert set(AUTHORS) == set(get_args(AnyEvent))
    several = {kind for kind, authors in AUTHORS.items() if len(authors) != 1}
    assert several == {EffectRefused}
    assert "watcher" not in AUTHORS[EffectRefused], "the watcher has no effects"


def test_authors_are_the_users_that_the_log_knows():
    assert set(get_args(Author)) == {"setup", AUDIT, *USERS}


def test_the_watcher_decides_nothing():
    assert all(kind in FACTS for kind, authors in AUTHORS.items() if "watcher" in authors)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"\xff\xfe", id="no JSON"),
        pytest.param(b'{"type":"JobGone","reason":"\xff"}', id="no UTF-8"),
        pytest.param(b"[" * 100_000, id="deep"),
        pytest.param(b"[]", id="a list"),
        pytest.param(b"{}", id="no type"),
        pytest.param(b'{"type":"JobGone","version":"nine"}', id="another type of value"),
        pytest.param(b'{"type":"JobExpired"}', id="another event than its subject says"),
    ],
)
def test_a_body_that_no_release_wrote_is_malformed(body: bytes):
    with pytest.raises(Malformed):
        read_event(body, "JobGone")


@pytest.mark.parametrize(
    ("tag", "rest"),
    [
        ("SlotsAssigned", '"slots":[{"attempt":0,"role":"worker","ranges":[[0,9223372036854775807]]}]'),
        ("SlotsReleased", '"slots":[{"attempt":0,"role":"worker","ranges":[[0,60000],[0,60000]]}]'),
        (
            "SlotsAssigned",
            '"slots":[{"attempt":0,"role":"a","ranges":[[0,60000]]}],'
            '"replaces":[{"attempt":0,"role":"b","ranges":[[0,60000]]}]',
        ),
        ("HostsPublished", '"version":1,"members":[[0,9223372036854775807],[9,-9223372036854775808]]'),
        ("JobAdopted", '"source":"AcceptedLoss","members":[[0,100000]]'),
    ],
)
def test_a_forged_range_does_not_fill_the_memory_of_every_reader(tag: str, rest: str):
    with pytest.raises(Malformed, match="indices, at most 100000"):
        read_event(f'{{"type":"{tag}",{rest}}}'.encode(), tag)


def test_a_type_of_a_newer_release_is_unknown():
    with pytest.raises(UnknownEvent, match="JobTeleported"):
        read_event(b'{"type":"JobTeleported","to":"mars"}', "JobTeleported")
