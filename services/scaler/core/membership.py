"""Membership: the workers in the hosts files.  Pure.

The first members are all workers, from the moment that all are Ready.  A member leaves when it is released, ends,
is deleted, vanishes, or is about to go with its node; not being Ready for a while does not remove it.  Losses never
wait for the scale queue.
"""

from services.scaler.core.effects import DeleteHosts, LinkHosts, NudgeLauncher, WriteHosts
from services.scaler.core.policy import Policy
from shared.job.events.scaler import HostsPublished
from shared.job.membership import Members, Unknown
from shared.job.naming import Slot, Uid
from shared.job.policies import replacement
from shared.job.sorted_set import SortedSet
from shared.job.spec import LAUNCHER
from shared.job.state import Job
from shared.job.steps import Record, Step
from shared.job.views import PodView, alive, ranges


def owed(job: Job, policy: Policy) -> list[Step]:
    """A new list of members when they changed; the files written, and the launcher nudged to load them."""
    if job.spec is None or not (job.spec.handling.elastic or job.spec.handling.hosts_files):
        return []
    wanted = next_members(job)
    steps: list[Step] = []
    if not isinstance(wanted, Unknown) and (wanted != _published(job) or _unwritten(job) or _overtaken(job)):
        doomed = {slot.index for slot in disrupted(job)}
        # Workers get no time to drain where no launcher reads the hosts files.
        told = job.spec.handling.hosts_files and doomed & (job.listed_workers - wanted)
        drain = policy.drain_seconds if told else 0
        steps.append(Record(publish(job, wanted, drain=drain)))
    return [*steps, *written(job)]


def next_members(job: Job) -> SortedSet[int] | Unknown:
    """The indices of the members now, before a scale request changes them; Unknown while no worker can be one yet."""
    if job.between_attempts:
        return Unknown()
    pods, doomed = job.by_slot(), disrupted(job)
    if not isinstance(job.membership, Members):
        workers = job.attempt.workers
        if job.launcher_alone:
            # It reads hosts files all the same.
            return SortedSet() if job.phase else Unknown()
        # The launcher begins with as many as the job shall have: a place that is filled again is waited for.
        if not workers or doomed or replacement.owed(job) or any(not ready(pods.get(slot)) for slot in workers):
            return Unknown()
        return SortedSet(slot.index for slot in workers)
    request = job.scaling.open_request
    arriving = request.added if request is not None else SortedSet()
    staying, slot_of = job.attempt.slots - doomed, job.attempt.worker_slot
    kept = [index for index in job.listed_workers if slot_of(index) in staying and alive(pods.get(slot_of(index)))]
    come = [
        slot.index
        for slot in job.attempt.workers - doomed
        if slot.index not in job.listed_workers | job.leaving and slot not in arriving and ready(pods.get(slot))
    ]
    return SortedSet([*kept, *come])


def disrupted(job: Job) -> SortedSet[Slot]:
    """Worker slots whose pod is about to go with its node, or evicted."""
    if not job.disrupted:
        return SortedSet()
    pods, workers = job.by_slot(), job.attempt.workers
    return SortedSet(slot for slot in workers if (pod := pods.get(slot)) is not None and pod.uid in job.disrupted)


def publish(job: Job, wanted: SortedSet[int], request: Uid = Uid(""), *, drain: int = 0) -> HostsPublished:
    """The next version of the hosts files; higher than one from a history that was lost."""
    newest = max(job.membership.version, job.hosts.hosts if job.hosts is not None else 0)
    return HostsPublished(version=newest + 1, members=ranges(wanted), request=request, drain=drain)


def written(job: Job) -> list[Step]:
    """The files of the newest version, and a nudge once they are seen."""
    if not job.membership.version or (job.spec is not None and not job.spec.handling.hosts_files):
        return []
    hosts, launcher = job.hosts, job.launcher
    if hosts is None or hosts.hosts < job.membership.version:
        if not job.may_try("WriteHosts"):
            return []
        return [WriteHosts(job.membership.version, tuple(job.listed_workers))]
    if launcher is None or not alive(launcher) or launcher.hosts >= hosts.hosts:
        return []
    if launcher.uid not in job.attempt.inherited or launcher.hosts:
        return [NudgeLauncher(launcher.name, launcher.uid, hosts.hosts)]
    if launcher.phase != "Running" or job.spec is None or hosts.hosts > job.membership.version:
        return []
    return [LinkHosts(launcher.name, launcher.uid, job.spec.role(LAUNCHER).container, hosts.hosts)]


def leftover(job: Job) -> list[Step]:
    """The hosts ConfigMap of a job that is gone."""
    hosts = job.hosts
    return [DeleteHosts(hosts.name, hosts.uid)] if hosts is not None and hosts.ours and not job.orphan else []


def _published(job: Job) -> SortedSet[int] | None:
    """The members of the newest hosts files; None before any were published."""
    return job.membership.indices if isinstance(job.membership, Members) else None


def _unwritten(job: Job) -> bool:
    """The members are those of the operator before us, whose files nobody has written anew yet."""
    return job.adopted and not job.membership.version


def _overtaken(job: Job) -> bool:
    """The files in the cluster are of a history that was lost: newer than ours, whatever is in them."""
    return job.hosts is not None and job.hosts.hosts > job.membership.version


def ready(pod: PodView | None) -> bool:
    """The pod is Ready, and nobody asked it to go."""
    return pod is not None and alive(pod) and pod.ready
