"""What `muster forward` sends, as official parsers read it, and what it makes of answers."""

import base64
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from email.utils import format_datetime

import msgspec
import pytest
from cloudevents.core.bindings.http import HTTPMessage, from_http_event

from muster.outgoing import (
    Sent,
    cloud_event,
    filters_of,
    line,
    loss,
    request_of,
    secret_of,
    signature,
    verdict,
    wait_of,
)
from muster.terminal import Format
from shared.errors import Refused
from shared.eventlog import Stored
from shared.eventlog.durable import Delivered, Lost
from shared.eventlog.subject import matches

SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()


def sent_of(events: Sequence[Delivered], form: Format, *, batch: bool) -> Sent:
    return request_of([*map(cloud_event, events)], form, batch=batch)


def an_event(sequence: int = 7, *, body: bytes = b'{"type":"JobFailed","reason":"Crash"}', **changed: str) -> Delivered:
    known = {
        "subject": "jobs.team-a.res_net.uid-1.status.JobFailed",
        "event_id": f"id-{sequence}",
        "time": "2030-01-01T00:00:00.000Z",
        "source": "urn:uuid:log#status",
    }
    return Delivered(Stored(sequence=sequence, body=body, **(known | changed)), 0, "")


@pytest.mark.parametrize("form", ["binary", "structured"])
def test_an_event_is_a_cloud_event_to_the_official_parser(form: Format):
    sent = sent_of([an_event()], form, batch=False)
    event = from_http_event(HTTPMessage(headers=sent.headers, body=sent.body))
    assert event.get_id() == sent.id == "id-7"
    assert event.get_type() == "dev.muster.JobFailed"
    assert event.get_source() == "urn:uuid:log#status"
    assert event.get_subject() == "team-a/res.net/uid-1"
    assert event.get_time() == datetime(2030, 1, 1, tzinfo=UTC)
    assert event.get_extension("sequence") == "00000000000000000007"
    assert event.get_data() == {"type": "JobFailed", "reason": "Crash"}


@pytest.mark.parametrize("form", ["binary", "structured"])
def test_a_loss_is_a_cloud_event_too(form: Format):
    lost = Lost(120, 1738)
    sent = request_of([loss(lost, position="a b", time="2030-01-01T00:00:00Z")], form, batch=False)
    event = from_http_event(HTTPMessage(headers=sent.headers, body=sent.body))
    assert (event.get_type(), event.get_id()) == ("dev.muster.EventsLost", "lost-120-1738")
    assert event.get_data() == {"first": 120, "last": 1738, "most": 1619}
    # A receiver that orders by the sequence has it before what came later.
    assert event.get_extension("sequence") == "00000000000000001738"
    assert event.get_source() == "/muster/forward/a%20b"


def test_a_loss_is_told_in_a_batch_and_to_a_chat():
    lost = Lost(7, 7)
    (told,) = json.loads(request_of([loss(lost, position="a", time="")], "structured", batch=True).body)
    assert told["data"] == {"first": 7, "last": 7, "most": 1}
    chat = request_of([loss(lost, position="a", time="")], "slack", batch=True)
    assert "the sequence 7 left the copy" in json.loads(chat.body)["text"]


def test_of_a_job_that_left_the_log_the_job_is_told():
    told = loss(Lost(7, 70, 12, "team-a/resnet"), position="a", time="")
    assert json.loads(told.body) == {"first": 7, "last": 70, "most": 12, "job": "team-a/resnet"}
    assert "up to 12 events of team-a/resnet, with sequences from 7 to 70, left the log before" in told.line


def test_a_batch_is_a_list_also_of_one_event():
    sent = sent_of([an_event()], "structured", batch=True)
    assert sent.headers == {"Content-Type": "application/cloudevents-batch+json"}
    assert [one["id"] for one in json.loads(sent.body)] == ["id-7"]
    many = sent_of([an_event(1), an_event(2), an_event(3)], "structured", batch=True)
    assert [one["id"] for one in json.loads(many.body)] == ["id-1", "id-2", "id-3"]
    assert many.id == "id-1:id-3"


