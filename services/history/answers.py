"""Answers questions from the log, in the words of the command line: few at once, in turns, and each within bounds.

An answer is kept until the log has a newer event under its subjects, in bounded memory.
"""

import asyncio
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from heapq import merge
from itertools import groupby
from typing import Self
from urllib.parse import urlencode

import msgspec
from msgspec.structs import astuple, replace

from services.history import documents
from services.history.documents import Row
from services.history.pages import page_of
from services.history.view import COME_AGAIN_SECONDS, View
from shared.errors import Refused, Transient, Trouble
from shared.eventlog import EventLog, Extent, Stored
from shared.eventlog.subject import filters, names_people
from shared.flow import Shares, Turns
from shared.frameworks.kinds import Kinds
from shared.history_api import NDJSON, Question, Share, path_of, query_of, words_of
from shared.job.fold import Histories, History
from shared.job.naming import JobKey, Uid, namespace_filters
from shared.runtime.appends import stamp
from shared.telling.causes.walk import Causes
from shared.telling.histories import JobHistory
from shared.telling.reading import (
    as_json_text,
    fold_all,
    fold_to_end,
    found_subjects,
    is_seal,
    line_of,
    moment_of,
    of_history,
    unknown_then,
    until,
)
from shared.telling.report import Life, report_lines, reported
from shared.telling.sealed import of_archive, together
from shared.telling.selection import Selection
from shared.telling.shown import Shown
from shared.telling.targets import Asked, find, must_be_names, parse_target, subjects_of
from shared.telling.why import answered
from shared.untrusted import MALFORMED

FOLDS = 2
"""Folds at once, of each tenant one: each has events in memory, and one core does not go faster with more."""
MOST_SECONDS = 25.0
"""Seconds for one answer, the wait included: kube-apiserver gives up after 60."""
FOLD_SECONDS = 12.0
"""Seconds for the fold alone, so that who waits behind one is answered in time."""
MOST_BYTES = 16 * 1024 * 1024
"""The most bytes of events in memory for one answer: some 40,000 events."""
MOST_JOBS = 10_000
"""The most jobs that are folded in memory for one answer."""
MOST_ANSWER = 32 * 1024 * 1024
"""The most bytes of an answer; a list can be asked for in pages."""
MOST_ROWS = 20_000
"""The most jobs of a list; it can be asked for in pages."""
BEHIND_SECONDS = 0.2
"""So long the view may be behind the log's end, before it counts as one whose event was purged."""
SCAN_SECONDS = 0.5
"""Seconds for which one page looks for what a selector chooses."""
KEPT_BYTES = 32 * 1024 * 1024
"""The most bytes of answers that are kept."""
KEPT_SECONDS = 300.0
"""Seconds for which an answer is kept: a restored log may end again where the lost one did."""
MOST_WORDS = 1024
"""The most characters of a question: names of Kubernetes have some hundred."""
ENTRY_BYTES = 4 * MOST_WORDS + 1024
"""Bytes that are counted for an answer beside its body: its question and its place."""


_Key = tuple[str, Question, bool, tuple[Extent, int] | int]
"""The log, the question, whether it was asked for as a table, and what is known of the archive.

That is of a list its extent and how far it was read, and of a job how many messages left it, which may be the job's.
"""


class Busy(Transient):
    """Who asks has as many places as are left for all others."""


@contextmanager
def place(places: Shares, what: str, *path: str, amount: int = 1) -> Iterator[None]:
    """A place, or so many of them, while the context lasts.  Raises `Busy` if `path` has none, as `Shares.take`."""
    if not places.take(*path, amount=amount):
        words = f"{path[0] or 'all namespaces'}: there are as many {what} already as are left for others"
        raise Busy(f"{words}; ask again when some have ended", retry_after=COME_AGAIN_SECONDS)
    try:
        yield
    finally:
        places.give(*path, amount=amount)


class Answer(msgspec.Struct, frozen=True):
    body: bytes
    media: str = "application/json"
    go_on: str = ""
    """Of a page of events: the path and the query of the next one; empty after the last."""


class _Remembered(msgspec.Struct, frozen=True):
    """A kept answer, the last event that it knows, and the time of the loop until which it counts."""

    end: int
    until: float
    answer: Answer

    @property
    def bytes(self) -> int:
        return len(self.answer.body) + ENTRY_BYTES


