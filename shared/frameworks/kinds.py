"""The frameworks that a process knows, by kind.  Pure; packages of users are found in `shared.installation.plugins`."""

from collections.abc import Collection, Iterable, Iterator
from typing import Any

from shared.cluster import Resource
from shared.cluster.objects import Custom
from shared.frameworks.fioravanzo import FIORAVANZO_MXJOB
from shared.frameworks.framework import Framework
from shared.frameworks.mlkube import MLKUBE_MXJOB
from shared.frameworks.mpba import MPBA_MXJOB
from shared.frameworks.mpijob import MPIJOB
from shared.frameworks.mxjob import MXJOB
from shared.frameworks.pytorchjob import PYTORCHJOB
from shared.frameworks.tfjob import TFJOB
from shared.frameworks.training import REQUESTS
from shared.frameworks.training_job import TRAININGJOB
from shared.job.state import Job


class Kinds:
    """Frameworks, each of another kind.  Raises `ValueError` when two are of the same one."""

    def __init__(self, frameworks: Iterable[Framework]) -> None:
        self._frameworks: dict[tuple[str, str], Framework] = {}
        for framework in frameworks:
            at = (framework.resource.group, framework.resource.kind)
            if at in self._frameworks:
                raise ValueError(f"two frameworks are of the kind {framework.name}")
            self._frameworks[at] = framework

    def __iter__(self) -> Iterator[Framework]:
        return iter(self._frameworks.values())

    def served(self, served: Collection[Resource[Any]]) -> "Kinds":
        """The same kinds, each in the first of its versions that is `served`; where none is, as it was.

        A watch of another one is refused, and the garbage collector follows no owner reference that names one.
        """
        return Kinds(next((each for each in (kind, *kind.others) if each.resource in served), kind) for kind in self)

    def find(self, api_version: str, kind: str) -> Framework | None:
        """The framework of a kind, in whatever version; None when this process does not know it."""
        return self._frameworks.get((api_version.partition("/")[0], kind))

    def of(self, job: Job) -> Framework:
        """The framework of a job.  Raises `KeyError` when this process does not know it."""
        return self._frameworks[job.api_version.partition("/")[0], job.kind]

    def seen(self, job: Job) -> Framework:
        """The same, in the version in which its resource was last seen.  Raises `KeyError` as `of` does."""
        kind = self.of(job)
        return next((each for each in (kind, *kind.others) if each.resource.api_version == job.api_version), kind)

    def knows(self, job: Job) -> bool:
        """The job was observed, and its framework is here."""
        return self.find(job.api_version, job.kind) is not None

    def resource(self, api_version: str, kind: str) -> Resource[Custom]:
        """Of a job's or a request's kind.  Raises `KeyError` when this process does not know it."""
        request = REQUESTS.get(kind)
        if request is not None and request.group == api_version.partition("/")[0]:
            return request
        return self._frameworks[api_version.partition("/")[0], kind].resource


BUILT_IN = Kinds((TRAININGJOB, TFJOB, PYTORCHJOB, MXJOB, MPIJOB, FIORAVANZO_MXJOB, MPBA_MXJOB, MLKUBE_MXJOB))
"""Those that Muster brings along."""
