"""The handlers of requests for kinds, objects and reviews: each reads the request and calls an operation."""

from collections.abc import Callable
from typing import Any

from aiohttp import web

from devcluster.apiserver import errors
from devcluster.apiserver.accounts import Accounts
from devcluster.apiserver.call import Call, User, decode, decode_yaml
from devcluster.apiserver.deletion import POLICIES, Delete, delete, evict
from devcluster.apiserver.errors import Json, invalid, invalid_value
from devcluster.apiserver.listing import call_selector, page
from devcluster.apiserver.metadata import check_type
from devcluster.apiserver.objects import Objects, Write
from devcluster.apiserver.ownership import Writer
from devcluster.apiserver.patch import json_patch, merge_patch, strategic_merge_patch
from devcluster.apiserver.render import Renderer, answer, success
from devcluster.apiserver.resources import NAMESPACES, PODS, SERVICES, SUBJECT_REVIEW, TOKEN_REVIEW, Resource
from devcluster.apiserver.store import Entry, Key
from devcluster.apiserver.streams import Streams
from devcluster.apiserver.table import find
from devcluster.apiserver.watches import Watches

SHOWN_WHEN_DELETED = (PODS.key, SERVICES.key, Key("", "serviceaccounts"))
"""The kinds whose DELETE is answered with the object; the answer for other kinds is a Status."""
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"


