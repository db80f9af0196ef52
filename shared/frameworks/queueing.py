"""Kueue's Workload: how Muster writes one for a job, reads one, and puts what it gives into the job's pods.  Pure.

Kueue's objects are the user's to read and Kueue's to fill, so any JSON gives a view.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from shared.cluster import Resource
from shared.cluster.objects import Custom, Object
from shared.frameworks.framework import Framework, owner_reference
from shared.frameworks.schemas import Document
from shared.job import text
from shared.job.naming import JobKey
from shared.job.views import PodSetView, TolerationView, WorkloadView
from shared.untrusted import at, objects, whole_number


class PriorityClass(Object, frozen=True, kw_only=True, rename="camel"):
    value: int = 0


GROUP, VERSION = "kueue.x-k8s.io", "v1beta2"
WORKLOADS = Resource(GROUP, VERSION, "workloads", "Workload", Custom)
FLAVORS = Resource(GROUP, VERSION, "resourceflavors", "ResourceFlavor", Custom)
PRIORITIES = Resource(GROUP, VERSION, "workloadpriorityclasses", "WorkloadPriorityClass", PriorityClass)
"""The last two are cluster-scoped."""

QUEUE = f"{GROUP}/queue-name"
JOB_UID = f"{GROUP}/job-uid"
PRIORITY = f"{GROUP}/priority-class"
POD_SET = f"{GROUP}/podset"
WORKLOAD = f"{GROUP}/workload"
"""The label and the annotation of a pod that Kueue counts."""
GENERATION = "muster.dev/generation"
"""An annotation of a Workload: the generation of the job whose templates it has."""
IN_USE = f"{GROUP}/resource-in-use"
"""The finalizer with which a Workload keeps its quota."""
ELASTIC = f"{GROUP}/elastic-job"
SLICE = f"{GROUP}/workload-slice-name"
REPLACES = f"{GROUP}/workload-slice-replacement-for"

MOST_OBJECTS = 64
"""The most conditions, pod sets or checks of a Workload that are looked at."""
MOST_SETS, MOST_ENTRIES, LONGEST = 4, 16, 317
"""The most pod sets, and of each the most flavors, labels, annotations and tolerations, that a view has.

