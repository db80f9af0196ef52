"""The HTTPS port to which training programs report: who asks, whether it is believed, and when it is recorded.

Every replica of the watcher answers and records, with the lease or without it: a program reports over a new connection
each time, which may reach any of them, and a fact needs no lease.
"""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

import msgspec
import structlog
from aiohttp import web

from services.watcher.core import progress
from shared.cluster import Cluster
from shared.cluster.kinds import TOKENREVIEWS
from shared.cluster.verdicts import Verdicts
from shared.errors import Refused, Trouble
from shared.flow import Shares
from shared.frameworks.pods import AUDIENCE, key_at
from shared.job.events.event import At
from shared.job.events.watcher import CheckpointTaken, ProgressReported
from shared.job.naming import JobKey, Uid
from shared.job.state import Job
from shared.job.training import is_urgent
from shared.process.bounds import Budget
from shared.process.serving import Certificate, listening
from shared.runtime.run import Runtime

HTTPS = Budget(
    port="progress",
    reached_by="pods of jobs, which send their service account's token for this port",
    connections=80,
    strangers=80,
    of_one=16,
    of_network=64,
    patience=1.0,
    head_bytes=2**14,
    body_bytes=progress.MOST_BYTES,
)
"""No client is ever known: after one report its connection ends, and until then it makes room for others."""

SHORTEST_SECONDS = 1.0
"""Seconds between two events of one job, however urgent: the first step after a change, the last one."""

BACKWARDS_SECONDS = 10.0
"""Steps go backwards for so long before that is told: two reports may overtake each other on their way."""

OF_A_POD, IN_A_ROW = 1.0, 10
"""Reports of a pod a second, and at once after a pause; those beyond are refused before they are read."""

BELIEVED_SECONDS = 60.0
"""Seconds for which the API server's word about a token counts."""

MOST_TOKENS = 20_000

REVIEWS_AT_ONCE = 16
"""Tokens that the API server is asked about at once; namespaces share them."""

READ_SECONDS = 10.0
"""The most seconds in which a program sends its report."""

CODES = {"NotFound": 404, "Unauthorized": 401, "NotOfThisJob": 403, "Over": 409, "StepBackwards": 409}
CODES |= {"TooMany": 429, "LogFull": 503, "Unavailable": 503}
"""The HTTP status of a refusal; that of any other one is 422."""

log = structlog.get_logger()


