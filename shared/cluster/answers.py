"""Failed answers of an API server, as `Transient`, `Conflict` or `Refused`.

A failure is usually a `Status`; a proxy on the way may answer with anything, such as HTML.
An API server, an admission webhook or a container runtime may repeat a whole object or command when it refuses one:
what may be a secret there is removed, and unknown fields of a pod get their paths in the user's resource.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, quote_plus

import msgspec

from shared.cluster.pod_fields import meant
from shared.errors import Conflict, Refused, Transient, Trouble
from shared.untrusted import MALFORMED, objects, whole_number

EXPIRED = "Expired"
"""The reason when the server no longer has the version of a watch or of a paged list."""
AHEAD = "ResourceVersionTooLarge"
"""The reason when the server has not reached the version of a watch: it lags, or its store was restored."""

LONGEST_RETRY_AFTER = 32
"""Seconds: the most that an API server under load names.  A proxy that is being maintained may name an hour, and no
watch is blind for so long after its end.
"""

LONGEST_MESSAGE = 300
"""Characters of the server's message that an error repeats."""


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
    def retry_after(self) -> int:
        """Seconds, up to `LONGEST_RETRY_AFTER`; 0 if the server names none."""
        return min(max(self.details.retry_after_seconds, 0), LONGEST_RETRY_AFTER) if self.details else 0

    @property
    def causes(self) -> tuple[Cause, ...]:
        return (self.details.causes if self.details else None) or ()


class FailedRequest(Exception):  # noqa: N818  always turned into a Trouble by the caller that knows the meaning
    """The API server answered with something else than success."""

    def __init__(self, status: Status) -> None:
        super().__init__(status.message)
        self.status = status


class _Identity(msgspec.Struct, frozen=True):
    uid: str = ""


class Deletion(msgspec.Struct, frozen=True):
    """The answer to a deletion: a `Status` with details, or the object while it is held back."""

    metadata: _Identity = _Identity()
    details: _Identity = _Identity()

    @property
    def uid(self) -> str:
        return self.details.uid or self.metadata.uid


_read = msgspec.json.Decoder(Status).decode


def read_status(body: bytes | msgspec.Raw, code: int = 0, retry_after: str = "") -> Status:
    """The Status in `body`, or one made up from the HTTP status and header when there is none."""
    try:
        status = _read(body)
    except MALFORMED:
        status = Status()
    details = status.details
    if (seconds := whole_number(retry_after)) is not None:
        details = msgspec.structs.replace(details or Details(), retry_after_seconds=seconds)
    return msgspec.structs.replace(status, code=status.code or code, details=details)


def is_named_absence(status: Status) -> bool:
    """True if the object itself is missing, and not its kind or the way to the API server."""
    return status.code == 404 and status.reason == "NotFound" and bool(status.details and status.details.name)


FORBIDDEN = "Forbidden"
"""The reason if the caller lacks a right; an object that admission does not let in is `DENIED`."""

_NO_RIGHT = re.compile(
    r'(\S+ ("[^"]*" )?is )?forbidden: (User ".*" cannot |cannot set (an ownerRef on|blockOwnerDeletion if) )'
)
"""Begins the 403 of the authorizer, and of the admission plugin that asks it about the owner of an object."""


def may_be_starting(body: bytes) -> bool:
    """True if a right is missing, or the server has not read its roles yet."""
    return bool(_NO_RIGHT.match(read_status(body).message))


UNKNOWN_OWNER = "cannot find RESTMapping"
"""In the 403 of an API server that does not know the kind of an owner, usually because it has just started."""


UNKNOWN_FIELD = "UnknownField"
"""The reason of an object with a field that the API server does not know."""

UNDECODABLE = " cannot be handled as a "
"""In the 400 of an API server for a value of the wrong type, or for a field that it does not know."""
_FIELD = re.compile(r"into Go struct field \w+\.(\S+) of type|duplicate field \"([^\"]+)\"")
_UNKNOWN_FIELD = re.compile(r"unknown field \"([^\"]+)\"")

_DENIED = re.compile(r"admission webhook \"[^\"]*\" denied the request|AdmissionPolicy '[^']*' .* denied request")
"""In the answer of an API server for an object that a webhook or a policy of the cluster's owners does not want.

They choose its code and its reason, so that only the message tells it from the API server's own refusal.
"""

_DENIER = re.compile(
    r"admission webhook \"[a-z0-9.-]{1,253}\" denied the request"
    r"|\w+AdmissionPolicy '[a-z0-9.-]{1,253}' with binding '[a-z0-9.-]{1,253}' denied request"
    r"|failed calling webhook \"[a-z0-9.-]{1,253}\""
)

