"""The definitions of TrainingJob, ScaleIn and ScaleOut: schemas, rules and columns.  Pure.

`training.py` finds the same problems when it parses, because et-operator's own definitions let anything
through.
"""

from collections.abc import Mapping
from typing import Any

from shared.cluster import Resource
from shared.frameworks.definition import Definition, Document, Scale
from shared.frameworks.schemas import (
    AGE,
    BOOLEAN,
    COUNT,
    PHASE,
    RESTART_POLICY,
    TEMPLATE,
    TEXT,
    TIME,
    by_phase,
    choice,
    column,
    fixed,
    members,
    name_rule,
    number,
    rule,
)
from shared.frameworks.training import (
    ATTACH_MODES,
    CLEAN_POD_POLICIES,
    JOB_NAME_PATTERN,
    JOB_RESTART_POLICIES,
    LONGEST_POD_NAME,
    LONGEST_REQUEST_NAME,
    LONGEST_SELECTED_NAME,
    MOST_NAMED,
    MOST_SLOTS,
    MOST_WORKERS,
    SCALEINS,
    SCALEOUTS,
)
from shared.job.naming import LONGEST_JOB_NAME

READ_ONLY = "Read only: written by Muster."
"""The schema of a status; its values have no upper bounds, because users need the status of any job."""

_NAMES: Document = {"type": "array", "items": TEXT}

_LAUNCHER = members(
    {
        "replicas": number(1, 1, "A job has one."),
        "restartPolicy": RESTART_POLICY | {"description": "Never when absent."},
        "template": TEMPLATE,
    },
    required=("template",),
    description="The one pod that starts the training; the hosts files are in its first container.",
)
_WORKER = members(
    {
        "replicas": number(
            1,
            MOST_WORKERS,
            "How many the job starts with; while it runs an edit scales it.  1 when absent.",
        ),
        "minReplicas": number(1, description="No scaling goes below; replicas when absent."),
        "maxReplicas": number(1, description="No scaling goes beyond; no bound when absent."),
        "restartPolicy": RESTART_POLICY
        | {"description": "When a worker that ended is replaced: Never when absent; ExitCode after 128 to 255."},
        "template": TEMPLATE,
    },
    required=("template",),
    description="The pods that train.",
    rules=(
        rule(
            "!has(self.minReplicas) || self.minReplicas <= (has(self.replicas) ? self.replicas : 1)",
            "set replicas to at least minReplicas",
            field=".replicas",
        ),
        rule(
            "!has(self.maxReplicas) || !has(self.replicas) || self.replicas <= self.maxReplicas",
            "set replicas to at most maxReplicas",
            field=".replicas",
        ),
    ),
)
_JOB_SPEC = members(
    {
        "cleanPodPolicy": choice(
            *CLEAN_POD_POLICIES,
            description="Deleted after the end: Running (when absent) the pods that still run, All every pod, None "
            "nothing.",
        ),
        "etReplicaSpecs": members(
            {"launcher": _LAUNCHER, "worker": _WORKER},
            required=("launcher", "worker"),
            description="The roles of the job.",
        ),
        "launcherAttachMode": choice(*ATTACH_MODES, description="How the launcher reaches the workers: ssh.")
        | {
            "x-kubernetes-validations": [
                rule("self != 'kubexec'", "set ssh or leave it out: attaching through the API server is not supported")
            ]
        },
        "slotsPerWorker": number(
            1,
            MOST_SLOTS,
            "Processes of each worker in the hosts files; when absent its first container's limit of nvidia.com/gpu, "
            "or 1.",
        ),
        "restartPolicy": choice(*JOB_RESTART_POLICIES, description="Of the whole job: Never when absent."),
        "backoffLimit": number(description="How many restarts and replacements before the job fails: 6 when absent."),
        "suspend": BOOLEAN | {"description": "While true the job has no pods."},
        "activeDeadlineSeconds": number(1, description="How long the job may take in all; no bound when absent."),
        "ttlSecondsAfterFinished": number(
            description="How long after its end the resource is deleted; it stays when absent."
        ),
        "schedulingTimeoutSeconds": number(1, description="How long pods may wait for a node; no bound when absent."),
    },
    required=("etReplicaSpecs",),
    description="What the job asks for.",
)

