"""The difference between a folded job and the cache, as facts for the log, and the questions to ask.  Pure.

Older versions of an object are ignored.  Changes that no decision needs are not recorded.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeVar

import msgspec

from services.watcher.core import actors, heads, lists, nodes, questions, requests, takeover
from services.watcher.core.cache import Cache
from services.watcher.core.lists import missing
from services.watcher.core.nodes import UIDS_PER_EVENT
from services.watcher.core.observed import ObservedJob, recorded_part
from services.watcher.core.progress import taken_at_end
from services.watcher.core.questions import UNANSWERED, Answers, Confirm, Presence, Question
from services.watcher.core.turns import as_known
from shared.job.events import watcher
from shared.job.events.catalog import Fact
from shared.job.fold import Histories
from shared.job.naming import NO_UID, JobKey, Uid
from shared.job.spec import LAUNCHER, JobSpec, Problem, going_on, waits_for_turn
from shared.job.state import Job
from shared.job.views import ChildView, PodView, newer

V = TypeVar("V", PodView, ChildView)

BYTES_PER_EVENT = 200_000
"""The most bytes of views in one event, well below the log's limit."""


class Observed(msgspec.Struct, frozen=True):
    facts: tuple[Fact, ...] = ()
    """Facts that the cache shows and the log lacks, most important first."""
    questions: tuple[Question, ...] = ()
    """The questions about the job, answered or not."""
    trusted: bool = True
    """False while no timer counts: until the history was compared with the resource and the checkpoint, and while
    requests move to the history of their job."""
    wakes: tuple[JobKey, ...] = ()
    """Other histories to observe now."""
    warning: tuple[str, str] | None = None
    """A log line and its reason."""


class Unrecorded(NamedTuple):
    """What is not recorded of a job now."""

    pods: bool = False
    """True while changes of its pods are coalesced."""
    labels: bool = False
    """True while changes of its labels alone are merged."""
    requests: bool = False
    """True while a fact about the requests that wait for the job is under way."""


NOTHING = Unrecorded()


def observe(
    job: Job,
    cache: Cache,
    answers: Answers = UNANSWERED,
    histories: Histories | None = None,
    but: Unrecorded = NOTHING,
    force_after: int | None = None,
) -> Observed:
    """Compare a folded job with the cache; `force_after` is the setting of forced deletions, in seconds.

    `histories` are those of all jobs: a request that was seen before its job keeps its place in the queue.
    """
    histories = histories if histories is not None else Histories()
    if job.key.uid == NO_UID:
        # Once their job is there, requests do not fail for its absence, while they move to its history.
        there = (job.key.namespace, job.key.name) in cache.scalable
        facts = (*requests.changed(job, cache, histories, settled=not but.requests),)
        return Observed(facts, trusted=not there, wakes=requests.concerned(job, histories))
    compare = [*heads.questions(job, cache)]
    confirm = lists.question(job, cache)
    hear = questions.questions(job, cache)
    asked: tuple[Question, ...] = (*compare, *([confirm] if confirm is not None else ()), *hear)
    if compare and answers.evidence is None:
        return Observed(questions=asked, trusted=False)
    return Observed(
        facts=(*_facts(job, cache, answers, confirm, histories, but, force_after),),
        questions=asked,
        wakes=requests.concerned(job, histories),
        warning=heads.warning(job) or takeover.warning(job, cache),
    )


