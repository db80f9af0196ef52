"""`muster replay FILE`: folds a saved history again and prints the phases.

`--decisions` decides a history again, by `redecide.py`, and prints what this release decides otherwise.
`--verify` compares every history of the log, or one job's, with the status in the API server, with its checkpoint, and
with its seal.  The resources are listed before the log is read, so that the log has every head in a resource.
"""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import msgspec
import typer

from muster.asking import open_cluster, open_log
from muster.asking import run as running
from muster.following import status_of
from muster.history import events_now
from muster.jobs import OVER, every
from muster.redecide import redecide, settings_of
from muster.terminal import fail, say, wrong_usage
from services.status.core.documents import canonical, document_of, with_head
from shared.cluster import Cluster
from shared.cluster.kinds import LEASES
from shared.cluster.objects import Custom
from shared.errors import Refused
from shared.eventlog import EventLog, Stored
from shared.eventlog.account import HEADS
from shared.eventlog.parts import seal_of
from shared.eventlog.subject import Subject
from shared.frameworks.framework import Framework
from shared.frameworks.kinds import Kinds
from shared.job.chain import Head, shown_in
from shared.job.fold import Histories, History
from shared.job.naming import NO_UID, JobKey, Uid, key_of, namespace_filters
from shared.job.state import Job
from shared.process.settings import Settings
from shared.runtime.heads import Anchor, astray, differs, hash_read_again
from shared.telling.causes.links import waits_of
from shared.telling.reading import event_of, fold_to_end, is_seal
from shared.telling.shown import called, word_of
from shared.telling.targets import Asked, known_kinds, parse_target, subjects_of
from shared.telling.words import one_line

Verdict = Literal["identical", "different", "held", "missing", "absent", "not compared"]
WRONG: tuple[Verdict, ...] = ("different", "held", "missing")
"""The verdicts that make `--verify` end with exit code 1."""


def from_file(path: Path) -> None:
    """Fold a saved history (`muster history --json`), printing each event and the phase after it.

    Exit code 1 if a history is held or is not what its seal says: the file differs from the log, or is of another
    release.
    """
    histories, wrong = Histories(), False
    for stored in saved(path):
        if fault := _sealed_otherwise(histories, stored):
            say(fault)
            wrong = True
        history = histories.fold(stored)
        phase = history.job.status.phase if history is not None else ""
        say(
            f"{one_line(stored)}  -> {phase or 'no phase'}"
            + (f"  HELD: {history.held}" if history and history.held else "")
        )
    if wrong or any(history.held for history in histories):
        raise typer.Exit(1)


def saved(path: Path) -> list[Stored]:
    """The events of a file.  Exits with a message about the first bad line if it is no history."""
    how = "save one with `muster history KIND/NAME --json`"
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise fail(f"{path} cannot be read: {error.strerror}; {how}") from error
    events: list[Stored] = []
    for number, line in enumerate(lines, start=1):
        try:
            stored = event_of(line)
        except ValueError as error:
            raise fail(f"{path}, line {number} is no event of a history: {error}; {how}") from error
        if events and stored.sequence <= events[-1].sequence:
            raise fail(f"{path}, line {number} is the event {stored.sequence}, which belongs before; {how}")
        events.append(stored)
    if not events:
        raise fail(f"{path} is empty; {how}")
    return events


def decide_again(
    where: Path, namespace: str, settings: Settings, given: Sequence[str], *, as_json: bool, nats: bool
) -> None:
    """Decide again what a saved history or a job has, with the `SETTING=VALUE`s that are given, and print it.

    Exit code 1 if a decision differs or cannot be decided again, 2 for a file that is no history.
    """
    with wrong_usage():
        chosen = settings_of(given)
    if (job := _job_of(where)) is not None:
        events = running(lambda: events_now(job, namespace, settings, nats=nats))
    else:
        try:
            events = saved(where)
        except typer.Exit as error:
            raise typer.Exit(2) from error
    found = redecide(events, known_kinds(), chosen)
    for line in [msgspec.json.encode(found).decode()] if as_json else found.lines():
        say(line, exact=as_json)
    if not found.whole:
        raise typer.Exit(1)


def _job_of(where: Path) -> Asked | None:
    """The job of a KIND/NAME; None for a file."""
    with suppress(Refused):
        return None if where.exists() else parse_target(str(where))
    return None


class Answer(msgspec.Struct, frozen=True):
    """The result for one job."""

    label: str
    verdict: Verdict
    words: str

    def __str__(self) -> str:
        return f"{self.label}: {self.words}"


