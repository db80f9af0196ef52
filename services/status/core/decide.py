"""What the status service owes a job.  Pure."""

from services.status.core import announce, documents, phases
from shared.frameworks.kinds import BUILT_IN, Kinds
from shared.job.naming import NO_UID
from shared.job.state import Job
from shared.job.steps import Record, Step


def decide(job: Job, kinds: Kinds = BUILT_IN) -> list[Step]:
    """The next phase; else the documents and the Kubernetes Events of what is so."""
    if job.halted or job.gone:
        return []
    if job.key.uid == NO_UID:
        return documents.of_requests(job)
    if not kinds.knows(job):
        return []
    phase = phases.owed(job)
    if phase is not None:
        # What a document says would be old within a millisecond: the phase comes first.  What was announced stays
        # wanted meanwhile: a wish that is gone for a moment is forgotten, and carried out anew when it is back.
        return [Record(phase), *announce.owed(job, kinds)]
    return [*documents.of_job(job, kinds), *documents.of_requests(job), *announce.owed(job, kinds)]
