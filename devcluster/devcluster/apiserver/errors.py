"""Errors with the messages of the real API server: each becomes a `Status` object.

`Cause` is one field error; several of them make one `invalid` (422).
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

Json = dict[str, Any]


class ApiError(Exception):
    """The request is answered with a `Status` of failure."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: Json | None = None,
        *,
        continue_token: str = "",
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.continue_token = continue_token

    def status(self) -> Json:
        status: Json = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {"continue": self.continue_token} if self.continue_token else {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            status["reason"] = self.reason
        if self.details is not None:
            status["details"] = self.details
        status["code"] = self.code
        return status


class UndecodableError(ApiError):
    """The body has fields of the wrong types, or unknown ones."""


class Cause(NamedTuple):
    """The error of one field; `reason` is one of the API's `FieldValue...` words."""

    field: str
    reason: str
    message: str


def shown(value: Any) -> str:
    """A value as error messages quote it."""
    return msgspec.json.encode(value).decode()


def required(field: str, detail: str = "") -> Cause:
    return Cause(field, "FieldValueRequired", f"Required value: {detail}" if detail else "Required value")


def invalid_value(field: str, value: Any, detail: str) -> Cause:
    return Cause(field, "FieldValueInvalid", f"Invalid value: {shown(value)}: {detail}")


def wrong_type(field: str, type_name: str, detail: str) -> Cause:
    return Cause(field, "FieldValueTypeInvalid", f"Invalid value: {shown(type_name)}: {detail}")


def not_supported(field: str, value: Any, supported: Sequence[Any]) -> Cause:
    choice = ", ".join(shown(one) for one in supported)
    return Cause(field, "FieldValueNotSupported", f"Unsupported value: {shown(value)}: supported values: {choice}")


def forbidden_field(field: str, detail: str) -> Cause:
    return Cause(field, "FieldValueForbidden", f"Forbidden: {detail}")


def duplicate(field: str, value: Any) -> Cause:
    return Cause(field, "FieldValueDuplicate", f"Duplicate value: {shown(value)}")


def too_long(field: str, limit: int) -> Cause:
    return Cause(field, "FieldValueTooLong", f"Too long: may not be more than {limit} bytes")


def too_many(field: str, count: int, limit: int) -> Cause:
    return Cause(field, "FieldValueTooMany", f"Too many: {count}: must have at most {limit} items")


def bad_request(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message)


def no_such_path() -> ApiError:
    return ApiError(404, "NotFound", "the server could not find the requested resource", {})


def not_found(group: str, plural: str, name: str) -> ApiError:
    return ApiError(404, "NotFound", f'{qualified(plural, group)} "{name}" not found', _details(group, plural, name))


def already_exists(group: str, plural: str, name: str, *, ending: bool = False) -> ApiError:
    message = ("object is being deleted: " if ending else "") + f'{qualified(plural, group)} "{name}" already exists'
    return ApiError(409, "AlreadyExists", message, _details(group, plural, name))


def conflict(group: str, plural: str, name: str, why: str) -> ApiError:
    message = f'Operation cannot be fulfilled on {qualified(plural, group)} "{name}": {why}'
    return ApiError(409, "Conflict", message, _details(group, plural, name))


def modified(group: str, plural: str, name: str) -> ApiError:
    return conflict(
        group,
        plural,
        name,
        "the object has been modified; please apply your changes to the latest version and try again",
    )


def forbidden(group: str, plural: str, name: str, why: str, causes: Sequence[Cause] = ()) -> ApiError:
    message = f'{qualified(plural, group)} "{name}" is forbidden: {why}'
    return ApiError(403, "Forbidden", message, _details(group, plural, name) | _causes(causes))


def invalid(group: str, kind: str, name: str, causes: Sequence[Cause]) -> ApiError:
    texts = [f"{cause.field}: {cause.message}" for cause in causes]
    text = texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"
    message = f'{qualified(kind, group)} "{name}" is invalid: {text}'
    return ApiError(422, "Invalid", message, _details(group, kind, name) | _causes(causes))


def method_not_allowed() -> ApiError:
    return ApiError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {})


def unsupported_media_type(accepted: Sequence[str]) -> ApiError:
    message = "the body of the request was in an unknown format - accepted media types include: "
    return ApiError(415, "UnsupportedMediaType", message + ", ".join(accepted), {})


def expired(message: str, continue_token: str = "") -> ApiError:
    return ApiError(410, "Expired", message, continue_token=continue_token)


def qualified(word: str, group: str) -> str:
    return f"{word}.{group}" if group else word


def _details(group: str, kind: str, name: str) -> Json:
    details = {"name": name, "group": group, "kind": kind}
    return {key: value for key, value in details.items() if value}


def _causes(causes: Sequence[Cause]) -> Json:
    if not causes:
        return {}
    return {"causes": [{"reason": c.reason, "message": c.message, "field": c.field} for c in causes]}
