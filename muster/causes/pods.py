"""What happened to a job's places and the pods in them, and why.  Pure; the rest of this folder asks."""

from collections.abc import Iterable

from muster.causes.link import Link, newest
from muster.causes.words import exit_line, in_a_row, plain
from shared.job.naming import Slot, Uid
from shared.job.state import Job
from shared.job.views import PodView, ended

NOBODY_ASKED = "why it went: nobody in this log asked for it"
OWN_END = "why it ended so; its own output may say"


class _Pod:
    """What is known of one pod; each the newest of its kind."""

    def __init__(self) -> None:
        self.created: Link | None = None
        self.started: Link | None = None
        self.ready: Link | None = None
        self.waits: Link | None = None
        self.disrupted: Link | None = None
        self.going: Link | None = None
        self.ended: Link | None = None
        self.gone: Link | None = None


class PodCauses:
    """Places and pods, each with what was told of them."""

    def __init__(self) -> None:
        self.lives: dict[Slot, list[Link]] = {}
        """Everything about a place, in log order."""
        self._assigned: dict[Slot, Link] = {}
        self._released: dict[Slot, Link] = {}
        self._lost: dict[Slot, Link] = {}
        self._pods: dict[Uid, _Pod] = {}
        self._in: dict[Slot, Uid] = {}

    def assigned(self, slots: Iterable[Slot], link: Link) -> None:
        for slot in slots:
            # A place that is filled again in place is neither lost nor released any more.
            self._lost.pop(slot, None)
            self._released.pop(slot, None)
            self._assigned[slot] = link
            self._tell(slot, link)

    def released(self, slots: Iterable[Slot], link: Link) -> None:
        for slot in slots:
            self._released[slot] = link
            self._tell(slot, link)

    def tell(self, slots: Iterable[Slot], link: Link) -> None:
        """Something that is about these places, and explains nothing that happens to them later."""
        for slot in slots:
            self._tell(slot, link)

    def disrupted(self, pod: PodView, link: Link) -> None:
        self._of(pod.uid).disrupted = link
        self._tell(pod.slot, link)

    def observed(self, pod: PodView, before: Job, after: Job, here: Link, everything_goes: Link | None) -> None:
        """One pod's new view: all its news in one link, with the cause of the weightiest."""
        known, trace = before.pods.get(pod.uid), self._of(pod.uid)
        self._in[pod.slot] = pod.uid
        words: list[str] = []
        cause = trace.ready or trace.started or trace.created or self._assigned.get(pod.slot)
        unknown = ""
        fresh = known is None
        if fresh:
            where = f" on {pod.node}" if pod.node else ""
            words.append(f"was created{where}")
            cause = self._assigned.get(pod.slot)
        started = pod.phase == "Running" and (known is None or known.phase != "Running")
        is_ready = pod.ready and not (known is not None and known.ready)
        waits = pod.reason if not ended(pod) and (known is None or known.reason != pod.reason) else ""
        is_disrupted = bool(pod.disruption) and not (known is not None and known.disruption)
        goes = pod.deleting and not (known is not None and known.deleting)
        ends = _over(pod) and not (known is not None and _over(known))
        if started and not is_ready and not ends:
            words.append("runs")
        if is_ready and not ends:
            words.append("is Ready")
        if waits:
            words.append(f"waits: {plain(waits)}")
        if is_disrupted:
            cause = trace.disrupted
        if goes:
            words.append("is being deleted")
            in_the_way = before.spec is not None and before.spec.handling.in_place and pod.slot in before.attempt.spent
            reason = self._why(pod, before, everything_goes) or (trace.ended if in_the_way else None)
            unknown = "" if reason or is_disrupted else NOBODY_ASKED
            cause = reason or (cause if is_disrupted else None)
        if ends:
            words.append(exit_line(pod))
            reason = self._why(pod, before, everything_goes)
            unknown = "" if reason or goes else OWN_END if _badly(pod) else ""
            # What went by itself has no other cause than itself; the chain goes on to how it came to be.
            cause = reason or (cause if not _badly(pod) else None)
        if is_disrupted:
            words.append(f"is about to go: {plain(pod.disruption)}")
        if not words:
            return
        link = here.says(f"{pod.name} {in_a_row(words)}", cause, unknown=unknown)
        self._tell(pod.slot, link)
        trace.created = trace.created or link
        trace.started = link if started else trace.started
        trace.ready = link if is_ready else trace.ready
        trace.waits = link if waits else trace.waits if pod.reason else None
        trace.disrupted = link if is_disrupted and trace.disrupted is None else trace.disrupted
        trace.going = link if goes else trace.going
        trace.ended = link if ends else trace.ended
        if pod.slot in before.attempt.slots and pod.slot not in after.attempt.slots:
            self._lost[pod.slot] = link

    def gone(self, pod: PodView, before: Job, after: Job, here: Link, everything_goes: Link | None) -> None:
        trace = self._of(pod.uid)
        cause = trace.going or trace.ended or self._why(pod, before, everything_goes)
        text = f"{pod.name} is gone" if cause else f"{pod.name} vanished"
        trace.gone = link = here.says(text, cause, unknown="" if cause else NOBODY_ASKED)
        self._tell(pod.slot, link)
        if pod.slot in before.attempt.slots and pod.slot not in after.attempt.slots:
            self._lost[pod.slot] = link

    def why_there(self, slot: Slot) -> Link | None:
        return self._assigned.get(slot)

    def why_empty(self, slot: Slot) -> Link | None:
        """Why nobody is in a place any more, or is about to leave it."""
        return self._lost.get(slot) or self._released.get(slot)

    def why_left(self, slot: Slot) -> Link | None:
        """Why a worker is no member any more: its place is empty, or its pod is on its way out."""
        trace = self._trace(slot)
        return self.why_empty(slot) or trace.going or trace.ended or trace.disrupted

    def newest_loss(self, slots: Iterable[Slot]) -> Link | None:
        return newest(self._lost.get(slot) for slot in sorted(slots))

    def loss_at(self, sequence: int) -> Link | None:
        """The loss of which this event told."""
        return next((link for link in reversed(self._lost.values()) if link.sequence == sequence), None)

    def newest_ready(self, slots: Iterable[Slot]) -> Link | None:
        return newest(self._trace(slot).ready for slot in sorted(slots))

    def newest_end(self, slots: Iterable[Slot]) -> Link | None:
        """How far the newest of these pods came on its way out."""
        traces = {slot: self._trace(slot) for slot in sorted(slots)}
        return newest(
            trace.gone or trace.ended or trace.going or self._released.get(slot) for slot, trace in traces.items()
        )

    def state_of(self, pod: PodView) -> Link | None:
        """What a pod waits for that is not Ready."""
        trace = self._of(pod.uid)
        return trace.ended or trace.going or trace.waits or trace.started or trace.created

    def newest_start(self, slots: Iterable[Slot]) -> Link | None:
        return newest(self._trace(slot).started or self._trace(slot).created for slot in sorted(slots))

    def started(self, pod: PodView | None) -> Link | None:
        trace = self._of(pod.uid) if pod is not None else _Pod()
        return trace.started or trace.created

    def end_of(self, pod: PodView | None) -> Link | None:
        trace = self._of(pod.uid) if pod is not None else _Pod()
        # A pod that was deleted ended because of that, however it exited then.
        return trace.ended or trace.gone or trace.going

    def _why(self, pod: PodView, before: Job, everything_goes: Link | None) -> Link | None:
        """Who, or what, had asked this pod to go."""
        trace = self._of(pod.uid)
        return trace.going or trace.disrupted or self._released.get(pod.slot) or everything_goes

    def _of(self, uid: Uid) -> _Pod:
        return self._pods.setdefault(uid, _Pod())

    def _trace(self, slot: Slot) -> _Pod:
        return self._of(self._in[slot]) if slot in self._in else _Pod()

    def _tell(self, slot: Slot, link: Link) -> None:
        life = self.lives.setdefault(slot, [])
        if not life or life[-1] is not link:
            life.append(link)


def _over(pod: PodView) -> bool:
    # Of a container that ended before its pod, the end is told first.
    return ended(pod) or bool(pod.exits)


def _badly(pod: PodView) -> bool:
    return pod.phase == "Failed" or any(end.code for end in pod.exits)
