"""The questions that the watcher asks before it records some facts, and the answers.  Pure.

They are about deletions, lost histories and pods that do not start.
`observe` lists the questions of a job in every turn while they matter.  The shell asks each question once, what it is
to `Hear` now and then, and drops an answer when its question is no longer listed.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime, timedelta

import msgspec

from services.watcher.core.cache import Cache
from services.watcher.core.training import RUNS
from shared.cluster.objects import KubernetesEvent
from shared.job import text
from shared.job.chain import Head
from shared.job.naming import Uid
from shared.job.state import Job
from shared.job.views import ON_THE_WAY, TOLD_BY_EVENTS, PodView, alive
from shared.job.waiting import told


class Confirm(msgspec.Struct, frozen=True):
    """Does the job exist?  Only its own GET proves that it is gone, or that pods were taken from it."""

    epoch: int
    """The cache's epoch; an answer from another epoch does not count."""
    taken: tuple[Uid, ...]
    """Pods that vanished or ended in their deletion, and with which the attempt ends."""
    missing: bool = False
    """The list of the job's kind lacks it; an answer from before does not count."""


class Presence(msgspec.Struct, frozen=True):
    there: bool
    """An object with the job's uid exists."""
    deleting: bool = False
    """It is being deleted, or its namespace is."""


class Named(msgspec.Struct, frozen=True):
    """A head and the id of its log."""

    log: str
    head: Head


class Compare(msgspec.Struct, frozen=True):
    """Does the log lead to the heads in the resource and in the checkpoint?"""

    shown: Named | None
    """The head in the resource, if it has one."""
    recall: bool
    """The checkpoint is compared too."""


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a job's history in the log and in the checkpoint."""

    identity: str
    began: int
    """The log's last sequence before the watcher saw a head of this job."""
    end: int
    shown: Named | None = None
    kept: Named | None = None
    """The head in the checkpoint, if it was read."""
    hashes: Mapping[int, str]
    """The hash of the job's history after each sequence; empty if the job has no such event."""
    empty: bool = False
    """The log has no event of the job."""


class Hear(msgspec.Struct, frozen=True):
    """What do Kubernetes Events say about a pod of which no container begins?"""

    uid: Uid


class Heard(msgspec.Struct, frozen=True):
    reason: str | None = None
    """One of those that Events tell; empty if its containers begin, None if nothing is said."""
    message: str = ""
    looks: int = 0


Question = Confirm | Compare | Hear


class Answers(msgspec.Struct, frozen=True):
    """The answers about one job, each with its question."""

    presence: tuple[Confirm, Presence] | None = None
    evidence: tuple[Compare, Evidence] | None = None
    heard: Mapping[Hear, Heard] = {}

    def has(self, question: Question) -> bool:
        """True if this question was answered, and is not asked again."""
        return question in [answered[0] for answered in (self.presence, self.evidence) if answered is not None]

    def of(self, question: Confirm | None) -> Presence | None:
        asked, answered = self.presence or (None, None)
        return answered if question is not None and asked == question else None

    def kept(self, questions: Collection[Question]) -> "Answers":
        """The answers to questions of a type that is still listed; each question to `Hear` has one from the start."""
        kinds = {type(question) for question in questions}
        heard = {each: self.heard.get(each, Heard()) for each in questions if isinstance(each, Hear)}
        return Answers(self.presence if Confirm in kinds else None, self.evidence if Compare in kinds else None, heard)


UNANSWERED = Answers()


def settles(question: Confirm, presence: Presence) -> bool:
    """False if another GET is needed: the watch is late, or the job is about to be deleted."""
    return not presence.there or not (question.missing or presence.deleting)


MOST_ASKED = 4
"""The most pods of a job that are asked about at a time, each on another node."""

TOGETHER = timedelta(seconds=150)
"""Troubles that are said within so long last together: a kubelet tries every 122 s at least to mount a volume."""

_BEGINS = frozenset({"Created", "Pulled", "Pulling", "Started"})
"""The reasons of Events that come after all volumes are mounted and the network is set up."""

_COMBINED = "(combined from similar events): "
_UNMOUNTED = "Unable to attach or mount volumes"
"""What a kubelet says after two minutes of whatever it is that keeps volumes from a pod."""

