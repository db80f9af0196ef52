"""A page of a job's events, in bounded memory and without a fold: of the log, and of the archive what the log lacks.

Its reader goes on after its last event: a sequence means the same in every page, whatever leaves the log meanwhile.
"""

from contextlib import aclosing
from itertools import chain
from math import inf

from shared.errors import Refused
from shared.eventlog import EventLog, Stored
from shared.eventlog.subject import names_people
from shared.history_api import Question
from shared.job.naming import JobKey, history_filters, key_archived
from shared.telling.reading import fold_to_end, of_history
from shared.telling.sealed import InLog, batches_of, lacking, subjects_in_archive, together
from shared.telling.targets import Asked, find

PAGE_BYTES = 4 * 1024 * 1024
"""A page ends with the event that brings its bodies to so many bytes: some 10,000 events."""


class _Window:
    """The event at a sequence, and those that follow it in one source: a page of them, and the one behind it."""

    def __init__(self, key: JobKey, question: Question) -> None:
        self.events: list[Stored] = []
        self.full = False
        self._key, self._after, self._people = key, question.after, question.people
        self._room, self._bytes = question.limit, 0

    def take(self, stored: Stored) -> None:
        if self.full or stored.sequence < self._after or not of_history(stored, self._key):
            return
        if self._people or not names_people(stored.subject):
            self.events.append(stored)
            if stored.sequence > self._after:
                self._room, self._bytes = self._room - 1, self._bytes + len(stored.body)
                self.full = self._room < 0 or self._bytes >= PAGE_BYTES

    @property
    def known_to(self) -> float:
        """The sequence up to which it has all events of its source."""
        return self.events[-1].sequence if self.full else inf


async def page_of(
    log: EventLog, question: Question, asked: Asked, known: tuple[JobKey, bool] | None
) -> tuple[JobKey, list[Stored], bool]:
    """The job, its events after a sequence that fit into a page, and whether there are later ones.

    `known` is the job in the log, and whether it is gone.  Raises `Refused` with the reason `NotFound` for a job that
    neither the log nor the archive has, and `Invalid` for a sequence that is not of the job.
    """
    there, namespace = None, question.namespace
    if known is not None and (first := await log.first(history_filters(known[0]))):
        there = InLog(known[0], first, known[1])
    newest = None if asked.is_request else await lacking(log, asked, namespace, question.uid, there)
    if newest is not None:
        key = key_archived(newest.subject)
    elif there is not None:
        key = there.key
    else:
        # As for every other question about a job.
        find((), asked, namespace, uid=question.uid)
        raise AssertionError(asked)
    # The event after which it begins is read, too: it has to be one of this job.
    after, since = question.after, max(question.after - 1, 0)
    windows = [_Window(key, question)]
    await fold_to_end(log, windows[0].take, history_filters(key), after=since, enough=lambda: windows[0].full)
    if there is not None and newest is None and await log.first(history_filters(key)) != there.first:
        # It was archived meanwhile, and left the log while that was read.
        return await page_of(log, question, asked, known)
    if newest is not None:
        for subject in subjects_in_archive(newest):
            windows.append(window := _Window(key, question))
            async with aclosing(batches_of(log.archive, newest, subject, since)) as batches:
                async for batch in batches:
                    for stored in batch:
                        window.take(stored)
                    if window.full:
                        break
    known_to = min(window.known_to for window in windows)
    in_log, *in_archive = (window.events for window in windows)
    found = [stored for stored in together([*chain(*in_archive)], in_log) if stored.sequence <= known_to]
    if after:
        if not found or found[0].sequence != after:
            of = f"{key.namespace}/{key.name} with the uid {key.uid}"
            words = f"{after} is no event of {of}; leave after out to begin with the first"
            raise Refused(words, reason="Invalid")
        del found[0]
    return key, found[: question.limit], known_to < inf or len(found) > question.limit