_CONDITIONS: Document = {
    "type": "array",
    "description": "In the order in which they became what they are.",
    "items": members(
        {
            "type": TEXT,
            "status": choice("True", "False", "Unknown"),
            "reason": TEXT | {"description": "One CamelCase word."},
            "message": TEXT,
            "lastUpdateTime": TIME | {"description": "When anything of it changed last."},
            "lastTransitionTime": TIME | {"description": "When its status became what it is."},
        },
        required=("type", "status"),
    ),
}
_REPLICA_STATUSES: Document = {
    "type": "object",
    "additionalProperties": members(
        {
            "active": COUNT | {"description": "Pods that run."},
            "succeeded": COUNT | {"description": "Pods that ended by themselves with success."},
            "failed": COUNT | {"description": "Pods that ended by themselves without success."},
        }
    ),
}
_STATUS: Document = {
    "phase": TEXT | {"description": "Where it stands, in one word."},
    "conditions": _CONDITIONS,
}
_JOB_STATUS = members(
    _STATUS
    | {
        "observedGeneration": {
            "type": "integer",
            "format": "int64",
            "description": "The generation of the spec that this status is about.",
        },
        "replicaStatuses": _REPLICA_STATUSES | {"description": "For Launcher and Worker."},
        "startTime": TIME | {"description": "When Muster took the job on."},
        "completionTime": TIME | {"description": "When it Succeeded or Failed."},
        "currentScaler": TEXT
        | {"description": "The request that is being carried out, such as ScaleIn:namespace/name."},
        "restartCount": COUNT | {"description": "How often the whole job began anew."},
        "targetWorkers": _NAMES | {"description": "The workers that the job asks for."},
        "currentWorkers": _NAMES | {"description": "The workers in the hosts files."},
        "replicas": COUNT | {"description": "How many workers there are, for kubectl scale and autoscalers."},
        "selector": TEXT | {"description": "The label selector of the workers, for autoscalers."},
        "workers": TEXT | {"description": "Current and target workers, such as 3/4."},
    },
    description=READ_ONLY,
)


def _request(wish: str, schema: Document) -> Document:
    """The spec of a scale request; `wish` is the field with the workers to add or remove."""
    variable = members(
        {"name": {"type": "string", "minLength": 1, "pattern": "^[^=]+$"}, "value": TEXT},
        required=("name",),
        description="Passed to the script as it is.",
    )
    name: Document = {"type": "string", "minLength": 1, "maxLength": LONGEST_SELECTED_NAME}
    return members(
        {
            "selector": members(
                {"name": name | {"description": "The TrainingJob to scale, of the same namespace."}},
                required=("name",),
                description="Which job.",
            ),
            "script": TEXT
            | {
                "description": "A path in the launcher's first container: run once, by sh, with the workers that come "
                "or leave as pod:slots."
            },
            "timeout": number(
                1,
                description="Seconds until the scaling has to be done, and seconds that the script may take: 60 when "
                "absent.",
            ),
            "env": {"type": "array", "description": "For the script.", "items": variable},
            "backoffLimit": number(
                description="How many new workers may be replaced before they are Ready: 6 when absent."
            ),
            wish: schema,
        },
        required=("selector", wish),
        description="What is asked of which job.",
        rules=(rule("self == oldSelf", "a scale request cannot be changed: create another one"),),
    )


