"""What users apply in a simulated run: jobs of every kind, and scale requests."""

import json
from typing import Any

from shared.cluster import Resource
from shared.frameworks.jaxjob import JAXJOB
from shared.frameworks.kinds import Kinds
from shared.frameworks.mpijob import MPIJOB
from shared.frameworks.mxjob import MXJOB
from shared.frameworks.paddlejob import PADDLEJOB
from shared.frameworks.pytorchjob import PYTORCHJOB
from shared.frameworks.queueing import QUEUE
from shared.frameworks.tfjob import TFJOB
from shared.frameworks.trainer_schemas import RUNTIMES
from shared.frameworks.training_job import TRAININGJOB
from shared.frameworks.trainjob import TRAINJOB
from shared.frameworks.xgboostjob import XGBOOSTJOB
from tests.kit.trainer import replicated_job, runtime, train_job
from tests.kit.world import a_scale_in, a_scale_out, a_training_job
from tests.simulation.plan import WORKERS, Apply, Inherit, Scale
from tests.simulation.platform import AGAIN, INIT, SECRET, SIDE
from tests.takeover.recorded import recorded

KINDS = Kinds((TRAININGJOB, TFJOB, PYTORCHJOB, MPIJOB, MXJOB, JAXJOB, PADDLEJOB, XGBOOSTJOB, TRAINJOB))
RESOURCES: dict[str, Resource[Any]] = {kind.resource.kind: kind.resource for kind in KINDS}

MOST_WORKERS = 6
"""The maxReplicas of a TrainingJob."""

_SHAPES = {
    "TFJob": ("tensorflow", ("Chief",)),
    "PyTorchJob": ("pytorch", ("Master",)),
    "MPIJob": ("main", ("Launcher",)),
    "MXJob": ("mxnet", ("Scheduler", "Server")),
    "JAXJob": ("jax", ()),
    "PaddleJob": ("paddle", ("Master",)),
    "XGBoostJob": ("xgboost", ("Master",)),
}
"""By kind, the name of the container, and the roles besides the workers."""

_POLICIES: dict[int, dict[str, Any]] = {
    1: {"torch": {"elasticPolicy": {"minNodes": 1, "maxNodes": MOST_WORKERS}}},
    2: {"mpi": {}},
    3: {"jax": {}},
}
"""By the number of nodes that a TrainJob begins with, the policy of its runtime."""
REVISION = "example.com/revision"
"""An annotation in the pod templates of a runtime."""


def manifest_of(step: Apply) -> dict[str, Any]:
    """The job that a step applies."""
    if step.kind == "TrainJob":
        deadline = {name: value for name, value in step.more.items() if name == "activeDeadlineSeconds"}
        reference = {"kind": RUNTIMES.kind, "name": step.job}
        return train_job(step.job, runtimeRef=reference, trainer={"numNodes": step.workers}, **deadline)
    if step.kind == "TrainingJob":
        manifest = a_training_job(step.job, workers=step.workers, **step.more)
        roles = manifest["spec"]["etReplicaSpecs"]
        for role in roles.values():
            role["template"]["spec"]["containers"][0] |= _container(step)
            role["template"]["spec"] = _shaped(role["template"]["spec"], step)
        roles["worker"] |= {"maxReplicas": MOST_WORKERS, "minReplicas": step.least or 1}
        if step.queue:
            manifest["metadata"]["labels"] = {QUEUE: step.queue}
    else:
        (field, worker), (container, others) = WORKERS[step.kind], _SHAPES[step.kind]
        template = {"spec": _shaped({"containers": [{"name": container, **_container(step)}]}, step)}
        sizes = {**dict.fromkeys(others, 1), worker: step.workers}
        roles = {role: {"template": template, "replicas": size} for role, size in sizes.items()}
        manifest = {"metadata": {"name": step.job}, "spec": {field: roles, "runPolicy": step.more}}
        if step.kind == "MXJob":
            manifest["spec"]["jobMode"] = "MXTrain"
    if step.policy:
        for role in roles.values():
            role["restartPolicy"] = step.policy
    if step.annotations:
        manifest["metadata"]["annotations"] = step.annotations
    return manifest


def runtime_of(step: Apply, revision: int = 0) -> dict[str, Any]:
    """The runtime of the TrainJob that a step applies, which has the job's name."""
    policy = _POLICIES.get(step.workers, _POLICIES[1])
    jobs = [replicated_job("node", **_container(step))]
    if "mpi" in policy:
        jobs = [*jobs, replicated_job("launcher", **_container(step))]
    for job in jobs:
        batch = job["template"]["spec"]
        batch["backoffLimit"] = step.more.get("backoffLimit")
        batch["template"]["metadata"] = {"annotations": {REVISION: str(revision)}}
    return runtime(step.job, policy, *jobs, kind=RUNTIMES.kind)


def revision_of(spec: Any) -> str:
    """The revision in a runtime's spec."""
    first = spec["template"]["spec"]["replicatedJobs"][0]
    found: str = first["template"]["spec"]["template"]["metadata"]["annotations"][REVISION]
    return found


def _container(step: Apply) -> dict[str, Any]:
    return {"image": step.image or None, "env": _environment()}


def _shaped(spec: dict[str, Any], step: Apply) -> dict[str, Any]:
    """A pod's spec with what its pods have besides one container."""
    first, *others = spec["containers"]
    match step.shape:
        case "beside":
            return spec | {"containers": [first, *others, {"name": SIDE, **_container(step)}]}
        case "before":
            return spec | {"initContainers": [{"name": INIT, **_container(step)}]}
        case "again":
            codes = {"operator": "In", "values": [*AGAIN]}
            rules = [{"action": "Restart", "exitCodes": codes}]
            return spec | {"containers": [first | {"restartPolicy": "Never", "restartPolicyRules": rules}, *others]}
        case _:
            return spec


def inherited(step: Inherit) -> list[dict[str, Any]]:
    """The job of another operator and all that it made, under the step's name."""
    objects = recorded(step.recording)
    text = json.dumps(objects).replace(objects[0]["metadata"]["name"], step.job)
    renamed: list[dict[str, Any]] = json.loads(text)
    return renamed


def request_of(step: Scale) -> dict[str, Any]:
    """The scale request that a step creates."""
    make = a_scale_out if step.by > 0 else a_scale_in
    more = {**step.more, "env": _environment()} if "script" in step.more else step.more
    return make(abs(step.by), name=step.name, job=step.job, **more)


def _environment() -> list[dict[str, str]]:
    return [{"name": "TOKEN", "value": SECRET}]
