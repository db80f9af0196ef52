"""Parses `KIND/NAME`, and finds its object or its history."""

import string
from collections.abc import Iterable
from typing import Any

import msgspec

from shared.cluster import Resource
from shared.cluster.objects import Custom
from shared.errors import Refused
from shared.frameworks.framework import Framework
from shared.frameworks.kinds import Kinds
from shared.frameworks.scale_requests import REQUESTS
from shared.installation import plugins
from shared.job.fold import History
from shared.job.naming import NO_UID, JobKey, Uid, history_filters, namespace_filters
from shared.job.scaling import Request
from shared.job.state import Job
from shared.telling.shown import called, words_of

NAME_CHARACTERS = frozenset(string.ascii_letters + string.digits + "-.")
ANY_UID = "*"
"""Matches any uid in a NATS filter."""
ANY_JOB = "job"
"""`job/NAME` is a job of any kind, as a NAME without a kind."""


def known_kinds() -> Kinds:
    """The built-in kinds, and those of installed packages."""
    return plugins.kinds()


class Target(msgspec.Struct, frozen=True):
    """A job or a scale request."""

    resource: Resource[Custom]
    name: str
    called: str = ""
    """The name of its kind; if empty, the kind in lower case."""
    framework: Framework | None = None
    """The framework of a job; None for a request."""

    @property
    def label(self) -> str:
        """`trainingjob/resnet`, `mxjob.kubeflow.org/resnet`."""
        return f"{self.called or self.resource.kind.lower()}/{self.name}"

    def phase(self, status: dict[str, Any]) -> str:
        """The phase in its status, as a `shared.job.state.Phase`; empty before there is one."""
        if self.framework is not None:
            return self.framework.phase(status)
        phase = status.get("phase")
        return phase if isinstance(phase, str) else ""

    def versions(self) -> "list[Target]":
        """The target in each version of its kind, the watched one first."""
        others = self.framework.others if self.framework is not None else ()
        return [self, *(msgspec.structs.replace(self, resource=each.resource, framework=each) for each in others)]

    @property
    def has_requests(self) -> bool:
        """True if scale requests name jobs of this kind; of several kinds with a job of one name, `chosen` takes it."""
        return self.framework is not None and bool(self.framework.requests)

    @property
    def is_request(self) -> bool:
        """True for a ScaleIn or ScaleOut; all other targets are jobs."""
        return self.resource in REQUESTS.values()


class Asked(msgspec.Struct, frozen=True):
    """A name from the command line, and every object that it may mean."""

    name: str
    targets: tuple[Target, ...]

    @property
    def kind(self) -> str:
        """The kind for messages; `job` if the name may mean several kinds."""
        kinds = {target.resource.kind for target in self.targets}
        return kinds.pop() if len(kinds) == 1 else "job"

    @property
    def is_request(self) -> bool:
        return self.targets[0].is_request

    @property
    def word(self) -> str:
        """`KIND.NAME`, as `history.muster.dev` calls it."""
        if len(self.targets) == 1:
            return self.targets[0].label.replace("/", ".")
        kind = self.kind.lower()
        return f"{kind}.{self.name}"


def parse_target(text: str, kinds: Kinds | None = None) -> Asked:
    """Parse `tfjob/digits`, or only `digits` for a job of any kind; the output of `kubectl get -o name` works, too.

    Raises `Refused` for a text that is neither.
    """
    kinds = known_kinds() if kinds is None else kinds
    word, slash, name = text.rpartition("/")
    word, _, group = word.lower().partition(".")
    targets = []
    for framework in kinds:
        resource = framework.resource
        if (not slash or word == ANY_JOB or word in words_of(framework)) and group in ("", resource.group):
            targets.append(Target(resource, name, called(framework, kinds), framework))
    targets += [
        Target(resource, name)
        for resource in REQUESTS.values()
        if slash and word in (resource.kind.lower(), resource.plural) and group in ("", resource.group)
    ]
    if not targets or not name:
        raise Refused(f"{text!r} is no KIND/NAME; say for example trainingjob/digits", reason="Invalid")
    return Asked(name, tuple(targets))


def chosen(asked: Asked, found: Iterable[Target], where: str) -> Target | None:
    """Of the targets that were `found`, the one whose kind has requests, or else the only one.

    Raises `Refused` if there are several; returns None if there is none.
    """
    candidates = [*found]
    for target in candidates:
        if target.has_requests:
            return target
    if len(candidates) > 1:
        words = " or ".join(target.label for target in candidates)
        raise Refused(f"there are several jobs {where}/{asked.name}; say {words}", reason="Ambiguous")
    return candidates[0] if candidates else None


def subjects_of(asked: Asked, namespace: str, *, uid: str = "") -> tuple[str, ...]:
    """The filters of all events about these objects, with any uid.

    A request's events have the name of its job, so the filters cover the whole namespace; `reading.found_subjects`
    looks for that job.  Raises `Refused` for a word that cannot be a name in the log.
    """
    must_be_names(namespace, asked.name, uid)
    if asked.is_request:
        return namespace_filters(namespace)
    return history_filters(JobKey(namespace, asked.name, Uid(uid or ANY_UID)))


def must_be_names(*words: str) -> None:
    """Raise `Refused` for a word that is no name and could be a pattern in the log; an empty one is none."""
    for word in filter(None, words):
        if not set(word) <= NAME_CHARACTERS:
            raise Refused(f"{word!r} is no name that Kubernetes gives", reason="Invalid")


def find(
    histories: Iterable[History], asked: Asked, namespace: str, *, uid: str = "", waiting: bool = False
) -> tuple[Target, History]:
    """The newest history of that name, or the history of this uid.

    Raises `Refused` if the log has none, or if jobs of several kinds have the name.
    With `waiting`, the history of requests that wait for the job counts if there is no other.
    """
    known = [
        (target, history)
        for history in histories
        for target in asked.targets
        if history.job.key.namespace == namespace
        and (not uid or history.job.key.uid == uid)
        and _means(history.job, target)
    ]
    found = [(target, history) for target, history in known if history.job.key.uid != NO_UID]
    if waiting and not found and asked.is_request:
        found = known
    # Jobs that exist come before deleted ones.
    there = [(target, history) for target, history in found if not history.job.resource.gone] or found
    target = chosen(asked, {target: None for target, _ in there}, namespace)
    if target is None:
        which = f" with the uid {uid}" if uid else ""
        raise Refused(
            f"the log knows no {asked.kind} {namespace}/{asked.name}{which}; "
            "`muster get -A` lists what it knows, -n names another namespace; a new job may wait for its turn to begin",
            reason="NotFound",
        )
    lives = (history for meant, history in found if meant == target)
    return target, max(lives, key=lambda life: _began(life, target))


def _began(history: History, target: Target) -> int:
    """When the life, or the request, began.  Its last event tells nothing: a job is sealed long after it is gone."""
    return max((request.order for request in _requests(history.job, target)), default=history.first)


def _requests(job: Job, target: Target) -> list[Request]:
    named = (request for request in job.scaling.requests.values() if request.name == target.name)
    return [request for request in named if request.kind == target.resource.kind]


def _means(job: Job, target: Target) -> bool:
    if target.is_request:
        return bool(_requests(job, target))
    if job.key.name != target.name:
        return False
    if not job.resource.kind:
        # The history has only requests that wait for the job.
        return target.has_requests
    return (job.resource.api_version.partition("/")[0], job.resource.kind) == (
        target.resource.group,
        target.resource.kind,
    )
