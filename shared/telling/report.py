"""`muster report`: the whole life of a job in one document, from the log alone.

Phases, attempts, scalings and failures with their times, and who changed what.
"""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from shared.eventlog import Stored
from shared.frameworks.kinds import Kinds
from shared.job.attempt import was_deleted
from shared.job.events.catalog import AnyEvent
from shared.job.events.event import At
from shared.job.events.watcher import ProgressReported
from shared.job.ledger import Ledger, Stretch
from shared.job.naming import JobKey, Uid
from shared.job.reasons import plain
from shared.job.scaling import Request
from shared.job.state import Job
from shared.job.text import counted, with_last_words
from shared.job.views import Actor
from shared.telemetry.metrics import seconds_between
from shared.telling.causes.links import Person, because, by
from shared.telling.causes.walk import Causes
from shared.telling.changes import Change, Noted, by_of
from shared.telling.shown import Shown
from shared.telling.usage import (
    Incident,
    Share,
    goodput_of,
    incident_words,
    incidents_of,
    requests_of,
    share_words,
    shares_of,
)
from shared.telling.words import aligned


class Span(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A part of a job's life."""

    sequence: int
    """That of the event with which it began."""
    since: str
    until: str = ""
    """Empty while it lasts."""
    seconds: float | None = None
    """None while it lasts."""


class PhaseSpan(Span, frozen=True, rename="camel", kw_only=True):
    phase: str
    reason: str
    message: str


class AttemptSpan(Span, frozen=True, rename="camel", kw_only=True):
    number: int
    """From one."""
    reason: str
    """Why it began; empty for the first."""
    counted: bool
    """True if it counts against backoffLimit."""
    pods: int
    """The most pods that it had at a time."""


class Scaling(Span, frozen=True, rename="camel", kw_only=True):
    kind: str
    name: str
    """That of the request; empty for an edit of the job's size."""
    by: tuple[Actor, ...]
    """The clients that asked for it; empty if that cannot be told for certain."""
    people: tuple[Person, ...]
    """The users, where the audit service knows them; empty otherwise."""
    before: int
    """The workers at its acceptance; 0 before that, as `after`."""
    after: int
    phase: str
    reason: str


class Loss(msgspec.Struct, frozen=True, rename="camel"):
    """A worker pod that failed, or that disappeared without being released; neither a success nor a job's deletion."""

    sequence: int
    time: str
    pod: str
    reason: str
    code: int | None
    """The exit code; None if it is unknown."""
    message: str
    deleted: bool = False
    """True if it was deleted, or disappeared, before it ended."""


class Lane(msgspec.Struct, frozen=True, rename="camel"):
    """What one place did over all attempts."""

    role: str
    index: int
    stretches: tuple[Stretch, ...]
    """In the order of time; between two of them the job did not hold the place."""


class Report(msgspec.Struct, frozen=True, rename="camel"):
    """The life of a job; `--json` and `history.muster.dev` have these fields."""

    job: Shown
    phases: tuple[PhaseSpan, ...]
    attempts: tuple[AttemptSpan, ...]
    scalings: tuple[Scaling, ...]
    failures: tuple[Loss, ...]
    changes: tuple[Change, ...]
    """Who changed the job or asked for a scaling, the oldest first."""
    until: str = ""
    """When the report was made: stretches that last are counted until then."""
    shares: tuple[Share, ...] = ()
    """The time of its places by bucket, the longest first."""
    goodput: float | None = None
    """The part of that time in which places trained, from 0 to 1; None of a job that never held a place."""
    places: tuple[Lane, ...] = ()
    incidents: tuple[Incident, ...] = ()
    """What kept places from training, the dearest first, at most `MOST_INCIDENTS`."""
    since: str = ""
    """Shares, goodput, places and incidents are from this time on; empty for the whole life."""


def reported(life: "Life", kinds: Kinds, *, until: str, since: str = "") -> Report:
    """The report of a job.

    `until` is the time at which it is made, as events carry it.  What places did is told from `since` on, and without
    it from the beginning.
    """
    history = life.causes.history
    changes = life.noted.changes(kinds, lambda _: history.job)
    authors = {change.sequence: change for change in changes}
    known = {**life.finished, **history.job.scaling.requests}
    requests = sorted(known.values(), key=lambda request: request.order)
    # A reader's clock may be behind that of the log.
    until = max(until, life.newest)
    ledger, costs, shown = life.ledger, requests_of(history.job.spec), Shown.of(history, kinds)
    if since:
        ledger.begin_at(since)
    shares = shares_of(ledger, costs, until)
    return Report(
        shown,
        phases=tuple(_ended(life.phases, life.gone)),
        attempts=tuple(life.attempts),
        scalings=tuple(_scaling(request, life.causes.times, authors.get(request.order)) for request in requests),
        failures=tuple(life.losses),
        changes=tuple(changes),
        until=until,
        shares=tuple(shares),
        goodput=goodput_of(shares),
        places=tuple(Lane(place.role, place.index, tuple(lane)) for place, lane in sorted(ledger.lanes.items())),
        incidents=tuple(incidents_of(ledger, costs, life.causes, shown, until)),
        since=since,
    )


class Life:
    """What the events of one job tell, folded one by one."""

    def __init__(self, key: JobKey) -> None:
        self.phases: list[PhaseSpan] = []
        self.attempts: list[AttemptSpan] = []
        self.losses: list[Loss] = []
        self.ledger = Ledger()
        self.finished: dict[Uid, Request] = {}
        """The requests that are over: a job's state keeps the newest."""
        self.newest = ""
        """When the newest event was stored."""
        self.gone = ""
        """When the job was gone; empty before."""
        self.noted = Noted()
        self.causes = Causes(key, self.note)

    def fold(self, stored: Stored) -> None:
        self.causes.fold(stored)

    def note(self, before: Job, event: AnyEvent, after: Job, at: At) -> None:
        self.newest = at.logged or at.time
        self.ledger.note(before, event, after, at)
        if isinstance(event, ProgressReported):
            # Most of a long history: it changes nothing else of what is noted.
            return
        self.noted.note(before, event, after, at)
        if after.status.phase != before.status.phase:
            reason, message = str(getattr(event, "reason", "")), str(getattr(event, "message", ""))
            phase = PhaseSpan(
                sequence=at.sequence, since=at.time, phase=after.status.phase, reason=reason, message=message
            )
            self.phases.append(phase)
        self._note_attempt(before, event, after, at)
        self.losses += _losses(before, after, at)
        if after.scaling.requests is not before.scaling.requests:
            self.finished |= {uid: known for uid, known in after.scaling.requests.items() if known.over}
        # A job whose resource was restored is no longer gone.
        self.gone = (self.gone or at.time) if after.resource.gone else ""

    def _note_attempt(self, before: Job, event: AnyEvent, after: Job, at: At) -> None:
        began = after.attempt.begun and not before.attempt.begun
        if after.attempt.since != before.attempt.since or (began and not self.attempts):
            if self.attempts:
                self.attempts[-1] = _over(self.attempts[-1], at)
            attempt = AttemptSpan(
                sequence=at.sequence,
                since=at.time,
                number=after.attempt.number + 1,
                reason=str(getattr(event, "reason", "")) if after.attempt.since else "",
                counted=bool(getattr(event, "counted", False)),
                pods=0,
            )
            self.attempts.append(attempt)
        if not self.attempts:
            return
        attempt = self.attempts[-1]
        if after.pods.views is not before.pods.views:
            pods = sum(pod.attempt == after.attempt.number for pod in after.pods.views.values())
            attempt = msgspec.structs.replace(attempt, pods=max(attempt.pods, pods))
        ended = after.between_attempts or after.over or after.resource.gone
        self.attempts[-1] = _over(attempt, at) if ended else msgspec.structs.replace(attempt, until="", seconds=None)


def _over(attempt: AttemptSpan, at: At) -> AttemptSpan:
    until = attempt.until or at.time
    return msgspec.structs.replace(attempt, until=until, seconds=seconds_between(attempt.since, until))


def _ended(spans: Sequence[PhaseSpan], end: str) -> Iterator[PhaseSpan]:
    """Spans of which each ends with the next one, and the last with `end`; it lasts without one."""
    # A job that was not taken on has none.
    for span, until in zip(spans, (*(span.since for span in spans[1:]), end), strict=False):
        yield msgspec.structs.replace(span, until=until, seconds=seconds_between(span.since, until))


def _scaling(request: Request, times: Mapping[int, str], change: Change | None) -> Scaling:
    since = times.get(request.order, "")
    until = (
        max((known.updated for known in request.conditions), key=lambda at: at.sequence).time if request.over else ""
    )
    return Scaling(
        sequence=request.order,
        since=since,
        until=until,
        seconds=seconds_between(since, until),
        kind=request.kind,
        name="" if request.resize is not None else request.name,
        by=change.by if change is not None else (),
        people=change.people if change is not None else (),
        before=request.before,
        after=request.after,
        phase=request.phase,
        reason=request.reason,
    )


def _losses(before: Job, after: Job, at: At) -> Iterator[Loss]:
    """The workers that failed or were lost by this event; `Job.failures` has only the newest."""
    new = {slot: lost for slot, lost in after.attempt.vacancies.items() if lost.at.sequence == at.sequence}
    if not new or before.deleting or before.resource.gone:
        # The pods of a deleted job end with it.
        return
    for slot, lost in new.items():
        # A released slot is not spent.
        if slot in after.attempt.spent and (lost.blameless or lost.code != 0) and not lost.succeeded:
            pod = after.pod_name(slot)
            yield Loss(at.sequence, at.time, pod, lost.reason, lost.code, lost.message, lost.deleted)


def first_line(job: Shown) -> str:
    """The first line of a report and of a timeline: which job it is, and where it stands."""
    state = f"gone; it was {job.phase}" if job.gone else job.phase or "not taken on yet"
    return f"{job.called}/{job.name} ({job.uid}): {state}"


def report_lines(found: Report, *, as_json: bool) -> Iterator[str]:
    """The report as JSON, or as blocks of lines for people; a block without rows is left out."""
    if as_json:
        yield msgspec.json.format(msgspec.json.encode(found)).decode()
        return
    yield first_line(found.job)
    held = sum(share.seconds for share in found.shares)
    blocks = (
        ("PHASE", [(*_when(each), each.phase, each.message or plain(each.reason)) for each in found.phases]),
        ("ATTEMPT", [(*_when(each), str(each.number), _attempt(each)) for each in found.attempts]),
        ("SCALING", [(*_when(each), each.phase, _request(each)) for each in found.scalings]),
        ("PLACES", [share_words(each, held) for each in found.shares]),
        ("INCIDENT", [incident_words(each) for each in found.incidents]),
        ("FAILURE", [(str(each.sequence), each.time[:19], "", each.pod, _lost(each)) for each in found.failures]),
        (
            "CHANGE BY",
            [(str(each.sequence), each.time[:19], "", by_of(each), each.change) for each in found.changes],
        ),
    )
    for heading, rows in blocks:
        if rows:
            yield ""
            columns = ("FOR", "PART", heading) if heading == "PLACES" else ("SEQUENCE", "TIME", "FOR", heading, "")
            yield from aligned([columns, *rows])


def _when(span: Span) -> tuple[str, str, str]:
    lasted = "" if span.seconds is None else f"{span.seconds:.0f} s"
    return str(span.sequence), span.since[:19], lasted


def _attempt(attempt: AttemptSpan) -> str:
    why = f", after {plain(attempt.reason)}" if attempt.reason else ""
    return f"{counted(attempt.pods, 'pod')}{why}{', counted as a restart' if attempt.counted else ''}"


def _request(scaling: Scaling) -> str:
    sizes = f": {scaling.before} -> {counted(scaling.after, 'worker')}" if scaling.after else ""
    what = f"{scaling.kind} {scaling.name}" if scaling.name else "edit of the job"
    return f"{what}{by(scaling.by, scaling.people)}{sizes}{because(scaling.reason)}"


def _lost(loss: Loss) -> str:
    if loss.deleted:
        return was_deleted(loss.code)
    code = "" if loss.code is None else f"exited with {loss.code}"
    return with_last_words(" ".join(filter(None, (code, f"({plain(loss.reason)})"))), loss.message)
