"""What `muster get` and `history.muster.dev` show of a job: its kind's name, and the summary of its status.  Pure."""

from collections import Counter
from collections.abc import Iterator
from typing import Annotated

import msgspec
from msgspec import Meta

from shared.errors import Refused
from shared.frameworks.framework import Framework
from shared.frameworks.kinds import Kinds
from shared.frameworks.schemas import Document
from shared.frameworks.statuses import before_admission
from shared.job.fold import Histories, History
from shared.job.naming import NO_UID, Slot
from shared.job.policies import replacement
from shared.job.spec import WORKER, is_device
from shared.job.state import Job
from shared.job.views import PodView, alive, ended
from shared.job.waiting import told
from shared.telling.causes.links import problem_line, waits_of

EXPLAINED = ("Restarting", "Failed")
"""Phases of which the note is always the message of their condition."""


def words_of(framework: Framework) -> Iterator[str]:
    """The names of a kind that kubectl accepts, in lower case and without its group."""
    resource, described = framework.resource, framework.definition
    yield resource.kind.lower()
    yield resource.plural
    yield from filter(None, (described.singular.lower(), *described.short_names))


def called(framework: Framework, kinds: Kinds) -> str:
    """The unambiguous name of a kind: three groups have an MXJob."""
    word = framework.resource.kind.lower()
    several = sum(other.resource.kind.lower() == word for other in kinds) > 1
    return f"{word}.{framework.resource.group}" if several else word


def word_of(job: Job, kinds: Kinds) -> str:
    """The name of a job's kind, known or not; `job` before its resource was seen."""
    framework = kinds.find(job.resource.api_version, job.resource.kind)
    if framework is not None:
        return called(framework, kinds)
    return f"{job.resource.kind.lower()}.{job.resource.api_version.partition('/')[0]}" if job.resource.kind else "job"


def _devices(job: Job, pods: Counter[str]) -> dict[str, int]:
    """What so many pods of each role request by the newest spec."""
    found = Counter[str]()
    for role in job.spec.roles if job.spec is not None else ():
        found.update({name: pods[role.name] * round(each) for name, each in role.requests if is_device(name)})
    return {name: each for name, each in found.items() if each}


def _status(job: Job, kinds: Kinds) -> Document:
    if not kinds.knows(job):
        return {}
    try:
        return {name: value for name, value in kinds.of(job).status(job).items() if value is not None}
    except Refused:
        # A plug-in's framework failed; the fields from the log are shown all the same.
        return {}


def _wanted(job: Job) -> Counter[str]:
    """How many pods it wants, by role."""
    if job.over or job.resource.gone or job.suspended:
        return Counter()
    slots: set[Slot] = {*job.attempt.slots, *replacement.replaceable(job)}
    found = Counter(slot.role for slot in slots)
    if job.spec is None or not job.status.phase:
        return found
    if not slots:
        workers = job.scaling.size or job.spec.worker.replicas
        return Counter({role.name: role.replicas for role in job.spec.roles} | {WORKER: workers})
    # An elastic job goes on without a worker that is not replaced; its size still includes the worker.
    if job.spec.handling.elastic:
        found[WORKER] = max(found[WORKER], job.scaling.size)
    return found


