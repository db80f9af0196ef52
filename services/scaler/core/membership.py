"""Decides the members, the workers in the hosts files, and renders these.  Pure.

The first members are all workers, as soon as all are Ready.  A member leaves when its pod is released, ends, is
deleted, vanishes or is disrupted; one whose node stays for a while leaves when its replacement is Ready.  A pod that is
not Ready for a while stays a member.  Losses bypass the scale queue.

A disrupted worker is drained and released before its eviction or the removal of its node.  The scheduler replaces it
before that where there is time for it, else after its release.
"""

from collections.abc import Iterable, Iterator, Sequence

from services.scaler.core import Policy
from services.scaler.core.effects import DeleteHosts, LinkHosts, NudgeLauncher, WriteHosts
from shared.frameworks.framework import Framework, metadata
from shared.frameworks.schemas import Document
from shared.job import causes, reasons
from shared.job.attempt import Members, Unknown
from shared.job.events.event import Cause
from shared.job.events.scaler import HostsPublished, WorkersReleased
from shared.job.naming import HOSTS_VERSION, JobKey, Slot, Uid, WorkerName, config_name
from shared.job.policies import capacity, nodes, replacement
from shared.job.sorted_set import SortedSet
from shared.job.spec import LAUNCHER, JobSpec
from shared.job.state import Job
from shared.job.steps import Record, Step
from shared.job.timers import DISRUPTION_DRAIN, passed
from shared.job.views import PodView, alive, ranges, spans


def disrupted_released(job: Job) -> list[Step]:
    """Release the disrupted workers that the launcher no longer uses; nothing while they drain."""
    if job.between_attempts or job.spec is None or not job.spec.handling.elastic:
        # A job that needs every worker to the end keeps each until the kubelet stops it.
        return []
    # The open request releases the workers that it adds or removes.
    others = job.scaling.arriving | job.outgoing
    free = [slot for slot in disrupted(job) if slot not in others and _unused(job, slot)]
    if not free:
        return []
    because = causes.newest(of_departures(job, free), causes.of_pods(job, free))
    reason = reasons.LAUNCHER_UNSCHEDULABLE if capacity.yields(job) else reasons.DISRUPTED
    return [Record(WorkersReleased(request=Uid(""), slots=spans(free), reason=reason), because)]


def of_departures(job: Job, slots: Iterable[Slot]) -> Iterator[Cause]:
    """Hosts files without these workers were seen in place, or their drain time passed."""
    for slot in slots:
        if (departure := job.departures.get(slot)) is not None:
            yield Cause(departure.seen)
            yield causes.timer(job, departure.seen, DISRUPTION_DRAIN)


def disrupted(job: Job) -> SortedSet[Slot]:
    """Worker slots whose pod will be evicted or lose its node, has a replacement for that, or makes room."""
    ahead = job.attempt.replaced_ahead | capacity.given_back(job)
    if not (job.pods.disrupted or ahead):
        return SortedSet()
    pods, workers = job.worker_pods(), job.attempt.workers
    doomed = [slot for slot in workers if slot.index in pods and pods[slot.index].uid in job.pods.disrupted]
    return SortedSet([*doomed, *(slot for slot in ahead if slot in workers)])


def _unused(job: Job, slot: Slot) -> bool:
    """True if the hosts files never listed the worker, or no longer do and the drain time has passed."""
    if slot.index in job.listed_workers:
        return False
    departure = job.departures.get(slot)
    if departure is None:
        return True
    return bool(departure.seen) and (not departure.drain or passed(job, departure.seen, DISRUPTION_DRAIN))


def next_steps(job: Job, policy: Policy) -> list[Step]:
    """Publish the members if they changed, write the hosts files, and nudge the launcher to load them."""
    if job.spec is None or not (job.spec.handling.elastic or job.spec.handling.hosts_files):
        return []
    wanted = next_members(job)
    steps: list[Step] = []
    anew = _unwritten(job) or _overtaken(job) or _edited(job)
    if not isinstance(wanted, Unknown) and (wanted != _published(job) or anew):
        doomed = {slot.index for slot in disrupted(job)}
        # Without hosts files no launcher learns of the drain, and one that has no node uses no worker.
        drains = job.spec.handling.hosts_files and not capacity.yields(job) and doomed & (job.listed_workers - wanted)
        drain = policy.drain_seconds if drains else 0
        steps.append(Record(publish(job, wanted, drain=drain), _because_changed(job, wanted)))
    return [*steps, *written(job)]


def _because_changed(job: Job, wanted: SortedSet[int]) -> Cause:
    """Workers became Ready, were lost or are disrupted, or their time before the end of their node is over."""
    changed = map(job.attempt.worker_slot, wanted ^ job.listed_workers)
    limits = [limit for uid in job.pods.notices for limit in nodes.may_stay(job, uid)]
    over = [causes.timer(job, at.sequence, nodes.notice_timer(seconds)) for at, seconds in limits]
    pods = causes.of_pods(job, changed)
    return causes.newest(causes.of_beginning(job), pods, over, Cause(job.hosts_edited))


