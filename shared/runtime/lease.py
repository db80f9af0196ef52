"""The lease: the replica that holds it acts; the standby replicas only fold.

The lease, a key in the bucket `LEASES`, saves work.  The fence is the guard of every append: the log refuses what a
holder decides on old events after a pause.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine

import structlog

from shared.backoff import doubled
from shared.errors import Conflict, Refused, Transient, Trouble
from shared.eventlog import Bucket
from shared.runtime.loop_thread import LoopThread

TTL_SECONDS = 2.0
"""Seconds that a lease lasts without a renewal: fewer mean faster failover and more writes."""

MARGIN_SECONDS = 0.3
"""The holder stops acting this long before the lease can expire at the server."""

CHECKS = 20
"""A standby checks an overdue renewal this many times in the life of a lease."""

FREE_SECONDS = 0.01
"""Seconds until a replica asks for a lease that it found free."""

OFFER_SECONDS = 10
"""A lease holder that has been unready this long lets its lease expire once, so that a ready standby can take it."""

LONGEST_OFFER_SECONDS = 300
"""While no standby takes the lease, the holder offers it after twice as long each time, up to this."""

UNSTORED = "NATS answers and stores nothing; if its log names a full disk, free that and restart NATS"
"""After an error of its disk a server answers no write any more until it is restarted, and every read."""

_ENDED = ("Closed", "Disconnected", "Unauthorized")
"""Reasons of refusals after which the connection to the log cannot be used again."""

log = structlog.get_logger()


class Lease:
    """One key that one process holds at a time."""

    def __init__(
        self,
        bucket: Bucket,
        key: str,
        holder: str,
        *,
        unready: Callable[[], str] = lambda: "",
        clock: Callable[[], float] = lambda: asyncio.get_running_loop().time(),
        chance: Callable[[], float] = random.random,
        ttl: float = TTL_SECONDS,
    ) -> None:
        """`holder` is unique to this process.

        `unready` says why a standby replica should act instead; it is empty while this one is ready.  `clock` is in
        seconds; with a clock other than the loop's, `held` can be called in another thread.  `chance` is from 0 to 1,
        `ttl` in seconds.
        """
        self._bucket = bucket
        self._key = key
        self._holder = holder
        self._unready = unready
        self._clock = clock
        self._chance = chance
        self.ttl = ttl
        self._unready_since = 0.0
        """Since when this holder is unready."""
        self._offers = 0
        """How often this holder offered the lease since it was ready."""
        self.trouble = ""
        """Why the log refused the last request; empty if it did not, or gave no answer."""
        self.term = 0
        """How often this replica has acquired the lease."""
        self._revision = 0
        self._until = 0.0
        self._others = 0
        """The revision of another replica's lease at the last check; 0 if there was none."""
        self._others_since = 0.0
        """When that revision was first seen."""

    def held(self) -> bool:
        """True until `MARGIN_SECONDS` before this replica's lease can expire."""
        return self._clock() < self._until

    async def keep(self, acquired: Callable[[], Coroutine[None, None, None]]) -> None:
        """Acquire, renew and acquire again, for ever; call `acquired` after each acquisition.

        The coroutine that it returns runs beside the renewals, until it ends or the lease is acquired again.
        """
        owner, acquiring = False, None
        try:
            while True:
                term = self.term
                await self._write()
                # A lease that expired during its own renewal was lost too: `held` was false meanwhile.
                if owner and (not self.held() or self.term != term):
                    owner = False
                    log.warning("lease lost", lease=self._key, why=self.trouble or "it was not renewed in time")
                if self.held() and not owner:
                    owner = True
                    log.info("lease acquired", lease=self._key)
                    if acquiring is not None:
                        acquiring.cancel()
                    acquiring = asyncio.create_task(acquired())
                if self._has_to_offer(owner):
                    owner, self._until = False, 0.0
                    log.warning("lease offered", lease=self._key, why=self._unready())
                    # After two terms the lease has expired, and the standby replicas have seen that.
                    await asyncio.sleep(2 * self.ttl)
                await asyncio.sleep(self._pause())
                if acquiring is not None and acquiring.done():
                    acquiring.result()
        finally:
            if acquiring is not None:
                acquiring.cancel()

    async def release(self) -> None:
        """Delete the lease, so that the next holder need not wait for its expiry."""
        self._until = 0.0
        try:
            # A renewal that the stop cut short may be stored all the same.
            async with asyncio.timeout(self.ttl):
                known = await self._bucket.get(self._key)
                if known is not None and known.value == self._holder.encode():
                    await self._bucket.delete(self._key, expect=known.revision)
        except (Trouble, TimeoutError) as trouble:
            log.info("lease left to expire", lease=self._key, why=str(trouble))

    def _has_to_offer(self, owner: bool) -> bool:
        now = self._clock()
        if not self._unready():
            self._unready_since, self._offers = now, 0
        elif not owner:
            self._unready_since = now
        elif now - self._unready_since >= doubled(OFFER_SECONDS, self._offers + 1, LONGEST_OFFER_SECONDS):
            self._offers += 1
            return True
        return False

    def _pause(self) -> float:
        # A third of the lease leaves two more tries; with the jitter, standby replicas do not ask together.
        third = self.ttl / 3 * (0.9 + self._chance() / 5)
        # A write without an answer has taken its time already.
        if self.held() or (self.trouble and self.trouble != UNSTORED):
            return third
        if not self._others:
            return FREE_SECONDS
        seen, check = self._clock() - self._others_since, self.ttl / CHECKS
        if seen < check:
            # The holder has just renewed: its next renewal comes after a third at the earliest.
            return third * 0.8
        left = self.ttl - seen
        return left if 0 < left < check else check

    async def _write(self) -> None:
        if self._others and not self._overdue():
            await self._look()
            if self._others:
                return
        started = self._clock()
        try:
            async with asyncio.timeout(self.ttl):
                self._revision = await self._bucket.put(
                    self._key, self._holder.encode(), expect=self._others or self._revision, ttl=self.ttl
                )
            if self._clock() >= self._until:
                # The lease was free for a moment.  The working loop must see the old term end before the new one.
                self.term += 1
            self._until = started + self.ttl - MARGIN_SECONDS
            self._others, self.trouble = 0, ""
        except Conflict:
            # Another replica holds the lease, or this one does by a write whose answer was lost.
            self._until, self.trouble = 0.0, ""
            await self._look()
        except (Trouble, TimeoutError) as trouble:
            _raise_if_ended(trouble)
            if isinstance(trouble, TimeoutError) and await self._answers():
                trouble = Transient(UNSTORED)
            tell = log.warning if isinstance(trouble, Refused) and str(trouble) != self.trouble else log.debug
            # No text if there was no answer: `health.py` reports a lost connection.
            self.trouble = str(trouble)
            tell("lease not renewed", lease=self._key, why=self.trouble)

    async def _answers(self) -> bool:
        """True if the log, which did not answer a write, answers a read."""
        try:
            async with asyncio.timeout(self.ttl / 4):
                await self._bucket.get(self._key)
        except (Trouble, TimeoutError):
            return False
        return True

    def _overdue(self) -> bool:
        """True if the holder's last renewal is older than a lease lasts, so that it has stopped acting.

        The server removes expired messages at most four times a second, which is later.  If the holder renewed the
        lease after all, the guard refuses the write.
        """
        return self._clock() >= self._others_since + self.ttl

    async def _look(self) -> None:
        try:
            async with asyncio.timeout(self.ttl):
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
            # A free lease needs no wait.
            self._others, self._others_since = others, self._clock() if others else 0.0


def _raise_if_ended(trouble: Trouble | TimeoutError) -> None:
    if isinstance(trouble, Refused) and trouble.reason in _ENDED:
        raise trouble


class ThreadedLease:
    """The lease as the working loop sees it; the other loop renews it."""

    def __init__(self, lease: Lease, thread: LoopThread) -> None:
        self._lease = lease
        self._thread = thread
        self._known = 0
        """The term of the lease that the working loop was told of."""

    @property
    def trouble(self) -> str:
        """Why the log refused the last request for the lease; empty if it did not."""
        return self._lease.trouble

    def held(self) -> bool:
        """True if this replica holds the lease and the working loop was told so."""
        return self._known == self._lease.term and self._lease.held()

    async def keep(self, acquired: Callable[[], Coroutine[None, None, None]]) -> None:
        """Acquire and renew the lease for ever; call `acquired` in this loop after each acquisition."""
        home = asyncio.get_running_loop()

        async def here() -> None:
            owning = acquired()
            # From here on `held` is true: the synchronous part of `acquired` is done.
            self._known = self._lease.term
            await owning

        async def there() -> None:
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(here(), home))

        await self._thread.run(self._lease.keep(there))

    async def release(self) -> None:
        await self._thread.run(self._lease.release())
