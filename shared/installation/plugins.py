"""Loads the frameworks of users from the entry points of packages, group `muster.frameworks`.

Each names a `Framework`, or a class that makes one without arguments.  A framework that cannot be used is left out and
logged.  `guarded.py` contains later failures.
"""

from collections.abc import Callable, Collection, Iterable
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import NamedTuple, TypeVar

import structlog

from shared.cluster import Resource
from shared.cluster.examination import Examined, served
from shared.cluster.objects import Custom
from shared.errors import Refused
from shared.frameworks.framework import Framework
from shared.frameworks.kinds import BUILT_IN, Kinds
from shared.frameworks.scale_requests import REQUESTS
from shared.frameworks.schemas import Definition
from shared.installation.guarded import Guarded

GROUP = "muster.frameworks"

LONGEST_REASON = 300
"""Characters of a package's error that the log repeats."""

T = TypeVar("T")

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