class Answers:
    def __init__(
        self, log: Callable[[], Awaitable[EventLog]], kinds: Kinds, folded: Callable[[float], None] = lambda _: None
    ) -> None:
        """`log` gives the connected log, or raises `Trouble`; `folded` is told the seconds that each fold took."""
        self.log = log
        self.kinds = kinds
        self.view = View(log, kinds)
        self._folded = folded
        self._folds = Turns(FOLDS, of_namespace=1)
        self._kept: OrderedDict[_Key, _Remembered] = OrderedDict()
        self._bytes = 0
        self._searching = asyncio.Lock()
        self._newest = (0, 0)
        """An end of the log whose event was purged, and the last event before it."""

    async def answer(self, question: Question, share: Share = ("",), *, as_table: bool = False) -> Answer:
        """The answer to whom the share is of; `as_table` for a list or a job as rows.

        Raises `Refused` with a reason such as `NotFound`, `Invalid`, `TooLarge` or one of the log; `Transient` if the
        same question may be answered later.
        """
        async with _in_time(MOST_SECONDS):
            return await self._answer(question, share, as_table)

    async def up_to_date(self, log: EventLog, subjects: tuple[str, ...]) -> None:
        """Wait until the view knows the newest event under these filters."""
        async with _in_time(MOST_SECONDS):
            await self.view.reached(await log.identity(), await self._end(log, subjects))

    async def _end(self, log: EventLog, subjects: tuple[str, ...]) -> int:
        """The last event under these filters, in the whole log the last one that was not purged.

        The server searches all subjects for that one: for all who ask at once, and only where the view stays behind.
        """
        end = await log.end(subjects)
        if subjects or self.view.position >= end:
            return end
        with suppress(TimeoutError):
            async with asyncio.timeout(BEHIND_SECONDS):
                await self.view.reached(await log.identity(), end)
                return end
        async with self._searching:
            if self._newest[0] != end:
                self._newest = (end, await log.end(filters()))
            return self._newest[1]

    async def row(self, question: Question) -> Row | None:
        """The row of the job that is asked for; None if the view has none.  Raises as `answer`."""
        asked, subjects = self._meant(question)
        if asked is None or asked.is_request:
            return None
        await self.up_to_date(await self.log(), subjects)
        return self.view.find(asked, question.namespace, question.uid)

    async def folded(self, question: Question, share: Share = ("",)) -> "Fold":
        """The fold of now for a stream.  Raises as `answer`."""
        asked, subjects = self._meant(question)
        async with _in_time(MOST_SECONDS):
            log = await self.log()
            async with self._folds.turn(*share):
                fold = Fold(keep=False)
                await self._read(log, fold, asked, subjects, question)
                return fold

    def _meant(self, question: Question) -> tuple[Asked | None, tuple[str, ...]]:
        """The job or request, None for a list; and the filters of its events."""
        if sum(len(each) for each in astuple(question) if isinstance(each, str)) > MOST_WORDS:
            raise Refused(f"a question has at most {MOST_WORDS} characters; ask with the names alone", reason="Invalid")
        must_be_names(question.namespace)
        if not (name := question.name or question.only):
            return None, namespace_filters(question.namespace)
        asked = asked_for(name, self.kinds)
        # A list of one name in all namespaces reads them whole.
        whole = namespace_filters("")
        subjects = subjects_of(asked, question.namespace, uid=question.uid) if question.namespace else whole
        return asked if question.name else None, subjects

    async def _read(
        self, log: EventLog, fold: "Fold", asked: Asked | None, subjects: tuple[str, ...], question: Question
    ) -> None:
        async with _reading(log):
            if asked is not None and asked.is_request:
                # The kept answer counts by the end of the namespace, and is made of the request's job alone.
                subjects = await found_subjects(log, asked, question.namespace, uid=question.uid)
            fold.subjects = subjects
            await fold_to_end(log, fold.fold, subjects)
            if asked is not None:
                histories = fold.histories
                fold.add(await of_archive(log, asked, question.namespace, question.uid, histories, MOST_BYTES))

    async def _in_log(self, question: Question, asked: Asked, share: Share) -> tuple[JobKey, bool] | None:
        """The job whose events are asked for and whether it is gone; None for one that the log does not have."""
        if asked.is_request:
            fold = await self.folded(question, share)
            job = find(fold.histories, asked, question.namespace, uid=question.uid)[1].job
            return job.key, bool(job.resource.gone)
        row = await self.row(question)
        return None if row is None else (row.key, row.gone)

    async def _page(
        self, log: EventLog, question: Question, asked: Asked, there: tuple[JobKey, bool] | None
    ) -> Callable[[], Answer]:
        """What makes the answer of a page of events."""
        async with _reading(log):
            key, found, more = await page_of(log, question, asked, there)
        last = replace(question, uid=key.uid, after=found[-1].sequence) if more else None
        go_on = f"{path_of(last)}?{urlencode(query_of(last))}" if last is not None else ""
        return lambda: replace(_text(map(line_of, found), NDJSON), go_on=go_on)

    async def _answer(self, question: Question, share: Share, as_table: bool) -> Answer:
        asked, subjects = self._meant(question)
        log = await self.log()
        extent = self.view.archived.extent
        known_of = (extent, self.view.archived.read) if asked is None else extent.gone
        key = (await log.identity(), question, as_table, known_of)
        end = await self._end(log, subjects)
        if (known := self._known(key, end)) is not None:
            return known
        paged = asked is not None and bool(question.part and question.limit)
        there = await self._in_log(question, asked, share) if asked is not None and paged else None
        await self._folds.enter(*share)
        rendering: asyncio.Future[Answer] | None = None
        try:
            # Others may have asked the same meanwhile.
            if (known := self._known(key, end)) is not None:
                return known
            began = asyncio.get_running_loop().time()
            making = await self._from_view(key, question, asked, end)
            if making is None and asked is not None and paged:
                making = await self._page(log, question, asked, there)
            elif making is None:
                fold = Fold(keep=True, people=question.people)
                await self._read(log, fold, asked, subjects, question)
                making = partial(_render, question, asked, fold, self.kinds, as_table)
            # In a thread, so that the loop answers others meanwhile.
            rendering = asyncio.ensure_future(asyncio.to_thread(making))
            answer = await asyncio.shield(rendering)
            if len(answer.body) > MOST_ANSWER:
                what = "ask for pages of it with limit=500" if asked is None else "ask the log itself with --nats"
                size = f"it has {len(answer.body) >> 20} MiB, more than {MOST_ANSWER >> 20}"
                raise Refused(f"{size}; {what}", reason="TooLarge")
            self._folded(asyncio.get_running_loop().time() - began)
        finally:
            if rendering is None:
                self._folds.leave(*share)
            else:
                # The thread goes on, with its events in memory, also where nobody waits for it any more.
                rendering.add_done_callback(lambda _: self._folds.leave(*share))
        # Hardly one asks again for what came after the same event.
        if not question.after:
            self._keep(key, end, answer)
        return answer

    async def _from_view(
        self, key: _Key, question: Question, asked: Asked | None, end: int
    ) -> Callable[[], Answer] | None:
        """What makes the answer of the view's rows; None if it has none."""
        (identity, _, as_table, _), view = key, self.view
        if question.part or (asked is not None and asked.is_request):
            return None
        if asked is not None:
            await view.reached(identity, end)
            row = view.find(asked, question.namespace, question.uid)
            if row is None or (row.gone and not question.uid and view.archived.has_later(row)):
                return None
            return partial(_document, row, question, as_table)
        selection, page, late = Selection(question), _page(question), _since(question.since)
        if view.archived.looked.is_set():
            with suppress(Trouble):
                # The look goes on if its client leaves: what it writes belongs to how far it has read.
                await asyncio.shield(view.archived.look())
        await view.reached(identity, end, archived=True)
        page = page.goes_on_in(identity, view.position)
        rows, archived = view.rows(question.namespace, every=True), view.archived
        # From the first life of a name on: an earlier one is shown only if no newer one is known.
        begin = JobKey(page.after.namespace, page.after.name, Uid(""))
        rows = rows[bisect_left(rows, begin, key=_by_key) :]

        def selected(row: Row) -> bool:
            return late(row.time) and row.is_of(selection)

        def making() -> Answer:
            older = archived.rows(question.namespace, page.after)
            merged = _merged(rows, older, page.after, every=question.every)
            found, last, more = _chosen(merged, selected, question.limit)
            # As in Kubernetes, nothing is counted for a selector.
            counted = more and not (question.labels or question.fields or question.since)
            later = len(rows) - bisect_right(rows, page.after, key=_by_key)
            left = later + archived.count(question.namespace, page.after) - len(found) if counted else 0
            metadata = documents.metadata_of(page.version, page.then(last) if more and last else "", left)
            return _listed([*filter(None, map(archived.document, found))], metadata, question, as_table)

        return making

    def _known(self, key: _Key, end: int) -> Answer | None:
        kept = self._kept.get(key)
        if kept is None or kept.end != end or kept.until < asyncio.get_running_loop().time():
            return None
        self._kept.move_to_end(key)
        return kept.answer

    def _keep(self, key: _Key, end: int, answer: Answer) -> None:
        if (before := self._kept.pop(key, None)) is not None:
            self._bytes -= before.bytes
        kept = self._kept[key] = _Remembered(end, asyncio.get_running_loop().time() + KEPT_SECONDS, answer)
        self._bytes += kept.bytes
        while self._bytes > KEPT_BYTES:
            self._bytes -= self._kept.popitem(last=False)[1].bytes


