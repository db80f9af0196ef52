"""The fields of jobs, scale requests and nodes that the watcher keeps in its cache.  Pure."""

import msgspec

from shared.cluster.objects import Taint
from shared.frameworks.takeover import Inherited
from shared.job.chain import Head
from shared.job.events.watcher import JobObserved
from shared.job.naming import JobKey, Uid
from shared.job.spec import Problem, RuntimeUsed, ScaleKind, ScaleSpec, Wishes
from shared.job.views import INITIALIZING, TOLD_BY_EVENTS, Actor, PodView


class Writer(msgspec.Struct, frozen=True, gc=False):
    actor: Actor
    api_version: str
    time: str
    """When it last changed some of its fields, in whole seconds."""
    spec: bool
    """True if it has fields of the spec."""


class Change(msgspec.Struct, frozen=True, gc=False):
    """A change of what a resource wishes for, not recorded yet."""

    version: int
    actor: Actor | None = None
    """None if it cannot be told."""
    write: int | None = None
    """The version that the write made, 0 for the creation; None if it cannot be told."""
    of_labels: bool = False
    """True if nothing but labels changed."""


class ObservedJob(msgspec.Struct, frozen=True):
    key: JobKey
    observed: JobObserved
    deleting: bool
    orphan: bool
    log: str
    """The id of the log that the head in the status names; empty without a head."""
    head: Head | None
    accept: str
    """The head whose loss a person accepted, `<sequence>:<hash>`."""
    reached: Inherited | None = None
    """The progress in its status, if it matters; None without any."""
    finalizers: tuple[str, ...] = ()
    """Of a resource that is being deleted."""
    writers: tuple[Writer, ...] = ()
    changes: tuple[Change, ...] = ()
    """Those since the last record, and older ones."""
    runtime: RuntimeUsed | None = None
    """The runtime that it was read with; None without one."""
    wishes: Wishes | None = None
    """What it asks of a job that keeps another runtime; None for a kind without runtimes."""
    asked: bytes = b""
    """A digest of all from which the spec was parsed; empty if it is parsed each time."""

    @property
    def inherited(self) -> Inherited | None:
        """The progress in a status without Muster's head: another operator may have written it."""
        return self.reached if self.head is None else None


class ObservedRequest(msgspec.Struct, frozen=True):
    kind: ScaleKind
    namespace: str
    name: str
    uid: Uid
    version: int
    created: str
    job: str
    """The name of its job; its own name if that is no valid one."""
    owner: Uid
    spec: ScaleSpec | None
    problems: tuple[Problem, ...]
    phase: str = ""
    """The phase in its status, which counts only after the history was lost."""
    by: Actor | None = None
    """Who created it; None if that cannot be told."""


class ObservedNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node; all nodes that stay are equal."""

    reason: str = ""
    """Why it is about to be removed; empty if it stays."""
    taints: tuple[Taint, ...] = ()
    """The taints that keep other pods off it."""
    gone: bool = False
    """It was deleted while it had pods."""
    notice: int = 0
    """Seconds from the notice to its removal; 0 if it may go at any moment."""
    lost: str = ""
    """Why it counts as lost: `NodeNotReady` or `NodeUnreachable`; empty while it is Ready."""
    since: str = ""
    """Since when it is lost, by the API server."""


def recorded_part(pod: PodView) -> tuple[object, ...]:
    """What a change of a pod is recorded for."""
    # The node is recorded together with the pod's next phase.
    node = pod.node if pod.phase != "Pending" else ""
    # A changed message alone is not recorded: the kube-scheduler rewrites its own every few seconds, for weeks.
    # The log has the message that came with the reason, or with the pod's last other change.
    # The steps of init containers are few, and each has its own words; `questions.py` compares those of Events.
    step = pod.message if pod.reason == INITIALIZING or pod.reason in TOLD_BY_EVENTS else ""
    exits = [(end.container, end.code, end.reason) for end in pod.exits]
    course = (pod.phase, pod.ready, exits, pod.lingers, pod.restarts)
    return (*course, pod.reason, step, node, pod.deleting, pod.finalizers, pod.disruption, pod.hosts, pod.claimed)
