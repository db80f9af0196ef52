"""Folds the log into one history per job, and checks the chain of each.  Pure.

A history with an event that this process cannot read or confirm is *held*: its fold and its chain go on, but this
process takes no step for the job.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from hashlib import sha256
from itertools import islice
from traceback import format_exception
from typing import Literal

import msgspec

from shared.eventlog import Stored
from shared.eventlog.subject import FAMILIES, SEALED, Subject, is_decision, split
from shared.job.chain import START, Head, link
from shared.job.events.catalog import AUTHORS, FACTS, AnyEvent, Malformed, UnknownEvent, for_people, read_event
from shared.job.events.event import At, EventDisowned
from shared.job.events.status import JobSealed
from shared.job.evolve import evolve
from shared.job.naming import NO_UID, JobKey, key_of, subject_of
from shared.job.state import Job
from shared.untrusted import whole_number

Held = Literal[
    "UnknownEvent",
    "MalformedEvent",
    "ForeignEvent",
    "NotConfirmed",
    "NotFenced",
    "HistoryBroken",
    "HistoryDisputed",
    "BrokenInvariant",
    "TooLarge",
    "Disowned",
    "Sealed",
]
"""Why a history is held."""

Measure = Callable[[Job, AnyEvent, Job, str], None]


OF_EVENT = 330
"""About the bytes of an event in the log besides its body, its basis, and its subject, which its headers repeat."""

MOST_HOLDS = 1_000
"""The most reasons of one job that are kept."""

MOST_SEALS, OF_TIME, OF_SEAL = 10_000, 19, 16
"""Seals of which time and hash are kept, for the anchor; the characters of a time, and the bytes of a hash."""
MOST_SEALED = 100_000
"""The most sealed jobs that are remembered, at about 130 bytes each, of which the older half then goes.

It is for what comes just after a seal.  A resource that comes back later shows a head that the log no longer has.
"""

MOST_HASHES = 2_000
"""The most hashes that a history keeps since its last decision, of which the older half then goes.

