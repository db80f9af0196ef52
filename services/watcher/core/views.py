"""Views: Kubernetes objects reduced to the fields that decisions need.  Pure."""

from collections.abc import Callable, Mapping
from hashlib import sha256
from sys import intern
from typing import Any

import msgspec

from services.watcher.core import actors
from services.watcher.core.observed import ObservedJob, ObservedRequest
from services.watcher.core.progress import checkpoint_in
from services.watcher.core.training import end_is_unknown, training_of
from shared.cluster.objects import Custom, Metadata, Object, OwnerReference, Pod, Terminated
from shared.frameworks.framework import Framework
from shared.frameworks.gangs import OFF, of_another_class, with_gang
from shared.frameworks.kinds import BUILT_IN, Kinds
from shared.frameworks.pods import first_pods, with_requests
from shared.frameworks.queueing import QUEUE, view_of
from shared.frameworks.runtimes import runtime_of
from shared.frameworks.scale_requests import parse_scale, selected
from shared.job import naming, text
from shared.job.attempt import NEVER
from shared.job.chain import shown_in
from shared.job.events.watcher import JobObserved
from shared.job.naming import JobKey, Slot, Uid
from shared.job.policies.replacement import in_place
from shared.job.reasons import END_UNKNOWN
from shared.job.spec import OWNED_BY_ANOTHER, Ignored, JobSpec, Problem, ScaleKind, ScaleSpec
from shared.job.views import ChildView, Exit, PodView
from shared.untrusted import at, whole_number

DIGITS = 9
"""Of an attempt, an index or a version of hosts files, which anyone may write into a label or an annotation."""

MOST_PROBLEMS = 100
"""The most problems of one job in an event: a thousand wrong containers are a thousand problems."""

MOST_FINALIZERS = 10
"""The most finalizers of one job or pod in an event; Kubernetes does not bound their number."""

MOST_LABELS, LABELS_BYTES = 32, 2_048
"""The most labels of a job in an event, and the most bytes of their names and values."""

LONGEST_NAME = 253
LONGEST_UID = 64
"""Characters of a job's name and of its uid, which anyone may write into an owner reference."""

LONGEST_HEAD = 128
"""Characters of an annotation that accepts a head, `<sequence>:<hash>`; a longer one accepts none."""

LONGEST_PHASE = 32
"""Characters of a phase in the status of a request, which anyone may write who may write there."""

Known = Callable[[JobKey], bool]
"""True for a job of which the log has events."""


_ANOTHERS = Problem(
    reason=OWNED_BY_ANOTHER,
    field="metadata.ownerReferences",
    message="create the request without a controller: its job becomes that",
)


def observed_job(
    framework: Framework,
    manifest: Custom,
    *,
    kueue: bool = False,
    no_gangs: str = OFF,
    before: ObservedJob | None = None,
) -> ObservedJob:
    """A job's resource reduced to the cache's fields; with `kueue` its label may put it into a queue.

    `no_gangs` says why its pods are not placed together; empty if they may be.  What the resource asks for is not
    parsed again if it is as `before`: most writes are those of its status.
    """
    meta, asked = manifest.metadata, _asked(framework, manifest)
    if before is not None and asked and asked == before.asked:
        spec, problems = before.observed.spec, before.observed.problems
    else:
        spec, problems = _read(framework, manifest, kueue=kueue, no_gangs=no_gangs)
    labels = _labels(meta.labels or {})
    runtime = runtime_of(manifest)
    log, head = shown_in(manifest.status)
    accept = (meta.annotations or {}).get(naming.ACCEPT_HISTORY, "")[:LONGEST_HEAD]
    return ObservedJob(
        key=JobKey(meta.namespace, meta.name, Uid(meta.uid)),
        observed=JobObserved(
            kind=framework.resource.kind,
            api_version=framework.resource.api_version,
            generation=meta.generation,
            version=meta.version,
            spec=spec,
            problems=problems,
            blank=not manifest.status,
            labels=labels,
        ),
        deleting=meta.deletion_timestamp is not None,
        orphan="orphan" in (meta.finalizers or ()),
        finalizers=_finalizers(meta),
        log=log,
        head=head,
        accept=accept,
        # With Muster's head only an acceptance needs it, and parsing a status takes time.
        reached=framework.take_over.status(manifest) if head is None or accept else None,
        writers=actors.writers(meta),
        runtime=runtime.used if runtime is not None else None,
        wishes=framework.wishes(manifest),
        asked=asked,
    )