class Handlers:
    def __init__(self, objects: Objects, watches: Watches, streams: Streams, accounts: Accounts) -> None:
        self._objects = objects
        self._store = objects.store
        self._watches = watches
        self._streams = streams
        self._accounts = accounts

    async def handle(self, call: Call, resource: Resource) -> web.StreamResponse:
        if resource.virtual:
            return answer(review(resource, call.user, await call.body(), call.verb, self._accounts), 201)
        if call.target.namespace and not resource.namespaced:
            raise errors.no_such_path()
        if call.target.subresource:
            return await self._on_subresource(call, resource)
        match call.verb:
            case "watch":
                return await self._watches.serve(resource, call)
            case "list":
                found = page(self._store, resource, call)
                return answer(Renderer.of(resource, call).many(*found))
            case "deletecollection":
                return await self._delete_collection(call, resource)
            case "create" if not call.target.name:
                return await self._create(call, resource)
            case "get" | "update" | "patch" | "delete" as verb if call.target.name:
                # The path of a namespaced object includes its namespace.
                if resource.namespaced and not call.target.namespace:
                    raise errors.no_such_path()
                operation = {"get": self._get, "update": self._update, "patch": self._patch, "delete": self._delete}
                return await operation[verb](call, resource)
            case _:
                raise errors.method_not_allowed()

    async def _on_subresource(self, call: Call, resource: Resource) -> web.StreamResponse:
        name = call.target.subresource
        if name not in resource.subresources:
            raise (
                errors.not_found(resource.group, resource.plural, call.target.name)
                if resource.custom
                else errors.no_such_path()
            )
        match name, call.verb:
            case "log", "get":
                return await self._streams.log(call, self._objects.find(resource, call.place))
            case "exec", "get" | "create":
                return await self._streams.exec(call, self._objects.find(resource, call.place))
            case "eviction", "create":
                body = await call.body()
                options = body.get("deleteOptions") if isinstance(body, dict) else None
                evict(self._store, self._objects.find(resource, call.place), read_delete(call, options))
                return answer(success(code=201), 201)
            case "token", "create":
                return answer(self._accounts.request(call.place, await call.body()), 201)
            case "scale", "get" | "update" | "patch":
                return await self._scale(call, resource)
            case "status", "get":
                return await self._get(call, resource)
            case "status", "update":
                return await self._update(call, resource)
            case "status", "patch":
                return await self._patch(call, resource)
            case _:
                raise errors.method_not_allowed()

    def _one(self, call: Call, resource: Resource, entry: Entry, how: Write, code: int = 200) -> web.StreamResponse:
        return answer(Renderer.of(resource, call).one(entry), code, how.warnings)

    async def _get(self, call: Call, resource: Resource) -> web.StreamResponse:
        return self._one(call, resource, self._objects.find(resource, call.place), Write())

    async def _create(self, call: Call, resource: Resource) -> web.StreamResponse:
        if resource.namespaced and not call.target.namespace:
            raise errors.method_not_allowed()
        body, how = await call.body(), read_write(call)
        entry = self._objects.create(resource, call.target.namespace, body, how)
        return self._one(call, resource, entry, how, 201)

    async def _update(self, call: Call, resource: Resource) -> web.StreamResponse:
        body, how = await call.body(), read_write(call, replaces=True)
        existed = self._store.get(resource.key, call.place) is not None
        entry = self._objects.update(resource, call.place, body, how, call.target.subresource)
        return self._one(call, resource, entry, how, 200 if existed else 201)

    async def _patch(self, call: Call, resource: Resource) -> web.StreamResponse:
        raw, how = await call.raw_body(), read_write(call)
        if call.content_type == APPLY_PATCH:
            return await self._apply(call, resource, decode_yaml(raw), how)
        change = read_patch(resource, call.content_type, raw)
        try:
            entry = self._objects.patch(resource, call.place, change, how, call.target.subresource)
        except errors.UndecodableError as error:
            # The real server names the patch as the invalid value, not the field.
            raise errors.invalid("", "", "", [errors.invalid_value("patch", decode(raw), error.message)]) from error
        return self._one(call, resource, entry, how)

    async def _apply(self, call: Call, resource: Resource, body: Any, how: Write) -> web.StreamResponse:
        """Server-side apply as a plain merge: nothing conflicts and nothing is removed."""
        if not call.query.get("fieldManager"):
            cause = errors.required("fieldManager", "is required for apply patch")
            raise errors.invalid("meta.k8s.io", "PatchOptions", "", [cause])
        if not isinstance(body, dict) or not isinstance(body.get("metadata") or {}, dict):
            raise errors.bad_request("error decoding YAML: the body is not an object")
        check_type(resource, body)
        body["metadata"] = (body.get("metadata") or {}) | {"name": call.target.name}
        body["metadata"].pop("managedFields", None)
        if self._store.get(resource.key, call.place) is None:
            if call.target.subresource:
                self._objects.find(resource, call.place)
            entry = self._objects.create(resource, call.target.namespace, body, how)
            return self._one(call, resource, entry, how, 201)

        def merge(document: Json) -> Json:
            return strategic_merge_patch(document, body)

        entry = self._objects.patch(resource, call.place, merge, how, call.target.subresource)
        return self._one(call, resource, entry, how)

    async def _delete(self, call: Call, resource: Resource) -> web.StreamResponse:
        how = read_delete(call, await call.body())
        entry, gone = delete(self._store, resource.key, self._objects.find(resource, call.place), how)
        if gone and resource.key not in SHOWN_WHEN_DELETED:
            details = {"name": entry.place.name, "group": resource.group, "kind": resource.plural, "uid": entry.uid}
            return answer(success({name: value for name, value in details.items() if value}))
        return self._one(call, resource, entry, Write())

    async def _delete_collection(self, call: Call, resource: Resource) -> web.StreamResponse:
        if (resource.namespaced and not call.target.namespace) or resource is NAMESPACES:
            raise errors.method_not_allowed()
        how, chosen = read_delete(call, await call.body()), call_selector(resource, call)
        entries = self._store.all(resource.key, call.target.namespace)
        entries = sorted((one for one in entries if chosen is None or chosen(one)), key=lambda one: one.place)
        for entry in entries:
            delete(self._store, resource.key, entry, how)
        metadata = {"resourceVersion": str(self._store.version)} | ({"continue": ""} if resource.custom else {})
        body = Renderer.of(resource, call).many(entries, metadata)
        return answer(body)

    async def _scale(self, call: Call, resource: Resource) -> web.StreamResponse:
        paths = resource.scale
        assert paths is not None, resource
        how = read_write(call)
        entry = self._objects.find(resource, call.place)
        if call.verb != "get":
            raw = await call.raw_body()
            content_type = call.content_type if call.verb == "patch" else ""
            change = read_patch(resource, content_type, raw) if content_type else _replacement(decode(raw))

            def set_replicas(document: Json) -> Json:
                wanted = change(read_scale(paths, document))
                return write_scale(paths, document, wanted)

            # A write through the scale subresource fills in no defaults.
            entry = self._objects.patch(resource, call.place, set_replicas, how, defaults=False)
        return answer(read_scale(paths, self._objects.served(resource, entry)), 200, how.warnings)


def read_write(call: Call, *, replaces: bool = False) -> Write:
    validation = call.query.get("fieldValidation", "") or "Warn"
    if validation not in ("Ignore", "Warn", "Strict"):
        raise call.wrong_option(errors.not_supported("fieldValidation", validation, ("", "Ignore", "Strict", "Warn")))
    agent = call.request.headers.get("User-Agent", "")
    operation = "Apply" if call.verb == "patch" and call.content_type == APPLY_PATCH else "Update"
    writer = Writer.named(call.query.get("fieldManager", ""), agent, operation, call.target.subresource)
    return Write(dry_run=call.dry_run, field_validation=validation, replaces=replaces, writer=writer)