def _facts(
    job: Job,
    cache: Cache,
    answers: Answers,
    confirm: Confirm | None,
    histories: Histories,
    but: Unrecorded,
    force_after: int | None,
) -> Iterable[Fact]:
    resource, presence = cache.job(job.key), answers.of(confirm)
    taken = confirm.taken if confirm is not None else ()
    if (found := heads.doubt(job, resource, answers)) is not None:
        return [found]
    if job.integrity.doubt is not None:
        # Until pods are listed, the watcher cannot know which of them `muster history accept` adopts.
        if resource is None:
            return _end(job, cache, presence)
        go_on = heads.accepted(job, resource, cache.pods_of(job.key)) if cache.pods.listed else []
        if not go_on or cache.epoch != job.resource.epoch:
            return go_on
        # First what a lost history acted upon, and what it left: pods in any phase, as those that had ended stay ended.
        edited = [*_resource(job, cache, presence, labels=False)] if job.resource.generation else []
        return edited or [*_pods(job, cache, taken, answers, presence)] or [*requests.lost(job, cache)] or go_on
    if (theirs := takeover.begun_by_another(job, resource, cache)) is not None:
        return [theirs]
    if cache.epoch < job.resource.epoch:
        # Another replica recorded a new epoch: until this one lists again, its cache is old.
        return []
    # What waits for the end of a doubt, or for an adoption, does not wait for labels, which a full log takes last.
    events = [*_resource(job, cache, presence, labels=not (but.labels or job.resource.another))]
    if events if job.resource.gone else not job.resource.generation:
        # Pods and requests follow after the job itself; a restored log may have it gone without more.
        return events
    if cache.epoch > job.resource.epoch and not job.resource.gone:
        # After a restore of etcd, the job first: whether it still exists decides what the absence of its pods means.
        return events
    if missing(job, cache) and not _confirmed(presence, there=True):
        # The garbage collector takes pods and children of a deleted job: none of them failed, or is made again.
        return events
    if job.resource.another:
        if events:
            return events
        if not (cache.takes_over and cache.has_inherited(job) and cache.pods.listed):
            return [*takeover.obstructed(job, cache, pods=False)]
        # First its pods, in any phase; no service acts on the job before it is adopted.
        first = [*_pods(job, cache, taken, answers, presence)]
        return first or [*takeover.obstructed(job, cache, pods=True)] or [*takeover.adopted(job, cache)]
    views = _pods(job, cache, taken, answers, presence) if not but.pods else ()
    # A request scales a job of one kind, whatever its owner reference names.
    scalable = cache.listing_of(job) is cache.scalable
    scaled = requests.changed(job, cache, histories, settled=not but.requests) if scalable else ()
    # An edit that waits for its turn does not keep back what happens to the pods.
    of_nodes = (*nodes.announced(job, cache), *nodes.withdrawn(job, cache), *nodes.lost(job, cache, force_after))
    return [*events, *of_nodes, *views, *_children(job, cache), *scaled]


def _end(job: Job, cache: Cache, presence: Presence | None) -> Iterator[watcher.JobGone]:
    listing = cache.listing_of(job)
    if listing is not None and missing(job, cache) and not cache.held_back and _confirmed(presence, there=False):
        yield watcher.JobGone(version=listing.version)


def _resource(job: Job, cache: Cache, presence: Presence | None, *, labels: bool) -> Iterator[Fact]:
    listing, resource = cache.listing_of(job), cache.job(job.key)
    if listing is None or listing.outdated:
        return
    if resource is None:
        yield from _end(job, cache, presence)
        return
    seen = resource.observed
    if cache.epoch == job.resource.epoch and seen.version < job.resource.version:
        return
    wished = _goes_on(job, resource)
    taken = _roles_taken(job, seen.spec) if wished is None else ()
    problems, spec = seen.problems or taken, seen.spec if not taken else None
    if wished is not None:
        problems, spec = (), wished
    known = (job.resource.generation, job.resource.problems or job.spec)
    now = (seen.generation, problems or spec)
    anew = job.resource.gone or cache.epoch > job.resource.epoch
    if known != now or anew:
        # Who changes labels has no part in an edit.
        changes = tuple(change for change in resource.changes if not change.of_labels) if not anew else ()
        # What waited for its turn is recorded a second time, whole.
        base = 0 if waits_for_turn(job.resource.problems) else job.resource.version
        yield watcher.JobObserved(
            kind=seen.kind,
            api_version=seen.api_version,
            generation=seen.generation,
            version=seen.version,
            epoch=cache.epoch,
            spec=spec,
            problems=problems,
            by=actors.since(base, changes),
            writes=actors.writes(base, changes),
            blank=seen.blank,
            labels=seen.labels,
        )
    elif labels and _relabelled(job, seen.labels):
        by = actors.since(job.resource.version, tuple(change for change in resource.changes if change.of_labels))
        yield watcher.JobRelabelled(version=seen.version, labels=seen.labels, by=by)
    if resource.deleting and (not job.deleting or (resource.orphan and not job.resource.orphan)):
        yield watcher.JobDeleting(version=seen.version, orphan=resource.orphan, finalizers=resource.finalizers)


def _relabelled(job: Job, labels: tuple[tuple[str, str], ...] | None) -> bool:
    """True if other labels are to be recorded; those of a job of an older release once, unless it is over."""
    known = job.resource.labels
    return known != labels if known is not None else bool(labels) and not job.over


def _goes_on(job: Job, resource: ObservedJob) -> JobSpec | None:
    """The spec of a job whose runtime was changed or deleted since it began; None for any other job."""
    if job.spec is None or resource.wishes is None or job.follows(resource.runtime):
        return None
    return going_on(job.spec, resource.wishes)


