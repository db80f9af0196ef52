"""Leases that exclude each other: that of a service for the whole cluster, and those of the service for namespaces.

Both would act on the same jobs.  `muster setup` checks claims in definitions, but services of a namespace may not read
those; so a service takes no lease while the same service with the other scope holds one.
"""

from shared.errors import Refused
from shared.eventlog import Bucket, Revised
from shared.job.events.event import Author


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