A probe that fails and succeeds by turns makes a fact each time, for weeks, and no decision.
"""


class Hold(msgspec.Struct, frozen=True, gc=False):
    """Why a history is held."""

    reason: Held
    why: str
    sequence: int
    by_event: bool
    trace: str = ""
    """The traceback of the error that broke a rule; as text, because an error keeps all that its frames know."""


class History:
    """One job's fold: the job, the head of its chain, and the last sequence of each scope."""

    __slots__ = (
        "_basis",
        "_held",
        "_holds",
        "_since_decision",
        "began",
        "count",
        "digest",
        "facts",
        "first",
        "job",
        "kept",
        "last_decision",
        "logged",
        "sealed",
        "sequence",
        "spec",
        "time",
    )

    def __init__(self, key: JobKey, held: "dict[JobKey, History] | None" = None) -> None:
        """`held` is kept up to date: it has the history while no service may act on its job."""
        self._held = held if held is not None else {}
        self.job = Job(key=key)
        self.first = self.sequence = self.count = 0
        """The first and the last event of the chain, and how many it has."""
        self.sealed = False
        """True once the seal was read that this history fits: it is over."""
        self.spec = 0
        """The bytes of the newest event with the job's spec."""
        self.kept = 0
        """About as many bytes as this service keeps of the job."""
        self.logged = 0
        """Bytes that the log has, or had, of it."""
        self.began = ""
        """When the first event was recorded."""
        self.time = ""
        """When the last event was recorded."""
        self.digest = START
        self.last_decision = 0
        self.facts: dict[str, int] = {}
        """The last fact's sequence by author."""
        self._holds: tuple[Hold, ...] = ()
        """Why this process takes no step for the job, the oldest first; empty if it may."""
        self._since_decision: dict[int, bytes] = {0: START}
        """The hashes that a decision may name as its basis."""
        self._basis = 0
        """The basis of the last decision: before it no decision may be taken."""

    @property
    def held(self) -> str:
        """Why this process takes no step for the job; empty if it may."""
        return self._holds[0].why if self._holds else ""

    @property
    def held_for(self) -> Held | None:
        """The reason for it."""
        return self._holds[0].reason if self._holds else None

    @property
    def held_at(self) -> int:
        """The last sequence at that moment."""
        return self._holds[0].sequence if self._holds else 0

    @property
    def newest_trace(self) -> str:
        """The traceback of the newest broken invariant; empty if the newest reason is another."""
        return self._holds[-1].trace if self._holds else ""

    @property
    def nonsense(self) -> tuple[int, ...]:
        """The events that hold the job, by sequence: an administrator may disown them."""
        return tuple(hold.sequence for hold in self._holds if hold.by_event)

    @property
    def head(self) -> Head:
        return Head(self.sequence, self.digest.hex())

    @property
    def basis(self) -> str:
        return str(self.head)

    @property
    def newest(self) -> int:
        """The last sequence of the job, with facts for people alone."""
        return max(self.sequence, *self.facts.values()) if self.facts else self.sequence

    def hash_at(self, sequence: int) -> str | None:
        """The hash after this sequence; None before the last decision's basis, where none is kept."""
        digest = self._since_decision.get(sequence)
        return digest.hex() if digest is not None else None

    def fold(self, stored: Stored) -> AnyEvent | None:
        """Fold the next event of the job; return it, or None if it has no effect."""
        subject, sequence = stored.subject, stored.sequence
        decision = is_decision(subject)
        _, author, tag = split(subject)
        if for_people(author, tag) and not decision:
            self.facts[author] = sequence
            try:
                return read_event(stored.body, tag)
            except (UnknownEvent, Malformed):
                return None
        last, digest = self.sequence, self.digest
        self.first, self.count = self.first or sequence, self.count + 1
        self.sequence, self.time, confirmed = sequence, stored.time, True
        self.began = self.began or stored.time
        if decision:
            confirmed = self._confirm(sequence, stored.basis)
            self.last_decision = sequence
        else:
            self.facts[author] = sequence
        self.digest = link(self.digest, stored)
        if self.job.key.uid != NO_UID:
            # The requests of a job that does not exist yet are facts only: no decision has one of them as its basis.
            self._since_decision[sequence] = self.digest
            if len(self._since_decision) > MOST_HASHES:
                newer = islice(self._since_decision.items(), MOST_HASHES // 2, None)
                self._since_decision = dict(newer)
        try:
            event = read_event(stored.body, tag)
        except UnknownEvent as unknown:
            if not stored.optional:
                self.hold("UnknownEvent", f"unknown event {unknown} at {sequence}; upgrade this service", by_event=True)
            return None
        except Malformed as error:
            self.hold("MalformedEvent", f"malformed event at {sequence}: {error}", by_event=True)
            return None
        if author not in AUTHORS[type(event)]:
            self.hold("ForeignEvent", f"{author} may not write {tag}, and did at {sequence}", by_event=True)
            return None
        if decision == (type(event) in FACTS):
            # The guard of appends depends on the family.
            self.hold(
                "ForeignEvent",
                f"{tag} does not belong under {'jobs' if decision else 'facts'}, and is there at {sequence}",
                by_event=True,
            )
            return None
        if type(event) is JobSealed and (not self.facts or last < event.last):
            # The archiver has purged, or purges, what this process did not read: it has verified it before.
            self.sealed = True
            return event
        if not confirmed:
            return None
        if type(event) is EventDisowned:
            self._disown(event.sequence)
        elif type(event) is JobSealed:
            self._seal(event, last, digest)
        elif tag == "JobObserved":
            self.spec = len(stored.body)
        doubt = self.job.integrity.doubt
        try:
            self.job = evolve(self.job, event, At(sequence, stored.time, stored.logged))
        except Exception as error:  # noqa: BLE001  the next start would meet the event again
            why = f"a broken invariant at {sequence}: {error!r}"
            self.hold("BrokenInvariant", why, by_event=True, error=error)
            return None
        if self.job.integrity.doubt is not doubt:
            self._note_held()
        return event

    def _confirm(self, sequence: int, named: str) -> bool:
        """True if the decision was taken in this history; else it is held, and counts for nothing."""
        stated, _, digest = named.partition(":")
        at = whole_number(stated)
        known = self._since_decision.get(at) if at is not None else None
        oldest = next(iter(self._since_decision))
        # A decision on a hash that is kept no more is taken as it is: the next one confirms its event, too.
        too_old = at is not None and self._basis <= at < oldest
        if at is None or (not too_old and (known is None or known.hex() != digest)):
            what = named or "nothing"
            why = f"the decision at {sequence} was taken on {what}, which is not in this history"
            self.hold("NotConfirmed", why, by_event=True)
            return False
        if at < self.last_decision:
            # The log accepts only one of two decisions on the same basis.
            why = f"the decision at {sequence} was taken on {at}, without the decision at {self.last_decision}"
            self.hold("NotFenced", why, by_event=True)
            return False
        # The next decision's basis is at or after this one's, so older hashes are dropped.
        self._basis = at
        if oldest < at:
            self._since_decision = {kept: held for kept, held in self._since_decision.items() if kept >= at}
        return True

    def hold(self, reason: Held, why: str, *, by_event: bool = False, error: Exception | None = None) -> None:
        """Take no further step for this job in this process; `by_event`: because of its newest event."""
        if len(self._holds) < MOST_HOLDS:
            trace = "".join(format_exception(error)) if error is not None else ""
            self._holds = (*self._holds, Hold(reason, why, self.sequence, by_event, trace))
            self._note_held()

    def _seal(self, seal: JobSealed, last: int, digest: bytes) -> None:
        """End the history that the seal is about; any other one is held."""
        stated = seal.first, seal.last, seal.count, seal.hash
        if stated == (self.first, last, self.count - 1, digest.hex()) and closed(self.job):
            self.sealed = True
        else:
            why = f"the seal at {self.sequence} is of another history, or of a job that is not over"
            self.hold("NotConfirmed", why, by_event=True)

    def _disown(self, sequence: int) -> None:
        if sequence not in self.nonsense:
            why = f"an administrator disowned the event at {sequence}, and this release counts it"
            self.hold("Disowned", why)
            return
        self._holds = tuple(hold for hold in self._holds if not (hold.by_event and hold.sequence == sequence))
        self._note_held()

    def _note_held(self) -> None:
        if self.held or self.job.integrity.doubt is not None:
            self._held[self.job.key] = self
        else:
            self._held.pop(self.job.key, None)


def closed(job: Job) -> bool:
    """True if the job is gone with its pods, children and requests, so that no service has a step for it.

    A later event can open it again, such as a `JobObserved` after the restoration of a backup.
    """
    if not job.resource.gone or job.pods.views or job.objects.children or job.scaling.open_request is not None:
        return False
    if job.objects.secrets and not job.resource.orphan:
        return False
    return not any(request.shown for request in job.scaling.requests.values())


def may_follow_a_seal(subject: str) -> bool:
    """True for a fact that changes nothing any more, such as one of a scheduler that stalled until after the seal.

    A decision is none, for the guard of appends lets none through; nor is it that the resource is there again.
    """
    return not is_decision(subject) and not subject.endswith(".JobObserved")


A_HISTORY, A_POD, A_REQUEST = 6_000, 1_000, 2_000
"""About as many bytes as a service keeps of a history without its spec, of a pod, and of a scale request.

Of each the other parts are bounded, too: a pod's message, a request's names.
"""


class Use:
    """The bytes of a namespace: in the log, and about as many as a service keeps of it in memory.

    Those of sealed histories count apart, until they have left the log (`leave`).
    """

    __slots__ = ("log", "memory", "sealed")

    def __init__(self) -> None:
        self.log = self.memory = self.sealed = 0


def leave(uses: Collection[Use], stored: int) -> None:
    """Let go of the bytes that left the log: it has `stored` now, and all histories that are not sealed."""
    going, sealed = sum(use.log for use in uses), sum(use.sealed for use in uses)
    if sealed > (left := max(stored - going, 0)):
        for use in uses:
            use.sealed = use.sealed * left // sealed


class Histories:
    """Every history of the log by job key."""

    def __init__(
        self,
        measure: Measure | None = None,
        stray: Callable[[Stored], None] = lambda _: None,
        late: Callable[[JobKey, Stored], None] = lambda *_: None,
    ) -> None:
        """`measure` gets each event with an effect: the job before it, the event, the job after it, its time.

        `stray` gets each event that is of no job by its subject, `late` each that a sealed job may still get.
        """
        self._measure = measure
        self._stray = stray
        self._late = late
        self._by_key: dict[JobKey, History] = {}
        self._by_prefix: dict[str, History] = {}
        self._lives: dict[tuple[str, str], list[History]] = {}
        self._open: dict[JobKey, History] = {}
        self._held: dict[JobKey, History] = {}
        self._sealed: dict[int, int] = {}
        """The seal's sequence by the hash of the key: two jobs of one hash do not occur."""
        self.seals: dict[int, bytes] = {}
        """Of the newest seals, by sequence, when the log stored each, and `OF_SEAL` bytes of its hash."""
        self.position = 0
        """The last sequence folded, of any job."""
        self.used: defaultdict[str, Use] = defaultdict(Use)
        """By namespace."""

    def fold(self, stored: Stored) -> History | None:
        """Fold one event into its job's history and return that.

        None for an event that was folded before, and for one that is of no job.
        """
        if stored.sequence <= self.position:
            return None
        self.position = stored.sequence
        # This lookup costs less than parsing the subject; a history has one prefix for each family.
        try:
            prefix, author, tag = split(stored.subject)
            history = self._by_prefix.get(prefix)
            if history is None:
                key = key_of(Subject.parse(stored.subject))
                known = self._by_key.get(key)
                # One without events is of a name that was asked for, or of a sealed job whose resource came back.
                if known is None or not known.sequence:
                    if tag == SEALED and author in AUTHORS[JobSealed] and is_decision(prefix):
                        self._note_sealed(key, stored)
                        return None
                    if self.sealed(key):
                        if may_follow_a_seal(stored.subject):
                            if not for_people(author, tag):
                                self._late(key, stored)
                            return None
                        self.reopened(key)
                history = self._by_prefix[prefix] = self[key]
        except ValueError:
            self._stray(stored)
            return None
        before = history.job
        used = self.used[before.key.namespace]
        size = OF_EVENT + len(stored.body) + len(stored.basis) + 2 * len(stored.subject)
        history.logged += size
        used.log += size
        event = history.fold(stored)
        job = history.job
        # The pods of slots may be there at any time, until the job is over.
        slots = 0 if job.over or job.resource.gone else len(job.attempt.slots)
        kept = (
            A_HISTORY
            + 2 * history.spec
            + A_POD * max(len(job.pods.views), slots)
            + A_REQUEST * len(job.scaling.requests)
        )
        used.memory += kept - history.kept
        history.kept = kept
        if before.resource.gone or history.job.resource.gone:
            self._close(history)
        if self._measure is not None and event is not None:
            self._measure(before, event, history.job, stored.time)
        if history.sealed:
            self._drop(history, stored)
        return history

    def sealed(self, key: JobKey) -> int:
        """The sequence of the job's seal; 0 if it has none, or a very old one."""
        return self._sealed.get(hash(key), 0)

    def reopened(self, key: JobKey) -> History:
        """The history of a sealed job about which there is something to fold: no service acts on that job."""
        history = self[key]
        history.hold("Sealed", f"its history was sealed at {self.sealed(key)}, and something came after it")
        return history

    def _note_sealed(self, key: JobKey, seal: Stored) -> None:
        digest = sha256(f"{seal.subject}\0".encode() + seal.body).digest()
        self.seals[seal.sequence] = seal.logged[:OF_TIME].encode() + digest[:OF_SEAL]
        if len(self.seals) > MOST_SEALS:
            del self.seals[next(iter(self.seals))]
        self._sealed[hash(key)] = self.position
        if len(self._sealed) > MOST_SEALED:
            self._sealed = dict(islice(self._sealed.items(), MOST_SEALED // 2, None))

    def _drop(self, history: History, seal: Stored) -> None:
        """Let go of a history that is over."""
        key = history.job.key
        self._note_sealed(key, seal)
        used = self.used[key.namespace]
        used.memory -= history.kept
        used.log -= history.logged
        used.sealed += history.logged
        for index in (self._by_key, self._open, self._held):
            index.pop(key, None)
        for family in FAMILIES:
            prefix, _, _ = split(subject_of(key, family, "", ""))
            self._by_prefix.pop(prefix, None)
        lives = self._lives[key.namespace, key.name]
        lives.remove(history)
        if not lives:
            del self._lives[key.namespace, key.name]

    def _close(self, history: History) -> None:
        """List the history as open or not; a job that is not gone is listed since its first event."""
        if closed(history.job):
            self._open.pop(history.job.key, None)
        else:
            self._open[history.job.key] = history

    def __getitem__(self, key: JobKey) -> History:
        """The history of a job; a new one if there is none."""
        history = self._by_key.get(key)
        if history is None:
            history = self._by_key[key] = self._open[key] = History(key, self._held)
            self._lives.setdefault((key.namespace, key.name), []).append(history)
        return history

    def get(self, key: JobKey) -> History | None:
        return self._by_key.get(key)

    def open(self) -> Iterator[History]:
        """The histories of jobs that are not closed."""
        return iter(list(self._open.values()))

    def closed(self) -> Iterator[History]:
        """The histories of jobs that are closed, and not sealed."""
        return (history for key, history in list(self._by_key.items()) if key not in self._open)

    def is_open(self, key: JobKey) -> bool:
        """True if the log has events of the job and it is not closed."""
        return key in self._open

    def held(self) -> Iterator[History]:
        """The histories on whose jobs no service may act, the longest held first."""
        return iter(list(self._held.values()))

    def lives(self, key: JobKey) -> tuple[History, ...]:
        """The histories of all incarnations of this name, and of requests that wait for the first of them."""
        return tuple(self._lives.get((key.namespace, key.name), ()))

    def __iter__(self) -> Iterator[History]:
        return iter(list(self._by_key.values()))

    def __len__(self) -> int:
        return len(self._by_key)
