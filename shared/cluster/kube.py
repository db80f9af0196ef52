"""A `Cluster` on any API server of Kubernetes.

The official client provides configuration, TLS, credentials and the session; requests and answers are bytes.
"""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, Self, TypeVar

import msgspec

from shared.cluster import MOST_OUTPUT, Execution, Manifest, Resource, Seen
from shared.cluster.access import find_cluster
from shared.cluster.answers import TIMEOUT, Deletion, FailedRequest, Status, is_late, is_named_absence, trouble
from shared.cluster.calls import METADATA, Access, Answered, Caller, Timeouts, path_of
from shared.cluster.decoding import Lines, encode, read_answer, read_object, read_page
from shared.cluster.examination import Review, Right
from shared.cluster.executing import execute
from shared.cluster.kinds import PODS
from shared.cluster.objects import Object
from shared.cluster.reflector import Pace, Reflector
from shared.errors import Transient
from shared.flow import Limiter

T = TypeVar("T", bound=Object)

MERGE_PATCH = "application/merge-patch+json"
SELF_REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


class _Served(msgspec.Struct):
    name: str = ""


class _Discovered(msgspec.Struct):
    resources: tuple[_Served, ...] = ()


class _User(msgspec.Struct):
    username: str = ""


class _Identity(msgspec.Struct):
    user: _User = msgspec.field(default_factory=_User, name="userInfo")


class _Self(msgspec.Struct):
    status: _Identity = msgspec.field(default_factory=_Identity)


