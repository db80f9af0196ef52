"""Who changed what, when, and with what outcome, by the events of the log.  Pure."""

from collections.abc import Callable

import msgspec

from shared.frameworks.kinds import Kinds
from shared.job.events.catalog import AnyEvent
from shared.job.events.event import At, ChangeAttributed, EventDisowned
from shared.job.events.watcher import HistoryAccepted, JobDeleting, JobGone, JobObserved, ScaleRequested
from shared.job.naming import NO_UID, JobKey
from shared.job.reasons import plain
from shared.job.scaling import Request
from shared.job.spec import waits_for_turn
from shared.job.state import Job
from shared.job.views import Actor
from shared.telling.causes import sentences
from shared.telling.causes.links import People, Person, names
from shared.telling.shown import word_of

UNKNOWN = "unknown"
"""In the place of clients that cannot be told for certain."""

REFUSED, TAKEN = "refused", "taken"


class Change(msgspec.Struct, frozen=True, rename="camel"):
    """What a person or a program asked for; `--json` has these fields."""

    sequence: int
    time: str
    namespace: str
    job: str
    """The job as `kind/name`."""
    uid: str
    by: tuple[Actor, ...]
    """The clients; empty if they cannot be told for certain."""
    people: tuple[Person, ...]
    """The users, where the audit service knows them; empty otherwise."""
    change: str
    outcome: str


class Noted:
    """Notes the changes that people and programs asked for."""

    def __init__(self) -> None:
        self._people = People()
        self._seen: list[tuple[At, JobKey, AnyEvent, str]] = []

    def note(self, before: Job, event: AnyEvent, after: Job, at: At) -> None:
        """Note the next event with an effect, which changed its job from `before` to `after`."""
        if after.key.uid != NO_UID and (sentence := _sentence(before, event, after)) is not None:
            self._seen.append((at, after.key, event, sentence))
        if isinstance(event, ChangeAttributed):
            self._people.add(after.key, event)

    def changes(self, kinds: Kinds, job_of: Callable[[JobKey], Job]) -> list[Change]:
        """The changes so far, with their outcome by the job as `job_of` gives it now."""
        found = []
        for at, key, event, sentence in self._seen:
            now = job_of(key)
            by = event.by if isinstance(event, (JobObserved, ScaleRequested)) else ()
            job, outcome = f"{word_of(now, kinds)}/{key.name}", _outcome(event, at.sequence, now)
            people = self._people.of(key, at.sequence, event)
            found.append(Change(at.sequence, at.time, key.namespace, job, key.uid, by, people, sentence, outcome))
        return found


def _sentence(before: Job, event: AnyEvent, after: Job) -> str | None:
    """The sentence of a change that a person or a program asked for; None for an event that is none."""
    match event:
        case JobObserved(problems=problems) | ScaleRequested(problems=problems) if waits_for_turn(problems):
            # It is recorded again, whole, once it is its turn.
            return None
        case JobObserved(problems=problems) if problems and problems != before.resource.problems:
            pass
        case JobObserved(spec=now) if now is not None and now != before.spec:
            # Who edits a runtime does not edit the job.
            if (
                before.spec
                and event.generation == before.resource.generation
                and sentences.of_runtime(before.spec, now)
            ):
                return None
        case ScaleRequested(uid=uid) if (known := before.scaling.requests.get(uid)) is None or waits_for_turn(
            known.problems
        ):
            pass
        case JobDeleting() | JobGone() if not (before.deleting or before.resource.gone or before.status.expired):
            return "it was deleted"
        case HistoryAccepted() | EventDisowned():
            pass
        case _:
            return None
    return sentences.sentence(event, before, after)


def _outcome(event: AnyEvent, sequence: int, now: Job) -> str:
    """What has become of it by the end of the log."""
    match event:
        case JobObserved(problems=problems) if problems:
            return REFUSED
        case JobObserved():
            resizes = (each for each in now.scaling.requests.values() if each.resize is not None)
            request = next((each for each in resizes if each.order == sequence), None)
        case ScaleRequested():
            request = now.scaling.requests.get(event.uid)
        case JobDeleting() | JobGone():
            return "gone" if now.resource.gone else "waits"
        case _:
            return TAKEN
    return _how_far(request) if request is not None else TAKEN


def _how_far(request: Request) -> str:
    if request.problems:
        return REFUSED
    return f"{request.phase.lower()} ({plain(request.reason)})" if request.phase == "Failed" else request.phase.lower()


def by_of(change: Change) -> str:
    """Those who made a change, as a cell."""
    return names(change.people, change.by) or UNKNOWN