_CHANGING = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{8,}|\d{4,}")
"""The ids of requests and sandboxes, ports and process ids in a message: it is another one with each try."""

_LONGEST_SILENCE = timedelta(minutes=10)
"""A trouble of mounting that lasts is said at least every five minutes."""


def questions(job: Job, cache: Cache) -> Iterator[Hear]:
    """The pods to ask about, once people are told that the job waits for one of them."""
    waiting = [pod for pod in cache.pods_of(job.key).values() if _waits(pod) and pod.slot in job.attempt.slots]
    wait = told(job) if waiting else None
    if wait is None or wait.slot not in {pod.slot for pod in waiting}:
        return
    waiting.sort(key=lambda pod: (not _is_told(job.pods.views.get(pod.uid)), pod.slot != wait.slot, pod.slot))
    if _is_told(job.pods.views.get(waiting[0].uid)):
        # One reason is told; the others most likely wait for the same.
        del waiting[1:]
    first = dict[str, Uid]()
    for pod in waiting:
        first.setdefault(pod.node, pod.uid)
    yield from map(Hear, [*first.values()][:MOST_ASKED])


def with_words(pod: PodView, known: PodView | None, answers: Mapping[Hear, Heard]) -> PodView:
    """The pod with the reason and words that Events tell of it; those that are `known` stay until others are heard."""
    if not _waits(pod):
        return pod
    heard = answers.get(Hear(pod.uid), Heard())
    if heard.reason is None:
        if known is None or not _is_told(known):
            return pod
        heard = Heard(known.reason, known.message)
    if not heard.reason:
        return pod
    return msgspec.structs.replace(pod, reason=heard.reason, message=heard.message)


def heard(events: Iterable[KubernetesEvent], known: PodView | None) -> Heard:
    """The words that count: the `known` ones as long as they are said, or the newest; the cause before its effect."""
    at = [(time, event) for event in events if (time := _time(event)) is not None]
    began = max((time for time, event in at if event.reason in _BEGINS), default=None)
    attached = max((time for time, event in at if event.reason == "SuccessfulAttachVolume"), default=None)
    said = [
        (time, Heard(event.reason, text.ends((event.message or "").removeprefix(_COMBINED))))
        for time, event in at
        if event.type == "Warning"
        and event.reason in TOLD_BY_EVENTS
        and (began is None or time > began)
        and (event.reason != "FailedAttachVolume" or attached is None or time > attached)
    ]
    if not said:
        return Heard() if began is None else Heard("")
    last = max(time for time, _ in said)
    said = [each for each in said if _is_cause(*each, last)] or said
    newest = max(said, key=lambda each: (each[0], each[1].message))
    for time, words in said:
        if known is not None and _same(words, known) and newest[0] - time < TOGETHER:
            return Heard(known.reason, known.message)
    return newest[1]


def _is_cause(time: datetime, words: Heard, last: datetime) -> bool:
    """False for the words about an effect, and of a cause that is no longer said; an attach may be said only once."""
    if words.message.startswith(_UNMOUNTED):
        return False
    return words.reason != "FailedMount" or last - time < _LONGEST_SILENCE


def _same(words: Heard, known: PodView) -> bool:
    """True if the words differ only in what every try changes."""
    before, now = (_CHANGING.sub("", each.message) for each in (known, words))
    return words.reason == known.reason and now == before


def _time(event: KubernetesEvent) -> datetime | None:
    """When an event was last said; None if it does not say when."""
    series = event.series.last_observed_time if event.series is not None else None
    when = series or event.last_timestamp or event.event_time or event.metadata.creation_timestamp
    try:
        return datetime.fromisoformat((when or "")[: len("2030-01-01T00:00:00")])
    except ValueError:
        return None


def _waits(pod: PodView) -> bool:
    """True for a pod of which no container began; one that does init steps has its volumes and its network.

    One without a node has a reason from the kube-scheduler, or waits for a claim, of which an Event alone tells.
    """
    if RUNS in pod.message:
        return False
    return pod.phase == "Pending" and alive(pod) and pod.reason in ON_THE_WAY


def _is_told(known: PodView | None) -> bool:
    return known is not None and known.reason in TOLD_BY_EVENTS
