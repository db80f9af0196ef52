"""Stalls: a job whose training made steps, and has made none for as long as its annotation allows.  Pure."""

from shared.job import text
from shared.job.state import Job
from shared.job.timers import STALL, Timer, passed
from shared.job.views import PodView, alive


def _whole(job: Job) -> bool:
    """False while a job that needs every pod lacks one: that is what it waits for."""
    if job.spec is None or not job.spec.handling.strict or job.spec.handling.elastic:
        return True
    pods = job.by_slot()
    return all((pod := pods.get(slot)) is not None and pod.phase == "Running" for slot in job.attempt.slots)


def stall_timer(job: Job) -> Timer | None:
    """The judgement that runs while the training of a running job may have stopped; None for any other job."""
    known, limit = job.training, job.spec.stall_timeout_seconds if job.spec is not None else None
    if limit is None or known.stands is None or not known.stepped or job.status.phase not in ("Running", "Scaling"):
        return None
    # The reports of a job that is being deleted are recorded no more.
    if known.made_its_last_step or job.deleting or not _whole(job):
        return None
    # The report came before it was recorded.
    waited = known.reported.waited if known.reported is not None and known.stands == known.at else 0
    return Timer(known.stands.sequence, STALL, limit, ahead=min(waited, limit - 1), logged=known.stands.logged)


def stalled(job: Job) -> bool:
    """True from the end of that judgement until the next step, or the next change of the group."""
    timer = stall_timer(job)
    return timer is not None and passed(job, timer.anchor, STALL)


def sentence(job: Job) -> str:
    """Since when the training stands still, where it stands, and what its pods do."""
    known, since = job.training, job.training.stands
    limit = job.spec.stall_timeout_seconds if job.spec is not None else 0
    states: dict[str, list[str]] = {}
    for slot, pod in sorted(job.by_slot().items()):
        if slot in job.attempt.slots:
            states.setdefault(_state(pod), []).append(pod.name)
    pods = "; ".join(f"{state}: {text.in_a_row(names)}" for state, names in states.items())
    last = "; ".join(
        f"{failure.pod} said last: {text.last_words(failure.message)}"
        for failure in job.status.failures[-1:]
        if failure.message and known.at is not None and failure.at.sequence > known.at.sequence
    )
    stood = f"no step for {limit} s since {since.clock}, at {known.words}" if since is not None else ""
    return text.ends("; ".join(filter(None, (stood, pods, last))))


def _state(pod: PodView) -> str:
    if not alive(pod):
        return "being deleted" if pod.deleting else pod.phase
    why = f" ({pod.reason})" if pod.reason else ""
    again = f", restarted {text.counted(pod.restarts, 'time')}" if pod.restarts else ""
    return f"{pod.phase}{why}{again}"
