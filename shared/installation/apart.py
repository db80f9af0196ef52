"""Services of one log that would act on the same jobs: one of the whole cluster, and one of a namespace.

Claims in definitions keep installations apart when they are set up, and services of a namespace may not read them.
Leases do it at the moment of acting: no service holds its own while one of the same kind with the other scope does.
"""

from shared.errors import Refused
from shared.eventlog import Bucket, Revised
from shared.job.events.event import Author


def lease_key(author: Author, namespace: str) -> str:
    """Of whoever acts in a namespace, or in the whole cluster without it."""
    return f"{author}.{namespace}" if namespace else author


class Apart:
    """The bucket of leases, in which the one of the whole cluster and those of namespaces exclude each other."""

    def __init__(self, bucket: Bucket, author: Author, namespace: str) -> None:
        self._bucket = bucket
        self._author = author
        self._namespace = namespace
        self._ours = 0
        """The revision of a lease that we hold alone."""

    async def must_be_alone(self) -> None:
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
        """A lease that was held alone without a gap is renewed; any other is held once nobody is seen beside it."""
        if expect and expect == self._ours:
            self._ours = await self._bucket.put(key, value, expect=expect, ttl=ttl)
            return self._ours
        await self.must_be_alone()
        revision = await self._bucket.put(key, value, expect=expect, ttl=ttl)
        try:
            # Of two at once the later one sees the other, and perhaps both do: they come again at different times.
            await self.must_be_alone()
        except Refused:
            await self._bucket.delete(key, expect=revision)
            raise
        self._ours = revision
        return revision

    async def delete(self, key: str, *, expect: int | None = None) -> None:
        await self._bucket.delete(key, expect=expect)
