"""The places that tell what a job lacks: its status, a Kubernetes Event and `muster why` give the same reason."""

from services.status.core.announce import announcements
from services.status.core.documents import document_of
from services.status.core.effects import Announce
from shared.frameworks.kinds import Kinds
from shared.job.state import Job
from shared.job.waiting import Wait, told


def told_differently(job: Job, kinds: Kinds) -> str:
    """Where the reason of what a job waits for is not told; empty if it is, and where people are told of none."""
    if job.halted or job.resource.gone or not kinds.knows(job) or (wait := told(job)) is None:
        return ""
    events = (step for step in announcements(job, kinds) if isinstance(step, Announce))
    places = {
        "its status": document_of(job, kinds).decode(),
        "an Event": " ".join(f"{event.reason} {event.message}" for event in events),
    }
    missing = [place for place, words in places.items() if not says(words, wait)]
    return f"waits for {wait.reason} ({wait.message}), and {' and '.join(missing)} lacks it" if missing else ""


def says(words: str, wait: Wait) -> bool:
    """True if the words have the reason of a wait; a pod that was deleted has it in its sentence."""
    return wait.reason.lower() in words.lower()