class Tokens:
    """Whose token it is, as the API server says."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._known = Verdicts[Uid | None](BELIEVED_SECONDS, MOST_TOKENS, asyncio.get_running_loop().time)
        self._asking = Shares(REVIEWS_AT_ONCE)

    async def pod(self, token: str, namespace: str) -> Uid | None:
        """The pod in this namespace that the token was made for; None for any other token.  Raises `Trouble`."""
        return await self._known.of((namespace, token), partial(self._ask, token, namespace))

    async def _ask(self, token: str, namespace: str) -> Uid | None:
        if not self._asking.take(namespace):
            raise Refused("too many tokens are being checked", reason="TooMany")
        try:
            review = {
                "apiVersion": TOKENREVIEWS.api_version,
                "kind": TOKENREVIEWS.kind,
                "spec": {"token": token, "audiences": [AUDIENCE]},
            }
            verdict = (await self._cluster.create(TOKENREVIEWS, "", review)).status
        finally:
            self._asking.give(namespace)
        if not verdict.authenticated or AUDIENCE not in verdict.audiences:
            return None
        of_namespace = verdict.user.username.startswith(f"system:serviceaccount:{namespace}:")
        pods = verdict.user.extra.get("authentication.kubernetes.io/pod-uid", ())
        return Uid(pods[0]) if of_namespace and pods else None


class _Waiting(NamedTuple):
    """The newest report of a job that is not recorded yet."""

    report: progress.Report
    since: float


class Reports:
    """The reports of all jobs on their way into the log, at a bounded rate for each job."""

    def __init__(
        self, runtime: Runtime, interval: float, full: Callable[[str], bool], now: Callable[[], float | None]
    ) -> None:
        """`interval` is in seconds; `full` is true of a namespace of which nothing more may be recorded.

        `now` is the log server's clock.
        """
        self._runtime = runtime
        self._interval = interval
        self._full = full
        self._now = now
        self._waiting: dict[JobKey, _Waiting] = {}
        self._last: dict[JobKey, float] = {}
        """When the last event of a job was begun to be recorded."""
        self._backwards: dict[JobKey, tuple[At | None, float]] = {}
        """Since when a job's steps go backwards, and its newest report then."""
        self._due: dict[JobKey, asyncio.TimerHandle] = {}
        self._recording: dict[JobKey, asyncio.Task[None]] = {}

    def take(self, key: JobKey, pod: Uid, body: bytes) -> None:
        """Take a report of a job's pod.  Raises `Refused` if it is not believed, or cannot be recorded."""
        report, job = progress.read(body, pod), self.job(key)
        if self._full(key.namespace):
            raise Refused("the log has no room for progress", reason="LogFull")
        if not (found := progress.events(job, report)):
            return
        report = report._replace(said=msgspec.structs.replace(report.said, attempt=job.pods.views[pod].attempt))
        before, now = self._waiting.get(key), asyncio.get_running_loop().time()
        if isinstance(told := found[-1], ProgressReported) and told.backwards:
            at, since = self._backwards.get(key, (None, now))
            if at != job.training.at:
                # Its training went on meanwhile, as this or another replica heard.
                since = now
            self._backwards[key] = job.training.at, since
            if now - since >= BACKWARDS_SECONDS and before is None:
                self._waiting[key] = _Waiting(report, now)
                self._plan(key, job)
            raise progress.goes_backwards(job, report.said)
        report = report if before is None else report.after(before.report)
        self._waiting[key] = _Waiting(report, now)
        self._plan(key, job)

    def flush(self, key: JobKey) -> None:
        """Record now what waits: the pod that said it has ended."""
        if key in self._waiting:
            self._begin(key)

    def job(self, key: JobKey) -> Job:
        """The job.  Raises `Refused` if there is none."""
        history = self._runtime.histories.get(key)
        if history is None or not history.sequence:
            raise Refused("there is no such job", reason="NotFound")
        return history.job

    def _plan(self, key: JobKey, job: Job) -> None:
        loop, waiting = asyncio.get_running_loop(), self._waiting[key]
        seconds = SHORTEST_SECONDS if is_urgent(job.training, waiting.report.said) else interval_of(job, self._interval)
        due = max(self._last.get(key, 0.0), self._recorded(job)) + seconds
        if due <= loop.time():
            self._begin(key)
            return
        if key in self._due:
            self._due[key].cancel()
        self._due[key] = loop.call_at(due, self._when_due, key)

    def _recorded(self, job: Job) -> float:
        """When a replica recorded the newest report: programs report to all of them, which share one rate."""
        at, now = job.training.at, self._now()
        if at is None or not at.logged or now is None:
            return 0.0
        return asyncio.get_running_loop().time() - max(now - datetime.fromisoformat(at.logged).timestamp(), 0.0)

    def _when_due(self, key: JobKey) -> None:
        del self._due[key]
        self._plan_again(key)

    def _plan_again(self, key: JobKey) -> None:
        """Another replica may have recorded a report since; a job that is gone gets none."""
        history = self._runtime.histories.get(key)
        if history is None:
            self._waiting.pop(key, None)
        elif key in self._waiting:
            self._plan(key, history.job)

    def _begin(self, key: JobKey) -> None:
        if key not in self._recording:
            self._recording[key] = task = asyncio.create_task(self._record(key))
            task.add_done_callback(lambda done: self._ended(key, done))

    def _ended(self, key: JobKey, done: asyncio.Task[None]) -> None:
        del self._recording[key]
        if done.cancelled():
            return
        if (error := done.exception()) is not None:
            log.error("progress not recorded", job=str(key), exc_info=error)
        else:
            self._plan_again(key)

    async def _record(self, key: JobKey) -> None:
        waiting, now = self._waiting.pop(key, None), asyncio.get_running_loop().time()
        history = self._runtime.histories.get(key)
        if waiting is None or history is None:
            # The job is gone.
            return
        self._last[key] = now
        said = msgspec.structs.replace(waiting.report.said, waited=int(now - waiting.since))

        def still(kind: type[progress.Said]) -> progress.Said | None:
            if history.held or history.sealed:
                return None
            if self._recorded(history.job) > now:
                # Another replica was faster: this one may be the next.
                self._waiting.setdefault(key, waiting)
                return None
            return progress.still(history.job, waiting.report._replace(said=said), kind)

        for kind in (CheckpointTaken, ProgressReported):
            if (event := still(kind)) is not None:
                await self._runtime.appends.append_until_stored(history, event, partial(still, kind))

    def close(self) -> None:
        """Record nothing more: a closed log refuses for ever, and a task that asks it again keeps the whole fold."""
        for due in self._due.values():
            due.cancel()
        for task in self._recording.values():
            task.cancel()

    def forget(self, key: JobKey) -> None:
        self._last.pop(key, None)
        self._waiting.pop(key, None)
        self._backwards.pop(key, None)


