"""Histories for tests: real events with sequences, times and bases as the log would give them."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import msgspec

from services.scaler.core import Policy
from services.scaler.core.decide import decide as scaler
from services.scheduler.core.decide import decide as scheduler
from services.status.core.decide import decide as status
from shared.eventlog import Stored
from shared.eventlog.subject import Subject
from shared.frameworks.kinds import BUILT_IN, Kinds
from shared.job.causes import of_request
from shared.job.chain import START, Head, link
from shared.job.events.catalog import AUTHORS, FACTS, AnyEvent
from shared.job.events.event import Cause, Decided, EffectRefused
from shared.job.fold import Histories, History
from shared.job.naming import JobKey, Uid, key_of, subject_of
from shared.job.steps import Record
from shared.telling.reading import line_of

SCHEDULERS = ("CreatePod", "CreateService", "CreateSecret")
"""Effects of the scheduler that may be refused."""

KEY = JobKey("team-a", "resnet", Uid("uid-1"))


def author_of(event: AnyEvent) -> str:
    """The one who may write it; of a refusal the one whose effect it was."""
    if isinstance(event, EffectRefused):
        return "scheduler" if event.effect in SCHEDULERS else "status" if event.effect == "PatchStatus" else "scaler"
    (author,) = AUTHORS[type(event)]
    return author


def explained(history: History, event: Decided) -> AnyEvent:
    """The decision with what made it, if a service decides so now; else its request, or its history's newest event."""
    request = history.job.scaling.requests.get(getattr(event, "request", Uid("")))
    made = Record(event, of_request(history.job, request) if request is not None else Cause(history.sequence))
    for step in (*scheduler(history.job), *scaler(history.job, Policy()), *status(history.job)):
        alike = isinstance(step, Record) and type(step.event) is type(event)
        if alike and getattr(step.event, "request", "") == getattr(event, "request", ""):
            made = Record(event, step.because)
    return made.explained(event.release)


def stored(history: History, event: AnyEvent, *, sequence: int | None = None, author: str = "") -> Stored:
    """`event` as the log would keep it, next after `history`; a decision with what made it, as the runtime adds it."""
    if isinstance(event, Decided) and not event.because:
        event = explained(history, event)
    sequence = sequence or max(history.sequence, history.facts.get("audit", 0)) + 1
    fact = type(event) in FACTS
    subject = subject_of(
        history.job.key, "facts" if fact else "jobs", author or author_of(event), event.__struct_config__.tag
    )
    day, rest = divmod(sequence, 86_400)
    minute, second = divmod(rest, 60)
    return Stored(
        sequence,
        subject,
        f"event-{sequence}",
        f"2030-01-{1 + day:02d}T{minute // 60:02d}:{minute % 60:02d}:{second:02d}.000Z",
        msgspec.json.encode(event),
        "" if fact else history.basis,
    )


def a_history(events: Iterable[AnyEvent], key: JobKey = KEY) -> History:
    """The fold of `events`, in order."""
    history = History(key)
    for event in events:
        history.fold(stored(history, event))
    assert not history.held, history.held
    return history


def folded(log: Iterable[Stored]) -> Histories:
    """All histories of a log."""
    histories = Histories()
    for event in log:
        histories.fold(event)
    return histories


def log_of(events: Iterable[AnyEvent], *, key: JobKey = KEY, after: int = 0) -> list[Stored]:
    """The events as the log would hold them, one a second, `after` so many others."""
    history, kept = History(key), list[Stored]()
    for number, event in enumerate(events, start=after + 1):
        kept.append(stored(history, event, sequence=number))
        history.fold(kept[-1])
    assert not history.held, history.held
    return kept


def chained(log: Iterable[Stored]) -> list[Stored]:
    """The log with its chain made anew: each decision names the hash of the event that its basis names."""
    heads: dict[JobKey, dict[int, bytes]] = {}
    found = []
    for event in log:
        links = heads.setdefault(key_of(Subject.parse(event.subject)), {0: START})
        at = int(event.basis.partition(":")[0] or 0)
        known = msgspec.structs.replace(event, basis=str(Head(at, links[at].hex())) if event.basis else "")
        links[event.sequence] = link(links[max(links)], known)
        found.append(known)
    return found


def write(log: Sequence[Stored], folder: Path, name: str) -> Path:
    """The file that a history is kept in: as `muster history --json` writes it, one name for one content."""
    text = "".join(f"{line_of(event)}\n" for event in log)
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}-{sha256(text.encode()).hexdigest()[:16]}"
    file.write_text(text)
    return file


VERSIONS = [version for kind in BUILT_IN for version in (kind, *kind.others)]
"""Every kind that Muster brings along, in each version that a cluster may serve."""


def observed(events: Iterable[Stored]) -> set[tuple[str, str]]:
    """The versions and kinds of the jobs that these events observed; an event that cannot be decoded names none."""
    found = set()
    for event in events:
        if event.subject.endswith(".JobObserved"):
            with suppress(msgspec.MsgspecError):
                known = msgspec.json.decode(event.body, type=_Observed)
                found.add((known.api_version, known.kind))
    return found


class _Observed(msgspec.Struct):
    api_version: str
    kind: str


def kinds_of(events: Iterable[Stored]) -> Kinds:
    """The built-in kinds, each in the version in which these events observed its jobs."""
    seen = observed(events)
    found = [version.resource for version in VERSIONS]
    return BUILT_IN.served([resource for resource in found if (resource.api_version, resource.kind) in seen])
