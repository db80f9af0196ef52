"""The definition of TrainingJob: schemas, rules and columns.  Pure.

`parse_job` in `training_job.py` finds the same problems, because et-operator's own definition lets anything through.
A field of the spec stands here, in `parse_job` and in `shared/job/spec.py`; `make crds` writes the definition.
"""

from shared.frameworks import schemas
from shared.frameworks.definition import Definition, Scale
from shared.frameworks.reading import CLEAN_POD_POLICIES, JOB_NAME_PATTERN, MOST_SLOTS, MOST_WORKERS
from shared.job.naming import LONGEST_JOB_NAME
from shared.job.policies.exit_codes import LEAST_RETRYABLE_CODE
from shared.job.spec import RestartPolicy

SUSPENDED = "job-supervisor.kube-ai.io/job-suspended"
"""The annotation of et-operator that suspends a job."""

JOB_RESTART_POLICIES: tuple[RestartPolicy, ...] = ("Never", "OnFailure")
ATTACH_MODES = ("ssh", "kubexec")
_LAUNCHER = schemas.members(
    {
        "replicas": schemas.number(1, 1, "A job has one."),
        "restartPolicy": schemas.RESTART_POLICY | {"description": "Never when absent."},
        "template": schemas.TEMPLATE,
    },
    required=("template",),
    description="The one pod that starts the training; the hosts files are in its first container.",
)
_WORKER = schemas.members(
    {
        "replicas": schemas.number(
            1,
            MOST_WORKERS,
            "How many the job starts with; while it runs an edit scales it.  1 when absent.",
        ),
        "minReplicas": schemas.number(1, description="No scaling goes below; replicas when absent."),
        "maxReplicas": schemas.number(1, description="No scaling goes beyond; no bound when absent."),
        "restartPolicy": schemas.RESTART_POLICY
        | {
            "description": "When a worker that ended is replaced: Never when absent; "
            f"ExitCode after {LEAST_RETRYABLE_CODE} to 255."
        },
        "template": schemas.TEMPLATE,
    },
    required=("template",),
    description="The pods that train.",
    rules=(
        schemas.rule(
            "!has(self.minReplicas) || self.minReplicas <= (has(self.replicas) ? self.replicas : 1)",
            "set replicas to at least minReplicas",
            field=".replicas",
        ),
        schemas.rule(
            "!has(self.maxReplicas) || !has(self.replicas) || self.replicas <= self.maxReplicas",
            "set replicas to at most maxReplicas",
            field=".replicas",
        ),
    ),
)
_JOB_SPEC = schemas.members(
    {
        "cleanPodPolicy": schemas.choice(
            *CLEAN_POD_POLICIES,
            description="Deleted after the end: Running (when absent) the pods that still run, All every pod, None "
            "nothing.",
        ),
        "etReplicaSpecs": schemas.members(
            {"launcher": _LAUNCHER, "worker": _WORKER},
            required=("launcher", "worker"),
            description="The roles of the job.",
        ),
        "launcherAttachMode": schemas.choice(*ATTACH_MODES, description="How the launcher reaches the workers: ssh.")
        | {
            "x-kubernetes-validations": [
                schemas.rule(
                    "self != 'kubexec'", "set ssh or leave it out: attaching through the API server is not supported"
                )
            ]
        },
        "slotsPerWorker": schemas.number(
            1,
            MOST_SLOTS,
            "Processes of each worker in the hosts files; when absent its first container's limit of nvidia.com/gpu, "
            "or 1.",
        ),
        "restartPolicy": schemas.choice(*JOB_RESTART_POLICIES, description="Of the whole job: Never when absent."),
        "backoffLimit": schemas.number(
            description="How many restarts and replacements before the job fails: 6 when absent."
        ),
        "suspend": schemas.BOOLEAN | {"description": "While true the job has no pods."},
        "activeDeadlineSeconds": schemas.number(
            1, description="How long the job may take in all; no bound when absent."
        ),
        "ttlSecondsAfterFinished": schemas.number(
            description="How long after its end the resource is deleted; it stays when absent."
        ),
        "schedulingTimeoutSeconds": schemas.number(
            1, description="How long pods may wait for a node; no bound when absent."
        ),
    },
    required=("etReplicaSpecs",),
    description="What the job asks for.",
)
_JOB_STATUS = schemas.members(
    schemas.STATUS
    | {
        "observedGeneration": {
            "type": "integer",
            "format": "int64",
            "description": "The generation of the spec that this status is about.",
        },
        "replicaStatuses": schemas.REPLICA_STATUSES | {"description": "For Launcher and Worker."},
        "startTime": schemas.TIME | {"description": "When Muster took the job on."},
        "completionTime": schemas.TIME | {"description": "When it Succeeded or Failed."},
        "currentScaler": schemas.TEXT
        | {"description": "The request that is being carried out, such as ScaleIn:namespace/name."},
        "restartCount": schemas.COUNT | {"description": "How often the whole job began anew."},
        "targetWorkers": schemas.NAMES | {"description": "The workers that the job asks for."},
        "currentWorkers": schemas.NAMES | {"description": "The workers in the hosts files."},
        "replicas": schemas.COUNT | {"description": "How many workers there are, for kubectl scale and autoscalers."},
        "selector": schemas.TEXT | {"description": "The label selector of the workers, for autoscalers."},
        "workers": schemas.TEXT | {"description": "Current and target workers, such as 3/4."},
    },
    description=schemas.READ_ONLY,
)
BEFORE_ADMISSION = ("", "Pending", "Refused")
"""In the phase of a job that is not admitted, or whose spec was refused; another operator may leave it empty."""
_SUSPEND = ".spec.suspend"
_FREE = f"{schemas.by_phase(*BEFORE_ADMISSION, 'Suspending', 'Suspended')} || {schemas.pausing(_SUSPEND)}"
_JOB_RULES = (
    schemas.name_rule(
        JOB_NAME_PATTERN,
        LONGEST_JOB_NAME,
        f"name the job with at most {LONGEST_JOB_NAME} lower-case letters, digits and hyphens, beginning with a letter "
        "and not ending with a hyphen: its pods are named after it",
    ),
    *(
        schemas.fixed(
            f"spec.etReplicaSpecs.{role}.template",
            "a pod template cannot be changed unless the job is Suspended: its pods would differ; set spec.suspend "
            "to true first, or create the job again",
            within=f"spec.etReplicaSpecs.{role}",
            free=_FREE,
        )
        for role in ("launcher", "worker")
    ),
    schemas.fixed(
        "spec.slotsPerWorker",
        "slotsPerWorker cannot be changed unless the job is Suspended: the launcher counts on it; set spec.suspend "
        "to true first, or create the job again",
        within="spec",
        free=_FREE,
    ),
)
TRAINING_JOB = Definition(
    "An elastic training job: a launcher, and workers that come and go while it trains.",
    _JOB_SPEC,
    short_names=("tj",),
    columns=(
        schemas.PHASE,
        schemas.AGE,
        schemas.column("Workers", ".status.workers"),
        schemas.column("Min", ".spec.etReplicaSpecs.worker.minReplicas", kind="integer", wide=True),
        schemas.column("Max", ".spec.etReplicaSpecs.worker.maxReplicas", kind="integer", wide=True),
        schemas.column("Restarts", ".status.restartCount", kind="integer"),
        schemas.column("Scaler", ".status.currentScaler", wide=True),
        *schemas.WHY,
    ),
    rules=_JOB_RULES,
    status=_JOB_STATUS,
    scale=Scale(".spec.etReplicaSpecs.worker.replicas"),
    suspend=_SUSPEND,
    suspend_annotation=SUSPENDED,
)
