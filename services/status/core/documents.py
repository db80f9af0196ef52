"""Status documents of a job and its requests, and the head that goes with them.  Pure."""

from typing import Any

import msgspec

from services.status.core.effects import PatchStatus
from shared.errors import Refused
from shared.frameworks.framework import Document
from shared.frameworks.kinds import BUILT_IN, Kinds
from shared.frameworks.training import REQUESTS
from shared.frameworks.training_status import request_status, whole_seconds
from shared.job.chain import Head
from shared.job.state import Job
from shared.job.steps import Step

_encoder = msgspec.json.Encoder(order="sorted")


def document_of(job: Job, kinds: Kinds = BUILT_IN) -> bytes:
    """A job's status as canonical JSON, without head; null marks fields that shall be absent."""
    return _encoder.encode(kinds.of(job).status(job))


def of_job(job: Job, kinds: Kinds = BUILT_IN) -> list[Step]:
    if not job.may_try("PatchStatus"):
        return []
    try:
        document = document_of(job, kinds)
    except Refused:
        # A framework of somebody else's that fails tells so itself; the job goes on without a word of it.
        return []
    return [PatchStatus(job.api_version, job.kind, job.key.name, job.key.uid, document, job.integrity.repair, job.over)]


def of_requests(job: Job) -> list[Step]:
    if not job.may_try("PatchStatus"):
        return []
    # Of an accepted loss the requests show heads too, which may be further than this log will be for long.
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
        )
        for request in job.scaling.requests.values()
        if request.shown
    ]


def with_head(document: bytes, log: str, head: Head, time: str) -> Document:
    """The patch of a status subresource: the document as of `head`; `time` is that of the head's event."""
    status: Document = msgspec.json.decode(document)
    status["lastReconcileTime"] = whole_seconds(time)
    status["history"] = {"log": log, "sequence": head.sequence, "hash": head.hash}
    return status


def replacing(status: Document, held: Any) -> Document:
    """`status` as a merge patch that also removes what `held` has beyond it: fields that another operator wrote."""
    if not isinstance(held, dict):
        return status
    beyond = {key: None for key in held if key not in status}
    inner = {key: replacing(value, held.get(key)) for key, value in status.items() if isinstance(value, dict)}
    return {**status, **inner, **beyond}


def canonical(status: Any) -> bytes:
    """A status as bytes that compare: keys sorted, absent fields left out."""
    return _encoder.encode(_present(status))


def same(status: Any, document: bytes) -> bool:
    """The API server holds this document, whatever its head."""
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
