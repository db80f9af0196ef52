"""Frameworks that users bring along: found by the entry points of packages, group `muster.frameworks`.

Each names a `Framework`, or a class that makes one without arguments.  One that cannot be used is left out and told of;
the others go on.  What goes wrong later is caught by `guarded.py`.
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
from shared.frameworks.framework import Definition, Framework
from shared.frameworks.kinds import BUILT_IN, Kinds
from shared.frameworks.training import REQUESTS
from shared.installation.guarded import Guarded

GROUP = "muster.frameworks"

LONGEST_REASON = 300
"""Characters of what a package says when it cannot be used."""

T = TypeVar("T")

log = structlog.get_logger()


class Plugins(NamedTuple):
    """What was found."""

    kinds: Kinds
    """Those that Muster brings along, and the users' own."""
    left_out: tuple[str, ...]
    """A sentence for each that cannot be used."""


class _Unusable(Exception):  # noqa: N818  it is one
    """Why a framework is left out."""


def kinds() -> Kinds:
    """The frameworks of this process."""
    return installed().kinds


def chosen(known: Kinds, names: Collection[str]) -> Kinds:
    """The kinds of these names; without any, all.  Raises `Refused` for a name that is none of a kind."""
    if not names:
        return known
    by_name = {kind.name.lower(): kind for kind in known}
    if unknown := [name for name in names if name.lower() not in by_name]:
        what = f"MUSTER_KINDS: no kind of jobs is called {', '.join(unknown)}; there are {', '.join(sorted(by_name))}"
        raise Refused(what, reason="UnknownKind")
    return Kinds(by_name[name] for name in dict.fromkeys(name.lower() for name in names))


async def in_served_versions(cluster: Examined, kinds: Kinds) -> Kinds:
    """The kinds, each in a version that the cluster serves, where it serves any.  Raises `Trouble`."""
    choices = [each.resource for kind in kinds if kind.others for each in (kind, *kind.others)]
    return kinds.served(await served(cluster, choices))


@cache
def installed() -> Plugins:
    """What the packages of this process bring along; looked for once."""
    return find(entry_points(group=GROUP))


def tell() -> None:
    """Log what is left out, and which kinds came with packages."""
    for kind in kinds():
        if isinstance(kind, Guarded):
            log.info("framework found", kind=kind.name)
    for why in installed().left_out:
        log.error("framework left out", why=why)


def find(entries: Iterable[EntryPoint], built_in: Iterable[Framework] = BUILT_IN) -> Plugins:
    """Load them, in the order of their names."""
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
        # Somebody else's code, of which anything may come.
        raise _Unusable(f"{trouble} ({type(error).__name__}: {error})"[:LONGEST_REASON]) from error


def _must_have_a_kind(framework: Framework) -> None:
    resource = framework.resource
    if not isinstance(framework.definition, Definition):
        raise _Unusable("its definition is none")
    if not isinstance(resource, Resource) or not issubclass(resource.type, Custom):
        raise _Unusable("its resource is not a Resource of type Custom")
    if not all((resource.group, resource.version, resource.plural, resource.kind)):
        raise _Unusable("its resource needs a group, a version, a plural and a kind")


def _must_be_new(framework: Framework, known: Iterable[Framework]) -> None:
    mine = framework.resource
    for theirs in (*(each.resource for each in known), *REQUESTS.values()):
        if mine.group == theirs.group and (mine.kind == theirs.kind or mine.plural == theirs.plural):
            raise _Unusable(f"there is a {theirs.kind} of {theirs.group} already")