It becomes a part of an event, which has a largest size.  Longer words are left out: the longest name of a label has 317
characters.
"""
DIGITS = 12
LACKS = ("Pending", "WaitingForQuota", "ExceedsMaxQuota", "TopologyPlacementFailed")
"""The reasons for which a Workload has no quota; but for the first one with UnadmittedWorkloadsObservability."""
REQUEUED = ("Preempted", "NodeFailures")
"""The reasons of evictions after which a Workload waits for quota again at once; after others Kueue says when."""


def manifest(
    framework: Framework,
    job: Custom,
    key: JobKey,
    name: str,
    pod_sets: Iterable[tuple[str, int]],
    *,
    queue: str,
    replaces: str,
    priority: int,
) -> Document:
    """The Workload of a job; `priority` is the value of its WorkloadPriorityClass."""
    first = name.rpartition("-")[0] + "-1"
    annotations = {GENERATION: str(job.metadata.generation), ELASTIC: "true", SLICE: first}
    if replaces:
        annotations[REPLACES] = f"{key.namespace}/{replaces}"
    spec: Document = {
        "queueName": queue,
        "podSets": [
            {"name": role, "count": count, "template": framework.template(job, role)} for role, count in pod_sets
        ],
    }
    if named := (job.metadata.labels or {}).get(PRIORITY):
        spec |= {"priorityClassRef": {"group": GROUP, "kind": PRIORITIES.kind, "name": named}, "priority": priority}
    # The deletion of the job does not wait for it: its finalizer goes when the pods are gone.
    owner = owner_reference(framework.resource, key) | {"blockOwnerDeletion": False}
    return {
        "apiVersion": WORKLOADS.api_version,
        "kind": WORKLOADS.kind,
        "metadata": {
            "name": name,
            "namespace": key.namespace,
            "labels": framework.labels(key) | {JOB_UID: key.uid},
            "annotations": annotations,
            "finalizers": [IN_USE],
            "ownerReferences": [owner],
        },
        "spec": spec,
    }


def view_of(workload: Custom) -> WorkloadView:
    """What a Workload says, without what its flavors give to pods."""
    meta = workload.metadata
    annotations, evicted = meta.annotations or {}, _reason(workload, "Evicted")
    quota, replaces = _condition(workload, "QuotaReserved"), annotations.get(REPLACES, "").rpartition("/")[2]
    return WorkloadView(
        queue=_text(workload.spec, "queueName"),
        generation=whole_number(annotations.get(GENERATION, ""), DIGITS) or 0,
        replaces=replaces[:LONGEST],
        pod_sets=tuple(_pod_set(workload, each) for each in _objects(at(workload.spec, "podSets"))[:MOST_SETS]),
        reserved=has_quota(workload),
        refused=bool(replaces) and _lacks_quota(quota),
        admitted=_is_true(workload, "Admitted"),
        evicted=evicted,
        message=text.ends(str(_condition(workload, "Evicted").get("message", ""))) if evicted else "",
        finished=_reason(workload, "Finished"),
        ready=_is_true(workload, "PodsReady"),
        held=IN_USE in (meta.finalizers or ()),
        deleting=meta.deletion_timestamp is not None,
    )


def _lacks_quota(quota: Mapping[str, Any]) -> bool:
    """True once Kueue has looked at a Workload and found no quota; not while it evicts others for it."""
    lacks = quota.get("status") == "False" and quota.get("reason") in LACKS
    return lacks and "Pending the preemption of" not in str(quota.get("message", ""))


def _pod_set(workload: Custom, pod_set: Mapping[str, Any]) -> PodSetView:
    name = _text(pod_set, "name")
    admission = at(workload.status, "admission", "podSetAssignments")
    [given, *_] = [each for each in _objects(admission) if each.get("name") == name] or [{}]
    flavors = dict.fromkeys(_strings(given.get("flavors")).values())
    view = PodSetView(role=name, count=_count(pod_set), flavors=(*flavors,)[:MOST_ENTRIES])
    checks = _objects(at(workload.status, "admissionChecks"))
    updates = [each for check in checks for each in _objects(check.get("podSetUpdates")) if each.get("name") == name]
    for update in updates:
        view = _with(view, update.get("nodeSelector"), update.get("tolerations"))
        labels, annotations = _strings(update.get("labels")), _strings(update.get("annotations"))
        view = msgspec.structs.replace(
            view, labels=_more(view.labels, labels), annotations=_more(view.annotations, annotations)
        )
    return view


def with_flavors(view: WorkloadView, flavors: Mapping[str, Custom]) -> WorkloadView:
    """The view with what those of its flavors give to pods that are known."""
    return msgspec.structs.replace(view, pod_sets=tuple(_with_flavors(each, flavors) for each in view.pod_sets))


def with_placement(view: WorkloadView, before: WorkloadView) -> WorkloadView:
    """The view with what its admission gave to pods in an earlier view."""
    given = {each.role: each for each in before.pod_sets}
    pod_sets = tuple(
        msgspec.structs.replace(given[each.role], count=each.count) if each.role in given else each
        for each in view.pod_sets
    )
    return msgspec.structs.replace(view, pod_sets=pod_sets)


def _with_flavors(view: PodSetView, flavors: Mapping[str, Custom]) -> PodSetView:
    for name in view.flavors:
        spec = flavors[name].spec if name in flavors else None
        view = _with(view, at(spec, "nodeLabels"), at(spec, "tolerations"))
    return view


def _with(view: PodSetView, labels: object, tolerations: object) -> PodSetView:
    known = [toleration for each in _objects(tolerations) if (toleration := _toleration(each)) not in view.tolerations]
    return msgspec.structs.replace(
        view,
        node_selector=_more(view.node_selector, _strings(labels)),
        tolerations=(*view.tolerations, *known)[:MOST_ENTRIES],
    )


def _toleration(given: Mapping[str, Any]) -> TolerationView:
    seconds = given.get("tolerationSeconds")
    words = {name: _text(given, name) for name in _OF_TOLERATION}
    return TolerationView(**words, seconds=seconds if isinstance(seconds, int) else None)


_OF_TOLERATION = ("key", "operator", "value", "effect")


def placed(pod: Document, name: str, view: PodSetView) -> Document:
    """The pod as its Workload `name` wants it."""
    spec, meta = pod["spec"], pod["metadata"]
    given = [
        {name: word for name in _OF_TOLERATION if (word := getattr(each, name))}
        | ({"tolerationSeconds": each.seconds} if each.seconds is not None else {})
        for each in view.tolerations
    ]
    tolerations = [*(spec.get("tolerations") or ()), *given]
    selector = {**(spec.get("nodeSelector") or {}), **view.node_selector}
    labels = {**view.labels, **(meta.get("labels") or {}), POD_SET: view.role}
    annotations = {**view.annotations, **(meta.get("annotations") or {}), WORKLOAD: name}
    return pod | {
        "metadata": meta | {"labels": labels, "annotations": annotations},
        "spec": spec
        | ({"nodeSelector": selector} if selector else {})
        | ({"tolerations": tolerations} if tolerations else {}),
    }


def has_quota(workload: Custom) -> bool:
    return _is_true(workload, "QuotaReserved")


def rewritten(workload: Custom, wanted: Document) -> Document | None:
    """The patch that makes a Workload the wanted one, without what that leaves out; None if it has quota."""
    if has_quota(workload):
        return None
    annotations = {REPLACES: None} | wanted["metadata"]["annotations"]
    return {
        "metadata": {"annotations": annotations},
        "spec": {"priorityClassRef": None, "priority": None} | wanted["spec"],
    }


def returned(workload: Custom, now: str) -> Document | None:
    """The patch of an evicted Workload's status that gives its quota back, at the time `now`.

    None if it is evicted no more, or its quota went back: Kueue may have admitted it anew.
    """
    if not (_is_true(workload, "Evicted") and has_quota(workload)):
        return None
    evicted = _condition(workload, "Evicted")
    reason, message = _text(evicted, "reason"), str(evicted.get("message", ""))
    changed = {
        "QuotaReserved": (False, "Pending", message),
        "Admitted": (False, "NoReservation", "The workload has no reservation"),
        "Requeued": (reason in REQUEUED, reason or "Pending", message),
    }
    if _condition(workload, "PodsReady"):
        changed["PodsReady"] = (False, "WaitForStart", "its pods are gone")
    return {"status": {"admission": None, "conditions": _conditions(workload, changed, now)}}


def ready(workload: Custom, now: str) -> Document | None:
    """The patch of a Workload's status that says that its pods are Ready; None if it is not admitted now."""
    if not _is_true(workload, "Admitted") or any(_is_true(workload, each) for each in ("Evicted", "Finished")):
        return None
    changed = {"PodsReady": (True, "Started", "All pods are ready and the job is running")}
    return {"status": {"conditions": _conditions(workload, changed, now)}}


