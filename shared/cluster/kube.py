"""Kubernetes itself: a `Cluster` on any API server.

Configuration, TLS, credentials and the session are the official client's; requests and answers are ours, as bytes.
The client is imported when it is needed: it takes about 20 MiB.
"""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Self, TypeVar

from shared.cluster import Manifest, Resource, Seen
from shared.cluster.access import find_cluster
from shared.cluster.answers import is_named_absence, trouble
from shared.cluster.calls import Access, Caller, FailedRequest, Timeouts, path_of
from shared.cluster.decoding import encode, read_object
from shared.cluster.limiter import Limiter
from shared.cluster.objects import Object
from shared.cluster.reflector import Pace, Reflector

T = TypeVar("T", bound=Object)

MERGE_PATCH = "application/merge-patch+json"


class KubeCluster:
    """One client of an API server.  Its calls share a session and a bound on requests in flight; watches are beside."""

    def __init__(self, access: Access, *, timeouts: Timeouts | None = None, pace: Pace | None = None) -> None:
        self._caller = Caller(access, timeouts=timeouts or Timeouts(), limiter=Limiter())
        self._pace = pace or Pace()

    @classmethod
    async def connect(
        cls, kubeconfig: Path | None = None, *, timeouts: Timeouts | None = None, pace: Pace | None = None
    ) -> Self:
        """Find the cluster as kubectl does: this file, `KUBECONFIG`, the pod we run in, or `~/.kube/config`.

        Asks nothing of the cluster yet.  Raises `Refused(reason="NoCluster")` when nothing is found.
        """
        return cls(await find_cluster(kubeconfig), timeouts=timeouts, pace=pace)

    def watch(self, resource: Resource[T], *, namespace: str = "", selector: str = "") -> AsyncGenerator[Seen[T], None]:
        return Reflector(self._caller, resource, namespace, selector, self._pace).run()

    async def get(self, resource: Resource[T], namespace: str, name: str) -> T | None:
        what = f"get {resource.kind} {namespace}/{name}"
        try:
            answer = await self._caller.request("GET", path_of(resource, namespace, name), what=what)
        except FailedRequest as failure:
            if is_named_absence(failure.status):
                return None
            raise trouble(failure.status, what) from failure
        return read_object(resource, answer)

    async def create(self, resource: Resource[T], namespace: str, manifest: Manifest) -> T:
        what = f"create {resource.kind} {namespace}/{(manifest.get('metadata') or {}).get('name', '')}"
        body = encode({"apiVersion": resource.api_version, "kind": resource.kind, **manifest})
        try:
            answer = await self._caller.request("POST", path_of(resource, namespace), what=what, body=body)
        except FailedRequest as failure:
            raise trouble(failure.status, what, method="POST") from failure
        return read_object(resource, answer)

    async def patch(
        self, resource: Resource[T], namespace: str, name: str, manifest: Manifest, *, subresource: str = ""
    ) -> T:
        what = f"patch {resource.kind} {namespace}/{name} {subresource}".rstrip()
        path = path_of(resource, namespace, name, subresource)
        try:
            answer = await self._caller.request(
                "PATCH", path, what=what, body=encode(manifest), content_type=MERGE_PATCH
            )
        except FailedRequest as failure:
            raise trouble(failure.status, what, method="PATCH") from failure
        return read_object(resource, answer)

    async def delete(self, resource: Resource[T], namespace: str, name: str, *, uid: str) -> None:
        what = f"delete {resource.kind} {namespace}/{name}"
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Background",
            "preconditions": {"uid": uid},
        }
        try:
            await self._caller.request("DELETE", path_of(resource, namespace, name), what=what, body=encode(options))
        except FailedRequest as failure:
            # 409 is the precondition: the name is another object's by now, and ours is gone.
            if not is_named_absence(failure.status) and failure.status.code != 409:
                raise trouble(failure.status, what, method="DELETE") from failure

    async def close(self) -> None:
        await self._caller.close()
