"""Membership: the workers in the hosts files.  Pure.

The first members are all workers, from the moment that all are Ready.  A member leaves when it is released, ends,
is deleted, vanishes, or is about to go with its node; not being Ready for a while does not remove it.  Losses never
wait for the scale queue.
"""

from services.scaler.effects import DeleteHosts, LinkHosts, NudgeLauncher, WriteHosts
from services.scaler.policy import Policy
from shared.job import replacement
from shared.job.events.scaler import HostsPublished
from shared.job.naming import Slot, Uid
from shared.job.spec import LAUNCHER, WORKER
from shared.job.state import Job
from shared.job.steps import Record, Step
from shared.job.views import PodView, alive, ranges


def owed(job: Job, policy: Policy) -> list[Step]:
    """A new list of members when they changed; the files written, and the launcher nudged to load them."""
    if job.spec is None or not (job.spec.handling.elastic or job.spec.handling.hosts_files):
        return []
    wanted = members(job)
    steps: list[Step] = []
    if wanted is not None and (wanted != job.members or not job.listed or _unwritten(job) or _overtaken(job)):
        doomed = {slot.index for slot in disrupted(job)}
        # Where nobody reads who the members are, nobody lets go of one before it goes.
        told = job.spec.handling.hosts_files and doomed & job.members - wanted
        drain = policy.drain_seconds if told else 0
        steps.append(Record(publish(job, wanted, drain=drain)))
    return [*steps, *written(job)]


def members(job: Job) -> frozenset[int] | None:
    """Who is a member now, before any scale request has its say; None while nobody can be yet."""
    if job.between_attempts:
        return None
    pods, doomed = job.by_slot(), disrupted(job)
    if not job.listed:
        workers = job.workers
        if job.launcher_alone:
            # It reads hosts files all the same.
            return frozenset() if job.phase else None
        # The launcher begins with as many as the job shall have: a place that is filled again is waited for.
        if not workers or doomed or replacement.owed(job) or any(not ready(pods.get(slot)) for slot in workers):
            return None
        return frozenset(slot.index for slot in workers)
    request = job.open_request
    arriving = request.added if request is not None else frozenset()
    staying = job.slots - doomed
    kept = {index for index in job.members if (slot := _slot(job, index)) in staying and alive(pods.get(slot))}
    come = {
        slot.index
        for slot in job.workers - doomed
        if slot.index not in job.members | job.leaving and slot not in arriving and ready(pods.get(slot))
    }
    return frozenset(kept | come)


def disrupted(job: Job) -> frozenset[Slot]:
    """Worker slots whose pod is about to go with its node, or evicted."""
    if not job.disrupted:
        return frozenset()
    pods = job.by_slot()
    return frozenset(slot for slot in job.workers if (pod := pods.get(slot)) is not None and pod.uid in job.disrupted)


def publish(job: Job, wanted: frozenset[int], request: Uid = Uid(""), *, drain: int = 0) -> HostsPublished:
    """The next version of the hosts files; higher than one from a history that was lost."""
    newest = max(job.hosts_version, job.hosts.hosts if job.hosts is not None else 0)
    return HostsPublished(version=newest + 1, members=ranges(wanted), request=request, drain=drain)


def written(job: Job) -> list[Step]:
    """The files of the newest version, and a nudge once they are seen."""
    if not job.hosts_version or (job.spec is not None and not job.spec.handling.hosts_files):
        return []
    hosts, launcher = job.hosts, job.launcher
    if hosts is None or hosts.hosts < job.hosts_version:
        if not job.may_try("WriteHosts"):
            return []
        return [WriteHosts(job.hosts_version, tuple(sorted(job.members)))]
    if launcher is None or not alive(launcher) or launcher.hosts >= hosts.hosts:
        return []
    if launcher.uid not in job.inherited or launcher.hosts:
        return [NudgeLauncher(launcher.name, launcher.uid, hosts.hosts)]
    if launcher.phase != "Running" or job.spec is None or hosts.hosts > job.hosts_version:
        return []
    return [LinkHosts(launcher.name, launcher.uid, job.spec.role(LAUNCHER).container, hosts.hosts)]


def leftover(job: Job) -> list[Step]:
    """The hosts ConfigMap of a job that is gone."""
    hosts = job.hosts
    return [DeleteHosts(hosts.name, hosts.uid)] if hosts is not None and hosts.ours and not job.orphan else []


def _unwritten(job: Job) -> bool:
    """The members are those of the operator before us, whose files nobody has written anew yet."""
    return job.adopted and not job.hosts_version


def _overtaken(job: Job) -> bool:
    """The files in the cluster are of a history that was lost: newer than ours, whatever is in them."""
    return job.hosts is not None and job.hosts.hosts > job.hosts_version


def _slot(job: Job, index: int) -> Slot:
    return Slot(job.attempt, WORKER, index)


def ready(pod: PodView | None) -> bool:
    """The pod is Ready, and nobody asked it to go."""
    return pod is not None and alive(pod) and pod.ready