def finished(workload: Custom, reason: str, now: str) -> Document | None:
    """The patch of a Workload's status that finishes it; None if it is finished."""
    if _is_true(workload, "Finished"):
        return None
    changed = {"Finished": (True, reason, f"The job has ended: {reason}")}
    return {"status": {"conditions": _conditions(workload, changed, now)}}


def shrunk(workload: Custom, pod_sets: Iterable[tuple[str, int]]) -> Document | None:
    """The patch of a Workload's spec that lowers its numbers of pods; None if there is none to lower, or it has no
    quota.

    All else stays as Kueue has it: with quota it refuses any other change.
    """
    wanted, held = dict(pod_sets), _objects(at(workload.spec, "podSets"))
    now = [each | {"count": min(_count(each), wanted.get(_text(each, "name"), _count(each)))} for each in held]
    if now == held or not has_quota(workload):
        return None
    return {"spec": {"podSets": now}}


def without_finalizer(workload: Custom) -> Document | None:
    """The patch that takes the finalizer away; None if it is gone."""
    held = workload.metadata.finalizers or ()
    if IN_USE not in held:
        return None
    return {"metadata": {"finalizers": [each for each in held if each != IN_USE]}}


def _condition(workload: Custom, kind: str) -> dict[str, Any]:
    known = _objects(at(workload.status, "conditions"))
    return next((each for each in known if each.get("type") == kind), {})


def _is_true(workload: Custom, kind: str) -> bool:
    return _condition(workload, kind).get("status") == "True"


def _reason(workload: Custom, kind: str) -> str:
    """The reason of a condition that is true; empty otherwise."""
    return _text(_condition(workload, kind), "reason") or kind if _is_true(workload, kind) else ""


def _count(pod_set: Mapping[str, Any]) -> int:
    count = pod_set.get("count")
    return count if isinstance(count, int) else 0


def _conditions(workload: Custom, changed: Mapping[str, tuple[bool, str, str]], now: str) -> list[Document]:
    """The conditions of a Workload with the changed ones: status, reason and message of each."""
    conditions = [each for each in _objects(at(workload.status, "conditions")) if each.get("type") not in changed]
    for kind, (status, reason, message) in changed.items():
        before, word = _condition(workload, kind), str(status)
        same = before.get("status") == word and before.get("lastTransitionTime")
        new = {"type": kind, "status": word, "reason": reason, "message": text.first(message)}
        since = before["lastTransitionTime"] if same else now
        conditions.append(new | {"lastTransitionTime": since, "observedGeneration": workload.metadata.generation})
    return conditions


def _objects(value: object) -> list[dict[str, Any]]:
    return objects(value)[:MOST_OBJECTS]


def _strings(value: object) -> dict[str, str]:
    entries = value.items() if isinstance(value, dict) else ()
    return dict([(key, each) for key, each in entries if _is_short(key) and _is_short(each)][:MOST_ENTRIES])


def _more(known: Mapping[str, str], entries: Mapping[str, str]) -> dict[str, str]:
    return dict([*{**known, **entries}.items()][:MOST_ENTRIES])


def _is_short(value: object) -> bool:
    return isinstance(value, str) and len(value) <= LONGEST


def _text(value: object, field: str) -> str:
    found = at(value, field)
    return found[:LONGEST] if isinstance(found, str) else ""
