"""Whether an API server can be worked with: it answers, it serves our kinds, and we may do there what we need.

Asked before a service begins and whenever something fails, so that one sentence says what a person has to do.
"""

import asyncio
from collections.abc import Iterable
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


class Examined(Protocol):
    """What is asked of an API server; `kube.py` has it."""

    url: str

    async def serves(self, resource: Resource[Any]) -> bool:
        """Whether the kind is known there."""

    async def may(self, right: Right, namespace: str) -> bool:
        """Whether we may do this in a namespace; in the whole cluster when that is empty."""


async def examine(
    cluster: Examined,
    kinds: Iterable[Resource[Any]],
    rights: Iterable[Right],
    namespace: str = "",
    *,
    patience: float = PATIENCE_SECONDS,
) -> None:
    """Raise `Refused(reason="NotInstalled" | "Forbidden")` or `Transient`, with what is missing and what to do."""
    try:
        async with asyncio.timeout(patience):
            await _must_serve(cluster, [*kinds])
            await _must_allow(cluster, [*rights], namespace)
    except TimeoutError as error:
        raise Transient(f"{cluster.url} does not answer within {patience:g} s; is the API server up?") from error


async def _must_serve(cluster: Examined, kinds: list[Resource[Any]]) -> None:
    served = await asyncio.gather(*(cluster.serves(kind) for kind in kinds))
    missing = [f"{kind.plural}.{kind.group}" for kind, there in zip(kinds, served, strict=True) if not there]
    if missing:
        raise Refused(
            f"{cluster.url} does not serve {', '.join(missing)}; "
            "`muster crds | kubectl apply -f -` installs the definitions",
            reason="NotInstalled",
        )


async def _must_allow(cluster: Examined, rights: list[Right], namespace: str) -> None:
    allowed = await asyncio.gather(*(cluster.may(right, namespace) for right in rights))
    verbs: dict[str, list[str]] = {}
    for right, may in zip(rights, allowed, strict=True):
        if not may:
            verbs.setdefault(right.resource, []).append(right.verb)
    if verbs:
        missing = ", ".join(f"{'/'.join(each)} {resource}" for resource, each in verbs.items())
        where, scope = (
            (f"in the namespace {namespace}", f" -n {namespace}") if namespace else ("in the whole cluster", "")
        )
        raise Refused(
            f"{cluster.url} does not let us {missing} {where}; "
            f"`muster rbac{scope} | kubectl apply -f -` grants it to the service accounts",
            reason="Forbidden",
        )
