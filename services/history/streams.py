"""Streams of what changes: the histories of a watch, and the later events of one job.

Few at once, with a bounded number of jobs, of which each tenant has its share.  A stream reads the log no faster than
its reader takes what it is told.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager

from services.history import documents
from services.history.answers import Answers, asked_for, place
from shared.errors import Refused
from shared.eventlog import EventLog
from shared.eventlog.subject import names_people
from shared.flow import Shares
from shared.history_api import Question, Share
from shared.job.naming import JobKey, Uid, history_filters, namespace_filters
from shared.telling.reading import line_of, of_history
from shared.telling.selection import Selection
from shared.telling.targets import find, must_be_names

STREAMS = 32
"""Streams of events: each holds up to 8 MiB of them that its reader has not taken."""
WATCHES = 104
"""Watches, which share one fold."""
STREAMED_JOBS = 200_000
"""Jobs of all watches, those that are gone included: each watch knows of which jobs it has told."""


class Progress:
    """How far a watch has come."""

    reached = 0
    """The sequence up to which its reader was told everything; 0 while that is nothing."""


class Streams:
    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._jobs = Shares(STREAMED_JOBS)
        self._streams, self._watches = ((Shares(most), Shares(most)) for most in (STREAMS, WATCHES))

    @property
    def open(self) -> int:
        return self._streams[0].taken + self._watches[0].taken

    @contextmanager
    def place(self, share: Share, namespace: str, *, watch: bool = False) -> Iterator[None]:
        """A place for a stream about the namespace.  Raises `Busy` if there is none."""
        (by_tenant, by_namespace), what = (self._watches, "watches") if watch else (self._streams, "streams")
        with place(by_tenant, what, *share), place(by_namespace, what, namespace, *share):
            yield

    async def events(self, question: Question, share: Share = ("",)) -> AsyncGenerator[bytes, None]:
        """The events of a job after a sequence, a line each, and the later ones as they come; empty first.

        Raises as `Answers.answer`; `Refused` with the reason `Expired` if the log ends before that sequence.
        """
        log = await self._answers.log()
        await _must_have(log, question.after)
        asked = asked_for(question.name, self._answers.kinds)
        must_be_names(question.namespace, asked.name, question.uid)
        key = JobKey(question.namespace, asked.name, Uid(question.uid))
        if not question.uid or asked.is_request:
            if (row := await self._answers.row(question)) is not None:
                key = row.key
            else:
                # The uid of a request's events is that of its job, whose name is another one.
                fold = await self._answers.folded(question, share)
                key = find(fold.histories, asked, question.namespace, uid=question.uid)[1].job.key
                del fold
        yield b""
        async with aclosing(log.read(after=question.after, subjects=history_filters(key))) as batches:
            async for batch in batches:
                mine = (stored for stored in batch.events if of_history(stored, key))
                shown = (stored for stored in mine if question.people or not names_people(stored.subject))
                yield b"".join(line_of(stored).encode() + b"\n" for stored in shown)

    async def changes(
        self, question: Question, progress: Progress, share: Share = ("",), *, as_table: bool
    ) -> AsyncGenerator[bytes, None]:
        """The histories of a list that changed after a sequence, in Kubernetes' framing; empty first.

        Of a job with several new events the newest state; without a sequence all histories come first.
        Raises as `events`.
        """
        log = await self._answers.log()
        await _must_have(log, question.after)
        selection, view = Selection(question), self._answers.view
        await self._answers.up_to_date(log, namespace_filters(question.namespace))
        rows = sorted(view.rows(question.namespace, every=question.every), key=lambda row: row.sequence)
        reached, position, epoch = question.after, view.position, view.epoch
        # In a thread: of two hundred thousand rows it takes seconds.
        looks = await asyncio.to_thread(lambda: [(row, row.is_of(selection)) for row in rows])
        named = {row.place for row, selected in looks if selected and row.sequence <= reached}
        counted = sum(selected for _, selected in looks)
        if not self._jobs.take(*share, amount=counted):
            words = "your watches have as many jobs as are left for others; watch one job, or `muster get -w --nats`"
            raise Refused(words, reason="TooLarge")
        try:
            progress.reached = question.after
            yield b""
            first = True
            while True:
                # A reader goes on after the last version that it saw, so each is told in the order of versions.
                for row, selected in looks:
                    if row.sequence <= reached:
                        continue
                    known = row.place in named or (first and 0 < row.first <= reached)
                    if selected:
                        what = "MODIFIED" if known else "ADDED"
                        named.add(row.place)
                    elif known:
                        # Its reader may have seen it with the labels that it had before.
                        what = "DELETED"
                        named.discard(row.place)
                    else:
                        continue
                    yield documents.framed(what, row.document, as_table=as_table, include=question.include)
                first, reached = False, position
                progress.reached = max(position, 1)
                if (grown := len(named) - counted) > 0:
                    if not self._jobs.take(*share, amount=grown):
                        raise Refused("your watches have too many jobs now; ask again", reason="Expired")
                    counted += grown
                await view.beyond(position, epoch)
                position = view.position
                looks = [
                    (row, row.is_of(selection))
                    for row in view.changed(reached)
                    if question.namespace in ("", row.key.namespace) and (question.every or view.is_newest(row))
                ]
        finally:
            self._jobs.give(*share, amount=counted)


async def _must_have(log: EventLog, sequence: int) -> None:
    if sequence and (end := await log.end()) < sequence:
        words = f"the log ends at {end}, before {sequence}: another one is in its place; list anew"
        raise Refused(words, reason="Expired")
