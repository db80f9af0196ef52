"""Decides the status service's next steps for a job.  Pure."""

from services.status.core import announce, documents, phases
from shared.frameworks.kinds import BUILT_IN, Kinds
from shared.job.naming import NO_UID
from shared.job.state import Job
from shared.job.steps import Record, Step


def decide(job: Job, kinds: Kinds = BUILT_IN) -> list[Step]:
    """The next phase; without one the status documents and the Kubernetes Events."""
    if job.halted or job.gone:
        return []
    if job.key.uid == NO_UID:
        return documents.of_requests(job)
    if not kinds.knows(job):
        return []
    phase = phases.next_phase(job)
    if phase is not None:
        # The phase comes first: a document without it would be old within a millisecond.
        return [Record(phase)]
    return [*documents.of_job(job, kinds), *documents.of_requests(job), *announce.announcements(job, kinds)]
