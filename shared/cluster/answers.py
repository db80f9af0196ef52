"""What an API server says when it says no, sorted by what to do next.

A refusal is usually a `Status`; a proxy on the way may answer with anything, HTML for one.
"""

import re
from http import HTTPStatus

import msgspec

from shared.errors import Conflict, Refused, Transient, Trouble

EXPIRED = "Expired"
"""The reason when the history or a paged list that was asked for is gone."""
AHEAD = "ResourceVersionTooLarge"
"""The reason when the history that was asked for is not there yet, or not any more: a restored store."""

LONGEST_MESSAGE = 300
"""Characters of somebody else's text that we repeat."""


class Cause(msgspec.Struct, frozen=True):
    reason: str = ""
    message: str = ""
    field: str = ""


class Details(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    causes: tuple[Cause, ...] | None = None
    retry_after_seconds: int = 0


class Status(msgspec.Struct, frozen=True):
    """The API's own kind for failures (`v1` Status)."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: Details | None = None

    @property
    def causes(self) -> tuple[Cause, ...]:
        return (self.details.causes if self.details else None) or ()


class FailedRequest(Exception):  # noqa: N818  always turned into a Trouble by whoever knows what the status means
    """The API server answered with something else than success."""

    def __init__(self, status: Status) -> None:
        super().__init__(status.message)
        self.status = status


_read = msgspec.json.Decoder(Status).decode


def read_status(body: bytes | msgspec.Raw, code: int = 0, retry_after: str = "") -> Status:
    """The Status in `body`, or one made up from the HTTP status and header when there is none."""
    try:
        status = _read(body)
    except msgspec.MsgspecError:
        status = Status()
    details = status.details
    if retry_after.isdigit():
        details = msgspec.structs.replace(details or Details(), retry_after_seconds=int(retry_after))
    return msgspec.structs.replace(status, code=status.code or code, details=details)


def is_named_absence(status: Status) -> bool:
    """Whether the very object is missing, rather than its kind, or the way to the API server."""
    return status.code == 404 and status.reason == "NotFound" and bool(status.details and status.details.name)


def may_be_starting(body: bytes) -> bool:
    """Whether a 403 is that of the authorizer: for want of a right, or of the time to learn who has it."""
    message = read_status(body).message
    return 'User "' in message and '" cannot ' in message


UNKNOWN_OWNER = "cannot find RESTMapping"
"""In the 403 of an API server that does not know the kind of an owner: one that has just started, as a rule."""


UNDECODABLE = " cannot be handled as a "
"""In the 400 of an API server for an object that has a value of another type than its field's."""
_FIELD_OF_GO = re.compile(r"into Go struct field \w+\.(\S+) of type")


def trouble(status: Status, what: str, *, method: str = "GET") -> Trouble:
    """The error to raise for a failed request; `what` says what was being done, and to what."""
    code, causes = status.code, status.causes
    reason = status.reason or _reason(code)
    message = f"{what}: {code} {reason}: {status.message[:LONGEST_MESSAGE]}".removesuffix(": ")
    if code == 410 or reason in (EXPIRED, "Gone"):
        return Refused(message, reason=EXPIRED)
    if any(cause.reason == AHEAD for cause in causes):
        return Refused(message, reason=AHEAD)
    if code in (408, 429) or (code >= 500 and code != 501):
        return Transient(message, retry_after=(status.details.retry_after_seconds or None) if status.details else None)
    if code == 403 and UNKNOWN_OWNER in status.message:
        return Transient(message)
    if code == 401:
        return Transient(f"{message}; renew the credentials of the kubeconfig or of the service account")
    if code == 409:
        return _conflict(message, reason, method)
    if code == 422 and method == "PATCH" and any(cause.field == "metadata.uid" for cause in causes):
        # A uid in a patch is our precondition; the API server calls it a change of an immutable field.
        return Conflict(message)
    if code == 400 and UNDECODABLE in status.message:
        # As final as a broken rule: the same object is refused again, however often it is sent.
        found = _FIELD_OF_GO.search(status.message)
        return Refused(message, reason="Invalid", field=found[1] if found else "")
    if code == 403:
        reason = _forbidden(status)
    return Refused(message, reason=reason, field=next((cause.field for cause in causes if cause.field), ""))


def _conflict(message: str, reason: str, method: str) -> Trouble:
    if method != "POST":
        return Conflict(message)
    if reason == "AlreadyExists":
        return Refused(message, reason=reason)
    # Many creations at once under one quota disturb each other's counting; the next try may pass.
    return Transient(message)


def _forbidden(status: Status) -> str:
    if any(cause.reason == "NamespaceTerminating" for cause in status.causes):
        return "NamespaceTerminating"
    if "exceeded quota" in status.message:
        return "QuotaExceeded"
    return "Forbidden"


def _reason(code: int) -> str:
    try:
        return "".join(word.capitalize() for word in HTTPStatus(code).phrase.replace("-", " ").split())
    except ValueError:
        return "Unknown"
