"""Histories: the fold of the whole log into one record per job, with its chain checked on the way.  Pure.

A history that meets something it cannot understand or confirm is *held*: the fold goes on, the chain too, but
nobody may act on that job in this process.
"""

from collections.abc import Callable, Iterator
from typing import Literal

from shared.eventlog import Stored
from shared.job.chain import START, Head, basis, link
from shared.job.events.catalog import AUTHORS, FACTS, AnyEvent
from shared.job.events.event import At
from shared.job.evolve import evolve
from shared.job.naming import NO_UID, JobKey, key_of
from shared.job.state import Job
from shared.job.upcast import Malformed, UnknownEvent, read_event

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
]
"""Why a history is held."""

Measure = Callable[[Job, AnyEvent, Job, str], None]

LONGEST_SEQUENCE = 20
"""Digits: a sequence is an unsigned 64-bit number."""


class History:
    """One job's fold: the job, the head of its chain, and the last sequence of each scope."""

    __slots__ = (
        "_since_decision",
        "digest",
        "facts",
        "held",
        "held_at",
        "held_for",
        "job",
        "last_decision",
        "sequence",
        "time",
    )

    def __init__(self, key: JobKey) -> None:
        self.job = Job(key=key)
        self.sequence = 0
        self.time = ""
        """When the last event was recorded."""
        self.digest = START
        self.last_decision = 0
        self.facts: dict[str, int] = {}
        """The last fact's sequence by author."""
        self.held = ""
        """Why nobody may act on this job here; empty when all is well."""
        self.held_for: Held | None = None
        """The same in one word."""
        self.held_at = 0
        """The last sequence by then."""
        self._since_decision: dict[int, bytes] = {0: START}
        """The hashes that a decision may name as its basis."""

    @property
    def head(self) -> Head:
        return Head(self.sequence, self.digest.hex())

    @property
    def basis(self) -> str:
        return basis(self.sequence, self.digest)

    def hash_at(self, sequence: int) -> str | None:
        """The hash after this sequence, while it is still kept: since the last decision's basis."""
        digest = self._since_decision.get(sequence)
        return digest.hex() if digest is not None else None

    def fold(self, stored: Stored) -> AnyEvent | None:
        """One more event of this job, in log order; return it when it was one that counts."""
        subject, sequence = stored.subject, stored.sequence
        _, author, tag = subject.rsplit(".", 2)
        self.sequence, self.time = sequence, stored.time
        if subject[0] == "j":
            self._confirm(sequence, stored.basis)
            self.last_decision = sequence
        else:
            self.facts[author] = sequence
        self.digest = link(self.digest, subject, stored.event_id, stored.time, stored.body)
        if self.job.key.uid != NO_UID:
            # Requests whose job does not exist yet are facts alone: no decision names one of them as its basis.
            self._since_decision[sequence] = self.digest
        try:
            event = read_event(stored.body, tag)
        except UnknownEvent:
            if not stored.optional:
                self.hold("UnknownEvent", f"unknown event {tag} at {sequence}; upgrade this service")
            return None
        except Malformed as error:
            self.hold("MalformedEvent", f"malformed event at {sequence}: {error}")
            return None
        if author not in AUTHORS[type(event)]:
            self.hold("ForeignEvent", f"{author} may not write {tag}, and did at {sequence}")
            return None
        if (subject[0] == "j") == (type(event) in FACTS):
            # Under the other family it would have passed another guard than its own.
            family = subject.partition(".")[0]
            self.hold("ForeignEvent", f"{tag} does not belong under {family}, and stands there at {sequence}")
            return None
        self.job = evolve(self.job, event, At(sequence, stored.time))
        return event

    def _confirm(self, sequence: int, named: str) -> None:
        stated, _, digest = named.partition(":")
        # A header can say anything: only what could be one of our sequences is read as a number.
        at = int(stated) if stated.isdecimal() and len(stated) < LONGEST_SEQUENCE else -1
        known = self._since_decision.get(at)
        if known is None or known.hex() != digest:
            what = named or "nothing"
            self.hold("NotConfirmed", f"the decision at {sequence} was taken on {what}, which is not in this history")
            return
        if at < self.last_decision:
            # The guard of the log lets one of two decisions on the same basis through.
            why = f"the decision at {sequence} was taken on {at}, without the decision at {self.last_decision}"
            self.hold("NotFenced", why)
            return
        # A later decision's basis lies at or after this one's: older hashes are not asked for again.
        if next(iter(self._since_decision)) < at:
            self._since_decision = {kept: held for kept, held in self._since_decision.items() if kept >= at}

    def hold(self, reason: Held, why: str) -> None:
        """Stop acting on this job in this process; the first reason stays."""
        if not self.held:
            self.held, self.held_for, self.held_at = why, reason, self.sequence


class Histories:
    """Every history of the log by job key."""

    def __init__(self, measure: Measure | None = None) -> None:
        """`measure` is told of every event that counts: the job before it, the event, the job after it, its time."""
        self._measure = measure
        self._by_key: dict[JobKey, History] = {}
        self._by_prefix: dict[str, History] = {}
        self._lives: dict[tuple[str, str], list[History]] = {}
        self.position = 0
        """The last sequence folded, of any job."""

    def fold(self, stored: Stored) -> History | None:
        """Fold one event into its job's history and return that; None for one that was folded before."""
        if stored.sequence <= self.position:
            return None
        self.position = stored.sequence
        subject = stored.subject
        # Making a key of a subject costs more than this lookup; a history has two prefixes, one a family.
        prefix = subject.rsplit(".", 2)[0]
        history = self._by_prefix.get(prefix)
        if history is None:
            key = key_of(subject)
            history = self._by_prefix[prefix] = self[key]
        before = history.job
        event = history.fold(stored)
        if self._measure is not None and event is not None:
            self._measure(before, event, history.job, stored.time)
        return history

    def __getitem__(self, key: JobKey) -> History:
        """The history of a job, begun when there is none."""
        history = self._by_key.get(key)
        if history is None:
            history = self._by_key[key] = History(key)
            self._lives.setdefault((key.namespace, key.name), []).append(history)
        return history

    def get(self, key: JobKey) -> History | None:
        return self._by_key.get(key)

    def lives(self, key: JobKey) -> tuple[History, ...]:
        """The histories of all jobs that ever had this namespace and name, and of the waiting room before them."""
        return tuple(self._lives.get((key.namespace, key.name), ()))

    def __iter__(self) -> Iterator[History]:
        return iter(list(self._by_key.values()))

    def __len__(self) -> int:
        return len(self._by_key)