def interval_of(job: Job, interval: float) -> float:
    """Seconds between two events of a job: after one that waited so long, the next one comes before a stall is told."""
    limit = job.spec.stall_timeout_seconds if job.spec is not None else None
    return interval if limit is None else min(interval, limit / 3)


class ProgressPort:
    def __init__(self, reports: Reports, tokens: Tokens, answered: Callable[[int], None]) -> None:
        """`answered` is told of each answer's HTTP status."""
        self._reports = reports
        self._tokens = tokens
        self._answered = answered
        self._rates: dict[Uid, tuple[float, float]] = {}
        """By pod, how many reports it may send at once, and when that was so."""

    def serving(self, certificate: Certificate) -> AbstractAsyncContextManager[int]:
        """Serve while the context lasts, as `listening` does."""
        return listening(self._handle, HTTPS, certificate)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            await self._take(request)
            response = web.Response(body=b"{}", content_type="application/json")
        except Refused as refusal:
            response = _failed(CODES.get(refusal.reason, 422), refusal.reason, str(refusal))
        except Trouble as trouble:
            response = _failed(503, "Unavailable", str(trouble))
        except TimeoutError:
            response = _failed(408, "Timeout", f"a report has to arrive within {READ_SECONDS:.0f} s")
        except web.HTTPRequestEntityTooLarge:
            response = _failed(413, "TooLarge", f"a report has at most {progress.MOST_BYTES} bytes")
        self._answered(response.status)
        return response

    async def _take(self, request: web.BaseRequest) -> None:
        key = key_at(request.path)
        if key is None or request.method != "POST":
            raise Refused("post reports to the URL in KUBEFLOW_TRAINER_SERVER_URL", reason="NotFound")
        kind, _, token = request.headers.get("Authorization", "").partition(" ")
        if kind.lower() != "bearer" or not token:
            raise Refused("send the token in KUBEFLOW_TRAINER_SERVER_TOKEN", reason="Unauthorized")
        # First: who knows no job's uid asks the API server about no token.
        self._reports.job(key)
        pod = await self._tokens.pod(token.strip(), key.namespace)
        if pod is None:
            raise Refused("the token is of no pod in this namespace, or not for this port", reason="Unauthorized")
        if not self._may_report(pod):
            raise Refused("report less often; no more than one report a second counts", reason="TooMany")
        async with asyncio.timeout(READ_SECONDS):
            body = await request.read()
        self._reports.take(key, pod, body)

    def _may_report(self, pod: Uid) -> bool:
        now = asyncio.get_running_loop().time()
        left, since = self._rates.get(pod, (float(IN_A_ROW), now))
        left = min(left + (now - since) * OF_A_POD, float(IN_A_ROW))
        if len(self._rates) > MOST_TOKENS:
            self._rates.clear()
        self._rates[pod] = max(left - 1, 0.0), now
        return left >= 1


def _failed(code: int, reason: str, message: str) -> web.Response:
    status: dict[str, Any] = {"apiVersion": "v1", "kind": "Status", "status": "Failure"}
    body = msgspec.json.encode({**status, "code": code, "reason": reason, "message": message})
    return web.Response(body=body, status=code, content_type="application/json")
