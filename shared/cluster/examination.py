"""Whether an API server can be worked with: it answers, it serves a kind of ours, and we may do there what we need.

Asked before a service begins and whenever something fails, so that one sentence says what a person has to do.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from shared.cluster import Resource
from shared.errors import Refused, Transient

PATIENCE_SECONDS = 5.0
"""An API server that takes longer to say whom it serves is of no use to anybody."""


class Right(NamedTuple):
    """What one would like to do."""

    verb: str
    group: str
    resource: str
    """The plural, with `/<subresource>` where it is one."""
    name: str = ""
    """Of the one object; empty is any."""


class Examined(Protocol):
    """What is asked of an API server; `kube.py` has it."""

    url: str

    async def serves(self, resource: Resource[Any]) -> bool:
        """Whether the kind is known there."""

    async def may(self, right: Right, namespace: str) -> bool:
        """Whether we may do this in a namespace; in the whole cluster when that is empty."""


async def examine(
    cluster: Examined,
    kinds: Mapping[Resource[Any], Sequence[Resource[Any]]],
    rights: Callable[[Sequence[Resource[Any]]], Iterable[Right]],
    namespace: str = "",
    *,
    taking_over: bool = False,
    patience: float = PATIENCE_SECONDS,
) -> list[Resource[Any]]:
    """Return which of the `kinds` are served; each says what else has to be where it is.

    `rights` are those that are needed with what is served, where `taking_over` says that the roles need more than
    usual.  Raises `Refused(reason="NotInstalled" | "Forbidden")` or
    `Transient`, with what is missing and what to do.
    """
    try:
        async with asyncio.timeout(patience):
            served = await _must_serve(cluster, kinds)
            await _must_allow(cluster, [*rights(served)], namespace, taking_over=taking_over)
    except TimeoutError as error:
        raise _silent(cluster, patience) from error
    return served


async def served(
    cluster: Examined, kinds: Sequence[Resource[Any]], *, patience: float = PATIENCE_SECONDS
) -> list[Resource[Any]]:
    """Which of these are served.  Raises `Transient` when that cannot be had in time."""
    try:
        async with asyncio.timeout(patience):
            return await _served(cluster, kinds)
    except TimeoutError as error:
        raise _silent(cluster, patience) from error


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


async def _must_allow(cluster: Examined, rights: list[Right], namespace: str, *, taking_over: bool) -> None:
    if missing := await _missing(cluster, rights, namespace):
        where = f"in the namespace {namespace}" if namespace else "in the whole cluster"
        remedy = granting(namespace, taking_over=taking_over)
        raise Refused(f"{cluster.url} does not let us {missing} {where}; {remedy}", reason="Forbidden")


def granting(namespace: str, *, taking_over: bool) -> str:
    """How services get rights that they lack, in a namespace or the whole cluster, whoever installed them."""
    scope, more = f" -n {namespace}" if namespace else "", " --take-over" if taking_over else ""
    return f"upgrade the chart's release, or without the chart `muster rbac{scope}{more} | kubectl apply -f -`"


async def must_allow(cluster: Examined, rights: Sequence[Right], remedy: str) -> None:
    """Raise `Refused(reason="Forbidden")`, ending with the `remedy`, unless we may do all this in the whole cluster."""
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            missing = await _missing(cluster, rights, "")
    except TimeoutError as error:
        raise _silent(cluster, PATIENCE_SECONDS) from error
    if missing:
        raise Refused(f"{cluster.url} does not let us {missing}; {remedy}", reason="Forbidden")


async def _missing(cluster: Examined, rights: Sequence[Right], namespace: str) -> str:
    """What we may not do of it, as one says it; empty where we may do it all."""
    allowed = await asyncio.gather(*(cluster.may(right, namespace) for right in rights))
    verbs: dict[str, dict[str, None]] = {}
    for right, may in zip(rights, allowed, strict=True):
        if not may:
            verbs.setdefault(right.resource, {})[right.verb] = None
    return ", ".join(f"{'/'.join(each)} {resource}" for resource, each in verbs.items())


def _silent(cluster: Examined, patience: float) -> Transient:
    return Transient(f"{cluster.url} does not answer within {patience:g} s; is the API server up?")