def _labels(known: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The labels by name, as far as there is room for them."""
    found, room = list[tuple[str, str]](), LABELS_BYTES
    for name, value in sorted(known.items())[:MOST_LABELS]:
        room -= len(name) + len(value)
        if room >= 0:
            found.append((intern(name), intern(value)))
    return (*found,)


def _asked(framework: Framework, manifest: Custom) -> bytes:
    """A digest of all that is parsed; empty for a kind with runtimes, and for JSON that is nested too deeply."""
    meta = manifest.metadata
    what = meta.uid, meta.generation, meta.namespace, meta.name, meta.labels, meta.annotations, manifest.spec
    try:
        return sha256(msgspec.json.encode(what)).digest() if not framework.runtimes else b""
    except RecursionError:
        return b""


def _read(
    framework: Framework, manifest: Custom, *, kueue: bool, no_gangs: str
) -> tuple[JobSpec | None, tuple[Problem, ...]]:
    answer, meta = framework.parse(manifest), manifest.metadata
    if not isinstance(answer, JobSpec):
        return None, answer[:MOST_PROBLEMS]
    spec = answer
    if kueue and framework.is_queued:
        spec = msgspec.structs.replace(spec, queue=(meta.labels or {}).get(QUEUE, ""))
    pods = first_pods(framework, manifest, spec)
    spec = with_gang(manifest, spec, no_gangs, of_another_class(framework, manifest, spec, pods))
    spec = with_requests(_with_annotations(spec, meta.annotations or {}), pods)
    if len(_labels(meta.labels or {})) < len(meta.labels or {}):
        told = Ignored(
            field="metadata.labels",
            effect="is kept in part",
            message=f"lists of histories know {MOST_LABELS} labels of a job, and {LABELS_BYTES} bytes of them",
        )
        spec = msgspec.structs.replace(spec, ignored=(*spec.ignored, told))
    return spec, ()


def _finalizers(meta: Metadata) -> tuple[str, ...]:
    """Those that keep an object that is being deleted."""
    return (meta.finalizers or ())[:MOST_FINALIZERS] if meta.deletion_timestamp is not None else ()


SHORTEST_STALL, LONGEST_STALL = 5, 604_800
"""Seconds."""

_NONE_IN_PLACE = (
    "no container of this job is begun again: another name takes the place of a worker that failed, or its "
    "restartPolicy replaces none"
)


def _with_annotations(spec: JobSpec, said: Mapping[str, str]) -> JobSpec:
    """The spec with what the job's annotations say; those with a wrong value or no effect are among `ignored`."""
    changes, wrong = dict[str, Any](), dict[str, str]()
    if (asked := said.get(naming.RESTART_IN_PLACE)) not in (None, "false"):
        wanted = msgspec.structs.replace(spec, restarts_in_place=True)
        if asked == "true" and any(in_place(wanted, role.name) for role in spec.roles):
            changes["restarts_in_place"] = True
        else:
            wrong[naming.RESTART_IN_PLACE] = _NONE_IN_PLACE if asked == "true" else "set true or false"
    if (asked := said.get(naming.FORCE_DELETE_AFTER)) is not None:
        if (seconds := NEVER if asked == "never" else whole_number(asked, DIGITS)) is not None:
            changes["force_delete_after"] = seconds
        else:
            wrong[naming.FORCE_DELETE_AFTER] = "set a whole number of seconds, or never"
    if (asked := said.get(naming.STALL_TIMEOUT)) is not None:
        if (seconds := whole_number(asked, DIGITS)) is not None and SHORTEST_STALL <= seconds <= LONGEST_STALL:
            changes["stall_timeout_seconds"] = seconds
        else:
            wrong[naming.STALL_TIMEOUT] = f"set a whole number of seconds from {SHORTEST_STALL} to {LONGEST_STALL}"
    policy = said.get(naming.ON_STALL, "")
    changes["stall_restarts"] = policy == "restart" and "stall_timeout_seconds" in changes
    if policy not in ("", "restart", "tell") or (policy and asked is None):
        wrong[naming.ON_STALL] = f"set restart, or tell, beside {naming.STALL_TIMEOUT}"
    told = [Ignored.annotation(name, message) for name, message in wrong.items()]
    return msgspec.structs.replace(spec, **changes, ignored=(*spec.ignored, *told))


def _is_scalable(owner: OwnerReference, kinds: Kinds) -> bool:
    framework = _framework(owner, kinds)
    return framework is not None and bool(framework.requests)


def observed_request(kind: ScaleKind, manifest: Custom, kinds: Kinds = BUILT_IN) -> ObservedRequest:
    meta = manifest.metadata
    answer = parse_scale(kind, manifest)
    named = at(manifest.spec, "selector", "name")
    # An owner that is no controller names an incarnation of the job too.
    owners = (each for each in meta.owner_references or () if _is_scalable(each, kinds) and each.name == named)
    owner = meta.controller or next(owners, None)
    if owner is not None and (not _is_scalable(owner, kinds) or _too_long(owner)):
        # Its history is that of the named job: no service answers under the uid of another owner.
        owner, answer = None, (_ANOTHERS,)
    return ObservedRequest(
        kind=kind,
        namespace=meta.namespace,
        name=meta.name,
        uid=Uid(meta.uid),
        version=meta.version,
        created=meta.creation_timestamp or "",
        job=selected(manifest),
        owner=Uid(owner.uid) if owner is not None else Uid(""),
        spec=answer if isinstance(answer, ScaleSpec) else None,
        problems=() if isinstance(answer, ScaleSpec) else answer[:MOST_PROBLEMS],
        phase=phase[:LONGEST_PHASE] if isinstance(phase := at(manifest.status, "phase"), str) else "",
        # A request never changes.
        by=actors.sole(actors.writers(meta)),
    )


def observed_pod(
    pod: Pod, kinds: Kinds = BUILT_IN, known: Known = lambda _: False, *, last_words: bool = True
) -> tuple[JobKey, PodView] | None:
    """A pod and its job; None if its labels or its owner name none.

    Without `last_words` the termination messages of its containers are left out.
    """
    meta = pod.metadata
    labels = meta.labels or {}
    key = _key(meta, kinds, known)
    framework = _known_kind(meta.controller, kinds)
    # A label that another kind would read may come from the template.
    role, at = (framework.role_label, framework.index_label) if framework is not None else (naming.ROLE, naming.INDEX)
    attempt = whole_number(labels.get(naming.ATTEMPT, ""), DIGITS)
    index = whole_number(labels.get(at, "0"), DIGITS)
    if key is None or attempt is None or index is None:
        return None
    slot = Slot(attempt, labels.get(role, ""), index)
    result = framework is not None and framework.reports_result and index == 0
    return key, _view(pod, slot, last_words=last_words, result=result)


def inherited_pod(pod: Pod, kinds: Kinds, *, last_words: bool = True) -> tuple[JobKey, PodView] | None:
    """A pod of another operator, as part of the first attempt; None if it is none or has Muster's labels."""
    claimed, owner = observed_pod(pod, kinds, last_words=last_words), pod.metadata.controller
    framework = _framework(owner, kinds)
    if claimed is not None or owner is None or framework is None or not owner.name:
        return claimed
    told = framework.take_over.role_and_index(pod.metadata.labels or {})
    if told is None or _too_long(owner):
        return None
    key = JobKey(pod.metadata.namespace, owner.name, Uid(owner.uid))
    return key, msgspec.structs.replace(_view(pod, Slot(0, *told), last_words=last_words, result=False), claimed=False)


def _too_long(owner: OwnerReference) -> bool:
    """True if no object has this name or uid: the API server does not check owner references."""
    return len(owner.name) > LONGEST_NAME or len(owner.uid) > LONGEST_UID


def _known_kind(owner: OwnerReference | None, kinds: Kinds) -> Framework | None:
    # The history of a job goes on after its kind was left out of MUSTER_KINDS.
    return _framework(owner, kinds) or _framework(owner, BUILT_IN)


def _framework(owner: OwnerReference | None, kinds: Kinds) -> Framework | None:
    return kinds.find(owner.api_version, owner.kind) if owner is not None else None


def _view(pod: Pod, slot: Slot, *, last_words: bool, result: bool) -> PodView:
    meta = pod.metadata
    conditions = pod.status.conditions or ()
    training = training_of(pod, last_words=last_words)
    targeted = (c.reason or c.type for c in conditions if c.type == "DisruptionTarget" and c.status == "True")
    return PodView(
        uid=Uid(meta.uid),
        name=meta.name,
        version=meta.version,
        attempt=slot.attempt,
        role=slot.role,
        index=slot.index,
        phase=training.phase,
        ready=training.ready,
        exits=tuple(
            _exit(known.name, known.state.terminated, last_words=last_words, result=result)
            for known in training.ended
            if known.state.terminated is not None
        ),
        reason=training.reason,
        message=text.ends(training.message),
        ran=training.ran,
        lingers=training.lingers,
        restarts=training.restarts,
        runs_again=training.runs_again,
        node=pod.spec.node_name or "",
        deleting=meta.deletion_timestamp is not None,
        grace=(meta.deletion_grace_period_seconds or 0) if meta.deletion_timestamp is not None else 0,
        disruption=next(targeted, END_UNKNOWN if end_is_unknown(pod, training) else ""),
        hosts=whole_number((meta.annotations or {}).get(naming.HOSTS_VERSION, ""), DIGITS) or 0,
        finalizers=_finalizers(meta),
    )


def _exit(container: str, end: Terminated, *, last_words: bool, result: bool) -> Exit:
    # The termination message of a container that succeeded is its result, not a cause.
    message = end.message if last_words and (end.exit_code or result) and end.message else ""
    said = text.last(message, text.MOST_LAST_WORDS)
    return Exit(container, end.exit_code, end.reason or "", said, checkpoint_in(end.message or ""))


def observed_child(
    kind: str, child: Object, kinds: Kinds = BUILT_IN, known: Known = lambda _: False
) -> tuple[JobKey, ChildView] | None:
    """A Service, ConfigMap or Workload and its job; None if its labels or its owner name none."""
    meta = child.metadata
    key = _key(meta, kinds, known)
    if key is None:
        return None
    hosts = whole_number((meta.annotations or {}).get(naming.HOSTS_VERSION, ""), DIGITS) or 0
    return key, ChildView(
        kind=kind,
        name=meta.name,
        uid=Uid(meta.uid),
        version=meta.version,
        ours=True,
        hosts=hosts,
        workload=view_of(child) if isinstance(child, Custom) else None,
    )


def _key(meta: Metadata, kinds: Kinds, known: Known) -> JobKey | None:
    # A user can copy labels; the garbage collector checks the owner.
    uid, owner = (meta.labels or {}).get(naming.JOB_UID), meta.controller
    if not uid or owner is None or not owner.name or owner.uid != uid or uid == naming.NO_UID:
        return None
    if _too_long(owner):
        return None
    key = JobKey(meta.namespace, owner.name, Uid(uid))
    return key if _known_kind(owner, kinds) is not None or known(key) else None