def next_members(job: Job, joining: Sequence[int] = ()) -> SortedSet[int] | Unknown:
    """The indices of the members; of the open request's changes only the workers that are `joining`.

    Unknown until the first members are Ready, and while fewer are than a job with elasticity needs: replacements
    come, or the attempt ends.
    """
    if job.between_attempts:
        return Unknown()
    pods, doomed, workers = job.worker_pods(), disrupted(job), job.attempt.workers
    if not isinstance(job.membership, Members):
        if job.launcher_alone:
            # A launcher without workers reads hosts files, too.
            return SortedSet() if job.status.phase else Unknown()
        if job.spec is None or not workers:
            return Unknown()
        # Without elasticity the launcher starts with the job's full size: the first members include every replacement.
        if job.elasticity is None and (doomed or replacement.replaceable(job)):
            return Unknown()
        here = SortedSet(slot for slot in workers - doomed if ready(pods.get(slot.index)))
        return SortedSet(slot.index for slot in here) if here and capacity.may_start(job, here) else Unknown()
    request = job.scaling.open_request
    arriving = request.added if request is not None else SortedSet()
    known = job.listed_workers | job.leaving
    elastic = job.spec is not None and job.spec.handling.elastic
    staying = workers - nodes.away(job) if elastic else workers
    listed = [slot for slot in staying if slot.index in job.listed_workers and alive(pods.get(slot.index))]
    kept = [slot.index for slot in listed if slot not in doomed]
    in_time = nodes.in_time(job) if doomed else SortedSet[Slot]()
    announced = [slot.index for slot in listed if slot in in_time]
    others = (slot for slot in workers - doomed - nodes.silent(job) if slot.index not in known)
    come = [slot.index for slot in others if slot not in arriving and ready(pods.get(slot.index))]
    certain = len(kept) + len(announced) + len(joining)
    come = capacity.may_join(job, come, certain)
    if not capacity.is_enough(job, certain + len(come)):
        return Unknown()
    if not announced or len(kept) + len(come) >= min(job.scaling.size, len(job.listed_workers)):
        return SortedSet([*kept, *come, *joining])
    # Until there is one for each, replacements that are early wait: the launcher loads new files once.
    room = max(job.scaling.size - len(kept) - len(announced), 0)
    return SortedSet([*kept, *announced, *come[:room], *joining])


def publish(job: Job, wanted: SortedSet[int], request: Uid = Uid(""), *, drain: int = 0) -> HostsPublished:
    """The next version of the hosts files, above any version in the cluster: a lost history may have written one."""
    newest = max(job.membership.version, job.hosts.hosts if job.hosts is not None else 0)
    return HostsPublished(version=newest + 1, members=ranges(wanted), request=request, drain=drain)


def written(job: Job) -> list[Step]:
    """Write the newest version; once it is seen, nudge the launcher to load it."""
    known = job.membership
    if isinstance(known, Unknown) or not known.version or (job.spec is not None and not job.spec.handling.hosts_files):
        return []
    hosts, launcher = job.hosts, job.launcher
    if hosts is None or hosts.hosts < known.version:
        if not job.may_try("WriteHosts"):
            return []
        return [WriteHosts(known.version, tuple(job.listed_workers))]
    if launcher is None or not alive(launcher) or launcher.hosts >= hosts.hosts:
        return []
    if launcher.uid not in job.attempt.inherited or launcher.hosts:
        return [NudgeLauncher(launcher.name, launcher.uid, hosts.hosts)]
    if launcher.phase != "Running" or job.spec is None or hosts.hosts > known.version:
        return []
    return [LinkHosts(launcher.name, launcher.uid, job.spec.role(LAUNCHER).container, hosts.hosts)]


def leftover(job: Job) -> list[Step]:
    hosts = job.hosts
    return [DeleteHosts(hosts.name, hosts.uid)] if hosts is not None and hosts.ours and not job.resource.orphan else []


def _published(job: Job) -> SortedSet[int] | None:
    return job.membership.indices if isinstance(job.membership, Members) else None


def _unwritten(job: Job) -> bool:
    """True if the job was adopted, and Muster has not written its hosts files yet."""
    return job.resource.adopted and not job.membership.version


def _overtaken(job: Job) -> bool:
    """True if the cluster's hosts files are newer than this history's: a lost history wrote them."""
    return job.hosts is not None and job.hosts.hosts > job.membership.version


def _edited(job: Job) -> bool:
    """True if another client changed the newest hosts files, and the last such change is not just put right."""
    return bool(job.hosts_edited) and capacity.may_grow(job)


def ready(pod: PodView | None) -> bool:
    return pod is not None and alive(pod) and pod.ready


def hosts_config_map(
    framework: Framework, key: JobKey, spec: JobSpec, *, members: Sequence[WorkerName], version: int
) -> Document:
    """The ConfigMap of this version; the watcher reads the version from its annotation."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(framework, key, config_name(key.name)) | {"annotations": {HOSTS_VERSION: str(version)}},
        "data": framework.hosts_files(key, spec, members),
    }
