"""Saved histories: one event a line, as `muster history --json` writes and `muster replay` reads them.  Pure."""

import msgspec

from shared.eventlog import Stored
from shared.eventlog.subject import Subject
from shared.untrusted import MALFORMED


class SavedEvent(msgspec.Struct):
    """A line: an event of the log, with its body as JSON."""

    sequence: int
    subject: str
    event_id: str
    time: str
    body: msgspec.Raw
    """The stored bytes, because the chain's hashes cover them; a string if the body is not an object on one line."""
    basis: str = ""
    optional: bool = False


def line_of(stored: Stored) -> str:
    """An event as a line, without a newline."""
    body = msgspec.Raw(stored.body if _fits(stored.body) else msgspec.json.encode(stored.body.decode(errors="replace")))
    fields = {name: value for name, value in msgspec.structs.asdict(stored).items() if name != "logged"}
    return msgspec.json.encode(SavedEvent(**{**fields, "body": body})).decode()


def event_of(line: bytes) -> Stored:
    """The event of a line.  Raises `ValueError` if the line is none."""
    try:
        known = msgspec.json.decode(line, type=SavedEvent)
    except RecursionError as error:
        raise ValueError(str(error)) from error
    Subject.parse(known.subject)
    body = bytes(known.body)
    match body[:1]:
        case b'"':
            body = msgspec.json.decode(body, type=str).encode()
        case b"{":
            pass
        case _:
            raise ValueError("its body is neither an object nor a string")
    return Stored(**{**msgspec.structs.asdict(known), "body": body})


def _fits(body: bytes) -> bool:
    """True if the body can be a part of a JSON line unchanged."""
    if not (body.startswith(b"{") and body.endswith(b"}")) or b"\n" in body:
        return False
    try:
        msgspec.json.decode(body)
    except MALFORMED:
        return False
    return True
