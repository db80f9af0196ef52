"""Refusals of an API server, sorted by what to do next."""

import json
from typing import Any

import pytest

from shared.cluster.answers import read_status, trouble
from shared.errors import Conflict, Refused, Transient
from tests.kit.apiserver import a_status

STRANGE = (
    "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion g/v1 Kind K: no match"
)
NUMBER_FOR_TEXT = (
    'Pod in version "v1" cannot be handled as a Pod: json: cannot unmarshal number into Go struct field '
    "EnvVar.spec.containers.env.value of type string"
)
NO_QUANTITY = 'Pod in version "v1" cannot be handled as a Pod: quantities must match the regular expression'
NO_RIGHT = (
    'pods "p" is forbidden: User "system:serviceaccount:m:scheduler" cannot create resource "pods" in API group "" '
    'in the namespace "team-a"'
)
NO_RIGHT_TO_ITS_OWNER = (
    'pods "p" is forbidden: cannot set blockOwnerDeletion if an ownerReference refers to a resource you '
    "can't set finalizers on: , <nil>"
)
NO_RIGHT_TO_DELETE_IT = (
    'pods "p" is forbidden: cannot set an ownerRef on a resource you can\'t delete: User "scheduler" cannot delete '
    'resource "trainingjobs" in API group "muster.dev" in the namespace "team-a"'
)
EXEC_DENIED = 'admission webhook "w.example.com" denied the request: User "a" cannot have a shell'
BORROWED = 'pods "p" is forbidden: error looking up service account team-a/forbidden: User "a" cannot get b: not found'
QUOTA = 'pods "p" is forbidden: exceeded quota: small, requested: pods=1, used: pods=3, limited: pods=3'


def told(method: str, code: int, body: Any, retry_after: str = "") -> Any:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return trouble(read_status(raw, code, retry_after), "do it", method=method)


def a_field(reason: str, field: str = "") -> dict[str, Any]:
    return {"causes": [{"reason": reason, "message": "no", "field": field}]}


@pytest.mark.parametrize(
    ("method", "code", "body", "reason", "field"),
    [
        pytest.param("POST", 409, a_status(409, "AlreadyExists"), "AlreadyExists", "", id="the name is taken"),
        pytest.param("POST", 403, a_status(403, "Forbidden", QUOTA), "QuotaExceeded", "", id="quota"),
        pytest.param("POST", 403, a_status(403, "Forbidden", NO_RIGHT), "Forbidden", "", id="no right to"),
        pytest.param(
            "POST", 403, a_status(403, "Forbidden", NO_RIGHT_TO_ITS_OWNER), "Forbidden", "", id="no right to its owner"
        ),
        pytest.param(
            "POST", 403, a_status(403, "Forbidden", NO_RIGHT_TO_DELETE_IT), "Forbidden", "", id="no right to delete it"
        ),
        pytest.param("POST", 403, a_status(403, "Forbidden", BORROWED), "Denied", "", id="a job with those words"),
        pytest.param("POST", 403, b"<html>", "Forbidden", "", id="a proxy does not let us"),
        pytest.param("GET", 403, a_status(403, "Forbidden", "not you"), "Forbidden", "", id="no right to read"),
        pytest.param("GET", 403, a_status(403, "Forbidden", EXEC_DENIED), "Denied", "", id="no command in this pod"),
        pytest.param(
            "POST",
            403,
            a_status(403, "Forbidden", **a_field("NamespaceTerminating", "metadata.namespace")),
            "NamespaceTerminating",
            "metadata.namespace",
            id="the namespace goes",
        ),
        pytest.param("PATCH", 404, a_status(404, "NotFound", name="p"), "NotFound", "", id="nothing to patch"),
        pytest.param(
            "POST",
            422,
            a_status(422, "Invalid", **a_field("FieldValueInvalid", "spec.size")),
            "Invalid",
            "spec.size",
            id="a field",
        ),
        pytest.param("POST", 400, a_status(400, "BadRequest"), "BadRequest", "", id="a bad request"),
        pytest.param(
            "POST",
            400,
            a_status(400, "BadRequest", 'admission webhook "w.example.com" denied the request: not today'),
            "Denied",
            "",
            id="a webhook, which may change its mind",
        ),
        pytest.param(
            "POST",
            400,
            a_status(400, "BadRequest", NUMBER_FOR_TEXT),
            "Invalid",
            "spec.containers.env.value",
            id="a value of another type than its field's",
        ),
        pytest.param(
            "POST",
            400,
            a_status(400, "BadRequest", NO_QUANTITY),
            "Invalid",
            "",
            id="a value that nothing can be made of",
        ),
        pytest.param("POST", 413, b"<html>", "RequestEntityTooLarge", "", id="too large, says a proxy"),
        pytest.param("GET", 410, a_status(410, "Gone"), "Expired", "", id="gone and expired are one"),
        pytest.param("GET", 404, b"404 page not found\n", "NotFound", "", id="a group that is not served"),
        pytest.param("GET", 499, b"", "Unknown", "", id="a code of their own"),
        pytest.param("GET", 501, a_status(501, "NotImplemented"), "NotImplemented", "", id="not implemented"),
    ],
)
def test_refused(method: str, code: int, body: Any, reason: str, field: str) -> None:
    error = told(method, code, body)
    assert isinstance(error, Refused)
    assert (error.reason, error.field) == (reason, field)
    assert str(error).startswith(f"do it: {code}")


