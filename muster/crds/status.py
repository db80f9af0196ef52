"""What Muster writes into `.status`.

Without upper bounds: a status that were refused would leave users without a word.
"""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from muster.crds.fields import Count, Model, Time, rules
from shared.frameworks.schemas import rule


class Condition(Model):
    type: str
    status: Literal["True", "False", "Unknown"]
    reason: str | None = None
    """One CamelCase word."""
    message: str | None = None
    last_update_time: Time | None = None
    """When anything of it changed last."""
    last_transition_time: Time | None = None
    """When its status became what it is."""


class History(Model):
    """The event of Muster's log that this status tells of."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            # It is asked only where there was a history before, so a forged one can be removed and written anew.
            rule(
                "self.log != oldSelf.log || self.sequence >= oldSelf.sequence",
                "a newer status was written already; read on, this one is old",
            )
        )
    )

    log: Annotated[str, Field(max_length=253)]
    """Which log: the id of its first event."""
    sequence: Annotated[int, Field(ge=0, json_schema_extra={"format": "int64"})]
    hash: Annotated[str, Field(max_length=253)]
    """Of the job's history up to that event."""


class Status(Model):
    """Read only: written by Muster."""

    phase: str | None = None
    """Where it stands, in one word."""
    conditions: list[Condition] | None = None
    """In the order in which they became what they are."""
    last_reconcile_time: Time | None = None
    """When the event of `history` happened."""
    history: History | None = None


class ReplicaStatus(Model):
    active: Count | None = None
    """Pods that run."""
    succeeded: Count | None = None
    """Pods that ended by themselves with success."""
    failed: Count | None = None
    """Pods that ended by themselves without success."""


class TrainingJobStatus(Status):
    """Read only: written by Muster."""

    observed_generation: Annotated[int, Field(json_schema_extra={"format": "int64"})] | None = None
    """The generation of the spec that this status is about."""
    replica_statuses: dict[str, ReplicaStatus] | None = None
    """For Launcher and Worker."""
    start_time: Time | None = None
    """When Muster took the job on."""
    completion_time: Time | None = None
    """When it Succeeded or Failed."""
    current_scaler: str | None = None
    """The request that is being carried out, such as ScaleIn:namespace/name."""
    restart_count: Count | None = None
    """How often the whole job began anew."""
    target_workers: list[str] | None = None
    """The workers that shall be."""
    current_workers: list[str] | None = None
    """The workers in the hosts files."""
    replicas: Count | None = None
    """How many workers there are, for whoever scales them."""
    selector: str | None = None
    """The label selector of the workers, for autoscalers."""
    workers: str | None = None
    """Current and target workers, such as 3/4."""


class RequestStatus(Status):
    """Read only: written by Muster."""

    replica_statuses: dict[str, ReplicaStatus] | None = None
    """Always empty; et-operator's readers expect the field."""


class ScaleInStatus(RequestStatus):
    """Read only: written by Muster."""

    to_delete_pods: list[str] | None = None
    """The workers that leave."""


class ScaleOutStatus(RequestStatus):
    """Read only: written by Muster."""

    add_pods: list[str] | None = None
    """The workers that come."""
