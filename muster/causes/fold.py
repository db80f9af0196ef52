"""The fold: each event of a job, with the earlier one that caused it.  Pure."""

from muster.causes import jobs, requests, waiting
from muster.causes.ledger import Ledger
from muster.causes.link import Link
from muster.causes.words import names_of, plain, scale_wish, sentence
from shared.eventlog import Stored
from shared.job.events.catalog import AUTHORS, AnyEvent
from shared.job.events.refused import EffectRefused
from shared.job.events.scaler import (
    DrainChecked,
    HostsPublished,
    ScaleAccepted,
    ScaleCancelled,
    ScaleFailed,
    ScaleRejected,
    ScaleSucceeded,
    ScriptFinished,
    ScriptStarted,
    WorkersReleased,
)
from shared.job.events.scheduler import JobExpired, JobRestarted, SlotsAssigned, SlotsReleased
from shared.job.events.setup import LogCreated
from shared.job.events.status import (
    JobCreated,
    JobFailed,
    JobRestarting,
    JobRunning,
    JobScaling,
    JobSucceeded,
    JobSuspended,
)
from shared.job.events.watcher import (
    ChildGone,
    ChildrenObserved,
    DisruptionNoticed,
    HeadForged,
    HistoryAccepted,
    HistoryBroken,
    HistoryDisputed,
    JobAdopted,
    JobDeleting,
    JobGone,
    JobObserved,
    JobOfAnother,
    LauncherLost,
    PodsGone,
    PodsObserved,
    ScaleRequested,
    ScaleRequestGone,
    TimePassed,
)
from shared.job.fold import History
from shared.job.naming import JobKey, Uid, config_name
from shared.job.request import Request
from shared.job.state import Job
from shared.job.timing import TIME_TO_LIVE
from shared.job.upcast import Malformed, UnknownEvent, read_event
from shared.job.views import each

DELETED_BY = "who deleted it is not in this log"