DENIED = "Denied"
"""The reason of such a refusal, of another 403 of admission, and of a 422 that names no field: it may pass."""

WEBHOOK_FAILED = "WebhookFailed"
NO_WEBHOOK = "failed calling webhook"
"""In the 500 of an API server whose webhook does not answer: it is about this object, not about the server."""
INTERNAL_ERROR = "InternalError"
"""The reason of an API server that fails on an object: a webhook's patch does not apply to it, say.

Proxies and a store that is away give other reasons.
"""

TIMEOUT = "Timeout"
"""The reason of an API server that is ready and does not take an object in time: a webhook hangs, say."""


def is_late(failure: Transient) -> bool:
    """True if no answer came in time, or a 504: of the API server, whose deadline the webhooks share, or of a proxy."""
    cause = failure.__cause__
    return isinstance(cause, TimeoutError) or (isinstance(cause, FailedRequest) and cause.status.code == 504)


def unknown_fields(message: str) -> list[str]:
    """The paths that the API server names in its answer to an object with unknown fields."""
    return _UNKNOWN_FIELD.findall(message) if "strict decoding error: " in message else []


def denier(words: str) -> str:
    """The part of an answer that names the webhook or the policy behind it, and repeats nothing of the object."""
    found = _DENIER.search(words)
    return found[0] if found else ""


def trouble(status: Status, what: str, *, method: str = "GET") -> Trouble:
    """The error to raise for a failed request; `what` says what was being done, and to what."""
    code, causes = status.code, status.causes
    reason = status.reason or _reason(code)
    message = f"{what}: {code} {reason}: {status.message[:LONGEST_MESSAGE]}".removesuffix(": ")
    if _DENIED.search(status.message):
        return Refused(message, reason=_of_admission(status) if code == 403 else DENIED, words=status.message)
    if code == 410 or reason in (EXPIRED, "Gone"):
        return Refused(message, reason=EXPIRED)
    if any(cause.reason == AHEAD for cause in causes):
        return Refused(message, reason=AHEAD)
    if code in (408, 429) or (code >= 500 and code != 501):
        if NO_WEBHOOK in status.message:
            return Transient(message, reason=WEBHOOK_FAILED, words=status.message)
        if method == "POST" and status.reason == INTERNAL_ERROR:
            return Transient(
                message, retry_after=status.retry_after or None, reason=INTERNAL_ERROR, words=status.message
            )
        return Transient(message, retry_after=status.retry_after or None)
    if code == 403 and UNKNOWN_OWNER in status.message:
        return Transient(message)
    if code == 401:
        return Transient(f"{message}; renew the credentials of the kubeconfig or of the service account")
    if code == 409:
        return _conflict(message, reason, method, status.message)
    if code == 422 and method == "PATCH" and any(cause.field == "metadata.uid" for cause in causes):
        # A uid in a patch is a precondition; the API server reports a change of an immutable field.
        return Conflict(message)
    if code == 400 and UNDECODABLE in status.message:
        # Permanent, like a violated validation rule.
        if unknown := unknown_fields(status.message):
            return Refused(message, reason=UNKNOWN_FIELD, field=unknown[0], words=status.message)
        found = _FIELD.search(status.message)
        return Refused(message, reason="Invalid", field=(found[1] or found[2]) if found else "", words=status.message)
    if code == 403:
        # Admission judges no GET, and says why; an answer without words is a proxy's.
        lacks_right = method == "GET" or not status.message or _NO_RIGHT.match(status.message)
        reason = FORBIDDEN if lacks_right else _of_admission(status)
    field = next((cause.field for cause in causes if cause.field), "")
    if code == 422 and not field:
        # Only the object's own fields make a refusal final: whatever else stands against it may change.
        reason = DENIED
    return Refused(message, reason=reason, field=field, words=status.message)


_STEP = re.compile(r"\[([^\]]*)\]|([^.\[]+)")
_LIMIT = re.compile(r"must be less than or equal to (\S+) limit")


def as_sent(refusal: Refused, manifest: Mapping[str, Any]) -> Refused:
    """The refusal of this object; one of a field that an admission plugin or a webhook has put there may pass.

    That is an element of a list that is longer now, and a limit from a LimitRange that is below the object's request.
    """
    if refusal.reason != "Invalid" or _was_sent(refusal, manifest):
        return refusal
    return Refused(str(refusal), reason=DENIED, field=refusal.field, words=refusal.words)


