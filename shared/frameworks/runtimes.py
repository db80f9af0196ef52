"""Runtimes: resources with the pod templates of jobs that name them.  Pure.

The watcher reads a job together with its runtime, and records which one that was (`JobSpec.runtime`).  The scheduler
keeps a copy of it, because the runtime may be changed while the job runs.
"""

from hashlib import sha256
from typing import Any, Literal, NamedTuple, get_args

import msgspec

from shared.cluster import Resource
from shared.cluster.objects import Custom
from shared.frameworks.definition import Definition
from shared.job.spec import RuntimeUsed

FIELD = "muster.dev/runtime"
"""The field of a joined spec that has the runtime; no definition declares it, so that no user's is stored."""

COPY = "runtime"
"""The key of the ConfigMap with the copy."""


class RuntimeKind(NamedTuple):
    """A kind of runtime."""

    resource: Resource[Custom]
    definition: Definition
    of_cluster: bool
    """True if it is cluster-scoped."""


class Reference(NamedTuple):
    """The runtime that a job names."""

    resource: Resource[Custom]
    namespace: str
    """Empty for a cluster-scoped one."""
    name: str


class JobRuntime(NamedTuple):
    """A runtime as it was read."""

    used: RuntimeUsed
    spec: Any


def read(resource: Resource[Custom], manifest: Custom) -> JobRuntime:
    """A runtime's resource."""
    meta = manifest.metadata
    digest = digest_of(text_of(manifest.spec))
    used = RuntimeUsed(kind=resource.kind, name=meta.name, uid=meta.uid, generation=meta.generation, digest=digest)
    return JobRuntime(used, manifest.spec)


def text_of(spec: Any) -> str:
    """A runtime's spec as the copy has it: equal specs have equal texts."""
    return msgspec.json.encode(spec, order="sorted").decode()


def digest_of(text: str) -> str:
    return sha256(text.encode()).hexdigest()


Without = Literal["missing", "not listed", "not seen"]
"""Why a job has no runtime: there is none of that name, or its kind cannot be listed now, or is never seen here."""


def joined(manifest: Custom, runtime: JobRuntime | Without | None) -> Custom:
    """The resource of a job with its runtime in its spec, or with why it has none."""
    spec = {name: value for name, value in manifest.spec.items() if name != FIELD} if _is_object(manifest.spec) else {}
    if runtime is not None:
        spec[FIELD] = runtime
    return msgspec.structs.replace(manifest, spec=spec)


def runtime_of(manifest: Custom) -> JobRuntime | None:
    """The runtime in a joined resource."""
    found = manifest.spec.get(FIELD) if _is_object(manifest.spec) else None
    return found if isinstance(found, JobRuntime) else None


def why_without(manifest: Custom) -> Without:
    """Why a joined resource has no runtime."""
    found = manifest.spec.get(FIELD) if _is_object(manifest.spec) else None
    return next((why for why in _WHY if why == found), "missing")


_WHY: tuple[Without, ...] = get_args(Without)


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)
