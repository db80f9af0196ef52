"""The port to Kubernetes: watch, get, create, patch, delete, and a command within a pod.

The adapter is `kube.py`; it and the cluster in memory of the tests are held to one contract suite,
`tests/contract/test_cluster_*.py`.

Objects come as small typed Structs (`objects.py`) and go as plain dictionaries.
Nothing in this package knows training jobs.
"""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from shared.cluster.objects import Object

T = TypeVar("T", bound=Object)
K = TypeVar("K", bound=Object)

Manifest = Mapping[str, Any]
"""A Kubernetes object, or a patch of one, as JSON-like data."""


class Resource(msgspec.Struct, Generic[T], frozen=True):
    """One kind as the API server serves it, and the Struct that its objects are read into."""

    group: str
    """Empty for the core group."""
    version: str
    plural: str
    kind: str
    type: type[T]
    """Every field has a default: of an object that does not fit, only the metadata is read."""
    keep: Callable[[Any], T] | None = None
    """What a watch keeps of each object; all of it without."""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def by_metadata(self) -> "Resource[Object]":
        """The same kind, of whose objects only the metadata is requested."""
        return Resource(self.group, self.version, self.plural, self.kind, Object)

    def kept_as(self, keep: Callable[[T], K]) -> "Resource[K]":
        """The same kind, of whose objects a watch keeps only this: a long list never has all of them in memory."""
        decoded: Any = self.type
        return Resource(self.group, self.version, self.plural, self.kind, decoded, keep)

    def kept(self, found: Any) -> T:
        """What a watch keeps of an object."""
        kept: T = self.keep(found) if self.keep is not None else found
        return kept


class Snapshot(msgspec.Struct, Generic[T], frozen=True):
    """All objects in the watched scope at `version`, from one complete and consistent LIST."""

    objects: tuple[T, ...]
    version: int


class Applied(msgspec.Struct, Generic[T], frozen=True):
    """An object was added or changed; this is its new state."""

    object: T


class Deleted(msgspec.Struct, Generic[T], frozen=True):
    """An object left the watched scope; this is its last state."""

    object: T


class Alive(msgspec.Struct, frozen=True):
    """The watch works and has nothing new: a bookmark, or a stream that was opened again."""


class Blind(msgspec.Struct, frozen=True):
    """The watch is broken for now; it lists or receives later what it has missed."""

    reason: str


Seen = Snapshot[T] | Applied[T] | Deleted[T] | Alive | Blind


class Execution(msgspec.Struct, frozen=True):
    """How a command within a container ended."""

    exit_code: int
    output: bytes
    """The beginning of its standard output."""


MOST_OUTPUT = 65536
"""Bytes of a command's output that are kept unless more are asked for."""


class Cluster(Protocol):
    """The calls that Muster makes to an API server.

    Every call may raise `Transient` (timeout, lost connection, 429, 5xx, 401 while a token is re-read),
    `Conflict` (409 on a write of something that exists) and `Refused` (403, 404, 409 AlreadyExists, 422, other 4xx)
    with the API server's reason; a namespace that is going away is `Refused(reason="NamespaceTerminating")`,
    a quota `Refused(reason="QuotaExceeded")`, a missing right `Forbidden`, and what admission does not let in `Denied`.
    """

    def watch(
        self, resource: Resource[T], *, namespace: str = "", selector: str = "", name: str = ""
    ) -> AsyncGenerator[Seen[T], None]:
        """List, then follow, for ever: a `Snapshot` first, and again after every gap (410, a lost history).

        An empty `namespace` is the whole cluster.  `selector` is a label selector on labels that never change; `name`
        that of the only object to see.
        The next element is read when the consumer asks for it (back-pressure).
        """

    async def get(self, resource: Resource[T], namespace: str, name: str) -> T | None:
        """The object as it is now (a consistent read), or None when it does not exist."""

    async def find(self, resource: Resource[T], namespace: str, fields: str, *, most: int) -> tuple[T, ...]:
        """At most so many objects of the namespace that a field selector chooses, in the order of their names."""

    async def create(self, resource: Resource[T], namespace: str, manifest: Manifest, *, within: int = 0) -> T:
        """Create it.  Raises `Refused(reason="AlreadyExists")` when the name is taken.

        A pod with a field that the API server does not know is `Refused(reason="UnknownField")`; of other kinds it
        drops such a field.
        The API server creates it `within` so many seconds of the call's arrival, or never; 0 leaves that to the server.
        """

    async def would_create(self, resource: Resource[T], namespace: str, manifest: Manifest) -> None:
        """Raise what `create` would raise, and create nothing."""

    async def patch(
        self, resource: Resource[T], namespace: str, name: str, manifest: Manifest, *, subresource: str = ""
    ) -> T:
        """Merge-patch it (RFC 7396).

        A `metadata.resourceVersion` in the patch is a precondition; unmet, it is a `Conflict`.  So is a `metadata.uid`,
        but not in a patch of a subresource: of the metadata there, custom resources heed the version alone.
        """

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
        """Delete the object (background propagation) if it still has this uid, and a given resourceVersion.

        `grace` are seconds in place of a pod's own grace period; with 0 the pod is gone whatever its kubelet says.

        Any other outcome is success too.
        """

    async def would_delete(self, resource: Resource[T], namespace: str, name: str) -> str | None:
        """The uid of the object that a deletion would reach, or None: for what may be deleted and not read."""

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
        """Run a command in a running container to its end, within `timeout` seconds.

        At most `most` bytes of the output are kept; the rest and the standard error are dropped.

        `Refused` means that the command did not start: `NotFound`, `Forbidden`, `CannotExecute` when the container is
        not running or has no such program.  `Transient` (a timeout, a lost connection) means that the command may have
        run, or may be running now.  No command is retried.
        """

    async def close(self) -> None:
        """Close all connections; a second call does nothing."""
