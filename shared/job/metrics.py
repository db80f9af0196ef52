"""Metrics of jobs, pods and scalings, counted while the log is folded.  Pure.

Every fold of the same log has the same values, after a restart too.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import cache

from shared.job.events import scaler, status, watcher
from shared.job.events.catalog import AUTHORS, FACTS, AnyEvent
from shared.job.events.event import EffectRefused
from shared.job.ledger import Standings
from shared.job.naming import NO_UID, JobKey, Uid
from shared.job.spec import is_device
from shared.job.state import Job
from shared.telemetry.metrics import OTHER, BoundedLabel, Count, Histogram, Labels, Metric, Series, seconds_between

PLACE = ("job_namespace", "kind")
"""Not `namespace`: Prometheus adds that label for the scraped pod."""

WAITS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)
"""Bucket bounds in seconds: from pods that start at once to images pulled onto new nodes."""

JOBS = Metric("muster_jobs", "gauge", (*PLACE, "phase"), "Jobs that are there, by phase")
CREATED = Metric("muster_jobs_created_total", "counter", PLACE, "Jobs that were taken on")
DELETED = Metric("muster_jobs_deleted_total", "counter", PLACE, "Jobs whose resource is gone")
SUCCESSFUL = Metric("muster_jobs_successful_total", "counter", PLACE, "Jobs that succeeded")
FAILED = Metric("muster_jobs_failed_total", "counter", PLACE, "Jobs that failed")
RESTARTED = Metric("muster_jobs_restarted_total", "counter", PLACE, "Attempts that were given up for another one")
START = Metric(
    "muster_job_start_duration_seconds",
    "histogram",
    ("kind",),
    "From the first sight of a job that can run to its first JobRunning; jobs paused or taken over before are left out",
    WAITS,
)
PODS_CREATED = Metric("muster_pods_created_total", "counter", PLACE, "Pods of jobs that came")
PODS_DELETED = Metric("muster_pods_deleted_total", "counter", PLACE, "Pods of jobs that went")
PODS_FAILED = Metric("muster_pods_failed_total", "counter", PLACE, "Pods of jobs that failed")
SCALES = Metric(
    "muster_scale_requests_total",
    "counter",
    (*PLACE, "direction", "outcome"),
    "Scale requests that ended, edits of the size among them",
)
SCALE = Metric(
    "muster_scale_duration_seconds",
    "histogram",
    ("direction", "outcome"),
    "From the acceptance of a scale request to its end",
    WAITS,
)
REFUSED = Metric(
    "muster_effects_refused_total",
    "counter",
    ("effect", "reason"),
    "Rounds of effects that were refused and recorded as EffectRefused",
)
DECISIONS = Metric("muster_decisions_total", "counter", ("decision", "reason"), "Decisions of all services")
PLACES = Metric(
    "muster_places", "gauge", (*PLACE, "bucket"), "Places of jobs by what they do at this moment, as in `muster report`"
)
DEVICES = Metric(
    "muster_devices",
    "gauge",
    (*PLACE, "bucket", "resource"),
    "Devices, such as `nvidia.com/gpu`, that these request; others are `Other`",
)
MOST_PLACES = 500
"""About so many places are counted at a time, in about 10 ms; the jobs that are left have their turn next."""

Scaled = scaler.ScaleRejected | scaler.ScaleSucceeded | scaler.ScaleFailed | scaler.ScaleCancelled
"""How a request ends."""

DECISION_NAMES = {kind: str(kind.__struct_config__.tag) for kind in AUTHORS if kind not in FACTS}


class JobMetrics:
    def __init__(self, *, names: bool = False, devices: Iterable[str] = ()) -> None:
        """With `names` they tell namespaces apart.  All but these `devices` are told as one."""
        self._names = names
        self._jobs = Count(JOBS)
        self._created, self._deleted = Count(CREATED), Count(DELETED)
        self._successful, self._failed = Count(SUCCESSFUL), Count(FAILED)
        self._restarted = Count(RESTARTED)
        self._start = Histogram(START)
        self._pods_created, self._pods_deleted = Count(PODS_CREATED), Count(PODS_DELETED)
        self._pods_failed = Count(PODS_FAILED)
        self._scales, self._scale = Count(SCALES), Histogram(SCALE)
        self._refused, self._decisions = Count(REFUSED), Count(DECISIONS)
        self._places, self._devices = Count(PLACES), Count(DEVICES)
        self.series: tuple[Series, ...] = tuple(each for each in vars(self).values() if isinstance(each, Series))
        """Every metric above."""
        self._words = BoundedLabel()
        self._device_names = frozenset(devices)
        self._changed: dict[JobKey, Job] = {}
        """Jobs whose places are not counted as they are now, those that wait longest first."""
        self._standings = defaultdict[JobKey, Standings](Standings)
        self._counted: dict[JobKey, tuple[Counter[Labels], Counter[Labels]]] = {}
        """What the figures of places and of devices have of each job."""
        self._first_seen: dict[JobKey, str] = {}
        """The times at which jobs were first seen that have not run yet."""
        self._accepted: dict[tuple[JobKey, Uid], str] = {}
        """The times at which the open requests were accepted."""

    def folded(self, before: Job, event: AnyEvent, after: Job, time: str) -> None:
        """Count an event, recorded at `time`, that changed the job from `before` to `after`."""
        self._changed[after.key] = after
        self._standings[after.key].note(before, event)
        if after.resource.gone:
            # A process of which nobody asks for figures must not keep it.
            self._count(after)
        match event:
            case watcher.PodsObserved():
                self._pods_seen(before, event, after)
            case watcher.PodsGone() | watcher.LauncherLost():
                if went := len(before.pods.views) - len(after.pods.views):
                    self._pods_deleted.add(*self._labels(after), by=went)
            case watcher.JobObserved():
                self._observed(before, after, time)
            case watcher.JobGone():
                self._gone(before, after)
            case watcher.JobAdopted() | status.JobSuspending() | status.JobSuspended():
                self._first_seen.pop(after.key, None)
            case status.JobCreated() if not before.status.phase:
                self._created.add(*self._labels(after))
            case status.JobRunning():
                seen = self._first_seen.pop(after.key, None)
                if seen is not None and (took := seconds_between(seen, time)) is not None:
                    self._start.observe(took, self._labels(after)[1])
            case status.JobRestarting():
                self._restarted.add(*self._labels(after))
            case status.JobSucceeded() if not before.over:
                self._successful.add(*self._labels(after))
            case status.JobFailed() if not before.over:
                self._failed.add(*self._labels(after))
            case scaler.ScaleAccepted(request=request):
                self._accepted[after.key, request] = time
            case scaler.ScaleRejected() | scaler.ScaleSucceeded() | scaler.ScaleFailed() | scaler.ScaleCancelled():
                self._scaled(before, event, after, time)
            case EffectRefused(effect=effect, reason=reason):
                self._refused.add(effect, self._words.bounded(reason))
        if after.over:
            self._first_seen.pop(after.key, None)
        self._stands(before, after)
        if (decision := DECISION_NAMES.get(type(event))) is not None:
            self._decisions.add(decision, self._words.bounded(getattr(event, "reason", "")))

    def count_places(self) -> None:
        """Count the places of jobs that changed: for each event it would take longer than the fold."""
        left = MOST_PLACES
        while self._changed and left > 0:
            left -= 1 + self._count(next(iter(self._changed.values())))

    def _count(self, job: Job) -> int:
        """Put a job's places, and their devices, in the place of those that were counted of it; return their number."""
        del self._changed[job.key]
        held = Counter((place.role, each.bucket) for place, each in self._standings[job.key].of(job).items())
        requests = {role.name: role.requests for role in job.spec.roles} if job.spec is not None else {}
        places, devices, of = Counter[Labels](), Counter[Labels](), self._labels(job)
        for (role, bucket), number in held.items():
            places[*of, bucket] += number
            for name, amount in requests.get(role, ()):
                if is_device(name):
                    devices[*of, bucket, name if name in self._device_names else OTHER] += number * round(amount)
        before = self._counted.pop(job.key, (Counter[Labels](), Counter[Labels]()))
        for figure, now, then in zip((self._places, self._devices), (places, devices), before, strict=True):
            for labels in now | then:
                figure.add(*labels, by=now[labels] - then[labels])
        if job.resource.gone and not places:
            del self._standings[job.key]
        elif places:
            self._counted[job.key] = places, devices
        return places.total()

    def _observed(self, before: Job, after: Job, time: str) -> None:
        if not before.resource.kind:
            labels = self._labels(after)
            # An alert on the first failure needs a series that was 0 before.
            for count in (self._created, self._deleted, self._successful, self._failed, self._restarted):
                count.add(*labels, by=0)
            for count in (self._pods_created, self._pods_deleted, self._pods_failed):
                count.add(*labels, by=0)
        if before.spec is None and after.spec is not None and not after.status.phase:
            self._first_seen[after.key] = time

    def _gone(self, before: Job, after: Job) -> None:
        if before.resource.kind and not before.resource.gone:
            self._deleted.add(*self._labels(after))
        self._first_seen.pop(after.key, None)
        for uid in after.scaling.requests:
            self._accepted.pop((after.key, uid), None)

    def _stands(self, before: Job, after: Job) -> None:
        if (
            before.status.phase == after.status.phase
            and before.resource.gone == after.resource.gone
            and before.resource.kind == after.resource.kind
        ):
            return
        was, now = self._standing(before), self._standing(after)
        if was != now:
            if was is not None:
                self._jobs.add(*was, by=-1)
            if now is not None:
                self._jobs.add(*now)

    def _pods_seen(self, before: Job, event: watcher.PodsObserved, after: Job) -> None:
        for view in event.pods:
            known, now = before.pods.views.get(view.uid), after.pods.views.get(view.uid)
            if now is None or now is known:
                continue
            if known is None:
                self._pods_created.add(*self._labels(after))
            if now.phase == "Failed" and (known is None or known.phase != "Failed"):
                self._pods_failed.add(*self._labels(after))

    def _scaled(self, before: Job, event: Scaled, after: Job, time: str) -> None:
        request = before.scaling.requests.get(event.request)
        accepted = self._accepted.pop((after.key, event.request), None)
        if request is None or request.over:
            return
        direction, outcome = request.kind.removeprefix("Scale"), type(event).__name__.removeprefix("Scale")
        self._scales.add(*self._labels(after), direction, outcome)
        if accepted is not None and (took := seconds_between(accepted, time)) is not None:
            self._scale.observe(took, direction, outcome)

    def _labels(self, job: Job) -> tuple[str, str]:
        return job.key.namespace if self._names else "", _kind(job.resource.kind, job.resource.api_version)

    def _standing(self, job: Job) -> tuple[str, str, str] | None:
        """The labels under which a job is counted; None if it is gone or was never seen."""
        if job.resource.gone or not job.resource.kind or job.key.uid == NO_UID:
            return None
        return (*self._labels(job), job.status.phase or "Pending")


@cache
def _kind(kind: str, api_version: str) -> str:
    """The kind as `MUSTER_KINDS` names it: more than one group has an MXJob."""
    return f"{kind}.{api_version.partition('/')[0]}" if kind else ""
