"""One request: who calls, what the path and the query say, and what the body holds.

There is no authorization: every authenticated user may do everything.
"""

import csv
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import yaml
from aiohttp import web

from devcluster.apiserver import protobuf
from devcluster.apiserver.errors import ApiError, Cause, bad_request, invalid, not_supported, unsupported_media_type
from devcluster.apiserver.store import Place

BODY_LIMIT = 3 * 1024 * 1024
READABLE = ("application/json", "application/yaml", "application/vnd.kubernetes.protobuf")
VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete", "GET": "get", "HEAD": "get"}


class User(NamedTuple):
    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()

    def info(self) -> dict[str, object]:
        groups = [*self.groups, "system:authenticated"]
        return {"username": self.name, "uid": self.uid, "groups": groups}


ANONYMOUS = User("system:anonymous", groups=("system:unauthenticated",))


def read_tokens(path: Path) -> dict[str, User]:
    """Lines `token,user,uid,"group1,group2"`."""
    with path.open(newline="") as lines:
        rows = [*csv.reader(lines)]
    return {token: User(name, uid, tuple(groups.split(",")) if groups else ()) for token, name, uid, groups in rows}


def authenticate(header: str, users: Mapping[str, User]) -> User:
    scheme, _, token = header.partition(" ")
    user = users.get(token.strip()) if scheme.lower() == "bearer" else None
    if user is None:
        raise ApiError(401, "Unauthorized", "Unauthorized")
    return user


@dataclass(frozen=True)
class Target:
    """What a path names: a collection, an object or a subresource of a kind."""

    group: str
    version: str
    plural: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def parse_path(path: str) -> Target | None:
    """The target of a path; None for paths such as `/healthz` that name no kind."""
    parts = [part for part in path.split("/") if part]
    if len(parts) >= 3 and parts[0] == "api":
        group, version, rest = "", parts[1], parts[2:]
    elif len(parts) >= 4 and parts[0] == "apis":
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2:] != ["status"]:
        namespace, rest = rest[1], rest[2:]
    name, subresource = ([*rest[1:3], "", ""])[:2]
    if len(rest) > 3:
        return None
    return Target(group, version, rest[0], namespace, name, subresource)


@dataclass
class Call:
    request: web.BaseRequest
    user: User
    target: Target
    query: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.query = dict(self.request.query)

    @property
    def verb(self) -> str:
        verb = VERBS.get(self.request.method, self.request.method.lower())
        if verb == "get" and self.is_watch:
            return "watch"
        if not self.target.name:
            return {"get": "list", "delete": "deletecollection"}.get(verb, verb)
        return verb

    @property
    def is_watch(self) -> bool:
        return self.query.get("watch", "") in ("1", "true", "True", "t", "T")

    @property
    def place(self) -> Place:
        return Place(self.target.namespace, self.target.name)

    @property
    def dry_run(self) -> bool:
        asked = self.request.query.getall("dryRun", [])
        if any(value != "All" for value in asked):
            raise self.wrong_option(not_supported("dryRun", asked, ("All",)))
        return bool(asked)

    def wrong_option(self, cause: Cause) -> ApiError:
        """The error for an invalid option of a call of this verb."""
        kind = {"deletecollection": "Delete"}.get(self.verb, self.verb.capitalize())
        return invalid("meta.k8s.io", f"{kind}Options", "", [cause])

    def number(self, name: str) -> int | None:
        text = self.query.get(name, "")
        if not text:
            return None
        if not text.lstrip("-").isdecimal() or len(text) > 18:
            raise bad_request(f"invalid value for {name}: {text!r}")
        return int(text)

    @property
    def content_type(self) -> str:
        return self.request.headers.get("Content-Type", "").partition(";")[0].strip().lower()

    async def body(self) -> Any:
        """The decoded body, or None when there is none."""
        raw = await self.raw_body()
        return decode(raw, self.content_type) if raw else None

    async def raw_body(self) -> bytes:
        try:
            return await self.request.read()
        except web.HTTPRequestEntityTooLarge as error:
            message = f"Request entity too large: limit is {BODY_LIMIT}"
            raise ApiError(413, "RequestEntityTooLarge", message) from error


def decode(raw: bytes, content_type: str = "application/json") -> Any:
    if content_type == "application/vnd.kubernetes.protobuf":
        return protobuf.decode(raw)
    if "yaml" in content_type:
        return decode_yaml(raw)
    if content_type and "json" not in content_type:
        raise unsupported_media_type(READABLE)
    try:
        return msgspec.json.decode(raw)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise bad_request(f"couldn't read the body as JSON: {error}") from error


class _PlainLoader(yaml.SafeLoader):
    """YAML without aliases: with them a few bytes can expand to gigabytes."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("YAML aliases are not supported; send the values themselves")
        return super().compose_node(parent, index)


def decode_yaml(raw: bytes) -> Any:
    try:
        # JSON has no dates and only text keys: encoding turns both back into text.
        return msgspec.json.decode(msgspec.json.encode(yaml.load(raw, _PlainLoader)))  # noqa: S506
    except (yaml.YAMLError, msgspec.MsgspecError, RecursionError, TypeError, ValueError, OverflowError) as error:
        raise bad_request(f"couldn't read the body as YAML: {error}") from error
