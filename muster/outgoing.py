"""What `muster forward` sends for events, and what it makes of an answer.  Pure.

CloudEvents 1.0 over HTTP (github.com/cloudevents/spec, bindings/http-protocol-binding.md), signed as Standard Webhooks
1.0 has it (github.com/standard-webhooks/standard-webhooks, spec/standard-webhooks.md).
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterable, Sequence
from email.utils import parsedate_to_datetime
from typing import Any, Literal, NamedTuple, get_args
from urllib.parse import quote

import msgspec

from muster.terminal import Format
from shared.errors import Refused
from shared.eventlog.durable import Delivered, Lost
from shared.eventlog.subject import Subject, of_type
from shared.eventlog.wire import TYPES
from shared.job import text
from shared.job.events import status
from shared.telling.words import said
from shared.untrusted import MALFORMED, whole_number

SECRET = "whsec_"  # noqa: S105  the prefix of all of them
SECRET_BYTES = (24, 64)
"""The fewest and the most bytes of a secret."""
LONGEST_WAIT_SECONDS = 3600.0
"""The longest `Retry-After` that is kept to."""
_VISIBLE = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')


LOST = f"{TYPES}EventsLost"
"""The type of what tells a receiver of events that it will not get; no event of the log has it."""

PHASES = {
    tag.removeprefix("Job"): tag for tag in (str(kind.__struct_config__.tag) for kind in get_args(status.Decision))
}
"""By phase, the type of the events with which jobs enter it."""


class Sent(msgspec.Struct, frozen=True):
    """A request."""

    id: str
    """The same for each try of the same events."""
    body: bytes
    headers: dict[str, str]


Verdict = Literal["delivered", "again", "refused"]


def verdict(status: int) -> Verdict:
    """What an answer means: `again` for what may pass, `refused` for what the receiver does not take."""
    if 200 <= status < 300:
        return "delivered"
    return "again" if status in (408, 425, 429) or status >= 500 else "refused"


def wait_of(retry_after: str, now: float) -> float:
    """Seconds of a `Retry-After`, a number or a date; 0 without one.  `now` is in seconds since 1970."""
    seconds = whole_number(retry_after.strip())
    if seconds is None:
        try:
            seconds = int(parsedate_to_datetime(retry_after).timestamp() - now)
        except (ValueError, TypeError, OverflowError):
            return 0.0
    return min(max(float(seconds), 0.0), LONGEST_WAIT_SECONDS)


class CloudEvent(NamedTuple):
    attributes: dict[str, str]
    """Those of CloudEvents but for `datacontenttype`."""
    body: bytes
    """What an administrator planted may be no JSON."""
    line: str
    """Its words for a chat."""

    @property
    def structured(self) -> dict[str, Any]:
        """The event as one JSON object."""
        attributes: dict[str, Any] = {**self.attributes, "datacontenttype": "application/json"}
        try:
            return attributes | {"data": msgspec.json.decode(self.body)}
        except MALFORMED:
            return attributes | {"data_base64": base64.b64encode(self.body).decode()}


def request_of(events: Sequence[CloudEvent], form: Format, *, batch: bool) -> Sent:
    """The request for some events; for one alone unless it is a batch."""
    ids = [event.attributes["id"] for event in events]
    unique = _fit(ids[0] if len(ids) == 1 else f"{ids[0]}:{ids[-1]}")
    media, headers = "application/json", dict[str, str]()
    if form == "slack":
        body = msgspec.json.encode({"text": "\n".join(event.line for event in events)})
    elif batch:
        media, body = "application/cloudevents-batch+json", msgspec.json.encode([each.structured for each in events])
    elif form == "structured":
        media, body = "application/cloudevents+json", msgspec.json.encode(events[0].structured)
    else:
        headers = {f"ce-{name}": _fit(value) for name, value in events[0].attributes.items()}
        body = events[0].body
    return Sent(unique, body, headers | {"Content-Type": media})


def loss(lost: Lost, *, position: str, time: str) -> CloudEvent:
    """What tells a receiver which events it will not get."""
    attributes = {
        "specversion": "1.0",
        "id": f"lost-{lost.first}-{lost.last}",
        "type": LOST,
        "source": f"/muster/forward/{quote(position)}",
        "subject": f"events/{lost.first}-{lost.last}",
        "time": time,
        # Before the events that came after it.
        "sequence": f"{lost.last:020}",
    }
    told = {"first": lost.first, "last": lost.last, "most": lost.most} | ({"job": lost.job} if lost.job else {})
    data = msgspec.json.encode(told)
    return CloudEvent(attributes, data, f"{said_of(lost)}; `muster history` of their jobs tells them")


def said_of(lost: Lost) -> str:
    """A loss in words; some of its events may be none that the position wanted."""
    many = text.counted(lost.most, "event")
    if lost.job:
        span = f"with sequences from {lost.first} to {lost.last}"
        return f"up to {many} of {lost.job}, {span}, left the log before the copy had them"
    if lost.most == 1:
        return f"the event with the sequence {lost.first} left the copy before it was sent"
    return f"up to {many}, with the sequences {lost.first} to {lost.last}, left the copy before they were sent"


def cloud_event(event: Delivered) -> CloudEvent:
    """What is sent of an event of the log."""
    stored, subject = event.stored, Subject.parse(event.stored.subject)
    attributes = {
        "specversion": "1.0",
        "id": stored.event_id or str(stored.sequence),
        "type": f"{TYPES}{subject.type}",
        "source": stored.source or subject.author,
        "subject": f"{subject.namespace}/{subject.name}/{subject.uid}",
        "time": stored.time,
        # The extension `sequence`: ordered as text.
        "sequence": f"{stored.sequence:020}",
    }
    # What an administrator planted may have no time.
    return CloudEvent({name: value for name, value in attributes.items() if value}, stored.body, line(event))


def line(event: Delivered) -> str:
    """One line for a chat: the job, and the words of `muster history`; without control characters or markup."""
    subject = Subject.parse(event.stored.subject)
    words = f"{subject.namespace}/{subject.name}  {subject.type}  {said(event.stored.body, subject.type)}".rstrip()
    plain = text.ends(text.in_one_line(words))
    return plain.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _fit(value: str) -> str:
    """A value as a header has it."""
    return quote(value, safe=_VISIBLE)


def secret_of(words: str) -> bytes:
    """The bytes of a secret.  Raises `Refused` if it is none."""
    wanted = f"write {SECRET} and the base64 of {SECRET_BYTES[0]} to {SECRET_BYTES[1]} random bytes"
    try:
        found = base64.b64decode(words.strip().removeprefix(SECRET), validate=True)
    except (binascii.Error, ValueError) as error:
        raise Refused(f"the secret is no base64; {wanted}", reason="Invalid") from error
    if not words.strip().startswith(SECRET) or not SECRET_BYTES[0] <= len(found) <= SECRET_BYTES[1]:
        raise Refused(f"the secret has the wrong form; {wanted}", reason="Invalid")
    return found


def signature(sent: Sent, secret: bytes, now: float) -> dict[str, str]:
    """The headers that prove who sent the body, and when."""
    seconds = str(int(now))
    signed = b".".join((sent.id.encode(), seconds.encode(), sent.body))
    proof = base64.b64encode(hmac.new(secret, signed, hashlib.sha256).digest()).decode()
    return {"webhook-id": sent.id, "webhook-timestamp": seconds, "webhook-signature": f"v1,{proof}"}


def filters_of(namespaces: Iterable[str], types: Iterable[str]) -> tuple[str, ...]:
    """The NATS filters of events of these namespaces and of these types; all without.  No two of them overlap."""
    kinds = sorted({*types}) or ["*"]
    return tuple(of_type(namespace, kind) for namespace in sorted({*namespaces}) or ["*"] for kind in kinds)
