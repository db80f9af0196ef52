"""Loads the frameworks of users from the entry points of packages, group `muster.frameworks`.

Each names a `Framework`, or a class that makes one without arguments.  A framework that cannot be used is left out and
logged.  A later failure of one concerns its own jobs alone: an exception or an answer of the wrong type becomes a
problem of the job (`parse`) or a refusal (all else), with the reason `FrameworkFailed`.  The exception's text is not
repeated: it may hold what a user wrote.
"""

import traceback
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import PurePath
from typing import Any, NamedTuple, TypeVar

import msgspec
import structlog

from shared.cluster import Resource
from shared.cluster.examination import Examined, served
from shared.cluster.objects import Custom
from shared.errors import Refused
from shared.frameworks.framework import Framework
from shared.frameworks.kinds import BUILT_IN, Kinds
from shared.frameworks.reading import MOST_WORKERS
from shared.frameworks.runtimes import Reference, RuntimeKind
from shared.frameworks.scale_requests import REQUESTS
from shared.frameworks.schemas import Definition, Document
from shared.frameworks.takeover import Inherited, TakeOver
from shared.job.reasons import FRAMEWORK_FAILED as FAILED
from shared.job.spec import JobSpec, Problem, Wishes

T = TypeVar("T")


class Checked:
    """A method of the inner framework whose answer has to be of this type, and to have a name if it is `named`."""

    def __init__(self, kind: Any, *, named: bool = False) -> None:
        self._kind = kind
        self._named = named

    def __set_name__(self, owner: type, name: str) -> None:
        self._method = name

    def __get__(self, framework: "Guarded", owner: type) -> Any:
        def answer(*arguments: Any, **options: Any) -> Any:
            found = _as(self._kind, getattr(framework.inner, self._method)(*arguments, **options))
            return _with_name(found) if self._named else found

        return lambda *arguments, **options: framework.guard(self._method, lambda: answer(*arguments, **options))


class Guarded(Framework):
    """A framework whose methods call another framework and check its answers."""

    requests = ()
    """None: ScaleIns and ScaleOuts name only jobs of a built-in kind."""
    runtimes: tuple[RuntimeKind, ...] = ()
    """None: a package's jobs have their pod templates in themselves."""
    is_queued = False
    """False: the scheduler's account may write no Workload for another kind of job than TrainingJobs."""

    def __init__(self, inner: Framework) -> None:
        """Raises what the inner framework's kind or definition raises."""
        self.inner = inner
        self.resource = inner.resource
        self.role_label, self.index_label = _as(tuple[str, str], (inner.role_label, inner.index_label))
        self.take_over = _GuardedTakeOver(self, inner.take_over)
        self.reports_result = _as(bool, inner.reports_result)
        self.announcements = _as(dict[str, str], {**inner.announcements})
        self._definition = inner.definition
        self._others = tuple(Guarded(other) for other in inner.others)
        self._told: set[str] = set()

    @property
    def others(self) -> tuple[Framework, ...]:
        return self._others

    @property
    def definition(self) -> Definition:
        return self._definition

    @property
    def has_hosts_files(self) -> bool:
        return self.inner.has_hosts_files

    def parse(self, manifest: Custom) -> JobSpec | tuple[Problem, ...]:
        try:
            return self.guard("parse", lambda: _parsed(self.inner.parse(manifest)))
        except Refused as refusal:
            return (Problem(reason=FAILED, message=str(refusal)),)

    def ours(self, manifest: Custom) -> bool:
        # Two operators that act on one job are worse than none.
        return self.guard_or("ours", lambda: _as(bool, self.inner.ours(manifest)), False)

    def refers_to(self, manifest: Custom) -> Reference | None:
        return None

    def wishes(self, manifest: Custom) -> Wishes | None:
        return None

    template = Checked(Document)
    template_path = Checked(str)
    pod = Checked(Document, named=True)
    service = Checked(Document, named=True)
    status = Checked(Document)
    phase = Checked(str)
    ports = Checked(list[Document])
    metrics = Checked(list[Document])
    autoscaler = Checked(Document, named=True)
    hosts_files = Checked(dict[str, str])
    labels = Checked(dict[str, str])
    pod_labels = Checked(dict[str, str])

    def guard(self, method: str, work: Callable[[], T]) -> T:
        """The answer of `work`.  Raises `Refused` if it fails or gives a wrong answer."""
        try:
            return work()
        except _WrongAnswer as wrong:
            what = f"{self.name}: {method} gives a wrong answer ({wrong})"
        except (Exception, SystemExit) as error:  # noqa: BLE001  a plug-in may raise anything
            *_, last = traceback.extract_tb(error.__traceback__)
            place = f"{PurePath(last.filename).name}, line {last.lineno}"
            what = f"{self.name}: {method} fails ({type(error).__name__} in {place})"
        if what not in self._told:
            self._told.add(what)
            log.error("framework failed", kind=self.name, why=what)
        raise Refused(f"{what}; fix or upgrade the package of this kind of job", reason=FAILED)

    def guard_or(self, method: str, work: Callable[[], T], otherwise: T) -> T:
        """As `guard`, with an answer for a framework that fails."""
        try:
            return self.guard(method, work)
        except Refused:
            return otherwise