class Verified(msgspec.Struct, frozen=True):
    """The results for all jobs."""

    events: int
    answers: tuple[Answer, ...]

    def count(self, *verdicts: Verdict) -> int:
        return sum(answer.verdict in verdicts for answer in self.answers)

    @property
    def summary(self) -> str:
        """`65 events folded; jobs compared: 1, different: 0`, then the held and missing histories, if any."""
        compared = self.count("identical", "different")
        line = f"{self.events} events folded; jobs compared: {compared}, different: {self.count('different')}"
        more = [f"{verdict}: {found}" for verdict in ("held", "missing") if (found := self.count(verdict))]
        return ", ".join([line, *more])


class _Shown(msgspec.Struct, frozen=True):
    """A resource and its status, and the log and the head in that."""

    framework: Framework
    resource: Custom
    status: dict[str, Any]
    log: str
    head: Head | None


class _Then(msgspec.Struct, frozen=True):
    """A job at the event of its resource's head."""

    job: Job
    head: Head
    time: str


def verify(where: Path | None, namespace: str, settings: Settings) -> None:
    """Verify a saved history, the job KIND/NAME, or every job, of a namespace unless that is empty."""
    job = _job_of(where) if where is not None else None
    if where is not None and job is None:
        from_file(where)
    else:
        running(lambda: _verify(settings, namespace or settings.namespace, job))


async def _verify(settings: Settings, namespace: str, job: Asked | None) -> None:
    """Print a line for each job and a summary.  Exit code 1 if a status differs, or a history is held or missing."""
    async with open_log(settings) as log, open_cluster(settings) as cluster:
        verified = await verified_jobs(log, cluster, known_kinds(), namespace, job)
        whole = job is None and namespace == settings.namespace
        fault = await _anchor_fault(settings, log, cluster) if whole else ""
    for answer in verified.answers:
        say(str(answer))
    typer.echo(verified.summary)
    if fault:
        say(f"the log does not lead to its anchor {settings.anchor}: {fault}")
    if verified.count(*WRONG) or fault:
        raise typer.Exit(1)


async def _anchor_fault(settings: Settings, log: EventLog, cluster: Cluster) -> str | None:
    place, _, name = settings.anchor.rpartition("/")
    held = await cluster.get(LEASES, place, name) if name else None
    anchor = Anchor.read(held.metadata.annotations or {}) if held is not None else None
    return None if anchor is None else await differs(log, anchor, namespace_filters(settings.namespace))


async def verified_jobs(
    log: EventLog, cluster: Cluster, kinds: Kinds, namespace: str = "", job: Asked | None = None
) -> Verified:
    """Fold every history once; at the event of a resource's head, keep the job; then compare the documents.

    An empty `namespace` is the whole cluster; with a `job` it is this one in its namespace.
    Raises `Refused` for a `job` that neither has.
    """
    shown = await _listed(cluster, kinds, namespace)
    if job is not None:
        shown = {key: known for key, known in shown.items() if key.name == job.name}
    histories, then, events = Histories(), dict[JobKey, _Then](), 0
    sealed: list[tuple[JobKey, Answer]] = []

    def fold(stored: Stored) -> None:
        nonlocal events
        events += 1
        if fault := _sealed_otherwise(histories, stored):
            key = key_of(Subject.parse(stored.subject))
            sealed.append((key, Answer(f"job {key}", "different", f"DIFFERS: {fault}")))
        history = histories.fold(stored)
        if history is None:
            return
        known = shown.get(history.job.key)
        if known is not None and known.head is not None and known.head.sequence == stored.sequence:
            then[history.job.key] = _Then(history.job, history.head, history.time)

    subjects = subjects_of(job, namespace) if job is not None else namespace_filters(namespace)
    end = await fold_to_end(log, fold, subjects)
    identity = await log.identity()
    found = [
        *_of_resources(shown, histories, then, identity, kinds),
        *_of_others((history for history in histories if history.job.key not in shown), kinds),
        *sealed,
        *[each async for each in _astray(log, histories, end)],
    ]
    if job is not None and not events and not found:
        words = f"there is no {job.kind} {namespace}/{job.name} to verify, in the cluster or in the log"
        raise Refused(words, reason="NotFound")
    return Verified(events, tuple(answer for _, answer in sorted(found, key=lambda each: each[0])))


