"""Runtimes: resources with the pod templates of jobs that name them.  Pure.

The watcher reads a job together with its runtime, and records which one that was (`JobSpec.runtime`).  The scheduler
keeps a copy of it, because the runtime may be changed while the job runs.

The pod templates of a TrainJob are its runtime's, with the job's patches and its trainer in them.  Both may hold any
JSON: what does not fit is left as it is, and `trainjob_reading.py` refuses what cannot run.
"""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Literal, NamedTuple, get_args

import msgspec

from shared.cluster import Resource
from shared.cluster.objects import Custom
from shared.frameworks.schemas import Definition, Document
from shared.job.spec import RuntimeUsed
from shared.untrusted import at, objects

FIELD = "muster.dev/runtime"
"""The field of a joined spec that has the runtime; no definition declares it, so that no user's is stored."""

COPY = "runtime"
"""The key of the ConfigMap with the copy."""


class RuntimeKind(NamedTuple):
    resource: Resource[Custom]
    definition: Definition
    of_cluster: bool


class Reference(NamedTuple):
    """The runtime that a job names."""

    resource: Resource[Custom]
    namespace: str
    """Empty for a cluster-scoped one."""
    name: str


class JobRuntime(NamedTuple):
    """A runtime as it was read."""

    used: RuntimeUsed
    spec: Any


def read(resource: Resource[Custom], manifest: Custom) -> JobRuntime:
    meta, spec = manifest.metadata, manifest.spec
    try:
        text = text_of(spec)
    except RecursionError:
        # It is nested too deep for a copy: its jobs are refused, because it has no object as its spec.
        spec, text = "", text_of("")
    digest = digest_of(text)
    used = RuntimeUsed(kind=resource.kind, name=meta.name, uid=meta.uid, generation=meta.generation, digest=digest)
    return JobRuntime(used, spec)


def text_of(spec: Any) -> str:
    """A runtime's spec as the copy has it: equal specs have equal texts."""
    return msgspec.json.encode(spec, order="sorted").decode()


def digest_of(text: str) -> str:
    return sha256(text.encode()).hexdigest()


Without = Literal["missing", "not listed", "not seen"]
"""Why a job has no runtime: there is none of that name, or its kind cannot be listed now, or is never seen here."""


def joined(manifest: Custom, runtime: JobRuntime | Without | None) -> Custom:
    """The resource of a job with its runtime in its spec, or with why it has none."""
    spec = (
        {name: value for name, value in manifest.spec.items() if name != FIELD}
        if isinstance(manifest.spec, dict)
        else {}
    )
    if runtime is not None:
        spec[FIELD] = runtime
    return msgspec.structs.replace(manifest, spec=spec)


def runtime_of(manifest: Custom) -> JobRuntime | None:
    found = at(manifest.spec, FIELD)
    return found if isinstance(found, JobRuntime) else None


def why_without(manifest: Custom) -> Without:
    found = at(manifest.spec, FIELD)
    return next((why for why in _WHY if why == found), "missing")


_WHY: tuple[Without, ...] = get_args(Without)


NODE = "node"
"""The replicated job of the workers, and the container that trains in every job."""
LAUNCHER_JOB = "launcher"
ANCESTOR = "trainer.kubeflow.org/trainjob-ancestor-step"
TRAINER = "trainer"
"""The value of the label of the replicated job that `spec.trainer` is about."""

MOST_LEVELS = 64
"""The most levels of a patch, which are merged by a function that calls itself; a pod's template needs half of them."""

_KEYS = {
    "replicatedJobs": "name",
    "volumes": "name",
    "initContainers": "name",
    "containers": "name",
    "imagePullSecrets": "name",
    "schedulingGates": "name",
    "env": "name",
    "volumeMounts": "mountPath",
}
"""The lists whose items a patch changes one by one, with the field that names an item."""