def _roles_taken(job: Job, spec: JobSpec | None) -> tuple[Problem, ...]:
    """The roles with slots that are in the spec no more, of a job that has not begun: it would wait without a word."""
    if spec is None or job.spec is None or all(spec.has(role.name) for role in job.spec.roles):
        return ()
    if job.over or job.under_way:
        return ()
    taken = sorted({slot.role for slot in job.attempt.slots if not spec.has(slot.role)})
    return tuple(
        Problem(
            reason="RoleRemoved",
            field="spec",
            message=f"put the role {role} back, which the job starts with; a job that is suspended can lose it",
        )
        for role in taken
    )


def _pods(
    job: Job, cache: Cache, taken: tuple[Uid, ...], answers: Answers, presence: Presence | None
) -> Iterator[Fact]:
    """The changes of pods; those that were `taken` from the job wait for a GET of it."""
    if not cache.pods.listed:
        return
    now = {uid: as_known(job.pods.views.get(uid), pod) for uid, pod in cache.pods_to_tell(job).items()}
    waiting = taken if presence is None else ()
    told = (questions.with_words(pod, job.pods.views.get(pod.uid), answers.heard) for pod in now.values())
    changed = [pod for pod in told if pod.uid not in waiting and _changed(job, cache, pod)]
    gone = [uid for uid, pod in job.pods.views.items() if uid not in now and cache.shows_gone(job, pod)]
    # Before the end of the pod, after which another attempt may begin; the log may never have had that pod.
    if (checkpoint := taken_at_end(job, [*changed, *cache.ended_of(job.key)])) is not None:
        yield checkpoint
    for some in _batches(sorted(changed, key=lambda pod: (pod.role, pod.index, pod.uid))):
        yield watcher.PodsObserved(pods=some, epoch=cache.epoch)
    lost = {uid for uid in taken if job.pods.views[uid].role == LAUNCHER and _confirmed(presence, there=True)}
    for uid in gone:
        if uid in lost:
            yield watcher.LauncherLost(uid=uid)
    # The launcher of a deleted job is deleted with it.
    others = tuple(uid for uid in gone if uid not in lost and uid not in waiting)
    for start in range(0, len(others), UIDS_PER_EVENT):
        yield watcher.PodsGone(uids=others[start : start + UIDS_PER_EVENT])


def _confirmed(presence: Presence | None, *, there: bool) -> bool:
    """True if the job's GET was answered, and showed that the job is `there`, or gone."""
    return presence is not None and presence.there is there


def _batches(views: Iterable[V]) -> Iterator[tuple[V, ...]]:
    some: list[V] = []
    size = 0
    for view in views:
        weight = len(msgspec.json.encode(view)) + 1
        if some and size + weight > BYTES_PER_EVENT:
            yield tuple(some)
            some, size = [], 0
        some.append(view)
        size += weight
    if some:
        yield tuple(some)


def _changed(job: Job, cache: Cache, pod: PodView) -> bool:
    known = job.pods.views.get(pod.uid)
    if known is None or cache.epoch > job.resource.epoch:
        return True
    return newer(pod, known) and recorded_part(pod) != recorded_part(known)


def _is_news(job: Job, child: ChildView, known: ChildView) -> bool:
    """True if a child says something else; Muster writes hosts files of a version once, so that another write does."""
    written = bool(child.hosts) and not job.over
    return written or (child.hosts, child.workload) != (known.hosts, known.workload)


def _children(job: Job, cache: Cache) -> Iterator[Fact]:
    now = cache.children_of(job.key)
    changed = tuple(
        child
        for at, shown in sorted(now.items())
        if not cache.children[shown.kind].outdated
        and (child := cache.recordable(shown, known := job.objects.children.get(at))) is not None
        and (known is None or known.uid != child.uid or (child.version > known.version and _is_news(job, child, known)))
    )
    for some in _batches(changed):
        yield watcher.ChildrenObserved(children=some, epoch=cache.epoch)
    for (kind, name), child in job.objects.children.items():
        listing = cache.children.get(kind)
        if listing is None or (kind, name) in now:
            continue
        # Objects go with their definition.  A job that runs is not suspended for that: the API server may answer so for
        # a moment only.
        with_definition = listing.absent and (job.over or job.resource.gone)
        if with_definition or (listing.listed and child.version <= listing.version):
            yield watcher.ChildGone(kind=kind, name=name, uid=child.uid)
