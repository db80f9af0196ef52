"""Matches claims with recorded changes, whichever comes first, in bounded memory.  Pure."""

from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterator

import msgspec

from services.audit.core.claims import DELETED, Change, Claim, Recorded

KEPT_SECONDS = 900.0
"""Seconds for which a claim and a change wait for each other: an API server sends again for some minutes."""

MOST_CHANGES = 50_000
"""The most writes that were recorded and are kept, at some 700 bytes each."""

MOST_BYTES = 2**25
MOST_BYTES_OF_NAMESPACE = 2**22
"""The most bytes of all claims and of those of one namespace, so that one flood takes nothing from the others."""

MOST_OF_ONE = 8
"""The most events about one write, and the most claims of it: more than one are a fault or a forgery."""

_Write = tuple[str, int]


class Match(msgspec.Struct, frozen=True, gc=False):
    """Who made a change."""

    change: Change
    claim: Claim


class _Kept(msgspec.Struct):
    since: float
    changes: list[Change] = msgspec.field(default_factory=list)
    matched: bool = False


class _Claimed(msgspec.Struct):
    since: float
    namespace: str
    claims: list[Claim] = msgspec.field(default_factory=list)
    bytes: int = 0
    matched: bool = False


class Matcher:
    """Claims and changes that may still meet."""

    def __init__(self) -> None:
        self.forced_out = 0
        """How many claims and changes without a match left before their time, for want of room."""
        self.clear()

    def clear(self) -> None:
        """Forget all: the sequences of the changes are those of another log now."""
        self._epoch = 0
        self._changes: OrderedDict[_Write, _Kept] = OrderedDict()
        self._claims: OrderedDict[_Write, _Claimed] = OrderedDict()
        self._bytes = 0
        self._of_namespace: defaultdict[str, int] = defaultdict(int)
        self._oldest: defaultdict[str, deque[_Write]] = defaultdict(deque)

    @property
    def bytes(self) -> int:
        """About how many bytes the claims take."""
        return self._bytes

    def record(self, recorded: Recorded, now: float) -> Iterator[Match]:
        """Keep what an event tells; its matches with the claims so far.

        Versions of another epoch are other writes: after etcd was restored, an API server gives them out again.
        """
        if recorded.epoch is not None and recorded.epoch < self._epoch:
            return
        if recorded.epoch is not None and recorded.epoch > self._epoch:
            self.clear()
            self._epoch = recorded.epoch
        for change in recorded.changes:
            yield from self.change(change, now)

    def change(self, change: Change, now: float) -> Iterator[Match]:
        """Keep a change of the log; its matches with the claims so far."""
        self._forget(now)
        kept = self._changes.setdefault((change.uid, change.write), _Kept(now))
        if len(kept.changes) >= MOST_OF_ONE or any(known.sequence == change.sequence for known in kept.changes):
            return
        if change.write == DELETED and not change.gone and any(not known.gone for known in kept.changes):
            # A later request of a user who only changed how the deletion goes on.
            return
        kept.changes.append(change)
        if len(self._changes) > MOST_CHANGES:
            _, oldest = self._changes.popitem(last=False)
            self.forced_out += not oldest.matched
        if (claimed := self._claims.get((change.uid, change.write))) is not None:
            claimed.matched = kept.matched = True
            yield from (Match(change, claim) for claim in claimed.claims)

    def claim(self, claim: Claim, now: float) -> Iterator[Match]:
        """Keep a claim; its matches with the changes so far.  The same one again has none."""
        self._forget(now)
        at = claim.uid, claim.write
        claimed = self._claims.get(at)
        if claimed is None:
            claimed = self._claims[at] = _Claimed(now, claim.namespace)
            self._oldest[claim.namespace].append(at)
        if claim in claimed.claims or len(claimed.claims) >= MOST_OF_ONE:
            return
        claimed.claims.append(claim)
        claimed.bytes += claim.weight
        self._count(claimed.namespace, claim.weight)
        kept = self._changes.get(at)
        found = [Match(change, claim) for change in (kept.changes if kept is not None else ())]
        if kept is not None:
            claimed.matched = kept.matched = True
        self._make_room(claimed.namespace)
        yield from found

    def _forget(self, now: float) -> None:
        while self._changes and now - next(iter(self._changes.values())).since > KEPT_SECONDS:
            self._changes.popitem(last=False)
        while self._claims and now - (oldest := next(iter(self._claims.values()))).since > KEPT_SECONDS:
            self._drop_oldest(oldest.namespace)

    def _make_room(self, namespace: str) -> None:
        while self._of_namespace.get(namespace, 0) > MOST_BYTES_OF_NAMESPACE:
            self.forced_out += self._drop_oldest(namespace)
        while self._bytes > MOST_BYTES:
            self.forced_out += self._drop_oldest(next(iter(self._claims.values())).namespace)

    def _drop_oldest(self, namespace: str) -> int:
        """Forget the oldest write of a namespace; how many claims without a match it had."""
        gone = self._claims.pop(self._oldest[namespace].popleft())
        self._count(namespace, -gone.bytes)
        if not self._oldest[namespace]:
            del self._of_namespace[namespace], self._oldest[namespace]
        return 0 if gone.matched else len(gone.claims)

    def _count(self, namespace: str, by: int) -> None:
        self._bytes += by
        self._of_namespace[namespace] += by
