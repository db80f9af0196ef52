"""Streams of what changes: the histories of a watch, and the later events of one job.

Few at once, with a bounded number of jobs, of which each tenant has its share.  A stream reads the log no faster than
its reader takes what it is told.
"""

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager

from msgspec.structs import replace

from services.history import documents
from services.history.answers import Answers, asked_for, kept_of, names_people, place
from services.history.core.selection import Selection
from services.history.documents import Kept
from shared.errors import Refused
from shared.eventlog import EventLog
from shared.flow import Shares
from shared.history_api import Question
from shared.job.fold import History
from shared.job.naming import NO_UID, JobKey, Uid, history_filters
from shared.telling.reading import line_of, of_history
from shared.telling.shown import Shown
from shared.telling.targets import find, must_be_names

STREAMS = 32
"""Streams of all readers: each holds up to 8 MiB of events that its reader has not taken."""
STREAMED_JOBS = 20_000
"""Jobs of all watches, those that are gone included: each watch has a fold of its own in memory."""


class Progress:
    """How far a watch has come."""

    reached = 0
    """The sequence up to which its reader was told everything; 0 while that is nothing."""


class Streams:
    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._jobs = Shares(STREAMED_JOBS)
        self._by_tenant, self._by_namespace = Shares(STREAMS), Shares(STREAMS)

    @property
    def open(self) -> int:
        """The streams that are open."""
        return self._by_namespace.taken

    @contextmanager
    def place(self, tenant: str, namespace: str) -> Iterator[None]:
        """A place for a stream of the tenant about the namespace.  Raises `Busy` if there is none."""
        with place(self._by_tenant, tenant, "streams"), place(self._by_namespace, namespace, "streams"):
            yield

    async def events(self, question: Question, tenant: str = "") -> AsyncGenerator[bytes, None]:
        """The events of a job after a sequence, a line each, and the later ones as they come; empty first.

        Raises as `Answers.answer`; `Refused` with the reason `Expired` if the log ends before that sequence.
        """
        log = await self._answers.log()
        await _must_have(log, question.after)
        asked = asked_for(question.name, self._answers.kinds)
        must_be_names(question.namespace, asked.name, question.uid)
        key = JobKey(question.namespace, asked.name, Uid(question.uid))
        if not question.uid or asked.is_request:
            # The uid of a request's events is that of its job, whose name is another one.
            fold = await self._answers.folded(question, tenant)
            key = find(fold.histories, asked, question.namespace, uid=question.uid)[1].job.key
            del fold
        yield b""
        async with aclosing(log.read(after=question.after, subjects=history_filters(key))) as batches:
            async for batch in batches:
                mine = (stored for stored in batch.events if of_history(stored, key))
                shown = (stored for stored in mine if question.people or not names_people(stored))
                yield b"".join(line_of(stored).encode() + b"\n" for stored in shown)

    async def changes(
        self, question: Question, progress: Progress, tenant: str = "", *, as_table: bool
    ) -> AsyncGenerator[bytes, None]:
        """The histories of a list that changed after a sequence, in Kubernetes' framing; empty first.

        Of a job with several new events the newest state; without a sequence all histories come first.
        Raises as `events`.
        """
        log = await self._answers.log()
        await _must_have(log, question.after)
        selection, include = Selection(question), question.include
        fold = await self._answers.folded(question, tenant)
        histories, counted, kinds = fold.histories, len(fold.histories), self._answers.kinds
        if not self._jobs.take(tenant, counted):
            words = "your watches have as many jobs as are left for others; watch one job, or `muster get -w --nats`"
            raise Refused(words, reason="TooLarge")
        try:
            # A reader goes on after the last version that it saw, so each is told in the order of versions.
            every = kept_of(histories, fold.began, replace(question, labels=""), kinds)
            known = sorted(every, key=lambda kept: kept.shown.sequence)
            progress.reached = question.after
            yield b""
            named = set[tuple[str, str]]()
            for kept in known:
                new, changed = fold.first[kept.key] > question.after, kept.shown.sequence > question.after
                if selection.has(kept.name, kept.shown.namespace, kept.labels):
                    named.add((kept.shown.namespace, kept.name))
                    what = "ADDED" if new else "MODIFIED"
                else:
                    # Its reader may have seen it with the labels that it had before.
                    what = "" if new or not question.after else "DELETED"
                if what and changed:
                    yield documents.framed(what, kept, as_table=as_table, include=include)
            progress.reached = max(histories.position, 1)
            del known, every
            async with aclosing(log.read(after=histories.position, subjects=fold.subjects)) as batches:
                async for batch in batches:
                    later: dict[JobKey, History] = {}
                    for stored in batch.events:
                        if (history := histories.fold(stored)) is not None and history.job.key.uid != NO_UID:
                            fold.began.setdefault(history.job.key, stored.time)
                            later[history.job.key] = history
                    grown = len(histories) - counted
                    room = not grown or self._jobs.take(tenant, grown)
                    counted += grown * room
                    for history in sorted(later.values(), key=lambda history: history.sequence):
                        kept = Kept(Shown.of(history, kinds), history.time, fold.began[history.job.key])
                        place = (kept.shown.namespace, kept.name)
                        if selection.has(kept.name, kept.shown.namespace, kept.labels):
                            what = "MODIFIED" if place in named else "ADDED"
                            named.add(place)
                        elif place in named:
                            what = "DELETED"
                            named.remove(place)
                        else:
                            continue
                        yield documents.framed(what, kept, as_table=as_table, include=include)
                    progress.reached = max(histories.position, 1)
                    if not room:
                        raise Refused("your watches have too many jobs now; ask again", reason="Expired")
        finally:
            self._jobs.give(tenant, counted)


async def _must_have(log: EventLog, sequence: int) -> None:
    if sequence and (end := await log.end()) < sequence:
        words = f"the log ends at {end}, before {sequence}: another one is in its place; list anew"
        raise Refused(words, reason="Expired")