class KubeCluster:
    """One client of an API server.  Its calls share a session and, except watches, a bound on requests in flight."""

    def __init__(
        self,
        access: Access,
        *,
        timeouts: Timeouts | None = None,
        pace: Pace | None = None,
        answered: Callable[[str, str], None] = lambda _, __: None,
    ) -> None:
        """`answered` is told of each request: its method, and the status of the answer or `error`."""
        self.url = access.url
        self.limiter = Limiter()
        self._caller = Caller(access, timeouts=timeouts or Timeouts(), limiter=self.limiter, answered=answered)
        self._pace = pace or Pace()

    @property
    def succeeded(self) -> int:
        """How many requests have succeeded, without streams."""
        return self._caller.succeeded

    @classmethod
    async def connect(
        cls,
        kubeconfig: Path | None = None,
        *,
        context: str = "",
        timeouts: Timeouts | None = None,
        pace: Pace | None = None,
        answered: Callable[[str, str], None] = lambda _, __: None,
    ) -> Self:
        """Find the cluster as kubectl does: this file, `KUBECONFIG`, the pod's service account, or `~/.kube/config`.

        `context` is taken instead of the current one.
        Makes no call yet.  Raises `Refused(reason="NoCluster")` if none is configured.
        """
        return cls(await find_cluster(kubeconfig, context), timeouts=timeouts, pace=pace, answered=answered)

    def watch(
        self, resource: Resource[T], *, namespace: str = "", selector: str = "", name: str = ""
    ) -> AsyncGenerator[Seen[T], None]:
        fields = f"metadata.name={name}" if name else ""
        return Reflector(self._caller, resource, namespace, selector, self._pace, fields=fields).run()

    async def get(self, resource: Resource[T], namespace: str, name: str) -> T | None:
        what, headers = f"get {resource.kind} {namespace}/{name}", METADATA if resource.type is Object else {}
        try:
            answer = await self._caller.request("GET", path_of(resource, namespace, name), what=what, headers=headers)
        except FailedRequest as failure:
            if is_named_absence(failure.status):
                return None
            raise trouble(failure.status, what) from failure
        return read_object(resource, answer.body)

    async def find(self, resource: Resource[T], namespace: str, fields: str, *, most: int) -> tuple[T, ...]:
        what, query = f"list {resource.plural} in {namespace}", {"fieldSelector": fields, "limit": str(most)}
        page = read_page((await self.ask(path_of(resource, namespace), what=what, query=query)).body, what)
        return tuple(read_object(resource, raw) for raw in page.items or ())

    async def create(self, resource: Resource[T], namespace: str, manifest: Manifest, *, within: int = 0) -> T:
        query = {"timeout": f"{within}s"} if within else {}
        return await self._post(resource, namespace, manifest, "create", query)

    async def would_create(self, resource: Resource[T], namespace: str, manifest: Manifest) -> None:
        await self._post(resource, namespace, manifest, "try to create", {"dryRun": "All"})

    async def _post(
        self, resource: Resource[T], namespace: str, manifest: Manifest, verb: str, query: Mapping[str, str]
    ) -> T:
        what = f"{verb} {resource.kind} {namespace}/{(manifest.get('metadata') or {}).get('name', '')}"
        body = encode({"apiVersion": resource.api_version, "kind": resource.kind, **manifest})
        if resource.kind == PODS.kind:
            # Its fields are a user's.  Otherwise the API server drops those that it does not know.
            query = {**query, "fieldValidation": "Strict"}
        try:
            answer = await self._request("POST", path_of(resource, namespace), what=what, query=query, body=body)
        except Transient as failure:
            if is_late(failure) and await self._caller.is_ready():
                raise Transient(str(failure), reason=TIMEOUT) from failure
            raise
        return read_object(resource, answer.body)

    async def patch(
        self, resource: Resource[T], namespace: str, name: str, manifest: Manifest, *, subresource: str = ""
    ) -> T:
        what = f"patch {resource.kind} {namespace}/{name} {subresource}".rstrip()
        path = path_of(resource, namespace, name, subresource)
        answer = await self._request("PATCH", path, what=what, body=encode(manifest), content_type=MERGE_PATCH)
        return read_object(resource, answer.body)

    async def delete(
        self,
        resource: Resource[T],
        namespace: str,
        name: str,
        *,
        uid: str,
        version: str = "",
        grace: int | None = None,
    ) -> None:
        what = f"delete {resource.kind} {namespace}/{name}"
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Background",
            "preconditions": {"uid": uid} | ({"resourceVersion": version} if version else {}),
        } | ({"gracePeriodSeconds": grace} if grace is not None else {})
        try:
            path = path_of(resource, namespace, name)
            await self._caller.request("DELETE", path, what=what, body=encode(options))
        except FailedRequest as failure:
            # 409 is a precondition: another object has the name, and this one is gone; or it has another version.
            if not is_named_absence(failure.status) and failure.status.code != 409:
                raise trouble(failure.status, what, method="DELETE") from failure

    async def would_delete(self, resource: Resource[T], namespace: str, name: str) -> str | None:
        what = f"try to delete {resource.kind} {namespace}/{name}"
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "dryRun": ["All"]}
        try:
            path = path_of(resource, namespace, name)
            answer = await self._caller.request("DELETE", path, what=what, body=encode(options))
        except FailedRequest as failure:
            if is_named_absence(failure.status):
                return None
            raise trouble(failure.status, what, method="DELETE") from failure
        return read_answer(Deletion, answer.body, what).uid

    def change_only_while(self, allowed: Callable[[], bool]) -> None:
        """Check `allowed` before every request that changes or executes something, right before it is sent.

        A process that was paused may have lost its lease after it decided on the request.
        """
        self._caller.may_change = allowed

    async def execute(
        self,
        namespace: str,
        pod: str,
        container: str,
        command: Sequence[str],
        *,
        timeout: float,
        most: int = MOST_OUTPUT,
    ) -> Execution:
        return await execute(self._caller, namespace, pod, container, command, timeout=timeout, most=most)

    async def log(
        self,
        namespace: str,
        pod: str,
        container: str,
        *,
        follow: bool = False,
        since: str = "",
        tail: int | None = None,
    ) -> AsyncGenerator[bytes, None]:
        """The log lines of a container, each after its time; with `follow` until the container ends.

        `since` is the time of the first line, `tail` the number of last lines; without them all lines.
        Raises `Refused` if the container has not started or is gone, `Transient` if the stream breaks off.
        """
        what = f"read the log of {namespace}/{pod}"
        query = {"container": container, "timestamps": "true", "follow": str(follow).lower()}
        query |= {"sinceTime": since} if since else {}
        query |= {"tailLines": str(tail)} if tail is not None else {}
        path = path_of(PODS, namespace, pod, "log")
        idle = None if follow else self._caller.timeouts.total
        async with aclosing(self.lines(path, query, what=what, media="text/plain", idle=idle)) as lines:
            async for line in lines:
                yield line

    async def lines(
        self, path: str, query: Mapping[str, str], *, what: str, media: str, idle: float | None
    ) -> AsyncGenerator[bytes, None]:
        """The lines of a stream of this media type, as they come, to its end.

        Raises as every other call; `Transient` also after `idle` seconds without data, and if the stream breaks off.
        """
        lines = Lines()
        try:
            async with self._caller.stream(
                path, query, what=what, idle=idle, media=media, headers={"Accept": f"{media}, */*"}
            ) as stream:
                async for chunk in stream.iter_any():
                    for line in lines.split(chunk):
                        yield line
                for line in lines.split(b"\n"):
                    yield line
        except FailedRequest as failure:
            raise trouble(failure.status, what) from failure

    async def serves(self, resource: Resource[Any]) -> bool:
        """True if the API server's discovery of the group has the kind, or is forbidden."""
        what = f"look for {resource.plural}.{resource.group} in {self.url}"
        path = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
        answer = await self._asked("GET", path, what)
        if isinstance(answer, Status):
            # Discovery may be forbidden; the first call then shows it.
            return answer.code != 404
        return resource.plural in (served.name for served in read_answer(_Discovered, answer, what).resources)

    async def may(self, right: Right, namespace: str) -> bool:
        """True if this process has the right in the namespace, or in the whole cluster if that is empty."""
        what = f"ask {self.url} whether we may {right.verb} {right.resource}"
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": right.attributes(namespace),
        }
        answer = await self._asked("POST", ACCESS_REVIEWS, what, encode(review))
        # If the review is forbidden, the right may still exist.
        return isinstance(answer, Status) or read_answer(Review, answer, what).status.allowed

    async def user(self, headers: Mapping[str, str] | None = None) -> str:
        """The name of the user of these credentials, or of `headers`.  Raises `Trouble` as every other call."""
        what = "ask who we are"
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        answer = await self.ask(SELF_REVIEWS, what=what, review=review, headers=headers)
        return read_answer(_Self, answer.body, what).status.user.username

    async def ask(
        self,
        path: str,
        *,
        what: str,
        query: Mapping[str, str] | None = None,
        review: Manifest | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answered:
        """The answer for a path, or for a `review` that is posted there; it changes nothing.

        Raises `Trouble` as every other call.
        """
        method, body = ("GET", None) if review is None else ("POST", encode(review))
        return await self._request(method, path, what=what, query=query, body=body, headers=headers)

    async def _request(self, method: str, path: str, *, what: str, **request: Any) -> Answered:
        try:
            return await self._caller.request(method, path, what=what, **request)
        except FailedRequest as failure:
            raise trouble(failure.status, what, method=method) from failure

    async def close(self) -> None:
        await self._caller.close()

    async def _asked(self, method: str, path: str, what: str, body: bytes | None = None) -> bytes | Status:
        """The answer, or the Status if the question is forbidden or not served."""
        try:
            return (await self._caller.request(method, path, what=what, body=body)).body
        except FailedRequest as failure:
            if failure.status.code in (403, 404):
                return failure.status
            raise trouble(failure.status, what, method=method) from failure