def too_deep(value: Any) -> bool:
    """True for a value with more levels than a patch may have."""
    level = [value]
    for _ in range(MOST_LEVELS):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer if isinstance(outer, list) else ())
        ]
    return bool(level)


def merged(base: Any, patch: Any, field: str = "", levels: int = MOST_LEVELS) -> Any:
    """The value with a strategic merge patch of Kubernetes in it; below so many levels the patch replaces it."""
    if not levels:
        return patch
    if isinstance(base, dict) and isinstance(patch, dict):
        changed = {
            name: merged(base.get(name), value, name, levels - 1) for name, value in patch.items() if value is not None
        }
        return base | changed
    key = _KEYS.get(field)
    if key is None or not isinstance(base, list) or not isinstance(patch, list):
        return patch
    found = {_key(item, key): item for item in base}
    for item in patch:
        found[_key(item, key)] = merged(found.get(_key(item, key)), item, "", levels - 1)
    return [*found.values()]


def replicated_jobs(spec: Document, runtime: Any) -> dict[str, Document]:
    """The replicated jobs of a runtime's spec by name, with the patches of the TrainJob's spec."""
    template = at(runtime, "template", "spec")
    for patch in objects(spec.get("runtimePatches")):
        change = at(patch, "trainingRuntimeSpec", "template", "spec")
        template = merged(template, change) if isinstance(change, dict) else template
    jobs = objects(at(template, "replicatedJobs"))
    return {job["name"]: job for job in jobs if isinstance(job.get("name"), str)}


def trains(job: Document) -> bool:
    """True if `spec.trainer` is about this replicated job."""
    return bool(at(job, "template", "metadata", "labels", ANCESTOR) == TRAINER)


def pod_template(job: Document, trainer: Any, *, computes: bool) -> Document:
    """The pod template of a replicated job, with the trainer's fields in its container.

    A node of MPI whose launcher `computes`, too, gets the trainer's environment and resources, and the launcher all.
    """
    template = at(job, "template", "spec", "template")
    template = template if isinstance(template, dict) else {}
    fields: Document = trainer if isinstance(trainer, dict) else {}
    told = {name: fields[name] for name in ("image", "command", "args") if fields.get(name) is not None}
    change = (told if trains(job) else {}) | (_shared(fields) if trains(job) or computes else {})
    containers = at(template, "spec", "containers")
    if not change or not isinstance(containers, list):
        return template
    changed = [_with(known, change) if at(known, "name") == NODE else known for known in containers]
    return template | {"spec": template["spec"] | {"containers": changed}}


def with_variables(template: Document, names: Mapping[str, str], containers: tuple[str, ...]) -> Document:
    """The pod template with these variables in containers and init containers of these names."""
    env = [{"name": name, "value": value} for name, value in names.items()]
    spec = template["spec"]
    kinds = {
        kind: [
            known | {"env": [*env, *(each for each in objects(known.get("env")) if each.get("name") not in names)]}
            if known.get("name") in containers
            else known
            for known in objects(spec[kind])
        ]
        for kind in ("initContainers", "containers")
        if isinstance(spec.get(kind), list)
    }
    return template | {"spec": spec | kinds}


def _shared(trainer: Document) -> Document:
    found = {"env": trainer.get("env"), "resources": trainer.get("resourcesPerNode")}
    return {name: value for name, value in found.items() if value is not None}


def _with(container: Document, change: Document) -> Document:
    """The container with the trainer's fields: each in the place of its own, and of the environment each variable."""
    if isinstance(change.get("env"), list) and isinstance(container.get("env"), list):
        env = {_key(each, "name"): each for each in (*container["env"], *change["env"])}
        change = change | {"env": [*env.values()]}
    return container | change


def _key(item: Any, key: str) -> str:
    """The name of an item; one without a name is like no other."""
    name = item.get(key) if isinstance(item, dict) else None
    return name if isinstance(name, str) else f"\0{id(item)}"
