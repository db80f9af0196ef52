"""What users write: the specs of TrainingJob, ScaleIn and ScaleOut."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from muster.crds.fields import INT32, Count, Model, Number, PodTemplate, rules
from shared.frameworks.schemas import rule
from shared.frameworks.training import (
    LONGEST_POD_NAME,
    LONGEST_SELECTED_NAME,
    MOST_NAMED,
    MOST_SLOTS,
    MOST_WORKERS,
)
from shared.job.spec import CleanPodPolicy, RestartPolicy

Workers = Annotated[int, Field(ge=1, le=MOST_WORKERS, json_schema_extra={**INT32})]


class Launcher(Model):
    """The one pod that starts the training; the hosts files are in its first container."""

    replicas: Annotated[int, Field(ge=1, le=1, json_schema_extra={**INT32})] | None = None
    """A job has one."""
    restart_policy: RestartPolicy | None = None
    """Never when absent."""
    template: PodTemplate


class Worker(Model):
    """The pods that train."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "!has(self.minReplicas) || self.minReplicas <= self.replicas",
                "set replicas to at least minReplicas",
                field=".replicas",
            ),
            rule(
                "!has(self.maxReplicas) || self.replicas <= self.maxReplicas",
                "set replicas to at most maxReplicas",
                field=".replicas",
            ),
        )
    )

    replicas: Workers
    """How many there shall be: with so many the job starts, and while it runs an edit scales it."""
    min_replicas: Number | None = None
    """No scaling goes below; 1 when absent."""
    max_replicas: Number | None = None
    """No scaling goes beyond; no bound when absent."""
    restart_policy: RestartPolicy | None = None
    """When a worker that ended is replaced: Never when absent; ExitCode replaces after 128 to 255."""
    template: PodTemplate


class ReplicaSpecs(Model):
    """The roles of the job."""

    launcher: Launcher
    worker: Worker


class TrainingJobSpec(Model):
    """What the job asks for."""

    clean_pod_policy: CleanPodPolicy | None = None
    """What is deleted after the end: Running (when absent) the pods that still run, All every pod, None nothing."""
    et_replica_specs: ReplicaSpecs
    launcher_attach_mode: (
        Annotated[
            Literal["ssh", "kubexec"],
            Field(
                json_schema_extra=rules(
                    rule(
                        "self != 'kubexec'",
                        "set ssh or leave it out: attaching through the API server is not supported",
                    )
                )
            ),
        ]
        | None
    ) = None
    """How the launcher reaches the workers: ssh."""
    slots_per_worker: Annotated[int, Field(ge=1, le=MOST_SLOTS, json_schema_extra={**INT32})] | None = None
    """Processes of each worker in the hosts files; when absent its first container's limit of nvidia.com/gpu, or 1."""
    restart_policy: Literal["Never", "OnFailure"] | None = None
    """Of the whole job: Never when absent."""
    backoff_limit: Count | None = None
    """How many restarts and replacements before the job fails: 6 when absent."""
    suspend: bool | None = None
    """While true the job has no pods."""
    active_deadline_seconds: Number | None = None
    """How long the job may take in all; no bound when absent."""
    ttl_seconds_after_finished: Count | None = None
    """How long after its end the resource is deleted; it stays when absent."""
    scheduling_timeout_seconds: Number | None = None
    """How long pods may wait for a node; no bound when absent."""


class Selector(Model):
    """Which job."""

    name: Annotated[str, Field(min_length=1, max_length=LONGEST_SELECTED_NAME)]
    """The TrainingJob to scale, of the same namespace."""


class EnvironmentVariable(Model):
    """Passed to the script as it is."""

    name: Annotated[str, Field(min_length=1, pattern="^[^=]+$")]
    value: str | None = None


class ScaleSpec(Model):
    """What is asked of which job."""

    model_config = ConfigDict(
        json_schema_extra=rules(rule("self == oldSelf", "a scale request cannot be changed: create another one"))
    )

    selector: Selector
    script: str | None = None
    """A path in the launcher's first container: run once, by sh, with the workers that come or leave as pod:slots."""
    timeout: Number | None = None
    """Seconds until the scaling has to be done, and seconds that the script may take: 60 when absent."""
    env: list[EnvironmentVariable] | None = None
    """For the script."""
    backoff_limit: Count | None = None
    """How many new workers may be replaced before they are Ready: 6 when absent."""


class ToDelete(Model):
    """How many workers leave, or which."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule("has(self.count) != has(self.podNames)", "set either count or podNames, and not both")
        )
    )

    count: Workers | None = None
    """Those with the highest indices."""
    pod_names: (
        Annotated[
            list[Annotated[str, Field(min_length=1, max_length=LONGEST_POD_NAME)]],
            Field(min_length=1, max_length=MOST_NAMED, json_schema_extra={"x-kubernetes-list-type": "set"}),
        ]
        | None
    ) = None
    """These very workers."""


class ScaleInSpec(ScaleSpec):
    """What is asked of which job."""

    to_delete: ToDelete


class ToAdd(Model):
    """How many workers come."""

    count: Workers
    """Their indices follow the highest one ever used."""


class ScaleOutSpec(ScaleSpec):
    """What is asked of which job."""

    to_add: ToAdd