class Shown(msgspec.Struct, frozen=True, rename="camel", weakref=True):
    """The output about one job; `-o json` and `-o yaml` have these fields."""

    namespace: Annotated[str, Meta(description="The namespace of the job.")]
    name: Annotated[str, Meta(description="The name of the job.")]
    uid: Annotated[
        str, Meta(description="The uid of the job's resource; another job of the same name has another one.")
    ]
    kind: Annotated[str, Meta(description="The kind of the job, such as TrainingJob.")]
    api_version: Annotated[str, Meta(description="The version of its kind.")]
    called: Annotated[str, Meta(description="The command line's word for its kind.")]
    phase: Annotated[str, Meta(description="The phase in its status; empty before the first.")]
    """Some kinds show Restarting while pods are replaced; before the first Pending or Refused, if it has problems."""
    ready: Annotated[int, Meta(description="How many of its pods are Ready.")]
    wanted: Annotated[int, Meta(description="How many pods it wants.")]
    """Those that exist or start, those to be replaced after a back-off, and the workers of an elastic
    job that were lost for good."""
    restarts: Annotated[int, Meta(description="How many restarts its status counts.")]
    """Without such a field, the new attempts and the pods replaced in this one."""
    attempt: Annotated[int, Meta(description="The number of the attempt, from one.")]
    requests: Annotated[int, Meta(description="How many scale requests it had.")]
    requests_over: Annotated[int, Meta(description="How many of them are over.")]
    sequence: Annotated[int, Meta(description="The sequence of its last event in the log.")]
    over: Annotated[bool, Meta(description="True once it succeeded or failed.")]
    gone: Annotated[bool, Meta(description="True once its resource was deleted.")]
    note: Annotated[
        str, Meta(description="What hinders it, or how it ended, in a sentence; empty without anything to say.")
    ]
    status: Annotated[
        Document, Meta(description="The status as Muster computes it from the log, in the fields of its kind.")
    ]
    began: Annotated[str, Meta(description="When the first event of the job was recorded.")]
    labels: Annotated[
        dict[str, str], Meta(description="The labels of its resource; of many or long ones the first.")
    ] = {}
    devices: Annotated[
        dict[str, int], Meta(description="What its wanted pods request, by device, such as nvidia.com/gpu.")
    ] = {}
    devices_held: Annotated[dict[str, int], Meta(description="What its pods on nodes hold of them.")] = {}

    @classmethod
    def of(cls, history: History, kinds: Kinds) -> "Shown":
        job = history.job
        status, wanted = _status(job, kinds), _wanted(job)
        framework = kinds.find(job.resource.api_version, job.resource.kind)
        phase = framework.phase(status) if framework is not None else ""
        phase = phase or job.status.phase or before_admission(job)
        held = Counter(pod.role for pod in job.pods.views.values() if pod.node and (pod.lingers or not ended(pod)))
        return cls(
            namespace=job.key.namespace,
            name=job.key.name,
            uid=job.key.uid,
            kind=job.resource.kind,
            api_version=job.resource.api_version,
            called=word_of(job, kinds),
            phase=phase,
            ready=sum(pod.ready for pod in running_pods(job)),
            wanted=wanted.total(),
            restarts=status.get("restartCount", job.retries.restarts + job.attempt.replaced),
            attempt=job.attempt.number + 1,
            requests=len(job.scaling.requests),
            requests_over=sum(request.over for request in job.scaling.requests.values()),
            sequence=history.sequence,
            over=job.over,
            gone=bool(job.resource.gone),
            note=history.held or _note(job, phase, status),
            status=status,
            began=history.began,
            labels=dict(job.resource.labels or ()),
            devices=_devices(job, wanted),
            devices_held=_devices(job, held),
        )

    @property
    def message(self) -> str:
        """The message of the condition in the status that has the phase's name; empty without one."""
        return _message(self.phase, self.status)


def running_pods(job: Job) -> list[PodView]:
    """The pods of the attempt that run."""
    views = job.pods.views.values()
    return [pod for pod in views if alive(pod) and pod.slot in job.attempt.slots and pod.phase == "Running"]


def _message(phase: str, status: Document) -> str:
    found = (known for known in status.get("conditions") or () if known.get("type") == phase)
    return next((str(known.get("message") or "") for known in found), "")


def _note(job: Job, phase: str, status: Document) -> str:
    if job.integrity.doubt is not None:
        return job.integrity.sentence
    if job.resource.gone or job.resource.another:
        return "gone" if job.resource.gone else "of another operator"
    if job.deleting:
        return f"being deleted, waits for {', '.join(job.resource.finalizers) or 'a finalizer'}"
    if job.resource.problems:
        word = waits_of(job.resource.problems) or ("edit refused" if job.status.phase else "refused")
        return f"{word}: {problem_line(job.resource.problems)}"
    if phase in EXPLAINED or replacement.unreplaced(job):
        # The statuses of some kinds have no conditions.
        known = next((known.message for known in job.status.conditions if known.type == job.status.phase), "")
        return _message(phase, status) or known
    wait = told(job)
    return wait.sentence if wait is not None else "; ".join(filter(None, (job.training.words, job.training.refused)))


def listed(histories: Histories, *, gone: bool) -> list[History]:
    """The histories to show, by namespace, name and uid."""
    known = (
        history for history in histories if history.job.key.uid != NO_UID and (gone or not history.job.resource.gone)
    )
    return sorted(known, key=lambda history: history.job.key)


def cells(one: Shown) -> dict[str, str]:
    """A job's cells by column; neither the note nor the age is among them."""
    return {
        "NAMESPACE": one.namespace,
        "KIND": one.called,
        "NAME": one.name,
        "PHASE": one.phase or "-",
        "READY": "-" if one.over or one.gone else f"{one.ready}/{one.wanted}",
        "RESTARTS": str(one.restarts),
        "ATTEMPT": str(one.attempt),
        "REQUESTS": f"{one.requests_over}/{one.requests}" if one.requests else "-",
        "EVENTS AT": str(one.sequence),
        "UID": one.uid,
    }
