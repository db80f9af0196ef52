"""Renders the status documents of a job and of its requests, with the head of the history.  Pure."""

from typing import Any

import msgspec

from services.status.core.effects import News, PatchStatus
from shared.errors import Refused
from shared.frameworks.kinds import BUILT_IN, Kinds
from shared.frameworks.scale_requests import REQUESTS, request_status, waiting_for
from shared.frameworks.schemas import Document
from shared.frameworks.statuses import whole_seconds
from shared.job import text
from shared.job.chain import Head
from shared.job.conditions import MILESTONES
from shared.job.events.event import EffectRefused
from shared.job.reasons import FRAMEWORK_FAILED
from shared.job.sorted_set import SortedSet
from shared.job.state import Job
from shared.job.steps import Record, Step
from shared.job.waiting import told

_encoder = msgspec.json.Encoder(order="sorted")


def document_of(job: Job, kinds: Kinds = BUILT_IN) -> bytes:
    """A job's status as canonical JSON, without the head; null marks fields to remove."""
    return _encoder.encode(kinds.of(job).status(job))


def of_job(job: Job, kinds: Kinds = BUILT_IN) -> list[Step]:
    """The document, or the fact that a plug-in's framework could not make one, once in a phase: the job goes on."""
    refusal = job.efforts.refusals.get("PatchStatus")
    failed = refusal.message if refusal is not None and refusal.reason == FRAMEWORK_FAILED else ""
    if not failed and not job.may_try("PatchStatus"):
        return []
    try:
        document = document_of(job, kinds)
    except Refused as refused:
        words = text.ends(str(refused))
        if words == failed:
            return []
        return [Record(EffectRefused(effect="PatchStatus", reason=FRAMEWORK_FAILED, permanent=True, message=words))]
    return [
        PatchStatus(
            job.resource.api_version,
            job.resource.kind,
            job.key.name,
            job.key.uid,
            document,
            job.integrity.repair,
            job.over,
            news_of_job(job),
        )
    ]


def news_of_job(job: Job) -> News:
    """What people and programs act upon: not how far an attempt that starts has come, nor how many pods are active."""
    conditions = tuple(known for known in job.status.conditions if known.type not in MILESTONES)
    wait = told(job)
    why = wait.reason if wait is not None else ""
    # A worker that ended leaves the hosts files within milliseconds: one document tells of both.
    hosts = job.spec is not None and job.spec.handling.hosts_files
    members = job.listed_workers if hosts and not job.starting else SortedSet[int]()
    return News(
        job.status.phase, job.resource.generation, conditions, members, {} if hosts else job.attempt.tallies, why
    )


def of_requests(job: Job) -> list[PatchStatus]:
    if not job.may_try("PatchStatus"):
        return []
    # After an accepted loss the heads in the requests may be above this log's, too.
    repair = job.integrity.repair if job.integrity.accepted else 0
    return [
        PatchStatus(
            REQUESTS[request.kind].api_version,
            request.kind,
            request.name,
            request.uid,
            _encoder.encode(request_status(job, request)),
            repair,
            job.over or request.over,
            News(
                request.phase,
                conditions=request.conditions,
                waits_for=waiting_for(job, request) if request.phase == "Pending" else "",
            ),
        )
        for request in job.scaling.requests.values()
        if request.shown
    ]


def with_head(document: bytes, log: str, head: Head, time: str) -> Document:
    """The patch of a status subresource: the document with its head; `time` is the time of the head's event."""
    status: Document = msgspec.json.decode(document)
    status["lastReconcileTime"] = whole_seconds(time)
    status["history"] = {"log": log, "sequence": head.sequence, "hash": head.hash}
    return status


def replacing(status: Document, held: Any) -> Document:
    """`status` as a merge patch that also removes the other fields of `held`: another operator wrote them."""
    if not isinstance(held, dict):
        return status
    beyond = {key: None for key in held if key not in status}
    inner = {key: replacing(value, held.get(key)) for key, value in status.items() if isinstance(value, dict)}
    return {**status, **inner, **beyond}


def canonical(status: Any) -> bytes:
    """A status as comparable bytes: keys sorted, absent fields left out."""
    return _encoder.encode(_present(status))


def same(status: Any, document: bytes) -> bool:
    """True if the status in the API server is this document, with any head."""
    if not isinstance(status, dict):
        return False
    known = {key: value for key, value in status.items() if key not in ("history", "lastReconcileTime")}
    return canonical(known) == canonical(msgspec.json.decode(document))


def _present(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _present(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [_present(inner) for inner in value]
    return value
