"""An event's headers, written as CloudEvents and read back from raw bytes; the log server's clock in them."""

from collections.abc import Callable

import msgspec
import pytest

from shared.eventlog import Entry, wire
from shared.eventlog.connection import ServerClock

ENTRY = Entry(
    subject="jobs.team-a.resnet.u-1.scheduler.SlotsAssigned",
    event_id="e-1",
    time="2026-01-01T00:00:00.000Z",
    body=b"{}",
    basis="7:abc",
    optional=True,
)


LOG = "6f1a1c9e-2c9a-4b8e-9d3b-0a8f5f0c7d11"


def headers() -> dict[str, str]:
    return wire.headers(ENTRY, log=LOG, expect=7)


def raw(headers: dict[str, str]) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"NATS/1.0\r\n{lines}\r\n".encode()


def test_an_event_is_a_cloud_event_in_binary_mode():
    assert headers() == {
        "ce-id": "e-1",
        "ce-time": "2026-01-01T00:00:00.000Z",
        "ce-specversion": "1.0",
        "ce-type": "dev.muster.SlotsAssigned",
        "ce-source": f"urn:uuid:{LOG}#scheduler",
        "Muster-Basis": "7:abc",
        "Muster-Optional": "true",
        "Nats-Expected-Last-Subject-Sequence": "7",
        "Nats-Expected-Last-Subject-Sequence-Subject": "jobs.team-a.resnet.u-1.>",
    }


def test_a_fact_has_no_basis_and_is_guarded_by_its_authors_facts():
    fact = msgspec.structs.replace(ENTRY, subject="facts.a.b.u.watcher.PodsGone", basis="", optional=False)
    found = wire.headers(fact, log=LOG, expect=0)
    assert found["Nats-Expected-Last-Subject-Sequence-Subject"] == "facts.a.b.u.watcher.>"
    assert not {"Muster-Basis", "Muster-Optional"} & found.keys()


def test_what_was_written_is_read():
    event = wire.stored(9, ENTRY.subject, raw(headers()), b"{}")
    assert (event.sequence, event.event_id, event.time) == (9, "e-1", ENTRY.time)
    assert (event.basis, event.optional, event.body) == ("7:abc", True, b"{}")
    assert (event.source, event.type) == (f"urn:uuid:{LOG}#scheduler", "")


@pytest.mark.parametrize("order", [dict, lambda headers: dict(reversed(headers.items()))])
def test_a_type_that_is_not_that_of_the_subject_is_told(order: Callable[[dict[str, str]], dict[str, str]]):
    other = order(headers() | {"ce-type": "dev.muster.JobFailed"})
    assert wire.stored(9, ENTRY.subject, raw(other), b"").type == "dev.muster.JobFailed"


def test_a_message_of_someone_else_has_empty_fields():
    event = wire.stored(9, "jobs.a.b.c.d.E", b"", b"hello")
    assert (event.event_id, event.time, event.basis, event.optional) == ("", "", "", False)


def test_the_order_of_headers_does_not_matter():
    backwards = dict(reversed(headers().items()))
    assert wire.stored(9, "s", raw(backwards), b"") == wire.stored(9, "s", raw(headers()), b"")


@pytest.mark.parametrize("first", ["Muster-Basis", "Muster-Optional"])
def test_our_headers_are_read_behind_those_of_others(first: str):
    ours = headers()
    # Python's sort is stable: the ids stay in front.
    names = sorted(ours, key=lambda name: (name.startswith("Muster-"), name != first))
    event = wire.stored(9, "s", raw({name: ours[name] for name in names}), b"")
    assert (event.event_id, event.basis, event.optional) == ("e-1", "7:abc", True)


def test_a_value_that_looks_like_a_header_is_a_value():
    event = wire.stored(9, "s", raw({"other": "x ce-id: forged", "ce-id": "real"}), b"")
    assert event.event_id == "real"


STORED = {
    "Nats-Stream": "JOBS",
    "Nats-Subject": ENTRY.subject,
    "Nats-Sequence": "42",
    "Nats-Time-Stamp": "2026-01-01T00:00:00.1Z",
    "Nats-Num-Pending": "3",
    "Nats-Last-Sequence": "41",
}


PLACE = wire.Place(ENTRY.subject, 42, 3, 41, STORED["Nats-Time-Stamp"], "JOBS")


def test_the_server_appends_where_a_message_stands():
    assert wire.place(raw(headers() | STORED)) == PLACE


def test_a_live_message_has_nothing_pending():
    live = {name: value for name, value in STORED.items() if name != "Nats-Num-Pending"}
    assert wire.place(raw(live)) == PLACE._replace(pending=0)


def test_a_place_that_an_author_stored_does_not_count():
    forged = raw(STORED | {"Nats-Sequence": "7", "Nats-Stream": "OTHER"})[: -len("\r\n")]
    assert wire.place(forged + raw(STORED)[len("NATS/1.0\r\n") :]) == PLACE


def test_what_the_server_says_itself_has_a_status_and_no_place():
    words = b"NATS/1.0 409 Batch Completed\r\nNats-Pending-Messages: 12\r\n\r\n"
    assert wire.place(words) is None
    assert wire.status(words) == 409
    assert wire.header(words, "Nats-Pending-Messages") == "12"
    assert wire.status(raw({"ce-id": "e-1"})) == 0


def test_it_is_unknown_before_the_first_answer():
    assert ServerClock().now(5.0) is None


def test_between_answers_it_goes_on_as_the_monotonic_clock_does():
    clock = ServerClock()
    clock.note(1_000.0, monotonic=50.0)
    assert clock.now(50.0) == 1_000.0
    assert clock.now(57.5) == 1_007.5


def test_a_clock_that_is_set_is_followed_either_way():
    clock = ServerClock()
    clock.note(1_000.0, monotonic=50.0)
    clock.note(8_200.0, monotonic=51.0)
    assert clock.now(51.0) == 8_200.0
    clock.note(1_002.0, monotonic=52.0)
    assert clock.now(53.0) == 1_003.0