def test_what_was_planted_is_sent_too_and_breaks_no_header():
    planted = an_event(9, body=b"{", event_id="", time="", subject='facts.a\r\nb.x"%.u.watcher.Odd')
    sent = sent_of([planted], "binary", batch=False)
    assert sent.headers["ce-subject"] == "a%0D%0Ab/x%22%25/u"
    assert sent.id == sent.headers["ce-id"] == "9"
    assert "ce-time" not in sent.headers
    document = msgspec.json.decode(sent_of([planted], "structured", batch=False).body)
    assert (document["data_base64"], "data" in document) == ("ew==", False)


def test_a_chat_is_told_in_one_line_without_control_characters_and_markup():
    nasty = json.dumps({"type": "JobFailed", "reason": "a\nb\x1b[31m <!channel> & c"}).encode()
    told = line(an_event(body=nasty))
    assert told.startswith("team-a/res.net  JobFailed  a | b")
    assert told.isprintable()
    assert "&lt;!channel&gt; &amp; c" in told
    sent = sent_of([an_event(1), an_event(2)], "slack", batch=True)
    assert json.loads(sent.body) == {"text": "\n".join(["team-a/res.net  JobFailed  Crash"] * 2)}


@pytest.mark.parametrize(
    ("means", "statuses"),
    [
        ("delivered", (200, 202, 204)),
        ("refused", (301, 308, 400, 401, 404, 410, 413)),
        ("again", (408, 425, 429, 500, 503, 599)),
    ],
)
def test_an_answer_means(means: str, statuses: tuple[int, ...]):
    assert [verdict(status) for status in statuses] == [means] * len(statuses)


@pytest.mark.parametrize(
    ("words", "seconds"),
    [
        pytest.param("", 0, id="none"),
        pytest.param("7", 7, id="seconds"),
        pytest.param(" 7 ", 7, id="seconds with spaces"),
        pytest.param("99999999999", 3600, id="more than an hour"),
        pytest.param("-1", 0, id="a negative number"),
        pytest.param(format_datetime(datetime(2030, 1, 1, 0, 1, tzinfo=UTC), usegmt=True), 60, id="a date"),
        pytest.param(format_datetime(datetime(2020, 1, 1, tzinfo=UTC), usegmt=True), 0, id="a past date"),
        pytest.param("Thu, 99 Foo 2030", 0, id="no date"),
    ],
)
def test_the_receiver_may_ask_for_a_pause(words: str, seconds: float):
    assert wait_of(words, datetime(2030, 1, 1, tzinfo=UTC).timestamp()) == seconds


def test_a_signature_is_that_of_the_published_example():
    """The test vector of the libraries of Standard Webhooks."""
    secret = secret_of("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n")
    sent = sent_of([an_event()], "binary", batch=False)
    example = msgspec.structs.replace(sent, id="msg_p5jXN8AQM9LWM0D4loKWxJek", body=b'{"test": 2432232314}')
    assert signature(example, secret, 1614265330.9) == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


@pytest.mark.parametrize(
    "words", ["", "whsec_", "secret", SECRET.removeprefix("whsec_"), "whsec_!!", "whsec_" + "A" * 28, SECRET + "A" * 64]
)
def test_what_is_no_secret_is_refused(words: str):
    with pytest.raises(Refused, match="write whsec_ and the base64 of 24 to 64 random bytes") as refused:
        secret_of(words)
    assert not words or words.strip() not in str(refused.value) or len(words) < 8


def test_filters_name_namespaces_and_types_and_do_not_overlap():
    assert filters_of([], []) == ("*.*.*.*.*.*",)
    found = filters_of(["b", "a", "a"], ["JobFailed", "JobFailed"])
    assert found == ("*.a.*.*.*.JobFailed", "*.b.*.*.*.JobFailed")
    assert matches(found[0], "jobs.a.x.u.status.JobFailed")
    assert not any(matches(each, "jobs.c.x.u.status.JobFailed") for each in found)
