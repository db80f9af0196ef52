"""Checks of an API server: it answers, it serves a kind of job, and this service has the rights that it needs.

A service checks before it begins and after failures; one sentence says what a person has to do.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, Protocol

import msgspec

from shared.cluster import Resource
from shared.errors import Refused, Transient

PATIENCE_SECONDS = 5.0
"""Seconds for an API server to answer which kinds it serves."""


class Unfinished(Transient):
    """The API server answers, but did not answer all questions in time: what is missing, if anything, is not known."""


class Right(NamedTuple):
    """A verb on a resource."""

    verb: str
    group: str
    resource: str
    """The plural, with `/<subresource>` for a subresource."""
    name: str = ""
    """The name of the one object; empty for any."""

    def attributes(self, namespace: str) -> dict[str, Any]:
        """The spec of a review of the right, in the namespace or, if that is empty, in the whole cluster."""
        resource, _, subresource = self.resource.partition("/")
        wanted = {"verb": self.verb, "group": self.group, "resource": resource, "subresource": subresource}
        return {"resourceAttributes": wanted | {"namespace": namespace} | ({"name": self.name} if self.name else {})}


class Verdict(msgspec.Struct):
    allowed: bool = False


class Review(msgspec.Struct):
    """The API server's answer to a review of a right."""

    status: Verdict = msgspec.field(default_factory=Verdict)


class Examined(Protocol):
    """The questions to an API server; `kube.py` implements them."""

    url: str

    @property
    def succeeded(self) -> int:
        """How many requests of this client have succeeded, whatever for, without streams."""

    async def serves(self, resource: Resource[Any]) -> bool:
        """True if the API server serves the kind."""

    async def may(self, right: Right, namespace: str) -> bool:
        """True if this process has the right in the namespace, or in the whole cluster if that is empty."""


async def examine(
    cluster: Examined,
    kinds: Mapping[Resource[Any], Sequence[Resource[Any]]],
    rights: Callable[[Sequence[Resource[Any]]], Iterable[Right]],
    namespace: str = "",
    *,
    remedy: str = "",
    patience: float = PATIENCE_SECONDS,
) -> list[Resource[Any]]:
    """Return the served ones of `kinds`, each of which maps to the resources that it requires.

    `rights` gives the rights that the served kinds require; `remedy` says what to do if one is missing.  Raises
    `Refused(reason="NotInstalled" | "Forbidden")` or `Transient`, with what is missing and what to do.  `Transient` is
    `Unfinished` if any request of this client succeeded meanwhile: questions stand in one queue with its work.
    """
    async with _in_time(cluster, patience):
        served = await _must_serve(cluster, kinds)
        await _must_allow(cluster, [*rights(served)], namespace, remedy)
        return served


async def served(
    cluster: Examined, kinds: Sequence[Resource[Any]], *, patience: float = PATIENCE_SECONDS
) -> list[Resource[Any]]:
    """The served ones of `kinds`.  Raises `Transient` if the API server does not answer in time."""
    async with _in_time(cluster, patience):
        return await _served(cluster, kinds)


async def _must_serve(cluster: Examined, kinds: Mapping[Resource[Any], Sequence[Resource[Any]]]) -> list[Resource[Any]]:
    served = await _served(cluster, [*kinds])
    if kinds and not served:
        raise _not_installed(cluster, "any of " if len(kinds) > 1 else "", [*kinds])
    others = [other for kind in served for other in kinds[kind]]
    there = await _served(cluster, others)
    if missing := [other for other in others if other not in there]:
        raise _not_installed(cluster, "", missing)
    return served


async def _served(cluster: Examined, kinds: Sequence[Resource[Any]]) -> list[Resource[Any]]:
    answers = await asyncio.gather(*(cluster.serves(kind) for kind in kinds))
    return [kind for kind, there in zip(kinds, answers, strict=True) if there]


def _not_installed(cluster: Examined, which: str, kinds: Iterable[Resource[Any]]) -> Refused:
    names = ", ".join(f"{kind.plural}.{kind.group}" for kind in kinds)
    return Refused(
        f"{cluster.url} does not serve {which}{names}; `muster crds | kubectl apply -f -` installs the definitions",
        reason="NotInstalled",
    )


async def _must_allow(cluster: Examined, rights: Sequence[Right], namespace: str, remedy: str) -> None:
    if missing := await _missing(cluster, rights, namespace):
        where = f"in the namespace {namespace}" if namespace else "in the whole cluster"
        raise Refused(f"{cluster.url} does not let us {missing} {where}; {remedy}", reason="Forbidden")


def granting(namespace: str, *, taking_over: bool, selector: Sequence[str] = ()) -> str:
    """The command that grants the services' rights, in a namespace or the whole cluster."""
    scope, more = f" -n {namespace}" if namespace else "", " --take-over" if taking_over else ""
    more += f" --namespace-selector {','.join(selector)}" if selector else ""
    return f"upgrade the chart's release, or without the chart `muster rbac{scope}{more} | kubectl apply -f -`"


async def must_allow(cluster: Examined, rights: Sequence[Right], remedy: str) -> None:
    """Raise `Refused(reason="Forbidden")`, ending with the `remedy`, if a right in the whole cluster is missing."""
    async with _in_time(cluster, PATIENCE_SECONDS):
        await _must_allow(cluster, rights, "", remedy)


async def _missing(cluster: Examined, rights: Sequence[Right], namespace: str) -> str:
    """The missing ones of these rights, in words; empty if there are none."""
    allowed = await asyncio.gather(*(cluster.may(right, namespace) for right in rights))
    verbs: dict[str, dict[str, None]] = {}
    for right, may in zip(rights, allowed, strict=True):
        if not may:
            verbs.setdefault(right.resource, {})[right.verb] = None
    return ", ".join(f"{'/'.join(each)} {resource}" for resource, each in verbs.items())


@asynccontextmanager
async def _in_time(cluster: Examined, patience: float) -> AsyncIterator[None]:
    """Raise `Transient` where the API server does not answer in time, `Unfinished` if it answered any request."""
    before = cluster.succeeded
    try:
        async with asyncio.timeout(patience):
            yield
    except TimeoutError as error:
        if cluster.succeeded > before:
            why = f"{cluster.url} answers, but not every question within {patience:g} s; look at its load"
            raise Unfinished(why) from error
        raise Transient(f"{cluster.url} does not answer within {patience:g} s; is the API server up?") from error
