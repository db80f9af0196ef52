"""The walk: one pass over a history, which makes a link of each event, with its words and its cause.  Pure.

A decision names its cause (`because`), and of an event about several pods the slot of the one that counts.  The cause
of a fact about a pod or a request is the last event of that pod or request, that of a timer its anchor.  Actions of
people, nodes and programs have no cause in the log.
"""

from collections.abc import Callable, Iterable
from typing import assert_never

import msgspec

from shared.eventlog import Stored
from shared.eventlog.subject import split
from shared.job.events import scaler, scheduler, watcher
from shared.job.events.catalog import AUTHORS, AnyEvent, Decision, Fact, Malformed, UnknownEvent, read_event
from shared.job.events.event import At, Cause, ChangeAttributed, Decided, EffectRefused, EventDisowned, LogCreated
from shared.job.naming import JobKey, Slot, Uid
from shared.job.policies.replacement import cause_of_refill
from shared.job.spec import WORKER
from shared.job.state import Job
from shared.job.timers import DRAIN, REPLACEMENT, SCALING_DEADLINE, SCHEDULING, SCRIPT_DEADLINE
from shared.job.views import PodView, each
from shared.telling.causes import sentences
from shared.telling.causes.links import (
    OWN_OUTPUT,
    Changed,
    Link,
    Links,
    OfPeople,
    awaited,
    awaited_by,
    minimum_line,
    newest,
    slots_that_run,
)
from shared.telling.causes.sentences import over, unseen

DELETED_BY = "who deleted it is not in this log"
UNRECORDED = "what led to it is not in this log"

_OF_REQUESTS = (SCALING_DEADLINE, SCRIPT_DEADLINE, DRAIN)
NOT_ASKED = "why it went: nothing in this log asked for it; a person or another program did"


Also = Callable[[Job, AnyEvent, Job, At], None]


