"""The jobs that name a runtime: each is read anew when that changes.  Pure."""

from typing import Any, NamedTuple

from shared.cluster import Resource
from shared.cluster.objects import Custom
from shared.frameworks.framework import Framework
from shared.frameworks.runtimes import Reference

At = tuple[str, str]

OVER = ("Succeeded", "Failed")


class Named(NamedTuple):
    """A job's resource without its runtime."""

    framework: Framework
    at: At
    manifest: Custom


class Referring:
    """The resources of jobs by the runtime that they name; of those that are over none is kept."""

    def __init__(self) -> None:
        self._by_runtime: dict[Reference, dict[At, Named]] = {}
        self._names: dict[tuple[str, At], Reference] = {}

    def put(self, framework: Framework, at: At, manifest: Custom | None) -> Reference | None:
        """Set or remove the resource at (namespace, name); return the runtime that it names."""
        job = (framework.name, at)
        before = self._names.pop(job, None)
        if before is not None:
            held = self._by_runtime[before]
            del held[at]
            if not held:
                del self._by_runtime[before]
        reference = framework.refers_to(manifest) if manifest is not None else None
        if reference is None or manifest is None:
            return None
        status = manifest.status if isinstance(manifest.status, dict) else {}
        if framework.phase(status) not in OVER:
            self._names[job] = reference
            self._by_runtime.setdefault(reference, {})[at] = Named(framework, at, manifest)
        return reference

    def references(self, resource: Resource[Any]) -> list[Reference]:
        """The runtimes of this kind that jobs name."""
        return [each for each in self._by_runtime if each.resource == resource]

    def holds(self, known: Named) -> bool:
        """True while this is the newest resource of its job."""
        reference = self._names.get((known.framework.name, known.at))
        return reference is not None and self._by_runtime[reference].get(known.at) is known

    def of(self, reference: Reference) -> list[Named]:
        return [*self._by_runtime.get(reference, {}).values()]