@asynccontextmanager
async def _in_time(seconds: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as late:
        words = f"no answer within {seconds:g} s; ask for less, such as one job"
        raise Transient(words, retry_after=COME_AGAIN_SECONDS) from late


@asynccontextmanager
async def _reading(log: EventLog) -> AsyncIterator[None]:
    try:
        async with _in_time(FOLD_SECONDS):
            yield
    except Refused as refusal:
        if refusal.reason == "LogReplaced":
            # The next question connects to the other one.
            await log.close()
        raise


class Fold:
    """The fold of some subjects, within bounds."""

    def __init__(self, *, keep: bool, people: bool = False) -> None:
        """With `keep` the events are kept, too; without `people` those that say who made a change are left out."""
        self.histories = Histories()
        self.events: list[Stored] = []
        self.subjects: tuple[str, ...] = ()
        """The filters of the events."""
        self._keep = keep
        self._people = people
        self._bytes = 0

    def add(self, older: Sequence[Stored]) -> None:
        """Fold anew, with the events of the archive that the log lacks."""
        if older:
            known, self._bytes = [*self.events], 0
            self.histories, self.events = Histories(), []
            for stored in together(older, known):
                self.fold(stored)

    def fold(self, stored: Stored) -> None:
        if not self._people and names_people(stored.subject):
            return
        if is_seal(stored):
            if self._keep:
                self.events.append(stored)
            return
        if self.histories.fold(stored) is None:
            return
        if self._keep:
            self._bytes += len(stored.body)
            self.events.append(stored)
        if self._bytes > MOST_BYTES or len(self.histories) > MOST_JOBS:
            what = f"{MOST_BYTES >> 20} MiB of events" if self._keep else f"{MOST_JOBS} jobs"
            words = f"it has more than {what}; read its events in pages with limit=10000, or the log itself with --nats"
            raise Refused(words, reason="TooLarge")


class Page(msgspec.Struct, frozen=True):
    """Where a page of a list begins, as the one before says it: histories have one order, whatever happens to them."""

    log: str
    version: int
    """That of the first page, after which a watch misses nothing."""
    after: JobKey
    """The last job of the page before."""

    def goes_on_in(self, log: str, end: int) -> Self:
        """The page with the version of its list.  Raises `Refused` if another log is in the place of its own."""
        if self is FIRST:
            return replace(self, log=log, version=max(end, 1))
        if self.log != log or self.version > end:
            raise Refused("the log of the pages before is no longer there; list anew", reason="Expired")
        return self

    def then(self, row: Row) -> str:
        """What the page says that ends with this row."""
        return urlsafe_b64encode(msgspec.json.encode(replace(self, after=row.key))).decode()


FIRST = Page("", 0, JobKey("", "", Uid("")))


def _page(question: Question) -> Page:
    """The page that is asked for.  Raises `Refused` for what no page has said."""
    if not question.go_on:
        return FIRST
    try:
        return msgspec.json.decode(urlsafe_b64decode(question.go_on), type=Page)
    except (*MALFORMED, ValueError) as error:
        raise Refused("continue is what no page said; list anew", reason="Invalid") from error


def _merged(rows: Iterable[Row], archived: Iterable[Row], after: JobKey, *, every: bool) -> Iterator[Row]:
    """Those of the log and of the archive after a job, in order, each once; the newest of each name without `every`."""
    for _, lives in groupby(merge(rows, archived, key=_by_key), key=_by_name):
        one, *others = lives
        if not others:
            found = [one]
        else:
            known = {row.key if every else row.place: row for row in sorted((one, *others), key=_newest_last)}
            found = sorted(known.values(), key=_by_key)
        yield from (row for row in found if after < row.key)


def _by_key(row: Row) -> JobKey:
    return row.key


def _by_name(row: Row) -> tuple[str, str]:
    return row.key.namespace, row.key.name


def _newest_last(row: Row) -> tuple[int, bool, int]:
    """What the log has of a history comes after the archive's copy of the same."""
    return row.first, not row.archived, row.archived


def _chosen(merged: Iterator[Row], selected: Callable[[Row], bool], limit: int) -> tuple[list[Row], Row | None, bool]:
    """The rows of a page, the last row that was looked at, and whether there may be more.

    A page for which much is looked at is shorter than it may be.
    """
    found, last, until = list[Row](), None, time.monotonic() + SCAN_SECONDS
    for number, row in enumerate(merged):
        if limit and (len(found) == limit or (number % 100 == 0 and number and time.monotonic() >= until)):
            return found, last, True
        last = row
        if selected(row):
            found.append(row)
        if len(found) > MOST_ROWS:
            raise Refused(f"it has more than {MOST_ROWS} jobs; ask for pages of it with limit=500", reason="TooLarge")
    return found, last, False


def _listed(shown: list[bytes], metadata: documents.Json, question: Question, as_table: bool) -> Answer:
    if not as_table:
        return Answer(documents.listed(shown, metadata) + b"\n")
    return _json(documents.table([_read(each) for each in shown], metadata, question.include))


def _document(row: Row, question: Question, as_table: bool) -> Answer:
    if not as_table:
        return Answer(row.document + b"\n")
    return _json(documents.table([_read(row.document)], documents.metadata_of(row.sequence), question.include))


def _render(question: Question, asked: Asked | None, fold: Fold, kinds: Kinds, as_table: bool) -> Answer:
    assert asked is not None, "a list is made of the view"
    part, told = question.part, "text/plain" if question.text else "application/json"
    _, history = find(fold.histories, asked, question.namespace, uid=question.uid, waiting=part == "why")
    key = history.job.key
    mine = [stored for stored in fold.events if of_history(stored, key)]
    match part:
        case "why":
            causes = fold_all(Causes(key), mine, seal=True)
            return _text(answered(causes, asked, question.about, as_json=not question.text), told)
        case "events":
            later = (stored for stored in mine if stored.sequence > question.after)
            return _text(map(line_of, later), NDJSON)
        case "at":
            then = fold_all(History(key), filter(until(question.at), mine), seal=True)
            if not then.newest:
                raise unknown_then(mine[0])
            return _text([as_json_text(then.job)], "application/json")
        case "report":
            since = stamp(_begin(question.since)) if question.since else ""
            found = reported(fold_all(Life(key), mine), kinds, until=stamp(datetime.now(UTC)), since=since)
            return _text(report_lines(found, as_json=not question.text), told)
    kept = JobHistory.of(Shown.of(history, kinds), history.time)
    as_row = documents.table([kept], documents.metadata_of(kept.job.sequence), question.include)
    return _json(as_row if as_table else kept)


def _begin(words: str) -> datetime:
    return moment_of(words, f"since {words[:64]!r} is no time; say for example 2030-01-31T12:00:00Z")


def _since(words: str) -> Callable[[str], bool]:
    """A predicate for times from this one on, if one is given.  Raises `Refused` for words that are none."""
    if not words:
        return lambda _: True
    begin = _begin(words)

    def late(time: str) -> bool:
        with suppress(Refused):
            return moment_of(time, "no time") >= begin
        return False

    return late


def asked_for(name: str, kinds: Kinds) -> Asked:
    """The job or the request that `KIND.NAME` names.  Raises `Refused` if it names none."""
    for words in words_of(name):
        try:
            return parse_target(words, kinds)
        except Refused:
            continue
    words = f"{name!r} is no KIND.NAME of a kind that is known here; say for example trainingjob.digits"
    raise Refused(words, reason="NotFound")


def _read(document: bytes) -> JobHistory:
    return msgspec.json.decode(document, type=JobHistory)


def _json(document: JobHistory | documents.Json) -> Answer:
    return Answer(msgspec.json.encode(document) + b"\n")


def _text(lines: Iterable[str], media: str) -> Answer:
    return Answer("".join(f"{line}\n" for line in lines).encode(), media)