class Causes(Links):
    """The links of one job, made one event at a time."""

    def __init__(self, key: JobKey, also: Also = lambda *_: None) -> None:
        """`also` gets each event with an effect, between the job before it and the job after it."""
        super().__init__(key)
        self._also = also
        self._releases: dict[str, str] = {}
        """By author, the release and the settings of its newest decision."""

    @property
    def sized(self) -> Link | None:
        """The newest hosts files that were published for a request."""
        return newest(link for links in self.requests.values() for link in links if link.type == "HostsPublished")

    def fold(self, stored: Stored) -> None:
        """Fold the next event of this job, in log order."""
        before = self.job
        event = self.history.fold(stored)
        self.times[stored.sequence] = stored.time
        _, author, tag = split(stored.subject)
        if event is not None:
            self._also(before, event, self.job, At(stored.sequence, stored.time))
        else:
            try:
                event = read_event(stored.body, tag)
            except (UnknownEvent, Malformed):
                # The history is held, with a reason; causes in this event stay unknown.
                return
        if author in AUTHORS[type(event)]:
            here = Link(stored.sequence, stored.time, tag, author, "")
            if isinstance(event, Decided):
                self._decided(event, before, here)
            else:
                self._seen(event, before, here)
            self._note_minimum(before, here)
        if self.job.scaling.requests is not before.scaling.requests:
            self.known.update(self.job.scaling.requests)

    def find(self, sequence: int, slot: Slot | None = None) -> Link | None:
        """The link of an event; for an event about pods, that of the pod in the slot.

        A fact may have no news for people, such as the phase of a pod whose exit is known: then the pod's newest link.
        """
        for link in reversed(self.lives.get(slot, ()) if slot is not None else ()):
            if link.sequence == sequence or (link.sequence < sequence and link.author == "watcher"):
                return link
        return self.at.get(sequence)

    def _decided(self, event: Decision, before: Job, here: Link) -> None:
        made_by = Cause(event.because, event.slot)
        text, slots = sentences.decided(event, before, self.job)
        if event.release != self._releases.get(here.author, event.release):
            text += f" (from here on the {here.author} is {event.release})"
        self._releases[here.author] = event.release
        link = self._decision(here, text, made_by)
        if isinstance(event, scheduler.SlotsAssigned) and event.replaces:
            for slot, old in zip(sorted(each(event.slots)), sorted(each(event.replaces)), strict=False):
                again = sentences.refilled(before, slot, old, event.reason)
                made = self._keep(self._decision(here, again, cause_of_refill(before, old)), [slot])
                if slot != old:
                    self.successors[old] = slot
                    self._tell(made, [old])
        elif isinstance(event, scaler.HostsPublished) or (isinstance(event, scaler.ScaleAccepted) and event.leaving):
            # A link of these workers, but not the cause of their later links.
            self._tell(link, slots)
            self._keep(link)
        else:
            self._keep(link, slots)
        if isinstance(event, sentences.PHASES):
            self.phase = link
        self._add(getattr(event, "request", Uid("")), link)

    def _decision(self, here: Link, text: str, made_by: Cause) -> Link:
        """The link of a decision; if its cause is not in the log, the link says so."""
        found = self.find(made_by.sequence, made_by.slot) if made_by.sequence < here.sequence else None
        return here.says(text, found, unknown="" if found else UNRECORDED)

    def _seen(self, event: Fact, before: Job, here: Link) -> None:
        here = here.says(sentences.sentence(event, before, self.job))
        match event:
            case watcher.JobObserved():
                self._observed(event, before, here)
            case watcher.JobGone() if led := self.newest.get("JobExpired") or self.newest.get("JobDeleting"):
                self._keep(here.says(here.text, led))
            case watcher.JobDeleting() | watcher.JobGone():
                self._changed(event, before, here)
            case watcher.JobAdopted():
                led = self.doubt or self.newest.get("JobOfAnother")
                self._keep(here.says(here.text, led), self.job.attempt.slots)
            case watcher.PodsObserved():
                for pod in event.pods:
                    if self.job.pods.views.get(pod.uid) == pod and before.pods.views.get(pod.uid) != pod:
                        if text := sentences.of_pod(pod, before):
                            led, unknown = why_seen(pod, before, self.last.get(pod.slot), self._going())
                            self._keep(here.says(text, led, unknown=unknown), [pod.slot])
                        self._nudged(before, pod, here)
            case watcher.PodsGone() | watcher.LauncherLost():
                for uid in event.uids if isinstance(event, watcher.PodsGone) else (event.uid,):
                    if known := before.pods.views.get(uid):
                        led = why_gone(known, before, self.last.get(known.slot), self._going())
                        said = f"{known.name} {'is gone' if led else 'vanished'}"
                        self._keep(here.says(said, led, unknown="" if led else NOT_ASKED), [known.slot])
            case watcher.DisruptionNoticed() | watcher.NodeLost() | watcher.NodeBack():
                self._keep(here, [before.pods.views[uid].slot for uid in event.uids if uid in before.pods.views])
            case watcher.ProgressReported():
                changed = before.training.changed if not event.backwards else None
                self._keep(here.says(here.text, self.find(changed.sequence) if changed is not None else None))
            case watcher.CheckpointTaken():
                self._keep(here)
            case watcher.ChildrenObserved():
                hosts = sentences.hosts_of(event, before)
                if hosts > (before.hosts.hosts if before.hosts is not None else 0):
                    self._in_place(hosts, here.says(f"the hosts files of version {hosts} are in place", self._files()))
                elif hosts and self.job.hosts_edited == here.sequence:
                    self._keep(here.says(f"another client changed the hosts files of version {hosts}"))
                if sentences.of_workloads(event, before):
                    self._keep(here)
            case watcher.ScaleRequested():
                if event.uid not in before.scaling.requests:
                    self.requests[event.uid] = [self._changed(event, before, here)]
            case watcher.ScaleRequestGone():
                self._add(event.uid, self._keep(here))
            case watcher.TimePassed():
                self._passed(event, before, here)
            case scaler.ScriptFinished():
                unknown = OWN_OUTPUT if event.exit_code else ""
                self._add(
                    event.request, self._keep(here.says(here.text, self._last_of(event.request), unknown=unknown))
                )
            case scaler.DrainChecked():
                self._add(event.request, self._keep(here.says(here.text, self._last_of(event.request))))
            case watcher.HistoryAccepted():
                self._keep(here.says(here.text, self.doubt))
            case watcher.JobOfAnother() | watcher.HistoryBroken() | watcher.HistoryDisputed() | EffectRefused():
                # What people, nodes and other programs do has no cause in the log.
                self._keep(here)
            case watcher.ChildGone(kind="Workload"):
                self._keep(here)
            case watcher.ChildGone() | scheduler.SecretMade() | scheduler.SecretGone():
                pass
            case scheduler.AutoscalerMade() | scheduler.AutoscalerGone():
                self._keep(here)
            case ChangeAttributed():
                self.people.add(self.job.key, event)
                self._say_who(event.of)
            case LogCreated() | EventDisowned() | watcher.JobRelabelled():
                # None of these is the cause of anything that people ask about.
                pass
            case _:
                assert_never(event)

    def _observed(self, event: watcher.JobObserved, before: Job, here: Link) -> None:
        if event.problems:
            self._changed(event, before, here)
        elif self.job.spec is not None and before.spec != self.job.spec:
            link = self._changed(event, before, here)
            for uid in self.job.scaling.requests:
                if uid not in before.scaling.requests:
                    # An edit of the size waits in the queue of requests.
                    self.requests[uid] = [link]

    def _changed(self, event: OfPeople, before: Job, here: Link) -> Link:
        self.changes[here.sequence] = Changed(event, before.spec, self.job.spec, here)
        self._say_who(here.sequence)
        return self._keep(here)

    def _say_who(self, sequence: int) -> None:
        """Say in the link of a change who made it: that is written down after it."""
        if (known := self.changes.get(sequence)) is not None:
            event, was, now, link = known
            link.text = sentences.of_change(event, was, now, by := self.by(sequence))
            link.unknown = DELETED_BY if isinstance(event, watcher.JobDeleting | watcher.JobGone) and not by else ""

    def _nudged(self, before: Job, pod: PodView, here: Link) -> None:
        known = before.pods.views.get(pod.uid)
        if known is not None and known.hosts < pod.hosts:
            text = f"{pod.name} was told of the hosts files of version {pod.hosts}"
            self._in_place(pod.hosts, here.says(text, self.newest.get("ChildrenObserved") or self._files()))

    def _in_place(self, version: int, link: Link) -> None:
        self._keep(link)
        request = self.job.scaling.open_request
        if request is not None and request.published == version:
            self._add(request.uid, link)

    def _passed(self, event: watcher.TimePassed, before: Job, here: Link) -> None:
        request = before.scaling.open_request
        led = None
        if event.timer == SCHEDULING:
            led = awaited(self, before, before.attempt.slots)
        elif event.timer == SCALING_DEADLINE and request is not None:
            led = awaited_by(self, before, request) or self._last_of(request.uid)
        empty = (slot for slot, vacancy in before.attempt.vacancies.items() if vacancy.at.sequence == event.anchor)
        slot = next(empty, None) if event.timer.startswith(REPLACEMENT) else None
        link = self._keep(here.says(here.text, led or self.find(event.anchor, slot)))
        if request is not None and event.timer in _OF_REQUESTS:
            self._add(request.uid, link)

    def _note_minimum(self, before: Job, here: Link) -> None:
        """Add to the link of a loss that the running job fell below its minimum with it."""
        job, since = self.job, self.job.attempt.below_minimum
        if not since or since == before.attempt.below_minimum:
            return
        workers = {slot for slot in job.attempt.unreleased if slot.role == WORKER}
        absent = sorted(workers - slots_that_run(job))
        text = minimum_line(job, absent)
        loss = newest(map(self.last.get, absent)) or self.phase
        if loss is not None and loss.sequence == here.sequence:
            self._keep(msgspec.structs.replace(loss, text=f"{loss.text}; {text}"))
        else:
            self._keep(here.says(text, loss, unknown="" if loss else UNRECORDED))

    def _going(self) -> Link | None:
        """The link of the resource's deletion, which deletes all pods."""
        return newest(self.newest.get(kind) for kind in ("JobGone", "JobDeleting"))

    def _files(self) -> Link | None:
        return self.newest.get("HostsPublished")

    def _last_of(self, uid: Uid) -> Link | None:
        links = self.requests.get(uid)
        return links[-1] if links else None

    def _keep(self, link: Link, slots: Iterable[Slot] = ()) -> Link:
        """Keep a link as a possible cause of later links, and of those of these slots."""
        self.at[link.sequence] = self.newest[link.type] = link
        for slot in slots:
            self.last[slot] = link
        self._tell(link, slots)
        return link

    def _tell(self, link: Link, slots: Iterable[Slot]) -> None:
        for slot in slots:
            self.lives.setdefault(slot, []).append(link)

    def _add(self, uid: Uid, link: Link) -> None:
        """Add a link of a request, unless the request is unknown."""
        if uid in self.requests:
            self.requests[uid].append(link)


