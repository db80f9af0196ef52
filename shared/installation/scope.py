"""Keeps two installations off the same jobs: claims of scopes in the definitions, and leases that exclude each other.

Only a service for the whole cluster may read the claims; it works without the right to, and without claims.  So a
service takes no lease while the same service with the other scope (whole cluster, or a namespace of it) holds one.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

import structlog

from shared.cluster import Cluster, Resource
from shared.cluster.kinds import DEFINITIONS
from shared.cluster.objects import Metadata
from shared.cluster.scope import conflicting, why_excluded
from shared.errors import Refused, accepting
from shared.eventlog import Bucket, Revised
from shared.job.events.event import Author
from shared.release import MARK, is_older, this_release

log = structlog.get_logger()


class Scope:
    """The scope of the whole cluster, for one service and one log."""

    def __init__(self, cluster: Cluster, identity: str) -> None:
        self._cluster = cluster
        self._identity = identity
        self._old: tuple[str, ...] = ()
        """The definitions of older releases that were logged."""

    async def must_be_ours(self, kinds: Iterable[Resource[Any]]) -> None:
        """Raise `Refused(reason="ScopeTaken")` if another installation has claimed a scope in these kinds."""
        found: Sequence[Metadata | None] = ()
        with accepting("Forbidden"):
            found = await asyncio.gather(*(self._of(kind) for kind in kinds))
        there = [metadata for metadata in found if metadata is not None]
        for metadata in there:
            if claims := conflicting(metadata.annotations, "", self._identity):
                raise Refused(f"{metadata.name}: {why_excluded(claims, self._identity)}", reason="ScopeTaken")
        self._warn_of_older(there)

    async def _of(self, kind: Resource[Any]) -> Metadata | None:
        definition = await self._cluster.get(DEFINITIONS.by_metadata, "", f"{kind.plural}.{kind.group}")
        return definition.metadata if definition is not None else None

    def _warn_of_older(self, there: Iterable[Metadata]) -> None:
        marks = {metadata.name: (metadata.annotations or {}).get(MARK, "") for metadata in there}
        # A definition without a mark is another operator's, or was applied by hand.
        old = tuple(name for name, mark in marks.items() if mark and is_older(mark, this_release()))
        if old and old != self._old:
            log.warning("definitions of an older release", definitions=old, remedy="run `muster setup`")
        self._old = old


def lease_key(author: Author, namespace: str) -> str:
    """The lease of a service in a namespace, or in the whole cluster if that is empty."""
    return f"{author}.{namespace}" if namespace else author


class ExclusiveLeases:
    """The bucket of leases, with a check before a lease is taken."""

    def __init__(self, bucket: Bucket, author: Author, namespace: str) -> None:
        self._bucket = bucket
        self._author = author
        self._namespace = namespace
        self._ours = 0
        """The revision of this service's lease after the check."""

    async def must_be_exclusive(self) -> None:
        """Raise `Refused(reason="ScopeTaken")` while a service with the other scope holds a lease."""
        if self._namespace:
            other, theirs = await self._bucket.get(self._author), "the whole cluster"
        else:
            other, theirs = await self._bucket.below(self._author), "a single namespace"
        if other is not None:
            ours = f"the namespace {self._namespace}" if self._namespace else "the whole cluster"
            holder = other.value.decode(errors="replace").partition("/")[0]
            raise Refused(
                f"act in {ours}: on the same log the {self._author} of {theirs} acts ({holder}); end it, or give this "
                "one a log of its own",
                reason="ScopeTaken",
            )

    async def get(self, key: str) -> Revised | None:
        return await self._bucket.get(key)

    async def below(self, key: str) -> Revised | None:
        return await self._bucket.below(key)

    async def put(self, key: str, value: bytes, *, expect: int | None = None, ttl: float | None = None) -> int:
        """Renew a lease that was held without a gap; take any other only if no lease of the other scope is held."""
        if expect and expect == self._ours:
            self._ours = await self._bucket.put(key, value, expect=expect, ttl=ttl)
            return self._ours
        await self.must_be_exclusive()
        revision = await self._bucket.put(key, value, expect=expect, ttl=ttl)
        try:
            # Of two concurrent writers the later one sees the other.  If both do, each tries again at another time.
            await self.must_be_exclusive()
        except Refused:
            await self._bucket.delete(key, expect=revision)
            raise
        self._ours = revision
        return revision

    async def delete(self, key: str, *, expect: int | None = None) -> None:
        await self._bucket.delete(key, expect=expect)
