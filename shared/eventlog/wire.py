"""An event in a NATS message: the CloudEvents binding in binary mode, and Muster's own headers.

Pure.  Headers are written as a dict and read from raw bytes: a generic parse of some twelve headers would cost more
than all other work of a reader for an event.
"""

import re
from typing import NamedTuple

from shared.eventlog import Entry, Stored
from shared.eventlog.subject import Subject
from shared.untrusted import whole_number

EXPECTED = "Nats-Expected-Last-Subject-Sequence"
EXPECTED_SCOPE = "Nats-Expected-Last-Subject-Sequence-Subject"
MESSAGE_ID = "Nats-Msg-Id"
"""Of values in buckets.  An event has none: its guard refuses it a second time."""
TTL = "Nats-TTL"
OPERATION = "KV-Operation"

TYPES = "dev.muster."
"""Before the type of an event in `ce-type`."""

_STATUS = b"NATS/1.0 "

# In the order in which `headers` writes them: one match is three times as fast as four searches.
_OURS = re.compile(
    rb"NATS/1\.0\r\nce-id: ([!-~]*)\r\nce-time: ([!-~]*)\r\n"
    rb"(?:Muster-Basis: ([!-~]*)\r\n)?(Muster-Optional: true\r\n)?"
    rb"ce-type: ([!-~]*)\r\nce-source: ([!-~]*)\r\n"
)

_NAMES = ("ce-id", "ce-time", "Muster-Basis", "Muster-Optional", "ce-type", "ce-source")

_STREAM = b"\r\nNats-Stream: "
_PLACE = re.compile(
    rb"\r\nNats-Stream: ([^\r]*)\r\nNats-Subject: ([^\r]*)\r\nNats-Sequence: (\d+)\r\nNats-Time-Stamp: ([^\r]*)\r\n"
    rb"(?:Nats-Num-Pending: (\d+)\r\n)?Nats-Last-Sequence: (\d+)\r\n"
)


class Place(NamedTuple):
    """The place of a stored message in its stream, from the headers that the server adds at the end."""

    subject: str
    sequence: int
    pending: int
    """In an answer to a get: the number of messages beyond this one."""
    previous: int
    """In an answer to a get: the sequence of the message before in this answer, 0 for the first one."""
    logged: str
    """When the server stored it."""
    stream: str
    """The one that sent it: the log, or a mirror of it."""


def headers(entry: Entry, *, log: str, expect: int) -> dict[str, str]:
    """The headers of an append to the log `log` that expects `expect` to be the last sequence of its scope."""
    subject = Subject.parse(entry.subject)
    result = {"ce-id": entry.event_id, "ce-time": entry.time}
    if entry.basis:
        result["Muster-Basis"] = entry.basis
    if entry.optional:
        result["Muster-Optional"] = "true"
    # The log stores every header with its event, so that those are left out that CloudEvents does not demand.
    result |= {
        "ce-type": f"{TYPES}{subject.type}",
        "ce-source": source(log, subject.author),
        "ce-specversion": "1.0",
        EXPECTED: str(expect),
        # The server compares the literal filters of appends in flight, so a scope has one spelling.
        EXPECTED_SCOPE: subject.scope,
    }
    return result


def source(log: str, author: str) -> str:
    """The CloudEvents source of this author's events in the log `log`."""
    return f"urn:uuid:{log}#{author}"


def stored(sequence: int, subject: str, raw_headers: bytes, body: bytes, logged: str = "") -> Stored:
    """The event of a message.  A message of another writer, without Muster's headers, has empty fields."""
    if (ours := _OURS.match(raw_headers)) and raw_headers.find(b"\nMuster-", ours.end() - 1) < 0:
        event_id, time, basis, optional, kind, origin = [value.decode() for value in ours.groups(b"")]
    else:
        # Headers in another order are searched by name.
        event_id, time, basis, optional, kind, origin = (header(raw_headers, name) for name in _NAMES)
        optional = optional if optional == "true" else ""
    called = "" if kind == f"{TYPES}{subject.rpartition('.')[2]}" else kind
    return Stored(sequence, subject, event_id, time, body, basis, optional != "", logged, origin, called)


def header(raw_headers: bytes, name: str) -> str:
    """One header's value, empty if absent.  Names are case-sensitive."""
    start = f"\r\n{name}: ".encode()
    at = raw_headers.find(start)
    if at < 0:
        return ""
    at += len(start)
    return raw_headers[at : raw_headers.find(b"\r\n", at)].decode("utf-8", "replace")


def number(raw_headers: bytes, name: str) -> int:
    """One header's value as a whole number, 0 if it is absent or none."""
    return whole_number(header(raw_headers, name)) or 0


def status(raw_headers: bytes) -> int:
    """The status of a message of the server itself, such as 503; 0 for any other message."""
    if not raw_headers.startswith(_STATUS):
        return 0
    code = raw_headers[len(_STATUS) : len(_STATUS) + 3]
    return int(code) if code.isdigit() else 0


def status_line(raw_headers: bytes) -> str:
    """The status with the server's words, such as `409 Consumer Deleted`."""
    return raw_headers.partition(b"\r\n")[0].partition(b" ")[2].decode("utf-8", "replace")


def place(raw_headers: bytes) -> Place | None:
    """The place of a message that the stream sent; None for any other message."""
    # The last one: an author may have stored headers with the same names.
    found = _PLACE.match(raw_headers, max(0, raw_headers.rfind(_STREAM)))
    if found is None:
        return None
    stream, subject, sequence, stamp, pending, previous = found.groups(b"0")
    return Place(
        subject.decode("utf-8", "replace"),
        int(sequence),
        int(pending),
        int(previous),
        stamp.decode("ascii", "replace"),
        stream.decode("utf-8", "replace"),
    )
