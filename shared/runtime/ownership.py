"""Ownership: one replica of a service acts, the standby replicas fold along.

A lease in the log's `LEASES` bucket saves work; it proves nothing.  The guard of every append is the fence: a holder
that was paused and wakes up late writes nothing stale.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine

import structlog

from shared.errors import Conflict, Refused, Trouble
from shared.eventlog import Bucket
from shared.job.doubling import doubled

TTL_SECONDS = 2.0
"""How long a lease stays ours without a renewal: shorter fails over faster and writes more."""

MARGIN_SECONDS = 0.3
"""We stop acting this long before the lease can expire at the server."""

LOOK_SECONDS = 0.1
"""Seconds between a standby's checks of an overdue lease renewal."""

FREE_SECONDS = 0.01
"""Seconds until a replica asks for a lease that it found free."""

OFFER_SECONDS = 10
"""A lease holder that has been unready this long lets its lease expire once, so that a ready standby can take it."""

LONGEST_OFFER_SECONDS = 300
"""While no standby takes the lease, the holder offers it after twice as long each time, up to this."""

_ENDED = ("Closed", "Disconnected", "Unauthorized")
"""Reasons of a refusal that says that the connection to the log is over for good: another one is to be made."""

log = structlog.get_logger()


class Lease:
    """One key that one process holds at a time."""

    def __init__(
        self,
        bucket: Bucket,
        key: str,
        holder: str,
        *,
        ttl: float = TTL_SECONDS,
        unwell: Callable[[], str] = lambda: "",
        clock: Callable[[], float] = lambda: asyncio.get_running_loop().time(),
    ) -> None:
        """`holder` is unique to this process; `ttl` is in seconds.

        `unwell` says why a standby replica had better act, and is empty while all is well.  `clock` is in seconds; one
        that does not depend on the loop lets `held` be asked in another thread.
        """
        self._bucket = bucket
        self._key = key
        self._holder = holder
        self._ttl = ttl
        self._unwell = unwell
        self._clock = clock
        self._unwell_since = 0.0
        """Since when we hold it and are not well."""
        self._offers = 0
        """How often that lasted too long, since all was well."""
        self.trouble = ""
        """Why the log refused the last request; empty when it did not, or when there was no answer at all."""
        self.term = 0
        """How often the lease became ours."""
        self._revision = 0
        self._until = 0.0
        self._others = 0
        """The revision of another replica's lease at our last look; 0 when there was none."""
        self._others_since = 0.0
        """When we first saw that."""

    def held(self) -> bool:
        """The lease is ours, with time to spare."""
        return self._clock() < self._until

    async def keep(self, acquired: Callable[[], Coroutine[None, None, None]]) -> None:
        """Acquire, renew and acquire again, for ever; `acquired` is called each time the lease becomes ours.

        What it returns runs beside the renewals, until it ends or the lease is acquired again.
        """
        owner, acquiring = False, None
        try:
            while True:
                term = self.term
                await self._write()
                # One that ran out during its own renewal was lost too: `held` was false meanwhile.
                if owner and (not self.held() or self.term != term):
                    owner = False
                    log.warning("lease lost", lease=self._key)
                if self.held() and not owner:
                    owner = True
                    log.info("lease acquired", lease=self._key)
                    if acquiring is not None:
                        acquiring.cancel()
                    acquiring = asyncio.create_task(acquired())
                if self._has_to_offer(owner):
                    owner, self._until = False, 0.0
                    log.warning("lease offered", lease=self._key, why=self._unwell())
                    # By then it has expired, and the standby replicas have seen that.
                    await asyncio.sleep(2 * self._ttl)
                await asyncio.sleep(self._pause())
                if acquiring is not None and acquiring.done():
                    acquiring.result()
        finally:
            if acquiring is not None:
                acquiring.cancel()

    async def release(self) -> None:
        """Give it up at once, so that the next owner need not wait for the expiry."""
        self._until = 0.0
        try:
            # A renewal that was broken off by the stop may be stored all the same.
            async with asyncio.timeout(self._ttl):
                known = await self._bucket.get(self._key)
                if known is not None and known.value == self._holder.encode():
                    await self._bucket.delete(self._key, expect=known.revision)
        except (Trouble, TimeoutError) as trouble:
            log.info("lease left to expire", lease=self._key, why=str(trouble))

    def _has_to_offer(self, owner: bool) -> bool:
        now = self._clock()
        if not self._unwell():
            self._unwell_since, self._offers = now, 0
        elif not owner:
            self._unwell_since = now
        elif now - self._unwell_since >= doubled(OFFER_SECONDS, self._offers + 1, LONGEST_OFFER_SECONDS):
            self._offers += 1
            return True
        return False

    def _pause(self) -> float:
        # A third of the lease leaves two more tries; the jitter keeps waiting replicas apart.
        third = self._ttl / 3 * random.uniform(0.9, 1.1)  # noqa: S311
        if self.held() or self.trouble:
            return third
        if not self._others:
            return FREE_SECONDS
        seen = self._clock() - self._others_since
        if seen < LOOK_SECONDS:
            # Just renewed: the next renewal comes in a third at the earliest, and is to be seen when it does.
            return third * 0.8
        left = self._ttl - seen
        return left if 0 < left < LOOK_SECONDS else LOOK_SECONDS

    async def _write(self) -> None:
        if self._others and not self._overdue():
            await self._look()
            if self._others:
                return
        started = self._clock()
        try:
            async with asyncio.timeout(self._ttl):
                self._revision = await self._bucket.put(
                    self._key, self._holder.encode(), expect=self._others or self._revision, ttl=self._ttl
                )
            if self._clock() >= self._until:
                # It was free for a moment at least; in another thread the old term is over before the new one begins.
                self.term += 1
            self._until = started + self._ttl - MARGIN_SECONDS
            self._others, self.trouble = 0, ""
        except Conflict:
            # The lease is another replica's, or ours by a write whose answer was lost.
            self._until, self.trouble = 0.0, ""
            await self._look()
        except (Trouble, TimeoutError) as trouble:
            _raise_if_ended(trouble)
            # Without an answer the connection is the matter, and `readiness.py` tells of that.
            self.trouble = str(trouble)
            log.debug("lease not renewed", lease=self._key, why=str(trouble))

    def _overdue(self) -> bool:
        """The other replica has stopped acting: its last renewal is longer ago than a lease is good for.

        The server removes expired messages at most four times a second, which is later.  The guard of our write finds
        out whether the lease was renewed after all.
        """
        return self._clock() >= self._others_since + self._ttl

    async def _look(self) -> None:
        try:
            async with asyncio.timeout(self._ttl):
                known = await self._bucket.get(self._key)
        except (Trouble, TimeoutError) as trouble:
            _raise_if_ended(trouble)
            self.trouble = str(trouble)
            return
        self.trouble = ""
        ours = known is not None and known.value == self._holder.encode()
        self._revision = known.revision if known is not None and ours else 0
        others = known.revision if known is not None and not ours else 0
        if others != self._others:
            # What is free needs no waiting for.
            self._others, self._others_since = others, self._clock() if others else 0.0


def _raise_if_ended(trouble: Trouble | TimeoutError) -> None:
    if isinstance(trouble, Refused) and trouble.reason in _ENDED:
        raise trouble
