"""The frameworks of a process, by kind.  Pure; `shared/installation/plugins.py` finds those of users' packages."""

from collections.abc import Collection, Iterable, Iterator
from typing import Any

from shared.cluster import Resource
from shared.cluster.objects import Custom
from shared.frameworks.fioravanzo import FIORAVANZO_MXJOB
from shared.frameworks.framework import Framework
from shared.frameworks.jaxjob import JAXJOB
from shared.frameworks.mlkube import MLKUBE_MXJOB
from shared.frameworks.mpba import MPBA_MXJOB
from shared.frameworks.mpijob import MPIJOB
from shared.frameworks.mxjob import MXJOB
from shared.frameworks.paddlejob import PADDLEJOB
from shared.frameworks.pytorchjob import PYTORCHJOB
from shared.frameworks.scale_requests import REQUESTS
from shared.frameworks.tfjob import TFJOB
from shared.frameworks.training_job import TRAININGJOB
from shared.frameworks.trainjob import TRAINJOB
from shared.frameworks.xgboostjob import XGBOOSTJOB
from shared.job.state import Job


class Kinds:
    """Frameworks of different kinds.  Raises `ValueError` if two have the same kind."""

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
        """The same kinds, each in the first of its versions that is `served`, or unchanged if none is.

        The API server refuses the watch of another version, and the garbage collector ignores owner references to it.
        """
        return Kinds(next((each for each in (kind, *kind.others) if each.resource in served), kind) for kind in self)

    @property
    def scaled(self) -> Resource[Custom] | None:
        """The kind of job that scale requests name; None if this process does not have it."""
        return next((kind.resource for kind in self if kind.requests), None)

    def find(self, api_version: str, kind: str) -> Framework | None:
        """The framework of a kind in any version; None if this process has none."""
        return self._frameworks.get((api_version.partition("/")[0], kind))

    def of(self, job: Job) -> Framework:
        """The framework of a job.  Raises `KeyError` if this process has none."""
        return self._frameworks[job.resource.api_version.partition("/")[0], job.resource.kind]

    def seen(self, job: Job) -> Framework:
        """The framework of a job in the version in which it was last seen.  Raises `KeyError` as `of` does."""
        kind = self.of(job)
        return next(
            (each for each in (kind, *kind.others) if each.resource.api_version == job.resource.api_version), kind
        )

    def knows(self, job: Job) -> bool:
        """True if the job was observed and this process has its framework."""
        return self.find(job.resource.api_version, job.resource.kind) is not None

    def resource(self, api_version: str, kind: str) -> Resource[Custom]:
        """The API resource of a kind of job or request.  Raises `KeyError` if this process has none."""
        request = REQUESTS.get(kind)
        if request is not None and request.group == api_version.partition("/")[0]:
            return request
        return self._frameworks[api_version.partition("/")[0], kind].resource


BUILT_IN = Kinds(
    (
        *(TRAININGJOB, TFJOB, PYTORCHJOB, MXJOB, MPIJOB, JAXJOB, PADDLEJOB, XGBOOSTJOB),
        *(FIORAVANZO_MXJOB, MPBA_MXJOB, MLKUBE_MXJOB, TRAINJOB),
    )
)
"""The kinds that Muster has without plug-ins."""