class GuardedReferring(Guarded):
    """A kind whose jobs name runtimes: what two resources of other people say together fails no service."""

    def __init__(self, inner: Framework) -> None:
        super().__init__(inner)
        self.runtimes = inner.runtimes

    def refers_to(self, manifest: Custom) -> Reference | None:
        """None if it fails: `parse` tells why."""
        return self.guard_or("refers_to", lambda: self.inner.refers_to(manifest), None)

    def wishes(self, manifest: Custom) -> Wishes | None:
        return self.guard_or("wishes", lambda: self.inner.wishes(manifest), None)


class _GuardedTakeOver(TakeOver):
    def __init__(self, framework: Guarded, inner: TakeOver) -> None:
        self._framework, self._inner = framework, inner
        self.selector = _as(str, inner.selector)
        self.files = _as(dict[str, str], {**inner.files})

    def role_and_index(self, labels: Mapping[str, str]) -> tuple[str, int] | None:
        found: tuple[str, int] | None = self._framework.guard_or(
            "role_and_index", lambda: _as(tuple[str, int] | None, self._inner.role_and_index(labels)), None
        )
        return found

    def status(self, manifest: Custom) -> Inherited | None:
        theirs: Inherited | None
        try:
            theirs = self._framework.guard("status", lambda: _as(Inherited | None, self._inner.status(manifest)))
        except Refused:
            # Another operator wrote a status: without it the job would begin anew.
            return super().status(manifest)
        return theirs


class _WrongAnswer(Exception):  # noqa: N818  it is one
    """The fault of an answer, by types and places alone."""


def _parsed(answer: object) -> JobSpec | tuple[Problem, ...]:
    if isinstance(answer, JobSpec):
        # Structs do not validate their fields when they are constructed.
        spec: JobSpec = _as(JobSpec, answer)
        return _sound(spec)
    problems: tuple[Problem, ...] = _as(tuple[Problem, ...], answer)
    if not problems:
        raise _WrongAnswer("neither a spec nor a problem")
    return problems


def _sound(spec: JobSpec) -> JobSpec:
    """The spec, if a job with it can begin and end."""
    names = [role.name for role in spec.roles]
    if len({*names}) < len(names):
        raise _WrongAnswer("two roles of one name")
    if any(not 0 <= role.replicas <= MOST_WORKERS for role in spec.roles):
        raise _WrongAnswer(f"a role of fewer than 0 or more than {MOST_WORKERS} replicas")
    if not any(role.replicas for role in spec.roles if role.name == spec.handling.leader):
        raise _WrongAnswer("a job without a pod of the role that it ends with")
    return spec


def _with_name(document: Document) -> Document:
    metadata = document.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not name or not isinstance(name, str):
        raise _WrongAnswer("an object without a name")
    return document


def _as(kind: Any, answer: object) -> Any:
    """The answer, if all of it has the type `kind` and can be encoded as JSON."""
    try:
        return msgspec.json.decode(msgspec.json.encode(answer), type=kind)
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError) as error:
        raise _WrongAnswer(str(error)) from None


