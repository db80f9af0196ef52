"""A job as `history.muster.dev` shows it: the object that the service writes and the command line reads."""

from datetime import UTC, datetime
from typing import Annotated, Self

import msgspec
from msgspec import Meta

from shared.history_api import API_VERSION, KIND
from shared.telling.selection import LABELS, labels_of
from shared.telling.shown import Shown

TIME = {"type": "string", "format": "date-time"}


class Metadata(msgspec.Struct, frozen=True, rename="camel"):
    name: Annotated[str, Meta(description="KIND.NAME, as `muster` calls the job: trainingjob.resnet.")]
    namespace: Annotated[str, Meta(description="The namespace of the job.")]
    uid: Annotated[str, Meta(description="The uid of the job's resource.")]
    resource_version: Annotated[str, Meta(description="The sequence of the job's last event in the log.")]
    creation_timestamp: Annotated[
        str | None, Meta(description="When its first event was recorded.", extra_json_schema=TIME)
    ]
    """In whole seconds; None for an event without a time, which an administrator planted."""
    labels: Annotated[dict[str, str], Meta(description=f"Those of the job, and {', '.join(LABELS)}.")]


class JobHistory(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    api_version: str = API_VERSION
    kind: str = KIND
    metadata: Metadata
    last_event_time: str
    """When it was recorded."""
    job: Shown
    """What `muster get -o json` prints."""

    @classmethod
    def of(cls, job: Shown, time: str) -> Self:
        """That of a job whose last event was recorded at this time."""
        labels = labels_of(job.name, job.kind, job.phase, job.labels, gone=job.gone)
        name, version, began = f"{job.called}.{job.name}", str(job.sequence), _whole_seconds(job.began)
        return cls(
            metadata=Metadata(name, job.namespace, job.uid, version, began, labels), last_event_time=time, job=job
        )


def _whole_seconds(time: str) -> str | None:
    try:
        return f"{datetime.fromisoformat(time).astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
    except (ValueError, OverflowError):
        return None