def _was_sent(refusal: Refused, manifest: Mapping[str, Any]) -> bool:
    at: Any = manifest
    for key, name in _STEP.findall(refusal.field):
        step = name or key
        if isinstance(at, list) and step.isdigit():
            if int(step) >= len(at):
                return False
            at = at[int(step)]
        elif isinstance(at, Mapping) and step == "requests" and (limit := _LIMIT.search(refusal.words)) is not None:
            return limit[1] in (at.get("limits") or {})
        elif isinstance(at, Mapping) and step in at:
            at = at[step]
        else:
            # It is required, or of a kind that the path does not name.
            return True
    return True


def _conflict(message: str, reason: str, method: str, words: str) -> Trouble:
    if method != "POST":
        return Conflict(message)
    if reason == "AlreadyExists":
        return Refused(message, reason=reason, words=words)
    # Concurrent creations under one quota conflict on its count; the next try may succeed.
    return Transient(message)


def _of_admission(status: Status) -> str:
    if any(cause.reason == "NamespaceTerminating" for cause in status.causes):
        return "NamespaceTerminating"
    if "exceeded quota" in status.message:
        return "QuotaExceeded"
    return DENIED


def _reason(code: int) -> str:
    try:
        return "".join(word.capitalize() for word in HTTPStatus(code).phrase.replace("-", " ").split())
    except ValueError:
        return "Unknown"


WITHHELD = "[withheld]"

_IN_HTML = {ord(char): f"\\u{ord(char):04x}" for char in "&<>"}

SHORTEST_VALUE = 4
"""Characters; a shorter value is a number or a flag, and hiding it would hide the numbers of a quota."""


def without(words: str, values: Iterable[str]) -> str:
    """The words, with `WITHHELD` in place of each value as it is, in JSON or in a URL.

    Cut them only afterwards: of a value that was cut the rest would stay.
    """
    # The longest first: one value may be a part of another.
    for value in sorted(dict.fromkeys(values), key=lambda value: (-len(value), value)):
        if len(value) < SHORTEST_VALUE:
            continue
        as_json = (json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1])
        # Go's encoder escapes what could end a script in HTML.
        as_html = (text.translate(_IN_HTML) for text in as_json)
        for spelt in dict.fromkeys((value, *as_json, *as_html, quote(value, safe=""), quote_plus(value))):
            words = re.sub(rf"(?<![\w-]){re.escape(spelt)}(?![\w-])", WITHHELD, words)
    return words


def without_values(refusal: Refused | Transient, what: str, manifest: dict[str, Any]) -> Refused | Transient:
    """The refusal of this object, with words that repeat no value of its environment or annotations."""
    words = without(refusal.words, _values(manifest))
    message = f"{what}: {refusal.reason}" + (f": {words[:LONGEST_LOGGED]}" if words else "")
    if isinstance(refusal, Transient):
        return Transient(message, retry_after=refusal.retry_after, reason=refusal.reason, words=words)
    return Refused(message, reason=refusal.reason, field=refusal.field, words=words)


LONGEST_LOGGED = 300
"""Characters of the words in a line of the service's log."""


def _values(manifest: dict[str, Any]) -> Iterator[str]:
    meta, spec = manifest["metadata"], manifest.get("spec") or {}
    found = [*(meta.get("annotations") or {}).values()]
    # Names are not secret, and the message needs them; an annotation of Muster's names the training container.
    names = {meta["name"], meta.get("namespace"), *(owner["name"] for owner in meta.get("ownerReferences") or ())}
    for kind in ("initContainers", "containers"):
        for container in objects(spec.get(kind)):
            found += [variable.get("value") for variable in objects(container.get("env"))]
            if isinstance(name := container.get("name"), str):
                names.add(name)
    for value in dict.fromkeys(each for each in found if isinstance(each, str)):
        if value not in names:
            yield value


def in_resource(refusal: Refused, template: str) -> Refused:
    """The refusal of a pod for its unknown fields, with their paths from its `template`; any other one as it is."""
    paths = unknown_fields(refusal.words)
    if refusal.reason != UNKNOWN_FIELD or not paths:
        return refusal
    within = f"{template}." if template else ""
    fields = [f"{within}{path}" + (f" (is it {name}?)" if (name := meant(path)) else "") for path in paths]
    words = f"the API server knows no such field: {', '.join(fields)}"
    return Refused(str(refusal), reason=UNKNOWN_FIELD, field=within + paths[0], words=words)