def why_seen(pod: PodView, before: Job, last: Link | None, going: Link | None) -> tuple[Link | None, str]:
    """The cause of the news of a pod, and what is unknown of it."""
    was = before.pods.views.get(pod.uid) or unseen(pod)
    ends, goes = over(pod) and not over(was), pod.deleting and not was.deleting
    led, unknown = last, ""
    if goes:
        led = _why_out(was, before, last, going) or (last if over(was) else None)
        unknown = "" if led or pod.disruption else NOT_ASKED
    if ends:
        asked = _why_out(was, before, last, going)
        # The exits of a pod whose training succeeded may have that of a side container that failed.
        failed = pod.phase == "Failed" or (pod.phase != "Succeeded" and any(end.code for end in pod.exits))
        # A failure without an earlier cause ends the chain; the chain of a success goes on to the pod's beginning.
        led = asked or (None if failed else led)
        explained = pod.reason or any(end.message for end in pod.exits)
        unknown = OWN_OUTPUT if failed and not (asked or goes or explained) else unknown
    if pod.disruption and not was.disruption:
        led = last if pod.uid in before.pods.disrupted else led if goes or ends else None
    return led, unknown


def why_gone(pod: PodView, before: Job, last: Link | None, going: Link | None) -> Link | None:
    """The cause of a pod's end; None if nothing in the log asked for it."""
    return last if over(pod) else _why_out(pod, before, last, going)


def _why_out(pod: PodView, before: Job, last: Link | None, going: Link | None) -> Link | None:
    """Why the pod went: its deletion, a disruption, the release of its slot, or the end of the job."""
    asked = pod.deleting or pod.uid in before.pods.disrupted or pod.slot not in before.attempt.unreleased
    return last if asked else going
