"""Facts about pods in plain words, with their causes.  Pure.

`last` is the newest link of the pod's slot, `going` the link of the job's deletion, which deletes all its pods.
"""

from shared.job.reasons import plain
from shared.job.state import Job
from shared.job.text import in_a_row
from shared.job.views import PodView, ended
from shared.telling.causes.links import Link
from shared.telling.causes.words import OWN_OUTPUT, exit_line

NOT_ASKED = "why it went: nothing in this log asked for it; a person or another program did"


def observed(here: Link, pod: PodView, before: Job, last: Link | None, going: Link | None) -> Link | None:
    """One link with all news of a view; None if it has none."""
    known = before.pods.get(pod.uid)
    was = known or PodView(uid=pod.uid, name=pod.name, version=0, attempt=pod.attempt, role=pod.role, index=pod.index)
    ends, goes = _over(pod) and not _over(was), pod.deleting and not was.deleting
    words, led, unknown = [], last, ""
    if known is None:
        words.append(f"was created on {pod.node}" if pod.node else "was created")
    if pod.ready and not was.ready and not ends:
        words.append("is Ready")
    elif pod.phase == "Running" and was.phase != "Running" and not ends:
        words.append("runs")
    if pod.reason and pod.reason != was.reason and not ended(pod):
        words.append(f"{'has trouble beside it' if pod.ready else 'waits'}: {plain(pod.reason, pod.message)}")
    if goes:
        words.append("is being deleted")
        led = _why_out(was, before, last, going) or (last if _over(was) else None)
        unknown = "" if led or pod.disruption else NOT_ASKED
    if ends:
        words.append(exit_line(pod))
        asked = _why_out(was, before, last, going)
        # The exits of a pod whose training succeeded may have that of a side container that failed.
        failed = pod.phase == "Failed" or (pod.phase != "Succeeded" and any(end.code for end in pod.exits))
        # A failure without an earlier cause ends the chain; the chain of a success goes on to the pod's beginning.
        led = asked or (None if failed else led)
        told = pod.reason or any(end.message for end in pod.exits)
        unknown = OWN_OUTPUT if failed and not (asked or goes or told) else unknown
    if pod.disruption and not was.disruption:
        words.append(f"is about to go: {plain(pod.disruption)}")
        led = last if pod.uid in before.disrupted else led if goes or ends else None
    return here.says(f"{pod.name} {in_a_row(words)}", led, unknown=unknown) if words else None


def gone(here: Link, pod: PodView, before: Job, last: Link | None, going: Link | None) -> Link:
    """The link of a pod that is gone."""
    led = last if _over(pod) else _why_out(pod, before, last, going)
    if led is None:
        return here.says(f"{pod.name} vanished", unknown=NOT_ASKED)
    return here.says(f"{pod.name} is gone", led)


def _why_out(pod: PodView, before: Job, last: Link | None, going: Link | None) -> Link | None:
    """Why the pod went: its deletion, a disruption, the release of its slot, or the end of the job."""
    asked = pod.deleting or pod.uid in before.disrupted or pod.slot not in before.attempt.unreleased
    return last if asked else going


def _over(pod: PodView) -> bool:
    # The exit of a container is reported before the end of its pod.
    return ended(pod) or bool(pod.exits)