def read_delete(call: Call, body: Any) -> Delete:
    """The options of a DELETE: from the body if there is one, otherwise from the query."""
    if body is None:
        names = ("propagationPolicy", "orphanDependents")
        body = {name: call.query[name] for name in names if call.query.get(name)}
        body["gracePeriodSeconds"], body["dryRun"] = call.number("gracePeriodSeconds"), call.dry_run
    if not isinstance(body, dict):
        raise errors.bad_request("couldn't read DeleteOptions: the body is not an object")
    preconditions = body.get("preconditions") or {}
    grace = body.get("gracePeriodSeconds")
    policy = body.get("propagationPolicy") or ""
    if not policy and body.get("orphanDependents"):
        policy = "Orphan"
    if not isinstance(preconditions, dict) or isinstance(grace, bool) or not isinstance(grace, int | None):
        raise errors.bad_request("couldn't read DeleteOptions: a field has the wrong type")
    uid, version = preconditions.get("uid") or "", preconditions.get("resourceVersion") or ""
    if not isinstance(uid, str) or not isinstance(version, str):
        raise errors.bad_request("couldn't read DeleteOptions: the preconditions are not strings")
    if policy and policy not in POLICIES:
        cause = errors.not_supported("propagationPolicy", policy, ("Foreground", "Background", "Orphan", "nil"))
        raise errors.invalid("meta.k8s.io", "DeleteOptions", "", [cause])
    return Delete(
        uid=uid,
        resource_version=version,
        grace=None if grace is None else min(max(grace, -1), 10**9),
        policy=policy,
        dry_run=bool(body.get("dryRun")),
    )


def read_patch(resource: Resource, content_type: str, raw: bytes) -> Callable[[Json], Any]:
    """The patch as a function from the old document to the new one."""
    accepted = [JSON_PATCH, MERGE_PATCH, *([] if resource.custom else [STRATEGIC_PATCH]), APPLY_PATCH]
    if content_type not in accepted:
        raise errors.unsupported_media_type(accepted)

    def change(document: Json) -> Any:
        # Decoded only when the object exists: a patch of a missing object is answered with 404, even if it is invalid.
        patch = decode(raw)
        if content_type == JSON_PATCH:
            return json_patch(document, patch)
        if not isinstance(patch, dict):
            raise errors.bad_request("error decoding patch: a merge patch is an object")
        return merge_patch(document, patch) if content_type == MERGE_PATCH else strategic_merge_patch(document, patch)

    return change


def _replacement(body: Any) -> Callable[[Json], Any]:
    return lambda _: body


def review(resource: Resource, user: User, body: Any, verb: str, accounts: Accounts) -> Json:
    if verb != "create":
        raise errors.method_not_allowed()
    document = check_type(resource, {} if body is None else body)
    document["metadata"] = {"creationTimestamp": None}
    if resource is SUBJECT_REVIEW:
        document["status"] = {"userInfo": user.info()}
    elif resource is TOKEN_REVIEW:
        document["status"] = accounts.review(document.get("spec"))
    elif resource.kind == "SelfSubjectRulesReview":
        everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
        everywhere = {"verbs": ["*"], "nonResourceURLs": ["*"]}
        document["status"] = {"resourceRules": [everything], "nonResourceRules": [everywhere], "incomplete": False}
    else:
        document["status"] = {"allowed": True, "reason": "this development server has no authorization"}
    return document


IDENTITY = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


def read_scale(paths: Json, obj: Json) -> Json:
    """The object as an autoscaling/v1 Scale."""
    status: Json = {"replicas": find(obj, paths["statusReplicasPath"]) or 0}
    replicas = find(obj, paths["specReplicasPath"]) or 0
    selector = find(obj, paths["labelSelectorPath"]) if paths.get("labelSelectorPath") else None
    if selector:
        status["selector"] = selector
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {name: obj["metadata"][name] for name in IDENTITY if name in obj["metadata"]},
        # The real server omits a zero here, but not in the status.
        "spec": {"replicas": replicas} if replicas else {},
        "status": status,
    }


def write_scale(paths: Json, obj: Json, wanted: Any) -> Json:
    """`obj` with the replicas of the Scale `wanted`; the Scale's resourceVersion and uid become preconditions."""
    metadata = wanted.get("metadata") if isinstance(wanted, dict) else None
    spec = wanted.get("spec") if isinstance(wanted, dict) else None
    replicas = spec.get("replicas", 0) if isinstance(spec, dict) else None
    name = obj["metadata"]["name"]
    if isinstance(replicas, bool) or not isinstance(replicas, int) or replicas < 0:
        cause = invalid_value("spec.replicas", replicas, "must be greater than or equal to 0")
        raise invalid("autoscaling", "Scale", name, [cause])
    *parents, last = paths["specReplicasPath"].strip(".").split(".")
    parent = obj
    for step in parents:
        inner = parent.setdefault(step, {})
        if not isinstance(inner, dict):
            raise invalid(
                "autoscaling", "Scale", name, [invalid_value(paths["specReplicasPath"], None, "no such place")]
            )
        parent = inner
    parent[last] = replicas
    if isinstance(metadata, dict):
        for field in ("resourceVersion", "uid"):
            if metadata.get(field):
                obj["metadata"][field] = metadata[field]
    return obj
