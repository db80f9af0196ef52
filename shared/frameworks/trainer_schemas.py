"""The definitions of TrainJob and of the two kinds of runtime.  Pure."""

from shared.cluster import Resource
from shared.cluster.objects import Custom
from shared.frameworks import reading, schemas
from shared.frameworks.model import Field, Written, anything, number, text
from shared.frameworks.reading import Fields
from shared.frameworks.runtimes import RuntimeKind
from shared.frameworks.schemas import Definition, Document, Scale
from shared.job.naming import SSH_FOLDER

GROUP = "trainer.kubeflow.org"
VERSION = "v1alpha1"
CLUSTER_RUNTIMES = Resource(GROUP, VERSION, "clustertrainingruntimes", "ClusterTrainingRuntime", Custom)
RUNTIMES = Resource(GROUP, VERSION, "trainingruntimes", "TrainingRuntime", Custom)

SUSPEND = ".spec.suspend"
# A job that runs and lacks nothing shows no condition.
FREE = f"({schemas.BY_CONDITIONS}) && !{schemas.by_phase('Running')} || {schemas.pausing(SUSPEND)}"

OVERRIDES = {"podSpecOverrides": "2.0", "podTemplateOverrides": "2.1"}
"""Fields of earlier releases in whose place runtimePatches are now, by release.

They are declared because the API server drops fields that are not: pods would run without what they ask for.
"""
OF_JOB_SET = ("labels", "annotations")
"""Fields of earlier releases for the JobSet."""

_FIXED = (
    "trainer.image",
    "trainer.command",
    "trainer.args",
    "trainer.env",
    "trainer.resourcesPerNode",
    "trainer.numProcPerNode",
    "runtimePatches",
)
_HELD = (
    "cannot be changed unless the job is suspended: its pods would differ; set spec.suspend to true first, or create "
    "the job again"
)

_STRINGS: Document = {"type": "array", "maxItems": 128, "items": schemas.TEXT | {"maxLength": 1 << 20}}
_LONGEST_NAME = 253
_NAME: Document = schemas.TEXT | {"minLength": 1, "maxLength": _LONGEST_NAME}


class Trainer(Written):
    """What the nodes run, and how many they are: it wins over the runtime's."""

    image = text(maxLength=500)
    command = Field(_STRINGS, Fields.texts)
    args = Field(_STRINGS, Fields.texts)
    env = Field(
        {
            "type": "array",
            "maxItems": 128,
            "items": schemas.members({"name": _NAME}, required=("name",)) | schemas.OPEN,
        },
        Fields.parts,
    )
    num_nodes = number("How many nodes train; a job of an elastic runtime may change it.", 1, reading.MOST_WORKERS)
    resources_per_node = anything(schemas.ANYTHING)
    num_proc_per_node = number("Processes of a node; for torch as many as fit when absent.", 1, reading.MOST_SLOTS)


class ElasticPolicy(Written):
    """As in Trainer 2.0 and 2.1: nodes may come and go between two numbers."""

    min_nodes = number("maxNodes when absent.", 1, reading.MOST_WORKERS)
    max_nodes = number("minNodes when absent.", 1, reading.MOST_WORKERS)
    max_restarts = number("How often torchrun begins again within a pod.")
    metrics = Field({"type": "array", "items": schemas.ANYTHING}, Fields.parts)