GROUP = "muster.frameworks"

LONGEST_REASON = 300
"""Characters of a package's error that the log repeats."""

log = structlog.get_logger()


class Plugins(NamedTuple):
    kinds: Kinds
    """The built-in kinds and those of users."""
    left_out: tuple[str, ...]
    """A sentence for each framework that cannot be used."""


class _Unusable(Exception):  # noqa: N818  it is one
    """Why a framework is left out."""


def kinds() -> Kinds:
    """The frameworks of this process."""
    return installed().kinds


def chosen(known: Kinds, names: Collection[str]) -> Kinds:
    """The kinds with these names, or all without names.  Raises `Refused` for an unknown name."""
    if not names:
        return known
    by_name = {kind.name.lower(): kind for kind in known}
    if unknown := [name for name in names if name.lower() not in by_name]:
        what = f"MUSTER_KINDS: no kind of jobs is called {', '.join(unknown)}; there are {', '.join(sorted(by_name))}"
        raise Refused(what, reason="UnknownKind")
    return Kinds(by_name[name] for name in dict.fromkeys(name.lower() for name in names))


async def in_served_versions(cluster: Examined, kinds: Kinds) -> Kinds:
    """The kinds, each in a version that the cluster serves, if it serves one.  Raises `Trouble`."""
    choices = [each.resource for kind in kinds if kind.others for each in (kind, *kind.others)]
    return kinds.served(await served(cluster, choices))


@cache
def installed() -> Plugins:
    """The frameworks of the installed packages; loaded once."""
    return find(entry_points(group=GROUP))


def log_frameworks() -> None:
    """Log the frameworks of packages, and those that were left out."""
    for kind in kinds():
        if isinstance(kind, Guarded):
            log.info("framework found", kind=kind.name)
    for why in installed().left_out:
        log.error("framework left out", why=why)


def find(entries: Iterable[EntryPoint], built_in: Iterable[Framework] = BUILT_IN) -> Plugins:
    """Load the entry points in the order of their names."""
    found: list[Framework] = [*built_in]
    left_out: list[str] = []
    for entry in sorted(entries, key=lambda entry: (entry.name, entry.value)):
        try:
            framework = _load(entry)
            _must_be_new(framework, found)
        except _Unusable as unusable:
            package = f" of the package {entry.dist.name}" if entry.dist is not None else ""
            left_out.append(f"the framework {entry.name}{package} ({entry.value}) is left out: {unusable}")
        else:
            found.append(framework)
    return Plugins(Kinds(found), tuple(left_out))


def _load(entry: EntryPoint) -> Framework:
    thing = _try("it cannot be imported", entry.load)
    if isinstance(thing, type) and issubclass(thing, Framework):
        thing = _try("it cannot be made without arguments", thing)
    if not isinstance(thing, Framework):
        raise _Unusable("it is no Framework, nor a class of one")
    guarded = _try("it does not say its kind or its definition", lambda: Guarded(thing))
    _must_have_a_kind(guarded)
    return guarded


def _try(trouble: str, work: Callable[[], T]) -> T:
    try:
        return work()
    except (Exception, SystemExit) as error:
        # A plug-in may raise anything.
        raise _Unusable(f"{trouble} ({type(error).__name__}: {error})"[:LONGEST_REASON]) from error


def _must_have_a_kind(framework: Framework) -> None:
    resource = framework.resource
    if not isinstance(framework.definition, Definition):
        raise _Unusable("its definition is no Definition")
    if not isinstance(resource, Resource) or not issubclass(resource.type, Custom):
        raise _Unusable("its resource is not a Resource of type Custom")
    if not all((resource.group, resource.version, resource.plural, resource.kind)):
        raise _Unusable("its resource needs a group, a version, a plural and a kind")


def _must_be_new(framework: Framework, known: Iterable[Framework]) -> None:
    mine = framework.resource
    for theirs in (*(each.resource for each in known), *REQUESTS.values()):
        if mine.group == theirs.group and (mine.kind == theirs.kind or mine.plural == theirs.plural):
            raise _Unusable(f"there is a {theirs.kind} of {theirs.group} already")