@pytest.mark.parametrize(
    ("method", "code", "body", "retry_after", "seconds"),
    [
        pytest.param("GET", 401, a_status(401, "Unauthorized"), "", None, id="a token that ran out"),
        pytest.param("GET", 429, a_status(429, "TooManyRequests", retryAfterSeconds=3), "", 3, id="in the status"),
        pytest.param("GET", 429, a_status(429, "TooManyRequests"), "5", 5, id="in the header"),
        pytest.param("GET", 503, b"<html>", "2", 2, id="a proxy's header"),
        pytest.param("GET", 429, a_status(429, "TooManyRequests"), "32", 32, id="the longest of an API server"),
        pytest.param("GET", 503, b"<html>", "86400", 32, id="a proxy that closes for a day"),
        pytest.param("GET", 429, a_status(429, "TooManyRequests", retryAfterSeconds=-9), "", None, id="a time before"),
        pytest.param("GET", 503, b"", "Wed, 21 Oct 2026 07:28:00 GMT", None, id="a date is not understood"),
        pytest.param("PATCH", 500, a_status(500, "InternalError"), "", None, id="an internal error"),
        pytest.param("POST", 409, a_status(409, "Conflict"), "", None, id="creations that disturb each other's quota"),
        pytest.param("POST", 403, a_status(403, "Forbidden", STRANGE), "", None, id="an owner of a kind not known yet"),
    ],
)
def test_transient(method: str, code: int, body: Any, retry_after: str, seconds: float | None) -> None:
    error = told(method, code, body, retry_after)
    assert isinstance(error, Transient)
    assert error.retry_after == seconds


@pytest.mark.parametrize(
    ("code", "body"),
    [
        pytest.param(409, a_status(409, "Conflict"), id="a version that moved on"),
        pytest.param(
            422, a_status(422, "Invalid", **a_field("FieldValueInvalid", "metadata.uid")), id="a uid that differs"
        ),
    ],
)
def test_a_precondition_of_a_patch_is_a_conflict(code: int, body: Any) -> None:
    assert isinstance(told("PATCH", code, body), Conflict)


def test_other_peoples_text_is_cut_short() -> None:
    assert len(str(told("POST", 400, a_status(400, "BadRequest", "x" * 10_000)))) < 400


@pytest.mark.parametrize(("code", "reason"), [(403, "Forbidden"), (400, "BadRequest"), (422, "Invalid")])
def test_a_refusal_has_the_server_s_own_words(code: int, reason: str) -> None:
    assert told("POST", code, a_status(code, reason, QUOTA)).words == QUOTA