_TO_DELETE = members(
    {
        "count": number(1, MOST_WORKERS, "Those with the highest indices."),
        "podNames": {
            "type": "array",
            "description": "These very workers.",
            "items": {"type": "string", "minLength": 1, "maxLength": LONGEST_POD_NAME},
            "minItems": 1,
            "maxItems": MOST_NAMED,
            "x-kubernetes-list-type": "set",
        },
    },
    description="How many workers leave, or which.",
    rules=(rule("has(self.count) != has(self.podNames)", "set either count or podNames, and not both"),),
)
_TO_ADD = members(
    {"count": number(1, MOST_WORKERS, "Their indices follow the highest one ever used.")},
    required=("count",),
    description="How many workers come.",
)


def _request_status(workers: str, description: str) -> Document:
    return members(
        _STATUS
        | {
            "replicaStatuses": _REPLICA_STATUSES
            | {"description": "Always empty; et-operator's readers expect the field."},
            workers: _NAMES | {"description": description},
        },
        description=READ_ONLY,
    )


# "" is the phase of a job whose spec was rejected.
_FREE = by_phase("", "Suspended")

_JOB_RULES = (
    name_rule(
        JOB_NAME_PATTERN,
        LONGEST_JOB_NAME,
        f"name the job with at most {LONGEST_JOB_NAME} lower-case letters, digits and hyphens, beginning with a letter "
        "and not ending with a hyphen: its pods are named after it",
    ),
    *(
        fixed(
            f"spec.etReplicaSpecs.{role}.template",
            "a pod template cannot be changed unless the job is Suspended: its pods would differ; set spec.suspend "
            "to true first, or create the job again",
            within=f"spec.etReplicaSpecs.{role}",
            free=_FREE,
        )
        for role in ("launcher", "worker")
    ),
    fixed(
        "spec.slotsPerWorker",
        "slotsPerWorker cannot be changed unless the job is Suspended: the launcher counts on it; set spec.suspend "
        "to true first, or create the job again",
        within="spec",
        free=_FREE,
    ),
)
_REQUEST_RULES = (
    rule(
        f"has(self.status) || size(self.metadata.name) <= {LONGEST_REQUEST_NAME}",
        f"name the request with at most {LONGEST_REQUEST_NAME} characters: its workers carry the name in a label",
    ),
)

_JOB = column("Job", ".spec.selector.name")
# A request's conditions are in the order in which they became true, so the last one has its state.
_WHY = (
    column("Reason", ".status.conditions[-1:].reason", wide=True),
    column("Message", ".status.conditions[-1:].message", wide=True),
)

TRAINING_JOB = Definition(
    "An elastic training job: a launcher, and workers that come and go while it trains.",
    _JOB_SPEC,
    short_names=("tj",),
    columns=(
        PHASE,
        AGE,
        column("Workers", ".status.workers"),
        column("Min", ".spec.etReplicaSpecs.worker.minReplicas", kind="integer", wide=True),
        column("Max", ".spec.etReplicaSpecs.worker.maxReplicas", kind="integer", wide=True),
        column("Restarts", ".status.restartCount", kind="integer"),
        column("Scaler", ".status.currentScaler", wide=True),
    ),
    rules=_JOB_RULES,
    status=_JOB_STATUS,
    scale=Scale(".spec.etReplicaSpecs.worker.replicas"),
    suspend=".spec.suspend",
)

REQUEST_DEFINITIONS: Mapping[Resource[Any], Definition] = {
    SCALEINS: Definition(
        "A request for fewer workers of a TrainingJob; it is carried out once.",
        _request("toDelete", _TO_DELETE),
        short_names=("sin",),
        columns=(PHASE, AGE, _JOB, column("Count", ".spec.toDelete.count", kind="integer", wide=True), *_WHY),
        rules=_REQUEST_RULES,
        status=_request_status("toDeletePods", "The workers that leave."),
    ),
    SCALEOUTS: Definition(
        "A request for more workers of a TrainingJob; it is carried out once.",
        _request("toAdd", _TO_ADD),
        short_names=("sout",),
        columns=(PHASE, AGE, _JOB, column("Count", ".spec.toAdd.count", kind="integer", wide=True), *_WHY),
        rules=_REQUEST_RULES,
        status=_request_status("addPods", "The workers that come."),
    ),
}