async def _astray(log: EventLog, histories: Histories, end: int) -> AsyncIterator[tuple[JobKey, Answer]]:
    """The results of histories that do not lead to their checkpoints, those of deleted jobs too."""
    heads = await log.bucket(HEADS)
    for history in histories:
        head = await astray(heads, log, history)
        if head is None or (
            # It was written after the log was read.
            head.sequence > end and await hash_read_again(log, history.job.key, head.sequence) == head.hash
        ):
            continue
        words = f"DIFFERS: the checkpoint is {head}, and the log does not lead to it"
        yield history.job.key, Answer(f"job {history.job.key}", "different", words)


def _sealed_otherwise(histories: Histories, stored: Stored) -> str:
    """What a seal says otherwise than the events before it; empty where they were purged, and for another event."""
    history = histories.get(key_of(Subject.parse(stored.subject))) if is_seal(stored) else None
    if history is None:
        return ""
    try:
        seal = seal_of(stored.body)
    except ValueError:
        return f"the seal at {stored.sequence} cannot be read"
    if (wanted := Head(seal.last, seal.hash)) == history.head:
        return ""
    return f"the seal at {stored.sequence} names {wanted}, and its events have {history.head}"


async def _listed(cluster: Cluster, kinds: Kinds, namespace: str) -> dict[JobKey, _Shown]:
    found = {}
    for framework, resource in await every(cluster, kinds, namespace):
        meta = resource.metadata
        status = status_of(resource)
        found[JobKey(meta.namespace, meta.name, Uid(meta.uid))] = _Shown(framework, resource, status, *shown_in(status))
    return found


def _of_resources(
    shown: dict[JobKey, _Shown], histories: Histories, then: dict[JobKey, _Then], identity: str, kinds: Kinds
) -> Iterator[tuple[JobKey, Answer]]:
    for key, known in shown.items():
        history = histories.get(key)
        if history is None:
            told = _unknown_to_the_log(known)
        else:
            told = _held(history) or _compared(known, history.job, then.get(key), identity, kinds)
        if told is not None:
            yield key, Answer(f"{called(known.framework, kinds)} {key}", *told)


def _of_others(histories: Iterator[History], kinds: Kinds) -> Iterator[tuple[JobKey, Answer]]:
    """The results of histories without a resource: a held one counts even if its job was deleted."""
    for history in histories:
        job = history.job
        told = _held(history)
        if told is None and job.resource.generation and not job.resource.gone and job.key.uid != NO_UID:
            told = ("absent", "not compared: the API server does not have it")
            if not kinds.knows(job):
                told = ("not compared", "not compared, its kind is not known here")
        if told is not None:
            yield job.key, Answer(f"{word_of(job, kinds)} {job.key}", *told)


def _held(history: History) -> tuple[Verdict, str] | None:
    """The result for a held history; None if it is not held."""
    if history.held:
        return "held", f"HELD: {history.held}"
    if history.job.integrity.doubt is not None and not history.job.resource.gone:
        return "held", f"HELD: {history.job.integrity.sentence}"
    return None


def _unknown_to_the_log(known: _Shown) -> tuple[Verdict, str] | None:
    """The result for a resource without an event in the log: new, of another operator, or with a lost history."""
    if not known.framework.ours(known.resource):
        return None
    phase = known.framework.phase(known.status)
    if known.head is not None:
        return "missing", f"MISSING: the resource shows the head {known.head}, and the log has no event of the job"
    if phase in OVER:
        return "missing", f"MISSING: the resource is {phase}, and the log has no event of the job"
    return None


def _compared(known: _Shown, job: Job, then: _Then | None, identity: str, kinds: Kinds) -> tuple[Verdict, str] | None:
    if job.resource.another:
        return "not compared", "not compared, another operator runs it"
    if known.head is None:
        if not job.status.phase and known.framework.phase(known.status) not in OVER:
            return None
        return "different", "DIFFERS: the resource shows no head"
    if known.log != identity:
        return "different", f"DIFFERS: the resource shows a head of the log {known.log}, and this one is {identity}"
    if then is None:
        return "different", f"DIFFERS: the resource shows the head {known.head}, which is no event of this job"
    if then.head != known.head:
        return "different", f"DIFFERS: the resource shows the head {known.head}, the log has {then.head}"
    try:
        replayed = canonical(with_head(document_of(then.job, kinds), identity, then.head, then.time))
    except Refused as refusal:
        return "different", f"DIFFERS: no status can be made: {refusal}"
    held = canonical(known.status)
    if replayed != held:
        return "different", f"DIFFERS: replayed {replayed.decode()}, the API server holds {held.decode()}"
    problems = then.job.resource.problems
    phase = then.job.status.phase or waits_of(problems) or ("refused" if problems else "not taken on yet")
    words = f"{phase}; the status replayed up to event {then.head.sequence} is identical ({len(held)} bytes)"
    return "identical", words