TRAIN_JOB = Definition(
    description="A job of Trainer v2: its pods are those of the runtime that it names, with its trainer in them.",
    spec=schemas.members(
        {
            "runtimeRef": schemas.members(
                {
                    "name": _NAME,
                    "apiGroup": schemas.TEXT | {"default": GROUP, "maxLength": _LONGEST_NAME},
                    "kind": schemas.TEXT | {"default": CLUSTER_RUNTIMES.kind, "maxLength": _LONGEST_NAME},
                },
                required=("name",),
                description="The runtime, which is read until the job begins; a later change of it changes no job.",
                rules=[schemas.rule("self == oldSelf", "create the job again: it keeps the runtime that it names")],
            ),
            "initializer": schemas.ANYTHING | {"description": "Refused: have the pods of the trainer fetch the data."},
            "trainer": Trainer.schema(),
            "runtimePatches": {
                "type": "array",
                "maxItems": 16,
                "description": "Changes of the runtime for this job, each of one manager.",
                "items": schemas.members(
                    {"manager": _NAME, "time": schemas.TIME, "trainingRuntimeSpec": schemas.ANYTHING},
                    required=("manager",),
                ),
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["manager"],
            },
            **{
                name: {
                    "type": "array",
                    "items": schemas.ANYTHING,
                    "description": f"Of Trainer {release}, and refused: write runtimePatches.",
                }
                for name, release in OVERRIDES.items()
            },
            **{
                name: schemas.ANYTHING | {"description": "Of Trainer 2.0 and 2.1, without effect: no JobSet is made."}
                for name in OF_JOB_SET
            },
            "suspend": schemas.BOOLEAN,
            "activeDeadlineSeconds": schemas.number(
                1, description="The job fails when it takes longer; a pause does not count."
            ),
            "managedBy": schemas.TEXT | {"maxLength": _LONGEST_NAME},
        },
        required=("runtimeRef",),
    ),
    columns=(
        schemas.column("State", ".status.phase"),
        schemas.AGE,
        schemas.column("Nodes", ".status.replicas", kind="integer"),
        *schemas.WHY,
    ),
    rules=(
        schemas.job_name_rule(reading.LONGEST_POD_NAME - len("-launcher")),
        *(schemas.fixed(f"spec.{field}", f"{field} {_HELD}", within="spec", free=FREE) for field in _FIXED),
    ),
    status={"type": "object", "properties": {"phase": schemas.TEXT, "conditions": schemas.CONDITIONS}, **schemas.OPEN},
    scale=Scale(".spec.trainer.numNodes"),
    suspend=SUSPEND,
    expires=False,
)

_NODES = schemas.number(1, reading.MOST_WORKERS, "How many nodes train; 1 when absent.")
_POLICY = schemas.members(
    {
        "numNodes": _NODES,
        "torch": schemas.members(
            {
                "elasticPolicy": ElasticPolicy.schema(),
                "envInjection": schemas.ANYTHING,
            },
            description="It keeps numProcPerNode of Trainer 2.0 and 2.1, a number or a word, too.",
        )
        | schemas.OPEN,
        "mpi": schemas.members(
            {
                "numProcPerNode": schemas.number(1, reading.MOST_SLOTS) | {"default": 1},
                "mpiImplementation": schemas.choice("", "OpenMPI", "Intel", "MPICH") | {"default": "OpenMPI"},
                "sshAuthMountPath": schemas.TEXT | {"maxLength": 4096, "default": SSH_FOLDER},
                "runLauncherAsNode": schemas.BOOLEAN | {"default": False},
            },
            description="Its defaults, and that of replicas, are Trainer's: Kueue relies on them.",
        ),
        "jax": schemas.ANYTHING,
        "xgboost": schemas.ANYTHING,
        "flux": schemas.ANYTHING,
    },
    rules=(
        schemas.rule(
            " + ".join(f"(has(self.{policy}) ? 1 : 0)" for policy in ("torch", "mpi", "jax", "xgboost", "flux"))
            + " <= 1",
            "write one policy",
        ),
    ),
)


_REPLICATED_JOBS: Document = {
    "type": "array",
    "items": schemas.members(
        {"replicas": {"type": "integer", "format": "int32", "default": 1}},
        description="As in a JobSet: every field is kept.",
    )
    | schemas.OPEN,
}
_TEMPLATE = (
    schemas.members({"spec": schemas.members({"replicatedJobs": _REPLICATED_JOBS}) | schemas.OPEN}) | schemas.OPEN
)


def _runtime(description: str) -> Definition:
    return Definition(
        description=description,
        spec=schemas.members(
            {"mlPolicy": _POLICY, "podGroupPolicy": schemas.ANYTHING, "template": _TEMPLATE},
        ),
        columns=(schemas.AGE,),
        expires=False,
    )


KINDS_OF_RUNTIMES = (
    RuntimeKind(
        CLUSTER_RUNTIMES, _runtime("The pod templates of TrainJobs, in any namespace, that name it."), of_cluster=True
    ),
    RuntimeKind(RUNTIMES, _runtime("The pod templates of TrainJobs of its namespace that name it."), of_cluster=False),
)
