"""What the client answers with."""

from typing import Any

import msgspec

from muster.following import status_of
from shared.cluster.objects import Custom, plain
from shared.eventlog import Stored
from shared.eventlog.subject import Subject
from shared.job.events.catalog import AnyEvent, Malformed, UnknownEvent, read_event
from shared.job.naming import key_of
from shared.telling.report import Report
from shared.telling.targets import Target
from shared.telling.why import Cause

__all__ = ["Cause", "Event", "Job", "Report"]


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A job as the API server has it."""

    namespace: str
    name: str
    uid: str
    """Another job of the same name has another one."""
    called: str
    """`trainingjob/resnet`, or `mxjob.kubeflow.org/resnet` where several groups have the kind."""
    phase: str
    """`Created`, `Running`, `Scaling`, `Restarting`, `Suspending`, `Suspended`, `Succeeded` or `Failed`; empty before
    Muster has taken the job on."""
    status: dict[str, Any]
    """The fields of its kind; empty before Muster has taken the job on."""
    document: dict[str, Any]
    """The whole resource, as JSON-like values."""

    @classmethod
    def of(cls, target: Target, resource: Custom) -> "Job":
        meta, kind = resource.metadata, target.resource
        return cls(
            namespace=meta.namespace,
            name=meta.name,
            uid=meta.uid,
            called=target.label,
            phase=target.phase(status_of(resource)),
            status=status_of(resource),
            document={"apiVersion": kind.api_version, "kind": kind.kind, **plain(resource)},
        )


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a job, as the log has it."""

    sequence: int
    """Counts the events of all jobs, from 1; the order of events."""
    id: str
    """Unique in the log."""
    time: str
    """RFC 3339, UTC: when the author recorded it, by the author's clock."""
    namespace: str
    name: str
    uid: str
    author: str
    """The service that recorded it: `watcher`, `scheduler`, `scaler`, `status` or `setup`."""
    type: str
    """`JobRunning`, for example; `docs/events.md` has all of them."""
    decision: bool
    """True for what Muster decided, False for what it saw."""
    fact: AnyEvent | None
    """The content, one of the types of `muster.client.facts`; None for a type that this release does not know, and for
    content that no release wrote."""
    body: bytes
    """The content as JSON."""

    @classmethod
    def of(cls, stored: Stored) -> "Event":
        subject = Subject.parse(stored.subject)
        key = key_of(subject)
        return cls(
            sequence=stored.sequence,
            id=stored.event_id,
            time=stored.time,
            namespace=key.namespace,
            name=key.name,
            uid=key.uid,
            author=subject.author,
            type=subject.type,
            decision=subject.family == "jobs",
            fact=_fact(stored.body, subject.type),
            body=stored.body,
        )


def _fact(body: bytes, tag: str) -> AnyEvent | None:
    try:
        return read_event(body, tag)
    except (UnknownEvent, Malformed):
        return None