class Causes(Ledger):
    """One job's fold, and on the way a link for everything that may be a cause later."""

    def __init__(self, key: JobKey) -> None:
        super().__init__()
        self.history = History(key)
        self.known: dict[Uid, Request] = {}
        """Every request there ever was, as it was last: one that left before its turn is in the job no more."""

    @property
    def job(self) -> Job:
        return self.history.job

    def fold(self, stored: Stored) -> None:
        """One more event of this job, in log order."""
        before = self.job
        self.history.fold(stored)
        author, tag = stored.subject.split(".")[4:]
        try:
            event = read_event(stored.body, tag)
        except (UnknownEvent, Malformed):
            # The history is held and says why; what this event would have explained stays unknown.
            return
        if author in AUTHORS[type(event)]:
            here = Link(stored.sequence, stored.time, tag, author, "")
            self._take(event, before, self.job, here)
            jobs.note_minimum(self, before, self.job, here)
        if self.job.scaling.requests is not before.scaling.requests:
            self.known.update(self.job.scaling.requests)

    def waits_for(self) -> Link | None:
        """What the job waits for now, where the log knows."""
        return waiting.waits_for(self, self.job)

    def request_waits_for(self, request: Request) -> Link | None:
        """What a request waits for now, where the log knows."""
        return waiting.request_waits_for(self, self.job, request)

    def _take(self, event: AnyEvent, before: Job, after: Job, here: Link) -> None:
        # All pods go with the resource.
        gone_with = self.going if before.gone or before.deleting else None
        match event:
            case JobObserved():
                jobs.observed(self, event, before, after, here)
            case JobDeleting():
                self.going = here.says("somebody deleted it; it waits for a finalizer", unknown=DELETED_BY)
            case JobGone():
                cause = self.expired or self.going
                self.going = here.says("the resource is gone", cause, unknown="" if cause else DELETED_BY)
            case JobOfAnother():
                self.another = here.says("another operator began it, and may still be running")
            case JobAdopted():
                self.attempt = here.says(
                    f"the history begins here, in the middle: adopted from {event.source}", self.broken or self.another
                )
                self.pods.assigned(after.attempt.slots, self.attempt)
            case PodsObserved():
                for pod in event.pods:
                    if after.pods.get(pod.uid) == pod and before.pods.get(pod.uid) != pod:
                        self.pods.observed(pod, before, after, here, gone_with)
            case PodsGone():
                for uid in event.uids:
                    if known := before.pods.get(uid):
                        self.pods.gone(known, before, after, here, gone_with)
            case LauncherLost():
                if known := before.pods.get(event.uid):
                    self.pods.gone(known, before, after, here, gone_with)
            case DisruptionNoticed():
                named = [before.pods[uid] for uid in event.uids if uid in before.pods]
                node = f"node {event.node} is about to go" if event.node else "some pods are about to go"
                on_it = f"; it takes {', '.join(sorted(pod.name for pod in named))} along" if named else ""
                link = here.says(f"{node}: {plain(event.reason)}{on_it}")
                for pod in named:
                    self.pods.disrupted(pod, link)
            case ChildrenObserved():
                for child in event.children:
                    if child.name == config_name(before.key.name) and child.hosts and child.ours:
                        requests.files_in_place(self, child.hosts, before, here)
            case ScaleRequested():
                if event.uid not in before.scaling.requests:
                    self.asks(event.uid, here.says(scale_wish(event)))
            case ScaleRequestGone():
                said = "the request went to its job" if event.reason == "Bound" else "somebody deleted the request"
                self.add(event.uid, here.says(said))
            case TimePassed():
                waiting.passed(self, event, before, here)
            case EffectRefused():
                refusal = after.refusals.get(event.effect)
                times = f", {refusal.count} times in a row" if refusal and refusal.count > 1 else ""
                where = f" ({event.field})" if event.field else ""
                good = ", and would be again unless something changes" if event.permanent else ""
                self.refusals[event.effect] = self.at[here.sequence] = here.says(
                    f"{event.effect} was refused: {plain(event.reason)}{where}{good}{times}"
                )
            case ScriptStarted():
                self.add(event.request, here.says("the script of the request was started", self.last(event)))
            case ScriptFinished():
                how = f"with exit code {event.exit_code}" if event.exit_code is not None else "nobody knows how"
                reason = sentence(plain(event.reason))
                unknown = "why it ended so; its own output may say" if event.exit_code else ""
                self.add(
                    event.request, here.says(f"the script ended, {how}{reason}", self.last(event), unknown=unknown)
                )
            case DrainChecked():
                used = f"workers {', '.join(map(str, event.in_use))} are still in use" if event.in_use else ""
                said = used or plain(event.reason) or "the leaving workers are no longer in use"
                self.add(event.request, here.says(said, self.last(event)))
            case HistoryBroken():
                self.broken = here.says(f"the log does not lead to the head in the resource: {plain(event.reason)}")
            case HistoryDisputed():
                self.broken = here.says(f"the resource shows the head {event.theirs}, log and checkpoint {event.ours}")
            case HistoryAccepted():
                self.broken = here.says("a person accepted that the log goes on without that head", self.broken)
            case SlotsAssigned():
                jobs.assigned(self, event, before, here)
            case SlotsReleased():
                link = self.decided(here, f"{names_of(before, each(event.slots))} released", self.phase, event.reason)
                self.pods.released(each(event.slots), link)
            case JobRestarted():
                jobs.restarted(self, event, before, after, here)
            case JobExpired():
                ended = before.ended.sequence if before.ended else 0
                timer = self.timers.get((ended, TIME_TO_LIVE))
                self.expired = self.decided(here, "it is deleted", timer or self.phase, event.reason)
            case HostsPublished():
                requests.published(self, event, before, after, here)
            case ScaleAccepted():
                requests.accepted(self, event, before, here)
            case WorkersReleased():
                requests.let_go(self, event, before, here)
            case ScaleRejected() | ScaleSucceeded() | ScaleFailed() | ScaleCancelled():
                requests.over(self, event, before, after, here)
            case (
                JobCreated()
                | JobRunning()
                | JobScaling()
                | JobRestarting()
                | JobSuspended()
                | JobSucceeded()
                | JobFailed()
            ):
                jobs.entered(self, event, before, here)
            case LogCreated() | ChildGone() | HeadForged():
                # They change nothing that somebody would ask the reason of.
                pass
